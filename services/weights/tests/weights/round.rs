//! Tests that files read back as they were written: names, types, shapes and bytes.

use crate::write::{self, Folder, Given};
use omniheap_weights::{Dtype, Packing, WeightsFile};
use proptest::prelude::*;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

fn check(bytes: &[u8], given: &[Given]) {
    let tensors = WeightsFile::tensors_in(bytes).unwrap();
    assert_eq!(tensors.len(), given.len());
    for one in given {
        let tensor = tensors.iter().find(|tensor| *tensor.name == one.name).unwrap();
        assert_eq!((tensor.dtype, &*tensor.shape), (one.dtype, &*one.shape));
        let range = usize::try_from(tensor.offset).unwrap()..usize::try_from(tensor.end()).unwrap();
        assert_eq!(&bytes[range], one.bytes, "{}", one.name);
    }
}

fn tensors(types: &'static [Dtype]) -> impl Strategy<Value = Vec<Given>> {
    let one =
        (proptest::sample::select(types), proptest::collection::vec(0_u64..5, 0..4), any::<u64>());
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let build = |(number, (dtype, mut shape, seed)): (usize, (Dtype, Vec<u64>, u64))| {
            let (per_block, _) = dtype.block();
            if per_block > 1 {
                shape.push(per_block * 2);
            }
            Given::new(&format!("layers.{number}.weight é"), dtype, &shape, seed)
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

const COMMON: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I64, Dtype::U8];
const BLOCKS: &[Dtype] = &[
    Dtype::F32,
    Dtype::Q4_0,
    Dtype::Q4K,
    Dtype::Q6K,
    Dtype::Iq1M,
    Dtype::Mxfp4,
    Dtype::Nvfp4,
    Dtype::Q1_0,
];

proptest! {
    #[test]
    fn safetensors(given in tensors(COMMON)) {
        check(&write::safetensors(&given), &given);
    }

    #[test]
    fn gguf(given in tensors(BLOCKS), version in 2_u32..4, shift in 0_u32..8) {
        let pairs = [
            write::pair("general.architecture", 8, b"\x05\0\0\0\0\0\0\0llama"),
            write::pair("tokens", 9, b"\x08\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0"),
        ];
        check(&write::gguf(version, 1 << shift, &pairs, &given), &given);
    }

    #[test]
    fn torch(given in tensors(COMMON)) {
        let pickle = write::state_dict(&given).0;
        check(&write::torch(&pickle, &given, CompressionMethod::Stored), &given);
    }

    #[test]
    fn cut_and_changed_files_are_refused_or_read_within_their_bounds(
        given in tensors(COMMON),
        cut in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        format in 0..3,
    ) {
        let mut bytes = match format {
            0 => write::safetensors(&given),
            1 => write::gguf(3, 32, &[], &given.iter().filter(|one| one.dtype != Dtype::U8).cloned().collect::<Vec<_>>()),
            _ => write::torch(&write::state_dict(&given).0, &given, CompressionMethod::Stored),
        };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok(tensors) = WeightsFile::tensors_in(&bytes) {
            prop_assert!(tensors.iter().all(|tensor| tensor.end() <= bytes.len() as u64));
        }
    }
}

#[test]
fn sizes_of_block_types_are_exact() {
    // Bits per weight as the format's documentation lists them.
    for (dtype, bits) in [
        (Dtype::Q4_0, 4.5),
        (Dtype::Q8_0, 8.5),
        (Dtype::Q2K, 2.625),
        (Dtype::Q3K, 3.4375),
        (Dtype::Q4K, 4.5),
        (Dtype::Q5K, 5.5),
        (Dtype::Q6K, 6.5625),
        (Dtype::Iq2Xxs, 2.0625),
        (Dtype::Iq1S, 1.5625),
        (Dtype::Tq1_0, 1.6875),
        (Dtype::Mxfp4, 4.25),
        (Dtype::Nvfp4, 4.5),
        (Dtype::Q1_0, 1.125),
        (Dtype::F4, 4.0),
        (Dtype::F6E2M3, 6.0),
    ] {
        let bytes = u32::try_from(dtype.bytes(256).unwrap()).unwrap();
        assert!((f64::from(bytes) * 8.0 / 256.0 - bits).abs() < 1e-9, "{}", dtype.name());
    }
    assert_eq!(Dtype::Q4_0.bytes(33), None);
    assert_eq!(Dtype::F4.bytes(3), None);
}

#[test]
fn an_index_joins_shards() {
    let folder = Folder::new();
    let (one, two) =
        (Given::new("a", Dtype::F32, &[4], 1), Given::new("b", Dtype::F16, &[2, 3], 2));
    folder.write("one.safetensors", &write::safetensors(core::slice::from_ref(&one)));
    // A tensor that the index does not name is left out.
    let stray = Given::new("stray", Dtype::U8, &[1], 3);
    folder.write("two.safetensors", &write::safetensors(&[two, stray]));
    let index = br#"{"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
    let path = folder.write("model.safetensors.index.json", index);
    let file = WeightsFile::open(&[path]).unwrap();
    assert_eq!(file.files().len(), 2);
    assert_eq!(file.tensors().len(), 2);
    assert_eq!(file.get("b").unwrap().file, 1);
    assert_eq!(file.get("a").unwrap().size, 16);
    assert!(file.get("stray").is_none());
}

#[test]
fn nested_checkpoints_have_dotted_names() {
    let given = Given::new("w", Dtype::F32, &[2], 1);
    let mut pickle = write::Pickle(vec![0x80, 2]);
    pickle.op(b"}(").text("model").op(b"}").text("w").tensor(&given, "0", &[1]).op(b"s");
    pickle.text("step").int(7).text("list").op(b"](").tensor(&given, "0", &[1]).op(b"eu.");
    let bytes = write::torch(&pickle.0, &[given], CompressionMethod::Stored);
    let tensors = WeightsFile::tensors_in(&bytes).unwrap();
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["model.w", "list.0"]);
    assert_eq!(tensors[0].offset, tensors[1].offset, "tied tensors share bytes");
}

