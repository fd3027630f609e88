//! The workout over the forwarding library: on a CUDA device all of it, without one the clean answer that there is none.
//!
//! Device tests are ignored where there is no CUDA; `OMNIHEAP_REQUIRE=cuda` makes that a failure.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_hip_workout::CASES;

fn main() -> ExitCode {
    let here = run("absent").is_err();
    let mut trials = vec![
        Trial::test("without_cuda_there_is_no_device", || run("absent")).with_ignored_flag(here),
    ];
    let required = std::env::var("OMNIHEAP_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|name| name == "cuda"));
    if !here {
        eprintln!("\n*** NOT TESTED: HIP forwarded to CUDA, as there is no CUDA device here\n");
    }
    for case in CASES.iter().filter(|case| case.everywhere) {
        let trial = Trial::test(format!("forwarded::{}", case.name), || run(case.name));
        trials.push(trial.with_ignored_flag(!here && !required));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a case in a process of its own, and fails with its output.
fn run(case: &str) -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_workout")).arg(library()).arg(case).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{}\n{}\n{}", text(&output.stdout), text(&output.stderr), output.status).into())
}

/// The library, which cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows where it is");
    test.with_file_name("libomniheap_hip_forward.so")
}
