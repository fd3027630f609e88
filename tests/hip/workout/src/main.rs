//! `workout LIBRARY [CASE]`: runs one case, or all that every library survives, over a HIP library.

#![expect(unsafe_code, reason = "ends without destroying HIP's objects")]

use std::io::Write as _;
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
    // All answers are written; how AMD's runtime ends is no answer. Its threads may still call objects that an orderly exit
    // destroys, and now and then a process dies of that.
    let _ = std::io::stdout().flush();
    // SAFETY: the process ends here, and nothing of it is left that a destructor would have to save.
    unsafe { libc::_exit(i32::from(failed > 0)) }
}

fn usage() -> ExitCode {
    let names: Vec<_> = CASES.iter().chain(BUGS).map(|case| case.name).collect();
    eprintln!("usage: workout LIBRARY [CASE], where CASE is one of: {}", names.join(", "));
    ExitCode::from(2)
}
