//! `replay`: its fields are a contract, its figures are checked against an independent count.
use crate::support::{binary, churn, file, json, omniheap, text};
use serde_json::Value;
use std::process::{Command, Stdio};

const FIELDS: [&str; 14] = [
    "backend",
    "driver_calls",
    "driver_ns",
    "driver_peak_bytes",
    "events",
    "min_capacity_bytes",
    "moved_bytes",
    "name",
    "ns_per_event",
    "oom",
    "paged",
    "peak_live_bytes",
    "peak_reserved_bytes",
    "ratio",
];

fn number(result: &Value, field: &str) -> u64 {
    result[field].as_u64().unwrap_or_else(|| panic!("{field} is not a count: {result}"))
}

#[test]
fn json_has_exactly_the_fields_of_the_contract() {
    let trace =
        file("contract.csv", "op,id,size,stream,time_us\na,1,1000,0,0\nr,1,,0,1\nf,1,,0,1\n");
    let results = json(&["replay", &trace]);
    assert_eq!(results.len(), 1);
    let mut fields: Vec<_> = results[0].as_object().expect("an object").keys().collect();
    fields.sort();
    assert_eq!(fields, FIELDS);
    assert_eq!(results[0]["name"], "contract");
    assert_eq!(results[0]["backend"], "host");
    assert_eq!(results[0]["min_capacity_bytes"], Value::Null);
    assert_eq!(number(&results[0], "events"), 3);
    assert_eq!(number(&results[0], "peak_live_bytes"), 1000);
    assert_eq!(number(&results[0], "oom"), 0);
}

#[test]
fn a_requested_free_frees_nothing_until_it_is_complete() {
    let csv = "op,id,size,stream,time_us\na,1,5000000,0,0\nr,1,,0,1\na,2,5000000,1,2\nf,1,,0,3\n";
    let trace = file("requested.csv", csv);
    let result = &json(&["replay", &trace, "--paged", "no"])[0];
    assert_eq!(number(result, "peak_live_bytes"), 10_000_000);
    assert!(number(result, "peak_reserved_bytes") >= 10_000_000);
    assert_eq!(number(result, "events"), 4);
}

#[test]
fn figures_agree_with_an_independent_count() {
    let sample = churn(3000, 3, 4 << 20);
    let trace = file("figures.csv", &sample.csv);
    for paged in ["yes", "no"] {
        let result = &json(&["replay", &trace, "--paged", paged, "--repeat", "1"])[0];
        assert_eq!(number(result, "events"), sample.events);
        assert_eq!(number(result, "peak_live_bytes"), sample.peak_live);
        let reserved = number(result, "peak_reserved_bytes");
        assert!(reserved >= sample.peak_live);
        let ratio = result["ratio"].as_f64().expect("a ratio");
        let expected = reserved as f64 / sample.peak_live as f64;
        assert!((ratio - expected).abs() < 1e-12);
        assert!(ratio < 1.5, "{paged}: {ratio}");
        assert_eq!(result["paged"], paged == "yes");
    }
}

#[test]
fn accounts_alone_give_the_same_figures_as_memory() {
    let trace = file("null.csv", churn(1000, 3, 4 << 20).csv);
    for more in [&["--paged", "yes"][..], &["--paged", "no"], &["--capacity", "60M"]] {
        let run = |backend| {
            let mut result =
                json(&[&["replay", &trace, "--repeat", "1", "--backend", backend], more].concat());
            let fields = result[0].as_object_mut().expect("an object");
            for measured in ["ns_per_event", "driver_ns", "driver_peak_bytes"] {
                fields.remove(measured);
            }
            fields.remove("backend");
            result
        };
        assert_eq!(run("none"), run("host"), "{more:?}");
    }
}

#[test]
fn a_small_capacity_is_kept_and_what_does_not_fit_is_counted() {
    let sample = churn(600, 1, 4 << 20);
    let trace = file("capacity.csv", &sample.csv);
    let capacity = sample.peak_live * 3 / 4;
    for (backend, paged) in [("none", "yes"), ("none", "no"), ("host", "yes")] {
        let bytes = capacity.to_string();
        let common = ["replay", &trace, "--repeat", "1", "--backend", backend, "--paged", paged];
        let result = &json(&[&common[..], &["--capacity", &bytes]].concat())[0];
        assert!(number(result, "oom") > 0);
        assert!(number(result, "peak_reserved_bytes") <= capacity);
        assert!(number(result, "peak_live_bytes") <= capacity);
    }
}

#[test]
fn the_least_capacity_suffices_and_less_does_not() {
    let sample = churn(3000, 2, 4 << 20);
    let trace = file("minimum.csv", &sample.csv);
    for paged in ["yes", "no"] {
        let common = ["replay", &trace, "--backend", "none", "--repeat", "1", "--paged", paged];
        let oom_at = |capacity: u64| {
            let capacity = capacity.to_string();
            number(&json(&[&common[..], &["--capacity", &capacity]].concat())[0], "oom")
        };
        let result = &json(&[&common[..], &["--capacity", "min"]].concat())[0];
        let least = number(result, "min_capacity_bytes");
        assert!(least >= sample.peak_live);
        assert_eq!(number(result, "oom"), 0);
        assert_eq!(oom_at(least), 0, "{paged}: {least} bytes suffice");
        assert!(oom_at(least - least / 490) > 0, "{paged}: {least} bytes are the least");
    }
}

