//! `workout LIBRARY [CASE]`: runs one case, or all that every library survives, over a HIP library.

use std::path::Path;
use std::process::ExitCode;

use omniheap_hip_workout::{BUGS, CASES, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (library, wanted) = match arguments.as_slice() {
        [library] => (library, None),
        [library, case] => (library, Some(case.as_str())),
        _ => return usage(),
    };
    let chosen: Vec<_> = match wanted {
        None => CASES.iter().filter(|case| case.everywhere).collect(),
        Some(name) => CASES.iter().chain(BUGS).filter(|case| case.name == name).collect(),
    };
    if chosen.is_empty() {
        return usage();
    }
    let mut failed = 0;
    for case in chosen {
        println!("-- {}", case.name);
        match run(Path::new(library), case) {
            Ok(outcome) => failed += outcome.failed,
            Err(missing) => {
                eprintln!("{missing}");
                return ExitCode::from(2);
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    let names: Vec<_> = CASES.iter().chain(BUGS).map(|case| case.name).collect();
    eprintln!("usage: workout LIBRARY [CASE], where CASE is one of: {}", names.join(", "));
    ExitCode::from(2)
}
