//! ONNX models: lives that can be checked by hand, and files that make no sense.

use crate::kept::{is_kept, told};
use omniheap_fit::onnx::{Error, Kind, Tensors};
use omniheap_trace::{Limits, Source};
use std::collections::BTreeMap;
use std::fs;

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    fs::read(path).expect("a model of the tests")
}

fn dims(given: &[(&str, u64)]) -> BTreeMap<String, u64> {
    given.iter().map(|&(name, size)| (name.to_owned(), size)).collect()
}

fn read(name: &str, given: &[(&str, u64)]) -> Result<Tensors, Error> {
    Tensors::read(&data(name), &dims(given))
}

/// Name, bytes, and the nodes between which it lives.
fn lives(tensors: &Tensors) -> Vec<(&str, u64, u64, u64)> {
    let life = tensors.tensors.iter();
    life.map(|t| (t.name.as_str(), t.bytes, t.live.start, t.live.end)).collect()
}

#[test]
fn a_tensor_lives_from_its_writer_to_its_last_reader() {
    let found = read("perceptron", &[("batch", 8)]).unwrap();
    let wanted = [
        ("x", 512, 0, 4),
        ("/one/MatMul_output", 1024, 0, 2),
        ("/Relu_output", 1024, 1, 3),
        ("/two/MatMul_output", 512, 2, 4),
        ("y", 512, 3, 4),
    ];
    assert_eq!(lives(&found), wanted);
    let kinds: Vec<_> = found.tensors.iter().map(|tensor| tensor.kind).collect();
    assert_eq!(kinds[..2], [Kind::Input, Kind::Activation]);
    assert_eq!(kinds[4], Kind::Output);
    assert_eq!(found.weight_bytes(), 2 * 16 * 32 * 4);
    assert_eq!(found.weights[0].typed, "float32[16x32]");
}

#[test]
fn a_model_is_a_trace() {
    let found = read("perceptron", &[("batch", 8)]).unwrap();
    let trace = found.trace(&Limits::default()).unwrap();
    assert_eq!(trace.meta().source, Source::Onnx);
    assert_eq!(trace.summary().peak_live_bytes, 4096 + 512 + 1024 + 1024);
    let labels: Vec<_> = (0..trace.allocations())
        .map(|id| trace.labels().path(trace.label_of(omniheap_trace::AllocationId(id))))
        .collect();
    assert_eq!(labels[0], "parameter/one/weight float32[16x32]");
    assert_eq!(labels[2], "input/x float32[8x16]");
    assert_eq!(labels[3], "activation/one/MatMul_output MatMul float32[8x32]");
}

#[test]
fn branches_run_one_after_the_other_and_constants_are_weights() {
    let found = read("branches", &[]).unwrap();
    let wanted = [
        ("is_long", 1, 0, 6),
        ("x", 256, 0, 1),
        ("h", 256, 0, 6),
        // The file has them by the names of their attributes, `else_branch` first.
        ("short_0", 256, 1, 2),
        ("long_0", 256, 2, 4),
        ("long_1", 256, 3, 5),
        ("long_2", 256, 4, 5),
        ("chosen", 256, 1, 7),
        ("y", 256, 6, 7),
    ];
    assert_eq!(lives(&found), wanted);
    assert_eq!(found.weight_bytes(), 256);
}

#[test]
fn what_a_loop_reads_from_outside_lives_until_it_ends() {
    let found = read("loop", &[]).unwrap();
    let life = |name: &str| found.tensors.iter().find(|t| t.name == name).unwrap().live.clone();
    // The body is nodes 1 to 3; the loop itself is node 4.
    assert_eq!((life("h"), life("x"), life("y")), (0..5, 0..5, 1..5));
    assert_eq!((life("state"), life("sum"), life("next")), (1..2, 1..3, 2..4));
}

#[test]
fn data_elsewhere_is_not_needed() {
    let (here, elsewhere) =
        (read("perceptron", &[("batch", 2)]), read("external", &[("batch", 2)]));
    assert_eq!(here, elsewhere);
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let error = |name, given: &[_]| read(name, given).unwrap_err().to_string();
    let said = error("unshaped", &[("batch", 8)]);
    assert!(said.contains("/one/MatMul_output") && said.contains("(MatMul)"), "{said}");
    assert!(said.contains("onnx.shape_inference.infer_shapes"), "{said}");
    assert!(error("perceptron", &[]).ends_with("such as --dim batch=8"));
    let said = error("perceptron", &[("batch", 8), ("length", 2)]);
    let wanted = "no dimension is called \"length\", the model has \"batch\"; correct the --dim, or leave it out";
    assert_eq!(said, wanted);
    assert!(error("perceptron", &[("batch", 1 << 62)]).contains("exceeds 64 bits"));
    assert!(error("branches", &[("batch", 1)]).contains("the model has none; correct the --dim"));
}

#[test]
fn a_dimension_of_zero_has_no_bytes() {
    let found = read("perceptron", &[("batch", 0)]).unwrap();
    assert_eq!(lives(&found), []);
    assert_eq!(found.weight_bytes(), 4096);
}

