//! The other commands, on host memory.
use crate::demo::DEMO;
use crate::support::{churn, file, folder, json, omniheap, omniheap_with, text};
use omniheap::placement::{Profile, write_profile};
use omniheap::{Backend as _, BackendKind, open};
use std::fs;

fn exists(name: &str) -> bool {
    fs::metadata(folder().join(name)).is_ok_and(|file| file.len() > 0)
}

#[test]
fn devices_lists_host_memory_and_says_why_others_are_absent() {
    let devices = json(&["devices"]);
    let host = devices.iter().find(|device| device["backend"] == "host").expect("always there");
    assert_eq!(host["present"], true);
    assert_eq!(host["self_test"], "passed");
    let can = host["capabilities"].as_array().expect("a list");
    assert!(can.contains(&"launch".into()), "it runs the kernels of the examples");
    for device in &devices {
        let absent = device["present"] == false;
        assert_eq!(absent, device["absent_because"].is_string(), "{device}");
    }
    let named = |backend: &&str| devices.iter().any(|device| device["backend"] == **backend);
    assert!(["host", "cuda", "hip", "vulkan", "wgpu"].iter().all(named));
}

#[test]
fn explain_says_where_and_why() {
    let table = &["--size", "4K", "--writes", "host-once", "--pattern", "broadcast"];
    let on_host = &["explain", "--backend", "host"];
    let decision = &json(&[&on_host[..], table].concat())[0];
    assert_eq!(decision["region"], "constant");
    assert!(decision["reason"].as_str().is_some_and(|reason| reason.contains("every lane")));
    let decision = &json(&[&on_host[..], &["--size", "1M"]].concat())[0];
    assert_eq!((&decision["region"], &decision["source"]), (&"device".into(), &"pages".into()));
    let decision = &json(&[&on_host[..], &["--size", "1M", "--reads", "host"]].concat())[0];
    assert_eq!(decision["source"], "new_block");
    let told = text(&omniheap(&[&on_host[..], table].concat()).stdout);
    assert!(told.contains("from a new block that others may share"), "{told}");
    assert!(told.contains("not heap 1 staging: the heap is staging memory"), "{told}");
    let registered = &["--size", "1M", "--registration", "needed"];
    let decision = &json(&[&on_host[..], registered].concat())[0];
    assert_eq!(
        (&decision["source"], &decision["new_bytes"]),
        (&"dedicated".into(), &(2 << 20).into())
    );
    let told = text(&omniheap(&[&on_host[..], registered].concat()).stdout);
    assert!(told.contains("communication libraries cannot register memory of this heap"), "{told}");
    let nowhere = &["explain", "--backend", "host", "--size", "16777215T"];
    let told = text(&omniheap(nowhere).stdout);
    assert!(
        told.contains("to nowhere") && told.lines().filter(|line| !line.is_empty()).count() == 2,
        "{told}"
    );
}

#[test]
fn explain_reads_a_file_of_requests_and_names_limits() {
    let requests = file(
        "requests.json",
        r#"[{"name": "filter", "size": 1024, "writes": "host-once", "pattern": "broadcast", "reuse": 100},
            {"name": "matrix", "size": 16777216, "writes": "host-once", "pattern": "broadcast"},
            {"name": "tile", "size": 8192, "pattern": "tiled", "reuse": 16}]"#,
    );
    let decisions = json(&["explain", &requests, "--backend", "host"]);
    let regions: Vec<_> = decisions.iter().map(|decision| &decision["region"]).collect();
    assert_eq!(regions, ["constant", "device", "shared"]);
    assert_eq!(decisions[0]["limit"], 65536);
    let rejected = decisions[1]["rejected"].as_array().expect("a list");
    let constant = rejected.iter().find(|one| one["what"] == "constant memory").expect("it lost");
    let because = constant["because"].as_str().expect("words");
    assert!(because.contains("16777216") && because.contains("65536"), "{because}");
}

#[test]
fn explain_takes_the_whole_vocabulary() {
    let line = ["explain", "--backend", "host", "--size", "1M", "--reads", "both", "--coherence"];
    let rest = ["needed", "--spill", "allowed", "--privacy", "secret", "--lifetime", "frame"];
    let kernel = ["--pattern", "fields", "--work", "light", "--dependence", "chained"];
    let decision = &json(&[&line[..], &rest, &kernel].concat())[0];
    assert_eq!(decision["when_full"], "it spills to host memory");
    let decision = &json(&["explain", "--backend", "host", "--size", "1M"])[0];
    assert_eq!(decision["when_full"], "it fails");
}

#[test]
fn explain_uses_a_profile_of_this_device_and_says_of_others_why_not() {
    let profiles = folder().join("profiles");
    let path = profiles.join("host-host-memory.profile");
    let profiles = profiles.to_str().expect("a plain name");
    fs::create_dir_all(profiles).expect("the folder for tests can be written");
    let device = open(BackendKind::Host, 0).expect("always there");
    let profile = Profile::assumed(device.caps());
    write_profile(&path, &profile, device.caps()).expect("where the documentation says");
    let explain = ["explain", "--backend", "host", "--size", "4K", "--json"];
    let rules = |arguments: &[&str]| {
        let output = omniheap_with(profiles, arguments);
        let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        line["rules"].as_str().expect("words").to_owned()
    };
    assert!(rules(&explain).starts_with("measured here"), "{}", rules(&explain));
    assert!(rules(&[&explain[..], &["--no-profile"]].concat()).starts_with("built in"));
    // A profile of another driver is refused, and it is said.
    let own = fs::read_to_string(&path).expect("where the documentation says");
    let foreign = own.replace("driver ", "driver old ");
    fs::write(&path, foreign).expect("written");
    let told = rules(&explain);
    assert!(told.contains("built in, not") && told.contains("driver \"old"), "{told}");
}

#[test]
fn the_demo_proves_itself_and_writes_a_page() {
    let demo = &*DEMO;
    assert!(demo["verified_bytes"].as_u64().is_some_and(|bytes| bytes > 64 << 20), "{demo}");
    assert_eq!(demo["reuse"]["timelines"], 2);
    for compaction in demo["compactions"].as_array().expect("a list") {
        assert_eq!(compaction["refused_because"], serde_json::Value::Null, "{compaction}");
        assert!(compaction["free_bytes"].as_u64() > compaction["requested_bytes"].as_u64());
        assert!(compaction["requested_bytes"].as_u64() > compaction["largest_hole_bytes"].as_u64());
    }
    assert!(exists("demo.html"));
}

#[test]
fn compare_puts_every_allocator_in_one_table() {
    let sample = churn(2000, 2, 1 << 20);
    let trace = file("compare.csv", &sample.csv);
    let rows = json(&["compare", &trace]);
    assert!(rows.len() >= 4);
    for row in &rows {
        assert_eq!(row["peak_live_bytes"].as_u64(), Some(sample.peak_live));
        assert!(row["peak_reserved_bytes"].as_u64() >= Some(sample.peak_live));
    }
}

#[test]
fn report_writes_a_page() {
    let trace = file("report.csv", churn(500, 2, 1 << 20).csv);
    let written = &json(&["report", &trace, "-o", "report.html"])[0];
    assert!(written["bytes"].as_u64() > Some(1000));
    assert!(exists("report.html"));
}

#[test]
fn help_has_examples_for_every_command() {
    let mut commands = vec!["demo", "devices", "explain", "replay", "compare", "report"];
    commands.extend(cfg!(feature = "conformance").then_some("conformance"));
    for command in commands {
        let output = omniheap(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:"), "{command}");
    }
}
