//! The reader of models takes a bounded number of bytes for each byte of a file, whatever is in it.

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package counts with the same functions")]
mod meter;

use omniheap_fit::onnx::Tensors;
use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Bytes that a node without fields, of two bytes, may become: itself, and the room that its list keeps for more.
const TIMES: usize = 256;
const MANY: usize = 100_000;
/// Graphs inside graphs, one less than the most.
const DEPTH: usize = 31;

/// A field of a message, and what is in it.
fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = inner.len();
    while length > 127 {
        bytes.push(u8::try_from(length & 127).expect("seven bits") | 128);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).expect("seven bits"));
    bytes.extend_from_slice(inner);
    bytes
}

/// Reads a model with this graph.
fn read(name: &str, graph: &[u8]) {
    let file = field(7, graph);
    println!("{name}: {} bytes", file.len());
    let _ = meter::within(TIMES, &file, || Tensors::read(&file, &BTreeMap::new()));
}

/// A value with a name of its own, and a shape of one dimension.
fn value(number: usize) -> Vec<u8> {
    let shape = field(2, &field(1, &[8, 1]));
    let kind = field(1, &[&[8, 1][..], &shape].concat());
    [field(1, format!("{number:x}").as_bytes()), field(2, &kind)].concat()
}

/// One test, so that nothing else allocates while it counts.
#[test]
fn no_model_takes_many_times_its_size() {
    for (name, number) in
        [("nodes", 1), ("constants", 5), ("inputs", 11), ("outputs", 12), ("sparse constants", 15)]
    {
        read(name, &field(number, &[]).repeat(MANY));
    }
    read("inputs of a node", &field(1, &field(1, &[]).repeat(MANY)));
    let shape = field(2, &field(1, &[]).repeat(MANY));
    read("a shape", &field(13, &field(2, &field(1, &shape))));
    read("a constant's shape", &field(5, &field(1, &vec![0; MANY])));
    let mut nested = Vec::new();
    for _ in 0..DEPTH {
        nested = field(1, &field(5, &field(6, &nested)));
    }
    read("graphs inside graphs", &nested.repeat(MANY / nested.len()));
    let values: Vec<_> = (0..MANY / 10).flat_map(|number| field(11, &value(number))).collect();
    read("values with names", &values);
}
