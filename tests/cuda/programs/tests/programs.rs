//! Every case by every door, with and without a library that is loaded before the program: the same lines each time.
//!
//! Cases with a library are ignored where it was not built beside this test; `OMNIHEAP_REQUIRE=preload` makes that a failure,
//! and `OMNIHEAP_PRELOAD` names another one. `OMNIHEAP_RECORD=1` writes the expected lines anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_cuda_programs::{DOORS, Job, Rig};

/// Cases that break rules, where the stand-in reports and counts them. In all others a broken rule ends the program.
const WRONG: [&str; 9] = [
    "registered",
    "reset",
    "wrong_frees",
    "wrong_async_frees",
    "spoiled_captures",
    "senseless_sizes",
    "at_exit",
    "forked",
    "shared",
];

/// Cases that misuse memory, and the stand-in's sentence about each.
const MISUSES: [(&str, &str); 6] = [
    ("use_after_free", "work uses memory that is not there"),
    ("use_before_allocation", "work uses memory before its allocation ran"),
    ("free_under_work", "memory was freed"),
    ("use_without_access", "work uses memory without the right to"),
    ("unmap_under_work", "memory was unmapped"),
    ("use_beyond_the_end", "work uses memory that is not there"),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-programs");
    let rig = match Rig::build(&folder, &beside("libomniheap_cuda_standin.so")) {
        Ok(rig) => rig,
        Err(error) => {
            let failed = move || Err(error);
            return libtest_mimic::run(&arguments, vec![Trial::test("programs_are_built", failed)])
                .exit_code();
        }
    };
    let library = std::env::var_os("OMNIHEAP_PRELOAD").map(PathBuf::from);
    let library = library.unwrap_or_else(|| beside("libomniheap_preload.so"));
    let mut trials = Vec::new();
    for case in rig.cases().unwrap_or_default() {
        trials.push(trial("plain", &rig, &case, None));
        trials.push(trial("preloaded", &rig, &case, Some(&library)));
    }
    trials.extend(MISUSES.map(|(case, said)| seen(&rig, case, said)));
    trials.extend(without_driver(&rig, &library));
    trials.extend(counted(&rig, &library));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns a library that cargo built beside this test.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("the test knows where it is").with_file_name(name)
}

/// Returns whether trials with a library are left out.
fn is_absent(library: &Path) -> bool {
    let names = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    !library.exists() && !names.split(',').any(|name| name.trim() == "preload")
}

/// Returns a trial of one case by every door.
fn trial(kind: &str, rig: &Rig, case: &str, library: Option<&Path>) -> Trial {
    let (rig, name, library) = (rig.clone(), case.to_owned(), library.map(Path::to_owned));
    let is_left_out = library.as_deref().is_some_and(is_absent);
    let run = move || DOORS.iter().try_for_each(|door| same(&rig, &name, door, library.as_deref()));
    Trial::test(format!("{kind}::{case}"), run).with_ignored_flag(is_left_out)
}

/// Runs a case by a door, and compares its lines with those that are expected.
fn same(rig: &Rig, case: &str, door: &str, preload: Option<&Path>) -> Result<(), Failed> {
    let mut variables = Vec::new();
    if !WRONG.contains(&case) {
        variables.push(("STANDIN_STRICT", "1"));
    }
    if case == "hidden" {
        variables.push(("CUDA_VISIBLE_DEVICES", ""));
    }
    if case == "shared" {
        variables.push(("OMNIHEAP_IPC", "1"));
    }
    let text = rig.run(&Job { case, door, preload, variables, ..Job::default() })?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("expected/{case}.txt"));
    if preload.is_none() && std::env::var_os("OMNIHEAP_RECORD").is_some() {
        fs::write(&path, &text)?;
    }
    let expected = fs::read_to_string(&path)?;
    let pairs = text.lines().chain(["<end>"]).zip(expected.lines().chain(["<end>"]));
    match pairs.enumerate().find(|(_, (got, expected))| got != expected) {
        None => Ok(()),
        Some((line, (got, expected))) => {
            let line = line + 1;
            Err(format!("{case} by {door}, line {line}:\n  {got}\nand not\n  {expected}").into())
        }
    }
}

/// The stand-in sees a misuse and says what it is; strict, it ends the program, and else the context may be lost.
fn seen(rig: &Rig, case: &'static str, said: &'static str) -> Trial {
    let rig = rig.clone();
    Trial::test(format!("misuse::{case}"), move || {
        for strict in ["0", "1"] {
            let variables = vec![("STANDIN_STRICT", strict)];
            let output = rig.output(&Job { case, door: "soname", variables, ..Job::default() })?;
            let errors = String::from_utf8_lossy(&output.stderr);
            if !errors.contains(said) || output.status.success() == (strict == "1") {
                return Err(format!("strict {strict}: {}\n{errors}", output.status).into());
            }
        }
        Ok(())
    })
}

/// Programs that find no driver say so themselves, also with a library loaded before them.
fn without_driver(rig: &Rig, library: &Path) -> Vec<Trial> {
    let has_driver = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .any(|folder| Path::new(folder).join("libcuda.so.1").exists());
    let trial = |kind: &str, preload: Option<PathBuf>| {
        let (rig, is_left_out) = (rig.clone(), preload.as_deref().is_some_and(is_absent));
        let run = move || {
            ["soname", "name", "proc"].iter().try_for_each(|door| {
                let preload = preload.as_deref();
                let is_without_driver = true;
                let text = rig.run(&Job {
                    case: "sizes",
                    door,
                    preload,
                    is_without_driver,
                    ..Job::default()
                })?;
                if text == "there is no driver\n" { Ok(()) } else { Err(Failed::from(text)) }
            })
        };
        Trial::test(format!("{kind}::without_driver"), run)
            .with_ignored_flag(has_driver || is_left_out)
    };
    vec![trial("plain", None), trial("preloaded", Some(library.to_owned()))]
}

/// Reads a number of the page that the stand-in writes at exit.
fn count(rig: &Rig, preload: Option<&Path>, what: &str) -> Result<u64, Failed> {
    let page = rig.path(if preload.is_some() { "preloaded.counts" } else { "plain.counts" });
    let path = page.display().to_string();
    let variables = vec![("STANDIN_COUNTS", path.as_str())];
    rig.run(&Job { case: "churn", door: "soname", preload, variables, ..Job::default() })?;
    let text = fs::read_to_string(&page)?;
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
    Ok(line.map_or(Ok(0), str::parse)?)
}

/// A program's calls reach the driver, unless a library answers them from its own memory.
fn counted(rig: &Rig, library: &Path) -> Vec<Trial> {
    let (plain, preloaded) = (rig.clone(), rig.clone());
    let path = library.to_owned();
    vec![
        Trial::test("plain::the_driver_is_asked", move || {
            let asked = count(&plain, None, "cuMemAlloc_v2")?;
            if asked > 700 { Ok(()) } else { Err(format!("{asked} times").into()) }
        }),
        Trial::test("preloaded::the_driver_is_spared", move || {
            let asked = count(&preloaded, Some(&path), "cuMemAlloc_v2")?;
            if asked < 250 { Ok(()) } else { Err(format!("{asked} times").into()) }
        })
        .with_ignored_flag(is_absent(library)),
    ]
}
