//! Every kind of bad file is refused by its own error, which names the place.

use crate::write::{self, Folder, Given, Pickle, with_header};
use omniheap_core::Manager;
use omniheap_host::Host;
use omniheap_weights::{Dtype, ErrorKind, Load, LoadWeights, WeightsFile};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Asserts that bytes are refused with a kind.
macro_rules! refused {
    ($bytes:expr, $kind:pat $(if $guard:expr)?) => {{
        let error = WeightsFile::tensors_in(&$bytes).expect_err("the file is bad");
        assert!(matches!(error.kind(), $kind $(if $guard)?), "{error:?}");
        error
    }};
}

fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

/// A safetensors file of these entries with `data` bytes of data.
fn file(entries: &[String], data: usize) -> Vec<u8> {
    with_header(&format!("{{{}}}", entries.join(",")), &vec![0; data])
}

#[test]
fn header_lengths() {
    let mut long = with_header("{}", &[]);
    long[..8].copy_from_slice(&100_000_001_u64.to_le_bytes());
    refused!(long, ErrorKind::HeaderTooLong { length: 100_000_001, .. });
    long[..8].copy_from_slice(&99_u64.to_le_bytes());
    let error = refused!(long, ErrorKind::Truncated { needs: 107, has: 10 });
    assert_eq!(error.offset(), Some(10));
    refused!([], ErrorKind::UnknownFormat);
    refused!(*b"not weights", ErrorKind::UnknownFormat);
    assert_eq!(WeightsFile::tensors_in(&with_header("{}", &[])).unwrap(), []);
}

#[test]
fn offsets_of_safetensors() {
    refused!(file(&[entry("a", "U8", "[4]", 0, 4), entry("b", "U8", "[4]", 2, 6)], 6), ErrorKind::Overlap(name) if name == "b");
    refused!(
        file(&[entry("a", "U8", "[4]", 0, 4), entry("b", "U8", "[2]", 6, 8)], 8),
        ErrorKind::Hole { bytes: 2, .. }
    );
    refused!(file(&[entry("a", "U8", "[4]", 1, 5)], 5), ErrorKind::Hole { bytes: 1, .. });
    refused!(file(&[entry("a", "U8", "[4]", 4, 0)], 4), ErrorKind::Backwards(_));
    refused!(file(&[entry("a", "U8", "[4]", 0, 4)], 5), ErrorKind::Trailing(1));
    refused!(file(&[entry("a", "U8", "[4]", 0, 4)], 3), ErrorKind::Truncated { .. });
    refused!(
        file(&[entry("a", "F32", "[4]", 0, 4)], 4),
        ErrorKind::SizeMismatch { needs: 16, has: 4, .. }
    );
    refused!(
        file(&[entry("a", "U8", "[18446744073709551615]", 0, u64::MAX)], 1),
        ErrorKind::Header(_)
    );
}

#[test]
fn names_types_and_shapes_of_safetensors() {
    refused!(
        file(&[entry("a", "U8", "[1]", 0, 1), entry("a", "U8", "[1]", 1, 2)], 2),
        ErrorKind::DuplicateName(_)
    );
    refused!(file(&[entry("a", "Q9", "[1]", 0, 1)], 1), ErrorKind::UnknownDtype { .. });
    refused!(file(&[entry("a", "Q4_0", "[32]", 0, 18)], 18), ErrorKind::UnknownDtype { .. });
    refused!(file(&[entry("a", "F4", "[3]", 0, 2)], 2), ErrorKind::Shape { .. });
    refused!(
        file(&[entry("a", "U8", "[4294967296,4294967296]", 0, 1)], 1),
        ErrorKind::Shape { .. }
    );
    // A zero at the end hides no overflow.
    refused!(
        file(&[entry("a", "U8", "[4294967296,4294967296,0]", 0, 0)], 0),
        ErrorKind::Shape { .. }
    );
    refused!(file(&[entry("a", "U8", "[-1]", 0, 1)], 1), ErrorKind::Header(_));
    refused!(with_header("{]", &[]), ErrorKind::Header(_));
    let mut text = file(&[entry("a", "U8", "[1]", 0, 1)], 1);
    let at = text.iter().position(|&byte| byte == b'a').unwrap();
    text[at] = 0xff;
    let error = refused!(text, ErrorKind::NotUtf8);
    assert_eq!(error.offset(), Some(at as u64));
}

