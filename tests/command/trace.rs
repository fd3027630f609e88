//! Recording, and what is made of recordings.
use crate::support::{file, folder, json, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A recording of the demo on host memory, made once for each test that asks.
fn recorded(name: &str) -> String {
    let page = format!("{name}.html");
    json(&["demo", "--backend", "host", "--out", &page, "--record", name]);
    folder().join(name).to_str().expect("the folder has a plain name").to_owned()
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("it was written")
}

#[test]
fn the_demo_is_recorded_and_replayed() {
    for name in ["demo.trace", "demo.csv"] {
        let trace = recorded(name);
        let replayed = &json(&["replay", &trace, "--repeat", "1"])[0];
        assert_eq!(replayed["oom"], 0, "{replayed}");
        assert!(replayed["events"].as_u64() > Some(2000), "{replayed}");
        assert!(replayed["peak_live_bytes"].as_u64() > Some(64 << 20), "{replayed}");
    }
    let rows = json(&["compare", &recorded("compared.trace")]);
    assert_eq!(rows[0]["allocator"], "as recorded");
    assert!(rows[0]["peak_reserved_bytes"].as_u64() >= rows[0]["peak_live_bytes"].as_u64());
    refuses(&["demo", "--backend", "host", "--record", "no/such/folder/x.trace"], 1, "no/such");
}

#[test]
fn a_recording_goes_to_every_tool() {
    let trace = recorded("tools.trace");
    let write = |shape: &str, name: &str| {
        json(&["report", &trace, "--shape", shape, "-o", name]);
        folder().join(name).to_str().expect("the folder has a plain name").to_owned()
    };
    write("perfetto", "tools.perfetto.json");
    let perfetto: Value = serde_json::from_str(&read("tools.perfetto.json")).expect("JSON");
    let events = perfetto["traceEvents"].as_array().expect("a list");
    assert!(events.iter().any(|event| event["name"] == "reserved bytes"));
    assert!(events.iter().any(|event| event["name"] == "weights" && event["ph"] == "b"));

    let snapshot = write("snapshot", "tools.pickle");
    let (ours, theirs) = (&json(&["compare", &trace])[0], &json(&["compare", &snapshot])[0]);
    assert_eq!(ours["peak_live_bytes"], theirs["peak_live_bytes"]);

    write("prometheus", "tools.prom");
    assert!(read("tools.prom").contains("omniheap_peak_live_bytes "));

    let report = write("json", "tools.json");
    json(&["report", &report, "--before", &report, "-o", "tools.html"]);
    assert!(read("tools.html").contains("between the two reports"));
    refuses(&["report", &report, "--shape", "snapshot", "-o", "x.pickle"], 2, "need a trace");
    let broken = file("broken.json", "{\"schema\":1,\"title\":7}");
    refuses(&["report", &broken, "-o", "x.html"], 2, "schema");
}

#[test]
fn compare_shows_what_pytorch_really_reserved() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("trace/tests/data/real");
    if !data.is_dir() {
        return; // A bundle has no sources beside it.
    }
    for name in ["train", "streams"] {
        let counters = fs::read_to_string(data.join(format!("{name}.json"))).expect("it is there");
        let counters: Value = serde_json::from_str(&counters).expect("JSON");
        let snapshot = data.join(format!("{name}.pickle.gz"));
        let rows = json(&["compare", snapshot.to_str().expect("a plain name")]);
        assert_eq!(rows[0]["allocator"], "as recorded");
        for row in &rows[..2] {
            assert_eq!(row["peak_reserved_bytes"], counters["peak_reserved"], "{row}");
        }
        let paged = rows.iter().find(|row| row["allocator"] == "omniheap, paged pools");
        let paged = paged.expect("always there")["peak_reserved_bytes"].as_u64();
        assert!(paged < counters["peak_reserved"].as_u64(), "{rows:?}");
    }
}
