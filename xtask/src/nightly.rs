//! Tasks that need the nightly compiler: `cargo xtask fuzz`, `sanitize` and `miri`; and small worlds for an hour, which only need a night.
use crate::binaries::{beside, said};
use crate::step::{Outcome, status};
use crate::{root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Platform on which both are known to work.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Coverage as libFuzzer wants it, and every check that the compiler can add.
const COVERAGE: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cdebug-assertions -Coverflow-checks \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Packages whose tests run under a sanitizer: everything with threads or `unsafe` that needs no device.
const SANITIZED: [&str; 4] =
    ["omniheap-core", "omniheap-host", "omniheap-model", "omniheap-stream"];

/// The libraries for C and Python, called as those call them; what needs a C compiler or a GPU's driver is left out, and so are
/// AMD's runtimes, which cannot load a stand-in that a sanitizer is built into.
const LIBRARIES: [&str; 11] = [
    "-p",
    "omniheap-c",
    "-p",
    "omniheap-torch",
    "--test",
    "abi",
    "--test",
    "host",
    "--",
    "--skip",
    "over_the_stand_in",
];

/// The same in a short form, for [`ADDRESS`]: the host backend's own tests, and streams over host memory. Both have pointers of
/// their own. The core has next to none, and is fuzzed under that sanitizer beside it.
const ADDRESS_SHORTLY: [&str; 8] =
    ["-p", "omniheap-host", "-p", "omniheap-stream", "--test", "host", "--test", "plain"];

/// The same for [`THREAD`], with programs on the adversarial device, and threads.
const THREAD_SHORTLY: [&str; 14] = [
    "-p",
    "omniheap-model",
    "-p",
    "omniheap-host",
    "-p",
    "omniheap-stream",
    "--test",
    "order",
    "--test",
    "threads",
    "--test",
    "host",
    "--test",
    "plain",
];

/// Packages that the short form spends little time in: the suite is built with the host backend's tests, and does not run.
const UNOPTIMISED: [&str; 10] = [
    "clap_builder",
    "libtest-mimic",
    "omniheap-conformance",
    "omniheap-extras",
    "omniheap-host",
    "omniheap-limits",
    "omniheap-model",
    "omniheap-schedule",
    "proptest",
    "regex-syntax",
];

/// Operations of the random tests in the short form.
const OPERATIONS: &str = "8000";

/// Inputs are short at first and grow up to this: a reader that takes many times its input is not seen to on a few kilobytes.
const MAX_INPUT: &str = "-max_len=1048576";

/// Seconds for each small world: about an hour for all of them.
const SECONDS_FOR_A_WORLD: &str = "100";

/// Tests of memory that is kept for ever on purpose, because a device may still write it.
const KEPT: &str = "tests/model/kept.txt";

const ADDRESS: &str = "address";
const THREAD: &str = "thread";

/// Every sanitizer.
const SANITIZERS: [&str; 2] = [ADDRESS, THREAD];

/// Fuzzes for `SECONDS` each: all targets, or the one that is named.
pub(crate) fn fuzz(arguments: &[String]) -> Outcome {
    let (seconds, only) = match arguments {
        [] => (60, None),
        [seconds] => (number(seconds)?, None),
        [seconds, name] => (number(seconds)?, Some(name.as_str())),
        _ => return Err("usage: cargo xtask fuzz [SECONDS [TARGET]]".into()),
    };
    require()?;
    fuzz_for(seconds, only)
}

fn fuzz_for(seconds: u64, only: Option<&str>) -> Outcome {
    let folder = root().join("tests/fuzz");
    let built = target().join("fuzz");
    let mut build = cargo(&["build", "--quiet", "--release", "--target", TRIPLE, "--target-dir"]);
    build.arg(&built).current_dir(&folder).env("RUSTFLAGS", COVERAGE);
    status("the fuzz targets do not build", &mut build)?;
    let mut names = targets()?;
    names.retain(|name| only.is_none_or(|only| only == name));
    if names.is_empty() {
        return Err("no target has this name: tests/fuzz/fuzz_targets lists them".into());
    }
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = beside(count, names, |name| {
        let mut fuzzer = Command::new(built.join(TRIPLE).join("release").join(name));
        fuzzer.arg(format!("-max_total_time={seconds}"));
        let done = one(fuzzer, &built.join("found").join(name), &folder.join("corpus").join(name));
        match &done {
            Ok(said) => println!("    {name}: {said}"),
            Err(why) => println!("{why}\n    {name}: FAILED"),
        }
        done.is_ok()
    });
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs one target; says how many inputs it tried, or all that a failed one said.
fn one(mut fuzzer: Command, found: &Path, corpus: &Path) -> Result<String, String> {
    fs::create_dir_all(found).map_err(|error| format!("{}: {error}", found.display()))?;
    // New inputs go to the first folder; the committed ones are only read.
    fuzzer.arg(found).arg(corpus);
    fuzzer.args(["-verbosity=0", "-print_final_stats=1", MAX_INPUT, "-rss_limit_mb=4096"]);
    fuzzer.arg(format!("-artifact_prefix={}/", found.display()));
    let output = fuzzer.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = said(&output);
    if !output.status.success() {
        return Err(format!("{text}\n    {}; the input that fails is named above", output.status));
    }
    Ok(format!("{} inputs", executed(&text).unwrap_or("an unknown number of")))
}

/// Returns the number of inputs that a fuzzer reports.
fn executed(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).map(str::trim)
}

/// Returns every target, by name.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("tests/fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("fuzz_targets: {error}"))?;
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs the tests that need no device under both sanitizers, or under the one that is named; more arguments choose other
/// tests, and `short` those of a few seconds.
pub(crate) fn sanitize(arguments: &[String]) -> Outcome {
    let (kinds, rest) = match arguments.split_first() {
        Some((kind, rest)) if SANITIZERS.contains(&kind.as_str()) => (vec![kind.as_str()], rest),
        _ => (SANITIZERS.to_vec(), arguments),
    };
    let usual: Vec<_> =
        SANITIZED.iter().flat_map(|package| ["-p", package]).chain(["--tests"]).collect();
    kinds.into_iter().try_for_each(|kind| match rest {
        [] => {
            sanitized(kind, &usual, None)?;
            sanitized(kind, &LIBRARIES, None)
        }
        [short] if short == "short" => sanitized(kind, shortly(kind), Some(OPERATIONS)),
        _ => sanitized(kind, &rest.iter().map(String::as_str).collect::<Vec<_>>(), None),
    })
}

/// Runs the short form of each sanitizer that can run here; says of the others that they did not.
pub(crate) fn sanitize_shortly() -> Outcome {
    SANITIZERS.into_iter().try_for_each(|kind| {
        match require().and_then(|()| require_sources(kind)) {
            Ok(()) => sanitized(kind, shortly(kind), Some(OPERATIONS)),
            Err(why) => {
                println!("    *** NOT TESTED: {kind} sanitizer: {why}");
                Ok(())
            }
        }
    })
}

/// Returns the short form's tests.
fn shortly(kind: &str) -> &'static [&'static str] {
    if kind == THREAD { &THREAD_SHORTLY } else { &ADDRESS_SHORTLY }
}

