//! AMD's real HIP runtimes over the stand-in: what they answer is recorded, and their known faults are known.
//!
//! Runs the program `workout` through each runtime's own loader. Where a runtime cannot be fetched its tests are ignored
//! and say why; `OMNIHEAP_REQUIRE=hip` makes that a failure. `OMNIHEAP_RECORD=1` writes the recorded answers anew.

#[path = "rig/expect.rs"]
mod expect;
#[path = "rig/rig.rs"]
mod rig;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use omniheap_hip_runtime::{Suite, ensure};
use rig::Rig;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for suite in Suite::ALL {
        match ensure(suite) {
            Ok(runtime) => {
                println!("Debian {suite}: HIP {}", runtime.version());
                trials.extend(expect::trials(&Rig::new(runtime)));
            }
            Err(error) => trials.push(absent(suite, error.to_string())),
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Stands for all tests of a runtime that is not here.
fn absent(suite: Suite, why: String) -> Trial {
    eprintln!("\n*** NOT TESTED: HIP of Debian {suite} cannot be had here: {why}\n");
    let required = std::env::var("OMNIHEAP_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|name| name == "hip"));
    Trial::test(format!("{suite}::runtime_is_here"), move || Err(why.into()))
        .with_ignored_flag(!required)
}