#[test]
fn tensors_with_attributes_are_read_and_other_data_is_passed_over() {
    let given = Given::new("w", Dtype::F32, &[2], 1);
    let mut pickle = write::Pickle(vec![0x80, 2]);
    pickle.op(b"}(").text("state");
    pickle.global("torch._utils", "_rebuild_parameter_with_state").op(b"(");
    pickle.tensor(&given, "0", &[1]).op(&[0x89]).op(b"}}tR").text("buffer");
    pickle.global("torch._tensor", "_rebuild_from_type_v2").op(b"(");
    pickle.global("torch._utils", "_rebuild_tensor_v2").global("torch.nn.parameter", "Buffer");
    pickle.arguments(&given, "0", &[1], b"").op(b"}tR").text("kind").global("torch", "bfloat16");
    pickle.text("place").global("torch", "device").op(b"(").text("cpu").op(b"tR");
    pickle.text("bytes").global("_codecs", "encode").op(b"(").text("x").text("latin1").op(b"tR");
    pickle.text("set").global("__builtin__", "set").op(b"(](").int(1).op(b"etRu.");
    let bytes = write::torch(&pickle.0, &[given], CompressionMethod::Stored);
    let tensors = WeightsFile::tensors_in(&bytes).unwrap();
    let names: Vec<_> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.size)).collect();
    assert_eq!(names, [("state", 8), ("buffer", 8)]);
}

/// PyTorch writes the records of a zip64 file always, and the plain end of a zip file behind them.
#[test]
fn the_length_of_a_files_name_does_not_matter() {
    let given = [Given::new("a", Dtype::F32, &[64], 1)];
    let pickle = write::state_dict(&given).0;
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for stem in (1..40).map(|length| "n".repeat(length)) {
        let mut bytes = write::torch_as(&stem, &pickle, &given, stored);
        let end = bytes.windows(4).rposition(|part| part == b"PK\x05\x06").unwrap();
        let number = |at: usize| bytes[at..at + 4].iter().copied().chain([0; 4]);
        let (size, offset) = (number(end + 12), number(end + 16));
        let mut records = b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x1e\x03\x2d\0\0\0\0\0\0\0\0\0".to_vec();
        records.extend([3_u64.to_le_bytes(); 2].concat());
        records.extend(size.chain(offset));
        records.extend(b"PK\x06\x07\0\0\0\0");
        records.extend((end as u64).to_le_bytes());
        records.extend(1_u32.to_le_bytes());
        bytes.splice(end..end, records);
        let found = WeightsFile::tensors_in(&bytes).map(|found| found[0].size);
        assert_eq!(found.unwrap(), 256, "{}", stem.len());
    }
}

#[test]
fn packed_and_sparse_tensors_stand_for_more_parameters() {
    let folder = Folder::new();
    let plain = |name: &str, dtype, elements| Given::new(name, dtype, &[elements], 1);
    let bytes = write::safetensors(&[
        plain("a.weight", Dtype::F16, 10),
        plain("b.weight_packed", Dtype::U8, 10),
        plain("c.weight_packed", Dtype::U8, 10),
        plain("c.meta", Dtype::I64, 1),
        plain("d.compressed", Dtype::Bf16, 10),
        plain("d.bitmask", Dtype::U8, 3),
        plain("e.weight", Dtype::U8, 10),
        plain("e.weight.quant_state.bitsandbytes__nf4", Dtype::U8, 1),
    ]);
    let file = WeightsFile::open(&[folder.write("w", &bytes)]).unwrap();
    let parameters = |name: &str| file.parameters(file.get(name).unwrap());
    let names = ["a.weight", "b.weight_packed", "c.weight_packed", "d.compressed", "e.weight"];
    assert_eq!(names.map(parameters), [10, 20, 40, 20, 20]);
    assert_eq!(file.packing(file.get("c.weight_packed").unwrap()), Packing::SparseInt4);
}