/// Explores the small worlds deeper than the tests do, and prints how far each came.
pub(crate) fn explore() -> Outcome {
    let mut command = crate::cargo(&["test", "--release", "-p", "omniheap-exhaustive"]);
    command.args(["--", "--nocapture"]).env("OMNIHEAP_EXHAUSTIVE_SECONDS", SECONDS_FOR_A_WORLD);
    status("small worlds", command.current_dir(root()))
}

/// Runs the tests of the seam and of the strategies under Miri, which finds undefined behaviour.
pub(crate) fn miri() -> Outcome {
    require()?;
    let mut command = cargo(&["miri", "test", "--quiet", "-p", "omniheap-seam"]);
    command.args(["-p", "omniheap-strategy", "--target-dir"]).arg(target().join("miri"));
    // Descriptors of sockets are more than Miri emulates.
    command.args(["--", "--skip", "exported"]);
    status("miri", command.current_dir(root()))
}

/// `ThreadSanitizer` must see the standard library's own synchronisation, so that is built too.
fn require_sources(kind: &str) -> Outcome {
    if kind != THREAD || sources().is_some_and(|path| path.exists()) {
        return Ok(());
    }
    Err("ThreadSanitizer needs the library's sources: `rustup +nightly component add rust-src`"
        .into())
}

