//! `omniheap weights`, on small files.
use crate::support::{folder, json, omniheap, refuses, text};
use std::fs;

/// Writes a safetensors file of two layers.
fn sample(name: &str) -> String {
    let header = br#"{"layers.0.w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"layers.1.w":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},"head<b>":{"dtype":"F32","shape":[],"data_offsets":[24,28]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(&[1; 28]);
    let path = folder().join(name);
    fs::write(&path, bytes).expect("the folder is there");
    path.to_str().expect("plain").into()
}

#[test]
fn it_lists_tensors_totals_and_devices() {
    let path = sample("list.safetensors");
    let listing = &json(&["weights", &path])[0];
    assert_eq!((&listing["tensor_count"], &listing["bytes"]), (&3.into(), &28.into()));
    assert_eq!(listing["parameters"], 9);
    assert_eq!(listing["tensors"][1]["dtype"], "BF16");
    assert_eq!(listing["dtypes"][0]["bytes"], 20);
    let layers: Vec<_> =
        listing["layers"].as_array().expect("a list").iter().map(|layer| &layer["name"]).collect();
    assert_eq!(layers, ["layers.0", "layers.1", "head<b>"]);
    let host =
        listing["fits"].as_array().expect("a list").iter().find(|fit| fit["backend"] == "host");
    assert_eq!(host.expect("always there")["fits"], true);
    let told = text(&omniheap(&["weights", &path]).stdout);
    assert!(told.contains("layers.0.w") && told.contains("3 tensors, 9 parameters"), "{told}");
}

#[test]
fn it_loads_and_draws() {
    let (path, page) = (sample("check.safetensors"), folder().join("weights.html"));
    let page = page.to_str().expect("plain");
    let listing = &json(&["weights", &path, "--check", "--out", page])[0];
    assert!(listing["check"]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let drawn = fs::read_to_string(page).expect("it was written");
    assert!(drawn.contains("layers.0.w: F32 [2, 2], 16 B"), "{drawn}");
    assert!(drawn.contains("<h1>check.safetensors</h1>") && drawn.contains("tensors <b>3</b>"));
    for table in ["Layers", "Types", "Largest tensors"] {
        assert!(drawn.contains(&format!("<h2>{table}</h2>")), "{table}");
    }
    assert!(drawn.contains("head&lt;b&gt;") && !drawn.contains("head<b>"), "names are escaped");
}

#[test]
fn names_are_no_orders_to_a_terminal() {
    let header =
        br#"{"a\u001b[2J\nfits on \u202egpu":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.push(1);
    let path = folder().join("orders.safetensors");
    fs::write(&path, bytes).expect("the folder is there");
    let path = path.to_str().expect("plain");
    let told = text(&omniheap(&["weights", path]).stdout);
    assert!(told.contains(r"a\u{1b}[2J\nfits on \u{202e}gpu"), "{told}");
    assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told}");
    assert!(!told.lines().any(|line| line.starts_with("fits on \u{202e}")), "{told}");
    let name = &json(&["weights", path])[0]["tensors"][0]["name"];
    assert_eq!(name, "a\u{1b}[2J\nfits on \u{202e}gpu", "programs get it as it is");
}

#[test]
fn it_refuses_bad_files() {
    let path = sample("bad.safetensors");
    let bytes = fs::read(&path).expect("it was written");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("it may be written");
    refuses(&["weights", &path], 2, "cut off");
    refuses(&["weights", "missing.safetensors"], 1, "cannot read");
    refuses(
        &["weights", &sample("own.safetensors"), "--out", &sample("own.safetensors")],
        2,
        "written over",
    );
}
