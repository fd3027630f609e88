//! `plan`: contract, exit codes, and plans that an independent check accepts.
use crate::support::{file, folder, json, omniheap, refuses, text};
use std::fs;

const SMALL: &str = "id,lower,upper,size\na,0,4,8\nb,2,6,4\nc,4,8,8\n";

#[test]
fn json_has_the_fields_of_the_contract() {
    let path = file("small.csv", SMALL);
    let planned = &json(&["plan", &path])[0];
    let mut fields: Vec<_> = planned.as_object().expect("an object").keys().collect();
    fields.sort();
    let contract = [
        "buffers",
        "capacity",
        "first_plan_seconds",
        "lower_bound",
        "name",
        "peak",
        "seconds",
        "status",
        "weight_bytes",
    ];
    assert_eq!(fields, contract);
    assert_eq!(planned["name"], "small");
    assert_eq!(planned["buffers"], 3);
    assert_eq!(planned["peak"], 12);
    assert_eq!(planned["lower_bound"], 12);
    assert_eq!(planned["status"], "optimal");
}

#[test]
fn the_written_offsets_keep_live_buffers_apart() {
    let path = file("apart.csv", SMALL);
    json(&["plan", &path, "--capacity", "12", "--plan", "offsets.json", "--svg", "plan.svg"]);
    let folder = folder();
    let written = fs::read_to_string(folder.join("offsets.json")).expect("it was written");
    let content: serde_json::Value = serde_json::from_str(&written).expect("JSON");
    let fields = ["lower", "upper", "size", "offset"];
    let of = |row: &serde_json::Value| fields.map(|name| row[name].as_u64().expect("a number"));
    let buffers: Vec<[u64; 4]> =
        content["buffers"].as_array().expect("a list").iter().map(of).collect();
    assert_eq!(buffers.len(), 3);
    for (at, a) in buffers.iter().enumerate() {
        assert!(a[3] + a[2] <= 12);
        for b in &buffers[at + 1..] {
            let together = a[0] < b[1] && b[0] < a[1];
            let apart = a[3] + a[2] <= b[3] || b[3] + b[2] <= a[3];
            assert!(!together || apart, "{a:?} and {b:?} share bytes");
        }
    }
    let svg = fs::read_to_string(folder.join("plan.svg")).expect("it was drawn");
    assert!(svg.contains("<svg"));
}

#[test]
fn a_dash_is_standard_output() {
    let path = file("dash-plan.csv", SMALL);
    let output = omniheap(&["plan", &path, "--plan", "-"]);
    let written = text(&output.stdout);
    let whole: serde_json::Value = serde_json::from_str(&written).expect("nothing else is printed");
    assert_eq!(whole["buffers"].as_array().map(Vec::len), Some(3), "{written}");
    assert!(!folder().join("-").exists());
    let drawn = omniheap(&["plan", &path, "--svg", "-"]);
    assert!(text(&drawn.stdout).contains("<title>buffer a: 8 bytes"));
    refuses(&["plan", &path, "--plan", "-", "--svg", "-"], 2, "standard output");
}

