//! Readers of weights files take a bounded number of bytes for each byte of a file, whatever is in it.
#![expect(clippy::unwrap_used, reason = "a test that is wrong stops where it is wrong")]

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package counts with the same functions")]
mod meter;
#[path = "weights/write.rs"]
#[expect(dead_code, reason = "this test writes no files of its own")]
mod write;

use core::fmt::Write;
use omniheap_weights::{Dtype, ErrorKind, Tensor, WeightsFile};
use write::{Folder, Given, Pickle};
use zip::CompressionMethod;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Copies that a value of one byte may become: a cell on the stack, in a list, and on its way from one to the other.
const TIMES: usize = 32;
const MANY: usize = 100_000;

fn read(name: &str, file: &[u8]) -> Result<Vec<Tensor>, omniheap_weights::Error> {
    println!("{name}: {} bytes", file.len());
    meter::within(TIMES, file, || WeightsFile::tensors_in(file))
}

/// Reads a PyTorch file with this pickle, beside a tensor of 16 bytes.
fn read_pickle(name: &str, pickle: &Pickle) -> Result<Vec<Tensor>, omniheap_weights::Error> {
    let given = [Given::new("a", Dtype::F32, &[4], 1)];
    read(name, &write::torch(&pickle.0, &given, CompressionMethod::Stored))
}

fn is_over(outcome: Result<Vec<Tensor>, omniheap_weights::Error>) -> bool {
    outcome.is_err_and(|error| matches!(error.kind(), ErrorKind::OverLimit { .. }))
}

fn start() -> Pickle {
    Pickle(vec![0x80, 2])
}

fn pickles() {
    let mut itself = start();
    itself.op(b"]q\0(").op(&b"h\0".repeat(MANY)).op(b"e.");
    assert!(is_over(read_pickle("a list that holds itself", &itself)));
    let mut dict = start();
    dict.op(b"}q\0X\x01\0\0\0aq\x010(").op(&b"h\x01h\0".repeat(MANY)).op(b"u.");
    assert!(is_over(read_pickle("a dictionary that holds itself", &dict)));
    // Each list holds the one before it ten times: ten billion tensors.
    let mut tower = start();
    tower.tensor(&Given::new("a", Dtype::F32, &[4], 1), "0", &[1]).op(b"q\0");
    for level in 0..10 {
        tower.op(b"0(").op(&[b'h', level].repeat(10)).op(b"lq").op(&[level + 1]);
    }
    assert!(is_over(read_pickle("a tower of lists", tower.op(b"."))));
    let mut tied = start();
    tied.tensor(&Given::new("a", Dtype::F32, &[4], 1), "0", &[1]).op(b"q\0");
    tied.op(b"0(").op(&b"h\0".repeat(MANY)).op(b"l.");
    assert!(is_over(read_pickle("one tensor again and again", &tied)));
    // An empty tensor takes no bytes, so nothing was said of its strides, and each reference read them all.
    let mut strided = start();
    strided.tensor(&Given::new("a", Dtype::F32, &[0], 1), "0", &[1; 1000]).op(b"q\0");
    strided.op(b"0(").op(&b"h\0".repeat(100)).op(b"l.");
    let outcome = read_pickle("more strides than extents", &strided);
    assert!(outcome.is_err_and(|error| matches!(error.kind(), ErrorKind::Header(_))));
    let mut long = start();
    long.tensor(&Given::new("a", Dtype::F32, &[0; 1000], 1), "0", &[1; 1000]).op(b"q\0");
    long.op(b"0(").op(&b"h\0".repeat(100)).op(b"l.");
    assert!(is_over(read_pickle("a long shape again and again", &long)));
    for (name, opcodes) in [("lists", &b"]"[..]), ("dictionaries", b"}"), ("nothing", b"N")] {
        let mut list = start();
        let _ = read_pickle(name, list.op(b"](").op(&opcodes.repeat(MANY)).op(b"e."));
    }
    let mut shape = start();
    shape.op(b"c").op(b"torch._utils\n_rebuild_tensor_v2\n((").text("storage");
    shape.global("torch", "FloatStorage").text("0").text("cpu").int(4).op(b"tQK\0(");
    shape.op(&b"K\x01".repeat(MANY)).op(b"tq\0h\0\x89c").op(b"collections\nOrderedDict\n)RtR.");
    let _ = read_pickle("a shape", &shape);
}

/// A zip file of many entries that hold nothing.
fn directories() {
    let names: Vec<_> =
        (0..MANY / 10).map(|at| Given::new(&at.to_string(), Dtype::U8, &[0], 1)).collect();
    let file = write::torch(&start().op(b"}.").0, &names, CompressionMethod::Stored);
    assert!(read("empty storages", &file).is_ok());
}

/// Lists of tensors by file, of which none is there.
fn indices() {
    let folder = Folder::new();
    for (name, shards) in [("one file", 1), ("a file for each tensor", MANY), ("no names", 0)] {
        let mut map = String::new();
        for at in 0..MANY {
            match shards {
                0 => map.push_str(r#""":"s","#),
                _ => write!(map, r#""{at}":"{}","#, at % shards).unwrap(),
            }
        }
        let index = format!(r#"{{"weight_map":{{{}}}}}"#, map.trim_end_matches(','));
        let path = folder.write("model.safetensors.index.json", index.as_bytes());
        println!("{name}: {} bytes", index.len());
        let read = meter::within(TIMES, index.as_bytes(), || WeightsFile::open(&[path]));
        assert!(matches!(read.unwrap_err().kind(), ErrorKind::MissingShard(_)));
    }
}

fn headers() {
    let mut entries = String::new();
    for at in 0..MANY {
        write!(entries, r#""{at}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},"#).unwrap();
    }
    let header = format!("{{{}}}", entries.trim_end_matches(','));
    assert_eq!(read("safetensors", &write::with_header(&header, &[])).unwrap().len(), MANY);
    let shape = "0,".repeat(MANY);
    let entry = format!(r#"{{"a":{{"dtype":"U8","shape":[{shape}0],"data_offsets":[0,0]}}}}"#);
    let _ = read("a long shape", &write::with_header(&entry, &[]));
    let metadata = format!(r#"{{"__metadata__":{}{}}}"#, "[".repeat(MANY), "]".repeat(MANY));
    let _ = read("nested metadata", &write::with_header(&metadata, &[]));
    let tensors: Vec<_> =
        (0..MANY).map(|at| Given::new(&at.to_string(), Dtype::F32, &[0], 1)).collect();
    let _ = read("GGUF", &write::gguf(3, 32, &[], &tensors));
    let strings =
        [&8_u32.to_le_bytes()[..], &(MANY as u64).to_le_bytes(), &vec![0; 8 * MANY]].concat();
    assert!(
        read("texts of GGUF", &write::gguf(3, 32, &[write::pair("a", 9, &strings)], &[])).is_ok()
    );
}

/// Reads the files that fuzzers start from: they count with the same limit.
fn corpora() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    for entry in std::fs::read_dir(folder.join("weights_header")).unwrap() {
        let path = entry.unwrap().path();
        let _ = read(&path.display().to_string(), &std::fs::read(&path).unwrap());
    }
    for entry in std::fs::read_dir(folder.join("weights_pickle")).unwrap() {
        let path = entry.unwrap().path();
        let pickle = Pickle(std::fs::read(&path).unwrap());
        let _ = read_pickle(&path.display().to_string(), &pickle);
    }
}

/// One test, so that nothing else allocates while it counts.
#[test]
fn no_reader_takes_many_times_its_input() {
    pickles();
    directories();
    indices();
    headers();
    corpora();
}
