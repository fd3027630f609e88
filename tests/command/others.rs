//! The other commands, on host memory.
use crate::support::{churn, file, folder, json, omniheap, text};
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
    assert_eq!(decision["region"], "device");
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
fn calibrate_measures_and_its_profile_is_used() {
    let lines = json(&["calibrate", "--backend", "host", "--out", "host.profile"]);
    let patterns = ["broadcast", "coalesced", "gathered"];
    for pattern in patterns {
        assert!(lines.iter().any(|line| line["pattern"] == pattern), "{pattern}");
    }
    assert!(lines.iter().any(|line| line["upload"].is_string()));
    assert!(exists("host.profile"));
    let regret = json(&["calibrate", "--regret", "--backend", "host", "--filter", "palette"]);
    assert_eq!(regret.len(), 3, "three sizes");
    for line in regret {
        assert_eq!(line["agree"], true, "every place gives the same numbers: {line}");
        assert!(line["regret"].as_f64().is_some_and(|regret| regret >= 1.0), "{line}");
    }
}

#[test]
fn the_demo_proves_itself_and_writes_a_page() {
    let demo = &json(&["demo", "--backend", "host", "--out", "demo.html"])[0];
    assert!(demo["verified_bytes"].as_u64().is_some_and(|bytes| bytes > 64 << 20), "{demo}");
    assert_eq!(demo["reuse"]["timelines"], 2);
    for compaction in demo["compactions"].as_array().expect("a list") {
        assert_eq!(compaction["refused_because"], serde_json::Value::Null, "{compaction}");
        if compaction["requested_bytes"] == 0 {
            assert!(compaction["returned_bytes"].as_u64() > Some(0), "a pass: {compaction}");
            continue;
        }
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
fn conformance_runs_cases_by_name_and_writes_results() {
    let results =
        &json(&["conformance", "--backend", "host", "--filter", "zero", "--junit", "r.xml"])[0];
    assert_eq!(results["backend"], "host");
    assert_eq!(results["failed"], 0, "{results}");
    assert!(results["passed"].as_u64() > Some(0), "{results}");
    assert!(results["refused"].is_u64());
    assert!(results["device"].is_string());
    assert!(exists("r.xml"));
}

#[test]
fn help_has_examples_for_every_command() {
    for command in
        ["demo", "devices", "explain", "replay", "compare", "report", "plan", "conformance"]
    {
        let output = omniheap(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:"), "{command}");
    }
}
