//! Recording, and what is made of recordings.
use crate::demo::recorded;
use crate::support::{binary, churn, file, folder, json, omniheap, refuses, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("it was written")
}

#[test]
fn the_demo_is_recorded_and_replayed() {
    json(&["demo", "--backend", "host", "--out", "csv.html", "--record", "demo.csv"]);
    for trace in [&recorded(), "demo.csv"] {
        let replayed = &json(&["replay", trace, "--repeat", "1"])[0];
        assert_eq!(replayed["oom"], 0, "{replayed}");
        assert!(replayed["events"].as_u64() > Some(2000), "{replayed}");
        assert!(replayed["peak_live_bytes"].as_u64() > Some(64 << 20), "{replayed}");
    }
    let rows = json(&["compare", &recorded()]);
    assert_eq!(rows[0]["allocator"], "as recorded");
    assert!(rows[0]["peak_reserved_bytes"].as_u64() >= rows[0]["peak_live_bytes"].as_u64());
    refuses(&["demo", "--backend", "host", "--record", "no/such/folder/x.trace"], 1, "no/such");
}

#[test]
fn a_recording_goes_to_every_tool() {
    let trace = recorded();
    let write = |shape: &str, name: &str| {
        json(&["report", &trace, "--format", shape, "-o", name]);
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

    let report = write("json", "tools.json");
    json(&["report", &report, "--before", &report, "-o", "tools.html"]);
    assert!(read("tools.html").contains("between the two reports"));
    refuses(&["report", &report, "--format", "snapshot", "-o", "x.pickle"], 2, "need a trace");
    let broken = file("broken.json", "{\"schema\":1,\"title\":7}");
    refuses(&["report", &broken, "-o", "x.html"], 2, "schema");
}

#[test]
fn a_report_tells_the_recording_from_models_and_replays() {
    let trace = file("plain.csv", churn(4000, 3, 1 << 20).csv);
    json(&["report", &trace, "--format", "json", "-o", "plain.json"]);
    let report: Value = serde_json::from_str(&read("plain.json")).expect("JSON");
    assert_eq!(report["figures"]["peak_reserved_bytes"], Value::Null, "nobody recorded it");
    assert_eq!(report["placed_by_model"], "PyTorch's default policy");
    let rows = json(&["compare", &trace]);
    let shown = report["comparison"].as_array().expect("a list");
    for (origin, allocator) in
        [("model", "PyTorch's policy (model)"), ("replay", "omniheap, paged pools")]
    {
        let shown = shown.iter().find(|row| row["origin"] == origin).expect("it is compared");
        let row = rows.iter().find(|row| row["allocator"] == allocator).expect("always there");
        assert_eq!(shown["peak_reserved_bytes"], row["peak_reserved_bytes"], "{origin}");
        assert_eq!(shown["ratio"], row["ratio"], "{origin}");
        assert!(shown["curve"]["count"].as_u64() > Some(1), "{origin}");
    }
    json(&["report", &recorded(), "--format", "json", "-o", "own.json"]);
    let report: Value = serde_json::from_str(&read("own.json")).expect("JSON");
    assert_eq!(report["placed_by_model"], Value::Null);
    assert!(report["figures"]["peak_reserved_bytes"].as_u64() > Some(64 << 20));
}

#[test]
fn several_runs_make_one_page() {
    let runs = ["one.csv", "two.csv"].map(|name| file(name, churn(400, 1, 4096).csv));
    json(&["report", &runs[0], &runs[1], "-o", "runs.html"]);
    let page = read("runs.html");
    let (_, data) = page.split_once("id=\"data\">").expect("the data is there");
    let (data, _) = data.split_once("</script>").expect("it ends");
    let reports: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!([&reports[0]["title"], &reports[1]["title"]], ["one", "two"]);
    assert!(page.contains("<title>one | two</title>"));
    let refused = ["report", &runs[0], &runs[1], "--format", "json", "-o", "runs.json"];
    refuses(&refused, 2, "several runs make one page");
    refuses(&["report", &runs[0], &runs[1], "-o", &runs[1]], 2, "written over");
    refuses(&["report", &runs[0], "absent.csv", "-o", "x.html"], 2, "absent.csv: cannot read");
}

#[test]
fn a_dash_is_standard_output() {
    let trace = file("dash.csv", churn(400, 1, 4096).csv);
    for (shape, start) in [("html", "<!doctype html>"), ("json", "{")] {
        let output = omniheap(&["report", &trace, "--format", shape, "-o", "-"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = text(&output.stdout);
        assert!(written.starts_with(start), "{shape}: {:.40}", written);
        json(&["report", &trace, "--format", shape, "-o", "dash.out"]);
        assert_eq!(written, read("dash.out"), "{shape}: the same as in a file");
    }
    assert!(!folder().join("-").exists());
    refuses(&["demo", "--backend", "host", "--out", "-"], 2, "standard output");
}

#[test]
fn the_demos_page_agrees_with_itself() {
    recorded();
    let page = read("demo.html");
    let (_, data) = page.split_once("id=\"data\">").expect("the data is there");
    let (data, _) = data.split_once("</script>").expect("it ends");
    let report: Value = serde_json::from_str(data).expect("JSON");
    assert!(report["events"]["count"].as_u64() > Some(1000), "what happened is recorded");
    assert_eq!(report["figures"]["oom"], 0);
    let sum = |list: &Value, field: &str| {
        list.as_array().expect("a list").iter().filter_map(|one| one[field].as_u64()).sum::<u64>()
    };
    let mut most = 0;
    for moment in report["moments"].as_array().expect("a list") {
        let reserved = sum(&moment["reserved"], "bytes");
        let memory = |block: &Value| {
            block["size"].as_u64().map(|size| size - sum(&block["unmapped"], "size"))
        };
        let blocks = moment["blocks"].as_array().expect("a list");
        let drawn: u64 = blocks.iter().filter_map(memory).sum();
        assert_eq!(drawn, reserved, "{}: what is drawn is what is reserved", moment["title"]);
        most = most.max(reserved);
    }
    assert_eq!(report["figures"]["peak_reserved_bytes"], most, "cards and maps agree");
}

#[test]
fn compare_shows_what_pytorch_really_reserved() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/trace/tests/data/real");
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

/// A file may have at most 4 KiB here, as if the disk were full.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_what_was_there() {
    let trace = file("disk.csv", churn(4000, 3, 1 << 20).csv);
    let report = file("disk.html", "yesterday's");
    let _ = fs::remove_dir_all(folder().join("full"));
    fs::create_dir(folder().join("full")).expect("the folder for tests can be written");
    for (line, out) in [
        (vec!["report", &trace, "-o", &report], "disk.html"),
        (vec!["report", &trace, "--format", "perfetto", "-o", "full/new.json"], "full/new.json"),
    ] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"]).arg(binary()).args(line);
        let output = shell.current_dir(folder()).output().expect("a shell");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(out) && said.contains("cannot write"), "{said}");
    }
    assert_eq!(read("disk.html"), "yesterday's");
    let left = fs::read_dir(folder().join("full")).expect("made above").count();
    assert_eq!(left, 0, "neither half a report nor what was written beside it");
}

#[cfg(unix)]
#[test]
fn a_link_stays_one_and_a_file_keeps_its_mode() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let trace = file("linked.csv", churn(400, 1, 4096).csv);
    let (target, link) = (file("linked.json", "old"), folder().join("link.json"));
    let _ = fs::remove_file(&link);
    symlink(&target, &link).expect("a link");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("our own file");
    json(&["report", &trace, "--format", "json", "-o", "link.json"]);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(read("linked.json").starts_with("{"));
    let mode = fs::metadata(&target).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "who may read it stays");
    json(&["report", &trace, "--format", "json", "-o", "/dev/null"]);
}