#[test]
fn planned_ahead_a_trace_needs_little_more_than_is_live() {
    let sample = churn(1000, 2, 4 << 20);
    let trace = file("planned.csv", &sample.csv);
    let result = &json(&["replay", &trace, "--planned", "--repeat", "1", "--backend", "none"])[0];
    let peak = number(result, "planned_peak_bytes");
    assert!(peak >= sample.peak_live);
    assert!(peak < sample.peak_live * 21 / 20, "{peak} of {}", sample.peak_live);
    let ratio = result["planned_ratio"].as_f64().expect("a ratio");
    assert!((ratio - peak as f64 / sample.peak_live as f64).abs() < 1e-12);
    assert!(
        omniheap(&["replay", &file("empty.csv", "op,id,size,stream,time_us\n"), "--planned"])
            .status
            .success()
    );
}

#[test]
fn a_trace_of_one_byte_has_a_least_capacity_too() {
    let trace = file("byte.csv", "op,id,size,stream,time_us\na,1,1,0,0\nf,1,,0,1\n");
    let result = &json(&["replay", &trace, "--capacity", "min", "--paged", "no"])[0];
    let least = number(result, "min_capacity_bytes");
    assert!((1..=4096).contains(&least), "{least}");
}

#[test]
fn a_trace_without_allocations_is_replayed() {
    let trace = file("nothing.csv", "op,id,size,stream,time_us\n");
    let result = &json(&["replay", &trace])[0];
    assert_eq!(number(result, "events"), 0);
    assert_eq!(result["ratio"].as_f64(), Some(1.0));
}

#[test]
fn a_trace_whose_requests_all_fail_has_no_ratio() {
    let trace = file("large.csv", "op,id,size,stream,time_us\na,1,1048576,0,0\n");
    let common = ["replay", &trace, "--capacity", "4K", "--paged", "no"];
    let output = omniheap(&[&common[..], &["--json"]].concat());
    let result: Value = serde_json::from_str(&text(&output.stdout)).expect("one object");
    let result = &result;
    assert_eq!((number(result, "oom"), number(result, "peak_live_bytes")), (1, 0));
    assert!(result["ratio"].is_null(), "{result}");
    let output = omniheap(&common);
    assert_eq!(output.status.code(), Some(1), "nothing was replayed");
    let (told, why) = (text(&output.stdout), text(&output.stderr));
    assert!(!told.contains("1.0000"), "{told}");
    let said = "large: 1 of 1 requests failed, the largest of 1048576 bytes; raise --capacity";
    assert!(why.contains(said), "{why}");
}

#[test]
fn requests_above_all_that_a_device_has_are_shown_and_said() {
    for size in [1_u64 << 40, u64::MAX] {
        let csv = format!("op,id,size,stream,time_us\na,1,4096,0,0\nf,1,,0,1\na,2,{size},0,2\n");
        let trace = file("vast.csv", csv);
        for paged in ["yes", "no"] {
            let output = omniheap(&["replay", &trace, "--repeat", "1", "--paged", paged]);
            let (told, why) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{size}: {told}{why}");
            assert!(told.contains("vast"), "the rest was replayed: {told}");
            let said = format!("vast: 1 of 2 requests failed, the largest of {size} bytes; replay");
            assert!(why.contains(&said), "{why}");
        }
        let output = omniheap(&["compare", &trace]);
        let (told, why) = (text(&output.stdout), text(&output.stderr));
        assert!(told.contains("omniheap, paged pools"), "{size}: {told}{why}");
        assert_eq!(output.status.code(), Some(1), "{size}: {told}{why}");
        assert!(why.contains("planned ahead has no figures: "), "{size}: {why}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_trace() {
    let sample = churn(100, 1, 4096);
    let trace = file("marked.csv", format!("\u{feff}{}", sample.csv));
    let result = &json(&["replay", &trace, "--capacity", "64.5M"])[0];
    assert_eq!(number(result, "events"), sample.events);
}

#[cfg(unix)]
#[test]
fn an_interrupted_replay_shows_what_it_has_and_says_that_it_is_partial() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let short = file("short-replay.csv", "op,id,size,stream,time_us\na,1,1,0,0\nf,1,,0,1\n");
    // Ten thousand replays of this one take hours.
    let long = file("long.csv", churn(200_000, 4, 1 << 20).csv);
    let mut child = Command::new(binary())
        .args(["replay", &short, &long, "--repeat", "10000", "--backend", "none", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    out.read_line(&mut first).expect("the first trace is through");
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill is there").success());
    let (mut rest, mut told) = (String::new(), String::new());
    out.read_to_string(&mut rest).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    assert!(first.contains("\"name\":\"short-replay\""), "{first}");
    assert_eq!(rest, "", "nothing half done");
    assert!(told.contains("partial, 1 of 2 traces"), "{told}");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

#[test]
fn several_traces_give_one_line_each_in_order() {
    let first = file("first.csv", churn(100, 1, 1 << 20).csv);
    let second = file("second.csv", churn(200, 1, 1 << 20).csv);
    let results = json(&["replay", &first, &second]);
    let names: Vec<_> = results.iter().map(|result| &result["name"]).collect();
    assert_eq!(names, ["first", "second"]);
}

#[test]
fn text_is_a_table() {
    let trace = file("table.csv", churn(100, 1, 1 << 20).csv);
    let output = omniheap(&["replay", &trace]);
    let out = text(&output.stdout);
    assert!(output.status.success());
    assert!(out.starts_with("backend host, paged pools\n"), "{out}");
    assert!(out.contains("peak reserved"), "{out}");
    assert_eq!(out.lines().last().map(|line| line.starts_with("table ")), Some(true), "{out}");
}