#[test]
fn what_is_cut_off_is_refused() {
    let whole = data("perceptron");
    let refused = (0..whole.len())
        .filter(|&length| Tensors::read(&whole[..length], &dims(&[("batch", 8)])).is_err())
        .count();
    // Behind the graph is only the version of the operators.
    assert!(refused > whole.len() - 16, "{refused} of {}", whole.len());
    assert_eq!(Tensors::read(b"", &dims(&[])), Err(Error::NoGraph));
    let text = Tensors::read(b"op,id,size,stream,time_us\n", &dims(&[]));
    assert!(matches!(text, Err(Error::Malformed { .. })), "{text:?}");
}

/// A field that has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(0x80 | u8::try_from(length & 0x7f).unwrap());
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(content);
    bytes
}

fn node(reads: &[&str], writes: &[&str], operator: &str, more: &[u8]) -> Vec<u8> {
    let reads = reads.iter().flat_map(|name| field(1, name.as_bytes()));
    let writes = writes.iter().flat_map(|name| field(2, name.as_bytes()));
    let mut content: Vec<u8> = reads.chain(writes).collect();
    content.extend(field(4, operator.as_bytes()));
    content.extend_from_slice(more);
    field(1, &content)
}

/// A value of four float32, as a field of a graph.
fn value(number: u8, name: &str) -> Vec<u8> {
    let shape = field(2, &field(1, &[8, 4]));
    let kind = field(2, &field(1, &[&[8, 1][..], &shape].concat()));
    field(number, &[field(1, name.as_bytes()), kind].concat())
}

fn model(parts: &[Vec<u8>]) -> Result<Tensors, Error> {
    Tensors::read(&field(7, &parts.concat()), &BTreeMap::new())
}

#[test]
fn cycles_and_names_that_are_used_twice_are_refused() {
    let values = [value(11, "x"), value(13, "a"), value(13, "b"), value(12, "b")].concat();
    let one = node(&["x"], &["a"], "Exp", &[]);
    let good = model(&[values.clone(), one.clone(), node(&["a"], &["b"], "Exp", &[])]).unwrap();
    assert_eq!(good.tensors.len(), 3);
    let cycle = model(&[
        values.clone(),
        node(&["b"], &["a"], "Exp", &[]),
        node(&["a"], &["b"], "Exp", &[]),
    ]);
    assert!(matches!(cycle, Err(Error::Unwritten { tensor, .. }) if tensor == "b"));
    let twice = model(&[values.clone(), one.clone(), one.clone()]);
    assert_eq!(twice, Err(Error::WrittenTwice { tensor: "a".into() }));
    let written = model(&[values.clone(), node(&["x"], &["x"], "Exp", &[])]);
    assert_eq!(written, Err(Error::WrittenTwice { tensor: "x".into() }));
    let weight = field(5, &[&[8, 4, 16, 1][..], &field(8, b"w")].concat());
    assert_eq!(model(core::slice::from_ref(&weight)).unwrap().weight_bytes(), 16);
    let weights = model(&[weight.clone(), weight]);
    assert_eq!(weights, Err(Error::WrittenTwice { tensor: "w".into() }));
    let lacking = model(&[values, one]).unwrap_err().to_string();
    assert!(lacking.starts_with("the end of the graph reads \"b\""), "{lacking}");
}

#[test]
fn functions_sequences_and_deep_graphs_are_refused() {
    let graph = field(7, &[value(11, "x"), node(&["x"], &["y"], "Mine", &[])].concat());
    let functions = field(25, &field(1, b"Mine"));
    // The number of the field takes two bytes.
    let functions = [&[0xca, 0x01][..], &functions[1..]].concat();
    let called = Tensors::read(&[graph, functions].concat(), &BTreeMap::new());
    assert!(called.unwrap_err().to_string().contains("inline_local_functions"));
    let sequence = field(11, &[field(1, b"s"), field(2, &field(4, &[]))].concat());
    assert!(model(&[sequence]).unwrap_err().to_string().contains("it is a sequence"));
    let mut inner = Vec::new();
    for _ in 0..2000 {
        inner = node(&[], &[], "If", &field(5, &field(6, &inner)));
    }
    assert!(matches!(model(&[inner]), Err(Error::OverLimit { .. })));
}

#[test]
fn a_hundred_thousand_nodes_are_read() {
    let count = 100_000;
    let name = |number: usize| format!("t{number}");
    let mut parts = vec![value(11, "t0"), value(12, &name(count))];
    for number in 1..=count {
        parts.push(value(13, &name(number)));
        parts.push(node(&[&name(number - 1)], &[&name(number)], "Exp", &[]));
    }
    let found = model(&parts).unwrap();
    assert_eq!(found.tensors.len(), count + 1);
    assert_eq!(found.trace(&Limits::default()).unwrap().summary().peak_live_bytes, 32);
}

#[test]
fn models_are_read_as_they_were() {
    for (name, dimensions) in
        [("perceptron", &[("batch", 8)][..]), ("branches", &[]), ("loop", &[])]
    {
        let found = read(name, dimensions);
        let traced = found
            .as_ref()
            .map_or(String::new(), |found| told(&found.trace(&Limits::default()).unwrap()));
        is_kept(&format!("{name}.onnx.txt"), &format!("{found:#?}\n{traced}"));
    }
}
