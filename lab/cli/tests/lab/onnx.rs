//! `plan` and `fit` of ONNX models.
use crate::support::{file, folder, json, omniheap, refuses, text};
use std::fs;

fn model(name: &str) -> Option<String> {
    let path = format!("{}/../../lab/fit/tests/data/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    fs::exists(&path).is_ok_and(|is_there| is_there).then_some(path)
}

#[test]
fn a_model_is_planned_and_its_weights_are_told_apart() {
    let Some(path) = model("perceptron") else { return };
    let out = |end: &str| folder().join(format!("perceptron.{end}")).display().to_string();
    let (header, picture, plan) = (out("h"), out("svg"), out("json"));
    let arguments = ["plan", &path, "--dim", "batch=8", "--header", &header];
    let planned = &json(&[&arguments[..], &["--svg", &picture, "--plan", &plan]].concat())[0];
    assert_eq!((&planned["buffers"], &planned["weight_bytes"]), (&5.into(), &4096.into()));
    assert_eq!((&planned["peak"], &planned["status"]), (&2560.into(), &"optimal".into()));
    let read = |path: &str| fs::read_to_string(path).expect("it was written");
    let row = "\"id\":\"/one/MatMul_output\",\"lower\":0,\"upper\":2,\"size\":1024,";
    assert!(read(&plan).contains(row), "{}", read(&plan));
    assert!(read(&header).contains("RELU_OUTPUT") || read(&header).contains("Relu_output"));
    assert!(read(&picture).contains("/Relu_output"));
    let checked = &json(&["plan", &plan, "--check"])[0];
    assert_eq!((&checked["peak"], &checked["status"]), (&2560.into(), &"valid".into()));
    let said = text(&omniheap(&["plan", &path, "--dim", "batch=8"]).stdout);
    assert!(said.trim_end().ends_with("weights 4096 bytes beside it"), "{said}");
}

#[test]
fn a_model_fits_with_its_weights() {
    let Some(path) = model("perceptron") else { return };
    let fit = ["fit", &path, "--dim", "batch=8", "--capacity", "1G", "--allocator", "plan"];
    let answer = &json(&fit)[0];
    assert_eq!(answer["peak_live_bytes"], 4096 + 2560);
    let bytes = |word: &str| {
        let all = answer["peak"]["categories"].as_array().expect("a list");
        let found = all.iter().find(|each| each["category"] == word);
        found.map_or(0, |each| each["bytes"].as_u64().expect("bytes"))
    };
    assert_eq!((bytes("parameter"), bytes("input"), bytes("activation")), (4096, 512, 2048));
}

#[test]
fn what_is_wrong_with_a_model_is_said() {
    let table = file("text.onnx", "id,lower,upper,size\n");
    for command in [&["plan"][..], &["fit", "--capacity", "1G"]] {
        let refuses = |more: &[&str], word| refuses(&[command, more].concat(), 2, word);
        refuses(&[&table], "not an ONNX model");
        refuses(&["nowhere.onnx"], "cannot read");
        let Some(path) = model("perceptron") else { return };
        refuses(&[&path], "such as --dim batch=8");
        refuses(&[&path, "--dim", "batch=8", "--dim", "batch=9"], "given twice");
        refuses(&[&path, "--dim", "batch=8", "--dim", "b=9"], "no dimension is called");
        let none = omniheap(&[command, &[&path, "--dim", "batch=0"]].concat());
        assert_eq!(none.status.code(), Some(2));
        assert!(text(&none.stderr).contains("a size of 1 or more"));
        let Some(path) = model("unshaped") else { return };
        refuses(&[&path, "--dim", "batch=8"], "onnx.shape_inference");
    }
    let table = file("dims.csv", "id,lower,upper,size\na,0,1,8\n");
    refuses(&["plan", &table, "--dim", "batch=8"], 2, "is for an .onnx model");
}
