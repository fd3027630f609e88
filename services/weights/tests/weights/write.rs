//! Writers of weights files, so that tests know every byte.

use core::sync::atomic::{AtomicU32, Ordering};
use omniheap_weights::Dtype;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// A tensor to write.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

impl Given {
    /// A tensor whose bytes follow from `seed`.
    pub(crate) fn new(name: &str, dtype: Dtype, shape: &[u64], seed: u64) -> Self {
        let size = dtype.bytes(shape.iter().product()).expect("tests ask for whole blocks");
        let mut state = seed | 1;
        let bytes = (0..size).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        });
        Self { name: name.into(), dtype, shape: shape.into(), bytes: bytes.collect() }
    }
}

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("omniheap-weights-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A safetensors file with this header and data.
pub(crate) fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The safetensors crate's own writer, which knows fewer types.
pub(crate) fn safetensors(tensors: &[Given]) -> Vec<u8> {
    use safetensors::Dtype as Theirs;
    use safetensors::tensor::TensorView;
    let views: BTreeMap<_, _> = tensors
        .iter()
        .map(|tensor| {
            let dtype = match tensor.dtype {
                Dtype::F32 => Theirs::F32,
                Dtype::F16 => Theirs::F16,
                Dtype::Bf16 => Theirs::BF16,
                Dtype::I64 => Theirs::I64,
                Dtype::U8 => Theirs::U8,
                Dtype::F8E4M3 => Theirs::F8_E4M3,
                other => panic!("no test writes {other:?} so"),
            };
            let shape =
                tensor.shape.iter().map(|&extent| usize::try_from(extent).unwrap()).collect();
            (tensor.name.clone(), TensorView::new(dtype, shape, &tensor.bytes).unwrap())
        })
        .collect();
    safetensors::serialize(views, None).unwrap()
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// A pair of GGUF with a value that is written already.
pub(crate) fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    text(&mut bytes, key);
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// The number of a type in GGUF.
pub(crate) fn number(dtype: Dtype) -> u32 {
    (0..64).find(|&number| Dtype::from_gguf(number) == Some(dtype)).expect("a type of GGUF")
}

/// A GGUF file; `pairs` come before the alignment.
pub(crate) fn gguf(version: u32, alignment: u32, pairs: &[Vec<u8>], tensors: &[Given]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(pairs.len() as u64 + 1).to_le_bytes());
    pairs.iter().for_each(|pair| bytes.extend_from_slice(pair));
    bytes.extend_from_slice(&pair("general.alignment", 4, &alignment.to_le_bytes()));
    let step = u64::from(alignment.max(1));
    let mut offset = 0_u64;
    for tensor in tensors {
        text(&mut bytes, &tensor.name);
        bytes.extend_from_slice(&u32::try_from(tensor.shape.len()).unwrap().to_le_bytes());
        tensor.shape.iter().rev().for_each(|extent| bytes.extend_from_slice(&extent.to_le_bytes()));
        bytes.extend_from_slice(&number(tensor.dtype).to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        offset = (offset + tensor.bytes.len() as u64).next_multiple_of(step);
    }
    for tensor in tensors {
        let padded = (bytes.len() as u64).next_multiple_of(step);
        bytes.resize(usize::try_from(padded).unwrap(), 0);
        bytes.extend_from_slice(&tensor.bytes);
    }
    bytes
}

/// A pickle, written opcode by opcode.
#[derive(Default)]
pub(crate) struct Pickle(pub(crate) Vec<u8>);

impl Pickle {
    pub(crate) fn op(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.op(b"X").op(&u32::try_from(text.len()).unwrap().to_le_bytes()).op(text.as_bytes())
    }

    pub(crate) fn global(&mut self, module: &str, name: &str) -> &mut Self {
        self.op(b"c").op(module.as_bytes()).op(b"\n").op(name.as_bytes()).op(b"\n")
    }

    pub(crate) fn int(&mut self, value: u64) -> &mut Self {
        self.op(&[0x8a, 8]).op(&value.to_le_bytes())
    }

    pub(crate) fn tuple(&mut self, values: &[u64]) -> &mut Self {
        self.op(b"(");
        values.iter().for_each(|&value| {
            self.int(value);
        });
        self.op(b"t")
    }

    /// `_rebuild_tensor_v2` of a whole storage.
    pub(crate) fn tensor(&mut self, given: &Given, key: &str, strides: &[u64]) -> &mut Self {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .arguments(given, key, strides, b"")
            .op(b"R")
    }

    /// Arguments of `_rebuild_tensor_v2`, and those that follow them.
    pub(crate) fn arguments(
        &mut self,
        given: &Given,
        key: &str,
        strides: &[u64],
        more: &[u8],
    ) -> &mut Self {
        let class = match given.dtype {
            Dtype::F32 => "FloatStorage",
            Dtype::F16 => "HalfStorage",
            Dtype::Bf16 => "BFloat16Storage",
            Dtype::I64 => "LongStorage",
            Dtype::U8 => "ByteStorage",
            other => panic!("no test writes {other:?} so"),
        };
        let elements =
            given.shape.iter().fold(1_u64, |product, &extent| product.wrapping_mul(extent));
        self.op(b"((").text("storage");
        self.global("torch", class).text(key).text("cpu").int(elements).op(b"tQ").int(0);
        self.tuple(&given.shape).tuple(strides).op(&[0x89]);
        self.global("collections", "OrderedDict").op(b")R").op(more).op(b"t")
    }
}

/// Strides of a tensor whose elements follow each other.
pub(crate) fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .scan(1, |stride, extent| {
            let current = *stride;
            *stride *= (*extent).max(1);
            Some(current)
        })
        .collect();
    strides.reverse();
    strides
}

/// The pickle of a state dict.
pub(crate) fn state_dict(tensors: &[Given]) -> Pickle {
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.global("collections", "OrderedDict").op(b")R(");
    for (key, tensor) in tensors.iter().enumerate() {
        pickle.text(&tensor.name).tensor(tensor, &key.to_string(), &strides(&tensor.shape));
    }
    // Modules leave their version as an attribute of the dictionary.
    pickle.op(b"u}").text("_metadata").op(b"}sb.");
    pickle
}

/// A zip file of `torch.save`.
pub(crate) fn torch(pickle: &[u8], tensors: &[Given], method: CompressionMethod) -> Vec<u8> {
    torch_with(pickle, tensors, SimpleFileOptions::default().compression_method(method))
}

/// The same, with other settings of its entries.
pub(crate) fn torch_with(pickle: &[u8], tensors: &[Given], options: SimpleFileOptions) -> Vec<u8> {
    torch_as("archive", pickle, tensors, options)
}

/// The same, as another file is called.
pub(crate) fn torch_as(
    stem: &str,
    pickle: &[u8],
    tensors: &[Given],
    options: SimpleFileOptions,
) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let mut entry = |name: &str, bytes: &[u8]| {
        zip.start_file(format!("{stem}/{name}"), options).unwrap();
        zip.write_all(bytes).unwrap();
    };
    entry("data.pkl", pickle);
    entry("byteorder", b"little");
    for (key, tensor) in tensors.iter().enumerate() {
        entry(&format!("data/{key}"), &tensor.bytes);
    }
    zip.finish().unwrap().into_inner()
}
