//! Bytes that a model may take, for each byte of it: a small file does not end a machine.

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package uses all of this file")]
mod meter;

use omniheap_fit::onnx::{Error, Tensors};

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Bytes for each byte of the largest models that are made of what costs most.
const TIMES: usize = 32;

/// Bytes of each model.
const SIZE: usize = 6 << 20;

/// Returns a field of this number that holds `inside`.
fn field(number: u8, inside: &[u8]) -> Vec<u8> {
    let mut made = vec![number << 3 | 2];
    let mut length = inside.len();
    while length > 0x7f {
        made.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    made.push(u8::try_from(length).expect("seven bits"));
    made.extend_from_slice(inside);
    made
}

fn many(one: &[u8]) -> Vec<u8> {
    one.repeat(SIZE / one.len())
}

/// One test: nothing else may allocate meanwhile.
#[test]
fn a_model_takes_a_few_times_its_bytes() {
    parts();
    names();
}

fn parts() {
    let node = |inside: &[u8]| field(7, &field(1, inside));
    let shape = |inside: &[u8]| field(7, &field(11, &field(2, &field(1, &field(2, inside)))));
    let models: [(&str, Vec<u8>); 9] = [
        ("empty nodes", field(7, &many(&field(1, &[])))),
        ("empty weights", field(7, &many(&field(5, &[])))),
        ("empty values", field(7, &many(&field(13, &[])))),
        ("empty sparse weights", field(7, &many(&field(15, &[])))),
        ("empty inputs of one node", node(&many(&field(1, &[])))),
        ("empty dimensions", shape(&many(&field(1, &[])))),
        ("sizes of one weight", field(7, &field(5, &field(1, &many(&[1]))))),
        ("empty graphs of one node", node(&many(&field(5, &field(6, &[]))))),
        ("functions", many(&field(25, &[]))),
    ];
    for (what, model) in models {
        println!("{what}");
        let read = meter::within(TIMES, &model, || Tensors::read(&model, &Default::default()));
        let is_over = matches!(read, Err(Error::OverLimit { .. }));
        let is_part =
            what.starts_with("empty") && !what.contains("inputs") && !what.contains("dim");
        assert_eq!(is_over, is_part, "{what}: parts without a name are no model's");
    }
}

fn names() {
    // A node with one output and nothing else, which is an input of the next one.
    let mut nodes = Vec::new();
    for number in 0..SIZE / 40 {
        let (from, to) = (format!("{number:x}"), format!("{:x}", number + 1));
        let [from, to] = [field(1, from.as_bytes()), field(2, to.as_bytes())];
        nodes.extend(field(1, &[from, to].concat()));
    }
    let model = field(7, &nodes);
    let read = meter::within(TIMES, &model, || Tensors::read(&model, &Default::default()));
    assert!(matches!(read, Err(Error::Unwritten { .. })), "nothing writes the first one");
}