#[test]
fn names_with_a_zero_byte() {
    refused!(file(&[entry("a\\u0000b", "U8", "[1]", 0, 1)], 1), ErrorKind::ZeroByte(name) if name == "a\0b");
    let given = [Given::new("a\0b", Dtype::F32, &[4], 1)];
    refused!(write::gguf(3, 32, &[], &given), ErrorKind::ZeroByte(_));
    let pickle = write::state_dict(&given).0;
    let torch = write::torch(&pickle, &given, CompressionMethod::Stored);
    let error = refused!(torch, ErrorKind::ZeroByte(_));
    assert!(error.to_string().contains(r#""a\0b""#), "{error}");
}

#[test]
fn zero_size_tensors_are_read() {
    let bytes = file(&[entry("a", "F32", "[0,4]", 0, 0), entry("b", "U8", "[1]", 0, 1)], 1);
    assert_eq!(WeightsFile::tensors_in(&bytes).unwrap()[0].size, 0);
}

#[test]
fn versions_and_alignments_of_gguf() {
    let tensors = [Given::new("a", Dtype::F32, &[4], 1)];
    refused!(write::gguf(1, 32, &[], &tensors), ErrorKind::Version(1));
    refused!(write::gguf(4, 32, &[], &tensors), ErrorKind::Version(4));
    refused!(write::gguf(3 << 24, 32, &[], &tensors), ErrorKind::Endianness);
    refused!(write::gguf(3, 0, &[], &tensors), ErrorKind::Alignment(0));
    refused!(write::gguf(3, 33, &[], &tensors), ErrorKind::Alignment(33));
    let wrong = write::pair("general.alignment", 10, &32_u64.to_le_bytes());
    refused!(write::gguf(3, 32, &[wrong], &tensors), ErrorKind::Header(_));
}

#[test]
fn counts_of_gguf() {
    let huge = |kind: u32| {
        let mut value = kind.to_le_bytes().to_vec();
        value.extend_from_slice(&(1_u64 << 60).to_le_bytes());
        write::gguf(3, 32, &[write::pair("array", 9, &value)], &[])
    };
    refused!(huge(4), ErrorKind::OverLimit { .. });
    refused!(huge(8), ErrorKind::OverLimit { .. });
    refused!(huge(9), ErrorKind::OverLimit { .. });
    let mut counted = write::gguf(3, 32, &[], &[]);
    counted[8..16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused!(counted, ErrorKind::OverLimit { what: "tensors in a file of this size", .. });
    refused!(write::gguf(3, 32, &[write::pair("key", 99, &[])], &[]), ErrorKind::Header(_));
    let text = write::pair("key", 8, &u64::MAX.to_le_bytes());
    refused!(write::gguf(3, 32, &[text], &[]), ErrorKind::Truncated { .. });
}

#[test]
fn tensors_of_gguf() {
    let given = [Given::new("a", Dtype::Q4_0, &[2, 32], 1), Given::new("b", Dtype::F32, &[2], 2)];
    let good = write::gguf(3, 32, &[], &given);
    let mut long = good.clone();
    long.resize(good.len() + 64, 0);
    refused!(long, ErrorKind::Trailing(_));
    refused!(good[..good.len() - 1], ErrorKind::Truncated { .. });
    let twice = [given[1].clone(), given[1].clone()];
    refused!(write::gguf(3, 32, &[], &twice), ErrorKind::DuplicateName(_));
    let mut odd = given[0].clone();
    odd.shape = vec![32, 2]; // As many elements, but no row is a whole block.
    refused!(write::gguf(3, 32, &[], &[odd]), ErrorKind::Shape { .. });
    // The offset of `b` is the last number of the header: padding and data follow.
    let at = good.windows(8).rposition(|bytes| bytes == 64_u64.to_le_bytes()).unwrap();
    let mut moved = good.clone();
    moved[at..at + 8].copy_from_slice(&96_u64.to_le_bytes());
    refused!(moved, ErrorKind::Hole { bytes: 32, .. });
    moved[at..at + 8].copy_from_slice(&32_u64.to_le_bytes());
    refused!(moved, ErrorKind::Overlap(_));
    let at = good.windows(4).position(|bytes| bytes == 2_u32.to_le_bytes()).unwrap();
    let mut deep = good.clone();
    deep[at..at + 4].copy_from_slice(&9_u32.to_le_bytes());
    assert!(WeightsFile::tensors_in(&deep).is_err());
}

#[test]
fn pickles_that_want_code_are_refused_and_named() {
    let given = [Given::new("a", Dtype::F32, &[4], 1)];
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("posix", "system").op(b"(").text("true").op(b"tR.");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    let error = refused!(bytes, ErrorKind::Forbidden(Some(name)) if name == "posix.system");
    assert!(error.to_string().contains("posix.system"), "{error}");
    // A class that may be named may not be called.
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("torch", "FloatStorage").op(b")R.");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    refused!(bytes, ErrorKind::Forbidden(Some(_)));
    // Protocol 4 takes the name from the stack.
    let mut pickle = Pickle(vec![0x80, 4]);
    pickle.text("builtins").text("eval").op(&[0x93]).op(b".");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    refused!(bytes, ErrorKind::Forbidden(Some(name)) if name == "builtins.eval");
}

#[test]
fn tensors_that_are_more_than_their_bytes_are_refused() {
    let given = [Given::new("a", Dtype::Bf16, &[4], 1)];
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("torch._utils", "_rebuild_tensor_v2");
    let conjugated = b"}X\x04\0\0\0conj\x88s";
    pickle.arguments(&given[0], "0", &[1], conjugated).op(b"R.");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    refused!(bytes, ErrorKind::Unresolved(_));
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("torch._utils", "_rebuild_sparse_tensor").op(b")R.");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    refused!(bytes, ErrorKind::Layout(name) if name.ends_with("_rebuild_sparse_tensor"));
    // A class may say how to make anything; only tensors are made.
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("torch._tensor", "_rebuild_from_type_v2").op(b"(").global("torch", "device");
    pickle.global("torch", "Tensor").arguments(&given[0], "0", &[1], b"").op(b"}tR.");
    let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
    refused!(bytes, ErrorKind::Header(_));
}

#[test]
fn tensors_of_other_types_are_refused_by_their_type() {
    let given = [Given::new("a", Dtype::F32, &[4], 1)];
    for dtype in ["complex32", "float4_e2m1fn_x2", "uint7"] {
        let mut pickle = Pickle(vec![0x80, 2]);
        pickle.op(b"}").text("a").global("torch._utils", "_rebuild_tensor_v3");
        let mut named = Pickle(Vec::new());
        named.global("torch", dtype);
        pickle.arguments(&given[0], "0", &[1], &named.0).op(b"Rs.");
        let bytes = write::torch(&pickle.0, &given, CompressionMethod::Stored);
        let error = refused!(bytes, ErrorKind::UnknownDtype { name, .. } if name == "a");
        assert!(error.to_string().contains(dtype), "{error}");
        // As data beside tensors it says nothing about them.
        let mut beside = Pickle(vec![0x80, 2]);
        beside.op(b"}(").text("a").tensor(&given[0], "0", &[1]).text("of").op(&named.0).op(b"u.");
        let bytes = write::torch(&beside.0, &given, CompressionMethod::Stored);
        assert_eq!(WeightsFile::tensors_in(&bytes).unwrap().len(), 1, "{dtype}");
    }
}

#[test]
fn dictionaries_that_hold_themselves_end() {
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.op(b"}q\0").text("self").op(b"h\0s.");
    let bytes = write::torch(&pickle.0, &[], CompressionMethod::Stored);
    refused!(bytes, ErrorKind::OverLimit { what: "nested values", .. });
}

#[test]
fn tensors_of_pickles() {
    let given = [Given::new("a", Dtype::F32, &[2, 3], 1)];
    let with = |one: &Given, key: &str, strides: &[u64]| {
        let mut pickle = Pickle(vec![0x80, 2]);
        pickle.op(b"}").text("a").tensor(one, key, strides).op(b"s.");
        write::torch(&pickle.0, &given, CompressionMethod::Stored)
    };
    assert!(WeightsFile::tensors_in(&with(&given[0], "0", &[3, 1])).is_ok());
    refused!(with(&given[0], "0", &[1, 2]), ErrorKind::NotContiguous(_));
    refused!(with(&given[0], "7", &[3, 1]), ErrorKind::MissingEntry(_));
    let large = Given { shape: vec![2, 4], ..given[0].clone() };
    refused!(with(&large, "0", &[4, 1]), ErrorKind::SizeMismatch { needs: 32, has: 24, .. });
    let vast = Given { shape: vec![u64::MAX >> 9, 1 << 20], ..given[0].clone() };
    refused!(with(&vast, "0", &[1, 1]), ErrorKind::Shape { .. });
}

#[test]
fn zip_entries_must_be_stored_plainly() {
    let given = [Given::new("a", Dtype::F32, &[64], 1)];
    let good = write::torch(&write::state_dict(&given).0, &given, CompressionMethod::Stored);
    // Compression method and encryption flag, in the central directory as in front of the entry.
    let set = |local: usize, central: usize, value: u8| {
        let mut bytes = good.clone();
        for (magic, at) in [(b"PK\x03\x04", local), (b"PK\x01\x02", central)] {
            let found = bytes.windows(4).position(|part| part == magic).unwrap();
            bytes[found + at] = value;
        }
        bytes
    };
    refused!(set(8, 10, 8), ErrorKind::Compressed(_));
    refused!(set(6, 8, 1), ErrorKind::Encrypted(_));
    refused!(good[..good.len() - 30], ErrorKind::Header(_));
}

#[test]
fn zip64_entries_are_read_and_may_not_leave_the_file() {
    let given = [Given::new("a", Dtype::F32, &[64], 1)];
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let pickle = write::state_dict(&given).0;
    let good = write::torch_with(&pickle, &given, stored.large_file(true));
    // In front of an entry and in the directory, both sizes have 64 bits.
    let sizes = [256_u64.to_le_bytes(), 256_u64.to_le_bytes()].concat();
    let places: Vec<_> = (0..good.len()).filter(|&at| good[at..].starts_with(&sizes)).collect();
    assert_eq!(places.len(), 2, "the file is no zip64");
    let found = WeightsFile::tensors_in(&good).unwrap();
    assert_eq!((found.len(), found[0].size), (1, 256));
    for size in [good.len() as u64, 1 << 60, u64::MAX] {
        let mut huge = good.clone();
        for at in &places {
            huge[*at..at + 16].copy_from_slice(&[size.to_le_bytes(); 2].concat());
        }
        refused!(huge, ErrorKind::Truncated { .. } | ErrorKind::Header(_));
    }
}

#[test]
fn names_that_are_no_utf8() {
    let given = [Given::new("name", Dtype::F32, &[4], 1)];
    let pickle = write::state_dict(&given).0;
    let torch = write::torch(&pickle, &given, CompressionMethod::Stored);
    for (mut bytes, text) in [
        (write::gguf(3, 32, &[], &given), &b"name"[..]),
        (write::safetensors(&given), b"name"),
        (torch.clone(), b"name"),
        (torch, b"data/0"),
    ] {
        let found: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(text)).collect();
        found.into_iter().for_each(|at| bytes[at] = 0xff);
        refused!(bytes, ErrorKind::NotUtf8);
    }
}

#[test]
fn byte_order_of_pickles() {
    let given = [Given::new("a", Dtype::F32, &[4], 1)];
    let mut bytes = write::torch(&write::state_dict(&given).0, &given, CompressionMethod::Stored);
    let at = bytes.windows(6).position(|part| part == b"little").unwrap();
    bytes[at..at + 6].copy_from_slice(b"biggie");
    refused!(bytes, ErrorKind::Endianness);
}

#[test]
fn paths() {
    let folder = Folder::new();
    let kind = |path: &std::path::Path| WeightsFile::open(&[path]).unwrap_err();
    assert!(matches!(WeightsFile::open::<&str>(&[]).unwrap_err().kind(), ErrorKind::NoFiles));
    assert!(matches!(kind(&folder.0).kind(), ErrorKind::NotAFile));
    assert!(matches!(kind(&folder.0.join("missing")).kind(), ErrorKind::Io(_)));
    let good = write::safetensors(&[Given::new("a", Dtype::U8, &[4], 1)]);
    let one = folder.write("one.safetensors", &good);
    let two = folder.write("two.safetensors", &good);
    let error = WeightsFile::open(&[&one, &two]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateName(_)), "{error:?}");
    assert_eq!(error.path(), two);
}

#[cfg(unix)]
#[test]
fn fifos_and_loops_of_links() {
    let folder = Folder::new();
    let link = folder.0.join("loop");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let error = WeightsFile::open(&[&link]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
    let fifo = folder.0.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let error = WeightsFile::open(&[&fifo]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotAFile), "{error:?}");
}

#[test]
fn indices() {
    let folder = Folder::new();
    folder.write("one.safetensors", &write::safetensors(&[Given::new("a", Dtype::U8, &[4], 1)]));
    let open = |map: &str| {
        let text = format!("{{\"weight_map\":{map}}}");
        WeightsFile::open(&[folder.write("index.json", text.as_bytes())])
    };
    assert!(open(r#"{"a":"one.safetensors"}"#).is_ok());
    let kind = |map: &str| open(map).unwrap_err();
    assert!(
        matches!(kind(r#"{"a":"two.safetensors"}"#).kind(), ErrorKind::MissingShard(name) if name == "two.safetensors")
    );
    assert!(matches!(kind(r#"{"a":"../one.safetensors"}"#).kind(), ErrorKind::UnsafePath(_)));
    assert!(matches!(kind(r#"{"a":"/etc/passwd"}"#).kind(), ErrorKind::UnsafePath(_)));
    assert!(matches!(kind(r#"{"a":""}"#).kind(), ErrorKind::UnsafePath(_)));
    assert!(
        matches!(kind(r#"{"b":"one.safetensors"}"#).kind(), ErrorKind::MissingTensor(name) if name == "b")
    );
    assert!(matches!(kind("[]").kind(), ErrorKind::Header(_)));
}

#[test]
fn ten_thousand_shards() {
    let folder = Folder::new();
    let mut map = Vec::new();
    for number in 0..10_000 {
        let header = format!("{{{}}}", entry(&format!("t{number}"), "U8", "[1]", 0, 1));
        folder.write(&format!("{number}.safetensors"), &with_header(&header, &[7]));
        map.push(format!("\"t{number}\":\"{number}.safetensors\""));
    }
    let text = format!("{{\"weight_map\":{{{}}}}}", map.join(","));
    let file = WeightsFile::open(&[folder.write("index.json", text.as_bytes())]).unwrap();
    assert_eq!((file.files().len(), file.tensors().len()), (10_000, 10_000));
    // More files than a process may have open.
    let manager = Manager::new(Host::new());
    let loaded = manager.load_weights(&file, &Load::new()).unwrap();
    let allocation = loaded["t9999"].allocation().unwrap();
    let mut bytes = vec![0; usize::try_from(allocation.size()).unwrap()];
    allocation.read(0, &mut bytes).unwrap();
    assert!(loaded.iter().all(|one| bytes[usize::try_from(one.span().offset).unwrap()] == 7));
}
