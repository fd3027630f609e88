//! `fit` and `batch`: contract, exit codes, and answers that can be checked by hand.
use crate::support::{file, folder, json, omniheap, refuses, text};
use omniheap::trace::binary::{Record, Writer};
use omniheap::trace::{Alignment, LabelId, StreamId};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;

/// A trace that lives on 3, then 30, then 3 MiB.
const PLAIN: &str = "op,id,size,stream,time_us\na,0,3145728,0,0\na,1,31457280,0,1\nf,1,,0,2\n";

/// Runs a command that prints JSON and ends with this code.
fn answers(arguments: &[&str], code: i32) -> Value {
    let output = omniheap(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object")
}

#[test]
fn json_has_the_fields_of_the_schema() {
    let schema = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fit.schema.json"));
    let Ok(schema) = schema else { return };
    let schema: Value = serde_json::from_slice(&schema).expect("JSON");
    let path = file("fit-schema.csv", PLAIN);
    let answer = &json(&["fit", &path, "--capacity", "1G"])[0];
    has_fields(answer, &schema);
    has_fields(&answer["peak"], &schema["properties"]["peak"]);
    has_fields(&answer["changes"][0], &schema["properties"]["changes"]["items"]);
}

fn has_fields(value: &Value, schema: &Value) {
    let names = |value: &Value| {
        let mut names: Vec<_> = value.as_object().expect("an object").keys().cloned().collect();
        names.sort();
        names
    };
    let mut required: Vec<_> = schema["required"].as_array().expect("a list").iter().collect();
    required.sort_by_key(|name| name.as_str().map(str::to_owned));
    assert_eq!(Value::from(names(value)), required.into_iter().cloned().collect::<Value>());
    assert_eq!(names(value), names(&schema["properties"]));
}

#[test]
fn every_allocator_has_its_peak() {
    let path = file("fit-peaks.csv", PLAIN);
    let peak = |allocator| {
        let answer = &json(&["fit", &path, "--capacity", "1G", "--allocator", allocator])[0];
        assert_eq!(answer["peak_live_bytes"], 33 * MIB);
        assert_eq!((&answer["fits"], &answer["peak"]["event"]), (&true.into(), &1.into()));
        answer["peak_reserved_bytes"].as_u64().expect("bytes")
    };
    assert_eq!(peak("torch"), 50 * MIB, "20 MiB for the first, 30 for the second");
    assert_eq!(peak("expandable"), 40 * MIB);
    assert_eq!(peak("async"), 64 * MIB);
    assert_eq!(peak("plan"), 33 * MIB);
    assert!((33 * MIB..=36 * MIB).contains(&peak("omniheap")));
}

#[test]
fn the_exit_code_says_whether_it_fits() {
    let path = file("fit-code.csv", PLAIN);
    assert_eq!(answers(&["fit", &path, "--capacity", "50M"], 0)["left_bytes"], 0);
    let answer = answers(&["fit", &path, "--capacity", "49M"], 1);
    assert_eq!((&answer["fits"], &answer["left_bytes"]), (&false.into(), &(-(1_i64 << 20)).into()));
    let answer = answers(&["fit", &path, "--capacity", "52M", "--fixed", "20M"], 3);
    assert_eq!(answer["fits"], false);
    // A trace that frees 30 MiB before it takes 40 fits, once the first block has gone back.
    let path = file("fit-back.csv", format!("{PLAIN}a,2,41943040,0,3\n"));
    let answer = answers(&["fit", &path, "--capacity", "64M"], 0);
    assert_eq!(
        (&answer["peak_reserved_bytes"], &answer["fits"]),
        (&(90 * MIB).into(), &true.into())
    );
    let told = text(&omniheap(&["fit", &path, "--capacity", "64M"]).stdout);
    assert!(told.contains("fits, once the allocator returns what it keeps"), "{told}");
}

#[test]
fn what_fits_with_one_order_of_blocks_alone_does_not_fit() {
    // 30 MiB are free in two blocks. Where the first one is taken, it is in the way of 40 MiB later.
    let begin = "a,0,41943040,0,0\na,1,31457280,0,1\nf,0,,0,2\na,2,10485760,0,3\nf,1,,0,4\n";
    let end = "a,3,31457280,0,5\nf,2,,0,6\na,4,41943040,0,7\n";
    let path = file("fit-order.csv", format!("op,id,size,stream,time_us\n{begin}{end}"));
    let answer = answers(&["fit", &path, "--capacity", "70M"], 1);
    assert_eq!(
        (&answer["peak_reserved_bytes"], &answer["fits"]),
        (&(70 * MIB).into(), &false.into())
    );
    let told = text(&omniheap(&["fit", &path, "--capacity", "70M"]).stdout);
    assert!(told.contains("fits at first, and not in later steps or at other addresses"), "{told}");
    assert_eq!(answers(&["fit", &path, "--capacity", "80M"], 0)["fits"], true);
}

#[test]
fn what_no_device_can_address_does_not_fit() {
    let path = file("fit-vast.csv", "op,id,size,stream,time_us\na,0,9223372036854775808,0,0\n");
    for allocator in ["torch", "expandable", "async"] {
        let arguments = ["fit", &path, "--capacity", "1G", "--allocator", allocator];
        assert_eq!(answers(&arguments, 3)["fits"], false, "{allocator}");
        let told = text(&omniheap(&arguments).stdout);
        assert!(told.starts_with("fit-vast: does not fit\n"), "{allocator}: {told}");
    }
}

#[test]
fn what_a_trace_does_not_tell_is_not_known() {
    let path = file("fit-unknown.csv", PLAIN);
    let answer = &json(&["fit", &path, "--capacity", "1G"])[0];
    for row in answer["changes"].as_array().expect("a table") {
        assert!(row["gained_bytes"].is_null() && row["fits"].is_null(), "{row}");
        let why = row["not_known"].as_str().expect("a reason");
        assert!(why.starts_with("not known from this trace"), "{why}");
    }
    assert_eq!(answer["peak"]["categories"][0]["category"], "unlabelled");
}

#[test]
fn a_page_shows_the_table() {
    let (path, page) = (file("fit-page.csv", PLAIN), folder().join("fit.html"));
    let page = page.to_str().expect("plain");
    json(&["fit", &path, "--capacity", "1G", "--out", page]);
    let drawn = fs::read_to_string(page).expect("it was written");
    assert!(drawn.contains("\"gains\":[{\"change\":\"float32 becomes bfloat16\""));
    assert!(drawn.contains("\"fit\":{\"fits\":true,\"capacity_bytes\":1073741824"));
}

#[test]
fn bad_input_is_refused() {
    let (plain, empty) =
        (file("fit-bad.csv", PLAIN), file("fit-empty.csv", "op,id,size,stream,time_us\n"));
    refuses(&["fit", &empty, "--capacity", "1G"], 2, "allocates nothing");
    refuses(&["fit", "missing.omt", "--capacity", "1G"], 2, "cannot read");
    refuses(&["fit", &plain, "--capacity", "1G", "--out", &plain], 2, "written over");
    refuses(&["fit", &plain, &plain, "--capacity", "1G", "--out", "x.html"], 2, "name one");
    refuses(&["fit", &plain, "--context", "8", "--capacity", "1G"], 2, "do not go with traces");
    for wrong in [
        &["fit", &plain][..],
        &["fit", &plain, "--capacity", "0"],
        &["fit", &plain, "--capacity", "NaN"],
    ] {
        assert_eq!(omniheap(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Writes a safetensors file of `f16` tensors.
fn model(name: &str, tensors: &[(&str, &[u64])]) -> String {
    let (mut header, mut end) = (Vec::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 2 * shape.iter().product::<u64>();
        header.push(format!(
            "\"{name}\":{{\"dtype\":\"F16\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + usize::try_from(end).expect("small"), 0);
    file(name, bytes)
}

/// A model of two layers, one with projections of its own, one with fused ones; and its bytes.
fn attention(name: &str) -> (String, u64) {
    let tensors: [(&str, &[u64]); 4] = [
        ("model.layers.0.self_attn.k_proj.weight", &[128, 512]),
        ("model.layers.0.self_attn.v_proj.weight", &[128, 512]),
        ("h.1.attn.c_attn.weight", &[512, 1536]),
        ("h.1.attn.c_proj.weight", &[512, 512]),
    ];
    let bytes = tensors.iter().map(|(_, shape)| 2 * shape.iter().product::<u64>()).sum();
    (model(name, &tensors), bytes)
}

#[test]
fn a_model_has_weights_and_a_cache() {
    let (path, weights) = attention("fit.safetensors");
    let context = ["fit", &path, "--capacity", "1G", "--context", "1000"];
    let categories = |options: &[&str]| {
        let answer = answers(&[&context, options].concat(), 0);
        let of = |at: usize| answer["peak"]["categories"][at].clone();
        assert_eq!((&of(0)["category"], &of(0)["bytes"]), (&"parameter".into(), &weights.into()));
        assert_eq!(of(1)["category"], "cache");
        of(1)["bytes"].as_u64().expect("bytes")
    };
    // Per token 128 keys and values in one layer, 512 in the other, of two bytes each.
    let cache = 1000 * 2 * (2 * 128 + 2 * 512);
    assert_eq!(categories(&[]), cache);
    assert_eq!(categories(&["--sequences", "3", "--cache-bits", "8"]), cache * 3 / 2);
    answers(&["fit", &path, "--capacity", "1M"], 3);
    let other = model("fit-other.safetensors", &[("w", &[4])]);
    refuses(&["fit", &other, "--capacity", "1G", "--context", "10"], 2, "leave --context out");
}

#[test]
fn a_models_weights_can_be_smaller() {
    let (path, weights) = attention("fit-small.safetensors");
    let answer = answers(&["fit", &path, "--capacity", "1G"], 0);
    let row = |change: &str| {
        let rows = answer["changes"].as_array().expect("a table");
        rows.iter().find(|row| row["change"] == change).expect("it is there").clone()
    };
    let gained = weights - (weights / 4 + 2 * (weights / 2).div_ceil(128));
    assert_eq!(row("weights in 4 bits, groups of 128")["gained_live_bytes"], gained);
    assert!(row("optimizer SGD")["not_known"].is_string(), "a file of weights has no optimizer");
}

/// A trace with a fixed allocation and one that grows with the batch.
fn at(name: &str, batch: u64, bytes: impl Fn(u64) -> u64) -> String {
    let content = format!("op,id,size,stream,time_us\na,0,1048576,0,0\na,1,{},0,1\n", bytes(batch));
    let path = file(&format!("{name}-{batch}.csv"), content);
    format!("--trace={batch}:{path}")
}

#[test]
fn the_largest_batch_is_on_the_lines() {
    let line = |batch| 5 * batch * MIB;
    let [a, b, c] = [8, 2, 4].map(|batch| at("lines", batch, line));
    let found = answers(&["batch", &a, &b, &c, "--capacity", "102M", "--allocator", "plan"], 0);
    assert_eq!((&found["largest_batch"], &found["by"]), (&20.into(), &"lines".into()));
    assert_eq!(found["peak_reserved_bytes"], 101 * MIB);
    assert_eq!(found["traces"][2]["batch"], 8);
    let most = &["batch", &a, &b, &c, "--capacity", "102M", "--most", "7"];
    assert_eq!(answers(most, 0)["largest_batch"], 7);
    let none = answers(&["batch", &a, &b, &c, "--capacity", "4M"], 1);
    assert!(none["largest_batch"].is_null());
    // On its line it would have less than nothing at batch 1.
    let steep = |batch| (3 * batch - 5) * MIB;
    let [a, b, c] = [2, 4, 8].map(|batch| at("steep", batch, steep));
    let found = answers(&["batch", &a, &b, &c, "--capacity", "26M", "--allocator", "plan"], 0);
    assert_eq!((&found["largest_batch"], &found["by"]), (&10.into(), &"lines".into()));
}

#[test]
fn what_is_no_line_is_answered_from_the_traces() {
    let bend = |batch| if batch == 4 { 3 * MIB } else { batch * MIB };
    let [a, b, c] = [2, 4, 8].map(|batch| at("bend", batch, bend));
    let found = answers(&["batch", &a, &b, &c, "--capacity", "7M", "--allocator", "plan"], 0);
    assert_eq!((&found["largest_batch"], &found["by"]), (&4.into(), &"traces".into()));
    assert!(found["difference"].as_str().is_some_and(|why| why.contains("not on the line")));
    // Not monotone: the largest of them needs least.
    let falls = |batch| if batch == 8 { 2 * MIB } else { 30 * batch * MIB };
    let [a, b, c] = [2, 4, 8].map(|batch| at("falls", batch, falls));
    let found = answers(&["batch", &a, &b, &c, "--capacity", "50M"], 0);
    assert_eq!((&found["largest_batch"], &found["falls"]), (&8.into(), &true.into()));
}

#[test]
fn fewer_than_three_traces_say_what_to_trace_next() {
    // A size that falls stays as it is at the larger batch.
    let line = |batch| if batch == 1 { 90 * MIB } else { 5 * batch * MIB };
    let [falls, a, b] = [1, 2, 4].map(|batch| at("few", batch, line));
    for few in [vec![&*a, &b], vec![&a, &a, &b]] {
        let asked = [&["batch", "--capacity", "102M", "--allocator", "plan"], &few[..]].concat();
        let found = answers(&asked, 0);
        assert_eq!((&found["largest_batch"], &found["by"]), (&4.into(), &"traces".into()));
        assert!(found["difference"].as_str().is_some_and(|why| why.contains("there are 2")));
        assert_eq!(found["expected_batch"], 20);
    }
    let found = answers(&["batch", &falls, &a, "--capacity", "102M", "--most", "50"], 0);
    assert_eq!(found["expected_batch"], 50);
    let [one, all] = [1, u64::MAX].map(|batch| at("vast", batch, |_| MIB));
    let capacity = u64::MAX.to_string();
    let found = answers(&["batch", &one, &all, "--capacity", &capacity, "--most", "50"], 0);
    assert_eq!(found["expected_batch"], 50, "however large the numbers are");
    assert!(answers(&["batch", &a, "--capacity", "102M"], 0)["expected_batch"].is_null());
}

#[test]
fn the_least_capacity_is_below_the_peak() {
    let content = "op,id,size,stream,time_us\na,0,31457280,0,0\nf,0,,0,1\na,1,41943040,0,2\n";
    let path = file("least.csv", content);
    let found = answers(&["batch", &format!("--trace=2:{path}"), "--capacity", "1G"], 0);
    let row = &found["traces"][0];
    assert_eq!(row["peak_reserved_bytes"], 70 * MIB);
    let least = row["least_capacity_bytes"].as_u64().expect("bytes");
    assert!((40 * MIB..=42 * MIB).contains(&least), "{least}");
}

#[test]
fn the_least_capacity_suffices_for_later_steps() {
    let mut recorder = Writer::new(Vec::new());
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    for (id, mib) in (0..).zip([4, 4, 15, 9]) {
        recorder.record(id, &Record::Allocate { id, size: mib * MIB, stream, align, label });
        if id == 0 {
            recorder.record(id, &Record::Step);
        }
    }
    for id in [2, 0, 3] {
        recorder.record(4, &Record::FreeCompleted { id, stream });
    }
    let path = file("least-later", recorder.finish().expect("a vector takes everything"));
    // The piece that a step leaves lies where the next one begins: 20 MiB more are needed.
    let found = answers(&["batch", &format!("--trace=2:{path}"), "--capacity", "1G"], 0);
    let row = &found["traces"][0];
    assert_eq!((&row["peak_reserved_bytes"], &row["fits"]), (&(36 * MIB).into(), &true.into()));
    let least = row["least_capacity_bytes"].as_u64().expect("bytes");
    assert!((56 * MIB..=58 * MIB).contains(&least), "{least}");
}

#[test]
fn what_is_no_batch_is_refused() {
    for wrong in ["x:few-2.csv", "0:few-2.csv", "few-2.csv", "2:"] {
        let output = omniheap(&["batch", "--trace", wrong, "--capacity", "1G"]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}