/// Runs tests under one sanitizer; in the short form, the random ones with so many operations.
fn sanitized(kind: &str, tests: &[&str], operations: Option<&str>) -> Outcome {
    require()?;
    require_sources(kind)?;
    let mut command =
        cargo(&["test", "--quiet", "--release", "--no-fail-fast", "--target", TRIPLE]);
    if kind == THREAD {
        command.arg("-Zbuild-std");
    }
    if operations.is_some() {
        // Building takes longer than these tests do.
        command.args(["--config", "profile.release.opt-level=1"]);
        for package in UNOPTIMISED {
            command.args(["--config", &format!("profile.release.package.{package}.opt-level=0")]);
        }
    }
    command.arg("--target-dir").arg(target().join(format!("{kind}-sanitizer"))).args(tests);
    command.env("RUSTFLAGS", format!("-Zsanitizer={kind} -Cdebug-assertions"));
    command.envs(operations.map(|count| ("OMNIHEAP_OPERATIONS", count)));
    // Tests ask for more memory than there is, and look at the answer.
    command
        .env("ASAN_OPTIONS", "detect_stack_use_after_return=1:allocator_may_return_null=1")
        .env("TSAN_OPTIONS", "halt_on_error=1:allocator_may_return_null=1")
        .env("LSAN_OPTIONS", format!("suppressions={}", root().join(KEPT).display()));
    status(&format!("{kind} sanitizer"), command.current_dir(root()))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number of seconds"))
}

/// Returns whether a nightly compiler for this machine is here.
fn require() -> Outcome {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(format!("this works on {TRIPLE}"));
    }
    let probe = cargo(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match probe {
        Ok(status) if status.success() => Ok(()),
        _ => Err("no nightly compiler: `rustup toolchain install nightly`".into()),
    }
}

/// Returns the folder of the nightly compiler's library sources.
fn sources() -> Option<PathBuf> {
    let told = rustup("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim());
    Some(sysroot.join("lib/rustlib/src/rust/library/Cargo.lock"))
}

/// Nightly cargo.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = rustup("cargo");
    command.args(arguments);
    command
}

/// Returns a nightly tool; what the cargo that runs this has set would choose another.
fn rustup(tool: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", tool]);
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTDOC"] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::{executed, one};
    use std::process::Command;

    #[test]
    fn the_number_of_inputs_is_read_from_the_statistics() {
        let text = "INFO: seed\nstat::number_of_executed_units: 994\nstat::new_units_added: 163";
        assert_eq!(executed(text), Some("994"));
        assert_eq!(executed("nothing"), None);
    }

    #[test]
    fn a_fuzzer_that_fails_is_told_from_one_that_ends_well() {
        let folder = std::env::temp_dir().join(format!("omniheap-fuzz-{}", std::process::id()));
        let run = |program: &str| one(Command::new(program), &folder, &folder);
        assert!(run("true").is_ok());
        assert!(run("false").is_err_and(|why| why.contains("the input that fails")));
        assert!(run("no such program").is_err());
        std::fs::remove_dir_all(&folder).expect("the folder was made");
    }
}
