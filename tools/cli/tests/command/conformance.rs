//! `omniheap conformance` on host memory, and its long runs on Vulkan too where a device is here.
use crate::support::{binary, folder, json, omniheap, refuses, text};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Backends that are here among those that this machine may have.
fn backends() -> Vec<&'static str> {
    let found = json(&["devices"]);
    let is_here = |name: &&str| {
        found.iter().any(|device| device["backend"] == **name && device["present"] == true)
    };
    ["host", "vulkan"].into_iter().filter(is_here).collect()
}

#[test]
fn a_soak_says_what_it_did_and_loses_nothing() {
    for backend in backends() {
        let soak = ["conformance", "--backend", backend, "--soak", "2001", "--threads", "3"];
        let runs = json(&soak);
        assert_eq!(runs.len(), 2, "over blocks and over pages");
        for run in runs {
            assert_eq!(
                (&run["backend"], run["operations"].as_u64()),
                (&backend.into(), Some(1000))
            );
            assert!(run["checked"].as_u64() > Some(0), "{run}");
        }
    }
}

#[test]
fn a_soak_of_all_skips_what_is_not_here_unless_it_is_named() {
    let absent = json(&["devices"]).into_iter().filter(|device| device["present"] == false);
    let Some(absent) = absent.map(|device| device["backend"].clone()).next() else { return };
    let absent = absent.as_str().expect("a name");
    let soak = ["conformance", "--soak", "64", "--backend"];
    let runs = json(&[&soak[..], &["all"]].concat());
    assert!(runs.iter().any(|run| run["backend"] == "host"));
    assert!(runs.iter().all(|run| run["backend"] != absent));
    refuses(&[&soak[..], &[absent]].concat(), 1, absent);
}

#[test]
fn failing_calls_are_told_or_absorbed() {
    for backend in backends() {
        let tallies = json(&["conformance", "--backend", backend, "--faults", "8"]);
        assert_eq!(tallies.len(), 4, "single and longer plans, over blocks and over pages");
        for tally in tallies {
            let count = |field: &str| tally[field].as_u64().expect("a number");
            assert!(count("scenarios") >= 32 && count("injections") > 30, "{tally}");
            assert_eq!(count("reported") + count("absorbed"), count("injections"), "{tally}");
        }
    }
}

#[test]
fn long_runs_that_make_no_sense_are_refused() {
    let none = omniheap(&["conformance", "--backend", "host", "--faults", "0"]);
    assert_eq!(none.status.code(), Some(2));
    for wrong in [
        &["--faults", "1", "--soak", "1"][..],
        &["--soak", "0"],
        &["--soak", "9", "--filter", "a"],
        &["--faults", "9", "--junit", "a.xml"],
    ] {
        let output = omniheap(&[&["conformance", "--backend", "host"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn conformance_runs_cases_by_name_and_writes_results() {
    let results =
        &json(&["conformance", "--backend", "host", "--filter", "zero", "--junit", "r.xml"])[0];
    assert_eq!(results["backend"], "host");
    assert_eq!(results["failed"], 0, "{results}");
    assert!(results["passed"].as_u64() > Some(0), "{results}");
    assert!(results["refused"].is_u64());
    assert!(results["device"].is_string());
    assert!(folder().join("r.xml").metadata().is_ok_and(|file| file.len() > 0));
}

#[test]
fn what_is_found_is_said_while_the_run_goes_on() {
    let mut run = Command::new(binary());
    run.args(["conformance", "--backend", "host"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut line = String::new();
    let said = run.stdout.take().expect("piped");
    BufReader::new(said).read_line(&mut line).expect("text");
    let is_under_way = run.try_wait().expect("it is ours").is_none();
    run.kill().and_then(|()| run.wait().map(drop)).expect("it ends");
    assert!(line.starts_with("host on ") && is_under_way, "{line}");
}

#[test]
fn conformance_runs_with_guards_where_it_is_asked_to() {
    let suite = ["conformance", "--backend", "host", "--filter", "guarded", "--guards"];
    let none = omniheap(&suite[..5]);
    assert_eq!(none.status.code(), Some(2), "without guards no case is guarded");
    let one = [&suite[..4], &["guarded::zero_bytes_are_refused_everywhere", "--guards"]].concat();
    let results = &json(&one)[0];
    assert_eq!((&results["passed"], &results["failed"]), (&1.into(), &0.into()), "{results}");
}

#[test]
fn a_filter_that_selects_no_case_is_no_verdict() {
    let output = omniheap(&["conformance", "--backend", "host", "--filter", "nosuchcase"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("no case's name contains `nosuchcase`; --list prints"), "{told}");
    let listed = json(&["conformance", "--list", "--filter", "zero"]);
    assert!(listed.iter().any(|one| one["case"] == "zero_bytes_are_refused_everywhere"));
    assert!(
        listed.iter().all(|one| one["case"].as_str().is_some_and(|name| name.contains("zero")))
    );
    assert_eq!(omniheap(&["conformance", "--list", "--backend", "host"]).status.code(), Some(2));
}
