//! `omniheap conformance --soak` and `--faults`: on host memory, and on Vulkan where a device is here.
use crate::support::{json, omniheap, refuses};

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
    let both = omniheap(&["conformance", "--backend", "host", "--faults", "1", "--soak", "1"]);
    assert_eq!(both.status.code(), Some(2));
}