#[test]
fn the_allocations_of_a_trace_are_buffers() {
    let path = file(
        "trace.csv",
        "op,id,size,stream,time_us\na,1,300,0,0\na,2,100,0,1\nf,1,,0,2\na,3,200,0,3\n",
    );
    let planned = &json(&["plan", &path])[0];
    assert_eq!(planned["buffers"], 3);
    assert_eq!(planned["peak"], 556, "100 bytes, and at 256 a place of 300 for the two others");
    assert_eq!(json(&["plan", &path, "--align", "1"])[0]["peak"], 400);
    let refused = omniheap(&["plan", &path, "--align", "3"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("a power of two"), "{}", text(&refused.stderr));
    refuses(&["plan", &path, "--plan", &path], 2, "written over");
}

#[test]
fn a_header_holds_every_offset() {
    let path = file("net.csv", SMALL);
    let output = omniheap(&["plan", &path, "--header", "-"]);
    let header = text(&output.stdout);
    assert!(header.contains("#define NET_ARENA_SIZE UINT64_C(12)"), "{header}");
    assert_eq!(header.matches("_OFFSET UINT64_C(").count(), 3, "{header}");
    assert!(header.ends_with("#endif\n") && header.contains("#ifndef NET_PLAN_H"), "{header}");
}

#[test]
fn what_cannot_fit_is_proven_and_nothing_is_written() {
    let path = file("tight.csv", SMALL);
    refuses(&["plan", &path, "--capacity", "11", "--plan", "never.json"], 3, "tight.csv");
    assert!(!folder().join("never.json").exists());
    let output = omniheap(&["plan", &path, "--capacity", "11", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains("\"status\":\"infeasible\""));
}

#[test]
fn bad_tables_are_refused() {
    for (name, content) in [
        ("no-bytes.csv", ""),
        ("reversed.csv", "id,lower,upper,size\na,4,4,8\n"),
        ("duplicate.csv", "id,lower,upper,size\na,0,4,8\na,0,4,8\n"),
        ("overflow.csv", "id,lower,upper,size\na,0,4,99999999999999999999\n"),
        (
            "sum.csv",
            "id,lower,upper,size\na,0,4,18446744073709551615\nb,0,4,18446744073709551615\n",
        ),
        ("short.csv", "id,lower,upper,size\na,0,4\n"),
        ("columns.csv", "id,lower,upper\na,0,4\n"),
    ] {
        refuses(&["plan", &file(name, content)], 2, name);
    }
    refuses(&["plan", &file("bytes.csv", [0xff, 0xfe, 0x00])], 2, "bytes.csv");
    refuses(&["plan", "no-such-plan.csv"], 2, "no-such-plan.csv");
}

#[test]
fn several_threads_plan_as_well_as_one() {
    let path = file("threads.csv", SMALL);
    let planned = &json(&["plan", &path, "--threads", "4", "--time-limit", "5"])[0];
    assert_eq!(planned["peak"], 12);
}

#[test]
fn the_same_threads_give_the_same_plan() {
    for seed in 1..=4_u64 {
        let mut csv = String::from("id,lower,upper,size\n");
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for id in 0..45 {
            let (lower, life, size) = (random(60), 1 + random(20), 1 + random(1000));
            csv += &format!("{id},{lower},{},{size}\n", lower + life);
        }
        let path = file(&format!("same-{seed}.csv"), csv);
        let out = folder().join(format!("same-{seed}-out.json"));
        let plan = || {
            let target = out.to_str().expect("a plain name");
            json(&["plan", &path, "--threads", "3", "--plan", target]);
            fs::read_to_string(&out).expect("it was written")
        };
        let first = plan();
        assert!((0..3).all(|_| plan() == first), "seed {seed}");
    }
}

const REGIONS: &str = "\
id,lower,upper,size,alignment,fixed,alias,regions
a,0,4,8,1,,,0
b,2,6,4,1,0,,1
c,4,8,8,4,,a,
";

#[test]
fn a_plan_file_has_everything_and_can_be_checked() {
    let path = file("regions.csv", REGIONS);
    let regions = ["--region", "8", "--region", "any:4:3"];
    json(&[&["plan", &path, "--plan", "regions.json"], &regions[..]].concat());
    let planned = folder().join("regions.json");
    let planned = planned.to_str().expect("a path");
    let written = fs::read_to_string(planned).expect("it was written");
    let content: serde_json::Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(content["regions"][1]["alignment"], 4);
    assert_eq!(content["buffers"][1]["region"], 1);
    assert_eq!(content["buffers"][1]["fixed"], 0);
    assert_eq!(content["buffers"][2]["alias"][0], "a");
    assert_eq!(content["buffers"][2]["offset"], content["buffers"][0]["offset"]);
    assert_eq!(json(&["plan", planned, "--check"])[0]["status"], "valid");
    // The plan file is a problem as well, and planning it again changes nothing.
    json(&["plan", planned, "--plan", "regions-again.json"]);
    let again = fs::read_to_string(folder().join("regions-again.json")).expect("it was written");
    assert_eq!(again, written);
    // A wrong plan is named by its ids.
    let moved = written
        .replace("\"id\":\"b\",", "\"id\":\"b\",\"regions\":[0],")
        .replace(",\"regions\":[1]", "");
    refuses(&["plan", &file("moved.json", moved), "--check"], 1, "(ids \"b\")");
    // A table is checked as well, once it has offsets: MiniMalloc's results have them.
    refuses(&[&["plan", &path, "--check"], &regions[..]].concat(), 2, "has no offset");
    let placed = "id,lower,upper,size,offset\na,0,4,8,0\nb,2,6,4,8\nc,4,8,8,0\n";
    let checked = json(&["plan", &file("placed.csv", placed), "--check"]);
    assert_eq!((&checked[0]["status"], &checked[0]["peak"]), (&"valid".into(), &12.into()));
    let moved = file("moved.csv", placed.replace("4,8\n", "4,6\n"));
    refuses(&["plan", &moved, "--check"], 1, "(ids \"a\" and \"b\")");
}

#[test]
fn bad_plan_files_are_refused() {
    let buffer = r#"{"id":"a","lower":0,"upper":4,"size":8}"#;
    for (content, why) in [
        (r#"{"version":1}"#.to_owned(), "missing field `buffers`"),
        (r#"{"version":2,"buffers":[]}"#.to_owned(), "version 2 is not known"),
        (format!(r#"{{"version":1,"buffers":[{buffer},{buffer}]}}"#), "was used before"),
        (
            r#"{"version":1,"buffers":[{"id":"a","lower":0,"upper":4,"size":8,"alias":["b"]}]}"#
                .to_owned(),
            "no buffer has the id",
        ),
        (
            r#"{"version":1,"buffers":[{"id":"a","lower":0,"upper":4,"size":8,"regions":[1]}]}"#
                .to_owned(),
            "names region 1",
        ),
        (
            r#"{"version":1,"buffers":[{"id":"a","lower":4,"upper":4,"size":8}]}"#.to_owned(),
            "bad.json",
        ),
        (r#"{"version":1,"buffers":[],"color":1}"#.to_owned(), "unknown field"),
        (
            r#"{"version":1,"buffers":[{"id":"a","lower":0,"upper":4,"size":-8}]}"#.to_owned(),
            "bad.json",
        ),
    ] {
        refuses(&["plan", &file("bad.json", content), "--check"], 2, why);
    }
    let path = file("region.csv", SMALL);
    for region in ["8:0", "x", "8:1:2:3", "8:1:x", ""] {
        let output = omniheap(&["plan", &path, "--region", region]);
        assert_eq!(output.status.code(), Some(2), "{region}");
        assert!(text(&output.stderr).contains("--region"), "{region}");
    }
}

#[test]
fn the_documented_plan_file_is_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/planning.md");
    let page = fs::read_to_string(page).expect("the page is part of the repository");
    let (_, block) = page.split_once("```json\n").expect("it shows a file");
    let (block, _) = block.split_once("```").expect("the file ends");
    let checked = &json(&["plan", &file("documented.json", block), "--check"])[0];
    assert_eq!((&checked["status"], &checked["peak"]), (&"valid".into(), &12.into()));
}

/// The example of docs/planning.md.
fn traded() -> String {
    let page = include_str!("../../../../docs/planning.md");
    let examples = page.split("```json\n").skip(1).filter_map(|each| each.split("```").next());
    examples.filter(|each| each.contains("idle")).collect()
}

#[test]
fn idle_buffers_are_kept_recomputed_or_moved() {
    let path = file("traded.json", traded());
    let run =
        |capacity: &str| json(&["plan", &path, "--capacity", capacity, "--plan", "chosen.json"]);
    let plain = &run("24")[0];
    assert_eq!((&plain["status"], &plain["cost"]), (&"optimal".into(), &0.into()));
    let found = &run("20")[0];
    assert_eq!(found["cost"], 3, "the move is cheaper");
    assert_eq!((&found["moved_bytes"], &found["kept_bytes"]), (&8.into(), &8.into()));
    let written = folder().join("chosen.json");
    let text = fs::read_to_string(&written).expect("it was written");
    let chosen: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(chosen["buffers"][0]["choice"], "move");
    assert_eq!(chosen["buffers"][3]["id"], "a again");
    let checked = &json(&["plan", written.to_str().expect("a name"), "--check"])[0];
    assert_eq!(checked["status"], "valid");
}

#[test]
fn a_capacity_that_no_choice_reaches_is_refuted() {
    let path = file("floor.json", traded());
    let output = omniheap(&["plan", &path, "--capacity", "10", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(
        (&found["status"], &found["floor"]),
        (&"infeasible".into(), &serde_json::json!([16, 16]))
    );
}

#[test]
fn idle_buffers_that_make_no_sense_are_refused() {
    let text = traded();
    for (change, to, said) in [
        ("[\"a\"]", "[\"c\"]", "is read and always there"),
        ("[\"a\"]", "[\"z\"]", "no buffer has the id"),
        ("[2, 18]", "[2, 30]", "activation 0 makes no sense"),
        ("bytes_per_tick\": 4", "bytes_per_tick\": 0", "1 byte per tick or more"),
        ("\"scratch\": 2", "\"scrap\": 2", "unknown field"),
    ] {
        let wrong = text.replace(change, to);
        assert_ne!(wrong, text);
        refuses(&["plan", &file("wrong.json", &wrong)], 2, said);
    }
}
