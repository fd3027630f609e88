//! Zip files of `torch.save`: a pickle that describes tensors, and one stored entry per storage. No code runs.

use super::{Source, inside};
use crate::Dtype;
use crate::error::{ErrorKind, Fault};
use crate::tensor::{Tensor, bytes_of};
use core::fmt::Display;
use omniheap_pickle::{CallResult, Cell, Data, Global, Keys, Refusal, Rules, Value};
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

const MAX_PICKLE: u64 = 1 << 30;
const MAX_ENTRIES: usize = 4 << 20;
/// Dictionaries inside dictionaries: model, optimizer, state, group.
const MAX_DEPTH: usize = 16;
/// Bytes of names of everything that is visited, each with [`VISIT`]: bounds the time.
const MAX_NAMES: usize = 512 << 20;
const VISIT: usize = 64;
/// Bytes of tensors per byte of pickle. Tensors in a list that is held twice count twice.
const EXPANSION: usize = 8;
/// Bytes of tensors that any pickle may describe, whatever its size.
const FREE: usize = 64 << 10;
/// Bytes that a tensor takes beside its name and shape.
const TENSOR: usize = 200;

/// Functions and classes that describe tensors; the first ones have constants below.
const DESCRIBING: [Global; 18] = [
    global("torch._utils", "_rebuild_tensor_v2", CallResult::Call),
    global("torch._utils", "_rebuild_tensor_v3", CallResult::Call),
    global("torch._utils", "_rebuild_parameter", CallResult::Call),
    global("torch._utils", "_rebuild_parameter_with_state", CallResult::Call),
    global("torch._tensor", "_rebuild_from_type_v2", CallResult::Call),
    // Data beside the tensors, which PyTorch loads without running code too.
    global("collections", "OrderedDict", CallResult::Dict),
    global("_codecs", "encode", CallResult::Call),
    global("__builtin__", "set", CallResult::Call),
    global("builtins", "set", CallResult::Call),
    global("__builtin__", "bytearray", CallResult::Call),
    global("builtins", "bytearray", CallResult::Call),
    global("__builtin__", "complex", CallResult::Call),
    global("builtins", "complex", CallResult::Call),
    global("torch", "Size", CallResult::Call),
    global("torch", "device", CallResult::Call),
    global("torch", "Tensor", CallResult::Refused),
    global("torch.nn.parameter", "Buffer", CallResult::Refused),
    global("torch.storage", "UntypedStorage", CallResult::Refused),
];
const TENSOR_V2: usize = 0;
const TENSOR_V3: usize = 1;
const PARAMETER: usize = 2;
const PARAMETER_WITH_STATE: usize = 3;
const FROM_TYPE: usize = 4;
/// Names that `torch` has for types of elements: those of storages and those of types themselves.
const TYPED: [(&str, Dtype); 32] = [
    ("FloatStorage", Dtype::F32),
    ("float32", Dtype::F32),
    ("DoubleStorage", Dtype::F64),
    ("float64", Dtype::F64),
    ("HalfStorage", Dtype::F16),
    ("float16", Dtype::F16),
    ("BFloat16Storage", Dtype::Bf16),
    ("bfloat16", Dtype::Bf16),
    ("ByteStorage", Dtype::U8),
    ("uint8", Dtype::U8),
    ("CharStorage", Dtype::I8),
    ("int8", Dtype::I8),
    ("ShortStorage", Dtype::I16),
    ("int16", Dtype::I16),
    ("IntStorage", Dtype::I32),
    ("int32", Dtype::I32),
    ("LongStorage", Dtype::I64),
    ("int64", Dtype::I64),
    ("BoolStorage", Dtype::Bool),
    ("bool", Dtype::Bool),
    ("ComplexFloatStorage", Dtype::C64),
    ("complex64", Dtype::C64),
    ("ComplexDoubleStorage", Dtype::C128),
    ("complex128", Dtype::C128),
    ("float8_e4m3fn", Dtype::F8E4M3),
    ("float8_e5m2", Dtype::F8E5M2),
    ("float8_e4m3fnuz", Dtype::F8E4M3Fnuz),
    ("float8_e5m2fnuz", Dtype::F8E5M2Fnuz),
    ("float8_e8m0fnu", Dtype::F8E8M0),
    ("uint16", Dtype::U16),
    ("uint32", Dtype::U32),
    ("uint64", Dtype::U64),
];
/// Types of `torch` that no tensor is loaded as. Data beside the tensors may name them.
const OTHER_TYPES: [&str; 26] = [
    "complex32",
    "float4_e2m1fn_x2",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "qint8",
    "qint32",
    "quint8",
    "quint4x2",
    "quint2x4",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
];
const OTHERS: usize = DESCRIBING.len() + TYPED.len();
/// Everything that a pickle may name.
const GLOBALS: [Global; OTHERS + OTHER_TYPES.len()] = {
    let mut all = [DESCRIBING[0]; OTHERS + OTHER_TYPES.len()];
    let mut at = 1;
    while at < all.len() {
        all[at] = if at < DESCRIBING.len() {
            DESCRIBING[at]
        } else if at < OTHERS {
            global("torch", TYPED[at - DESCRIBING.len()].0, CallResult::Refused)
        } else {
            global("torch", OTHER_TYPES[at - OTHERS], CallResult::Refused)
        };
        at += 1;
    }
    all
};
/// Functions of `torch._utils` that make tensors which are more than a run of elements.
const OTHER_LAYOUTS: [&str; 5] = [
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass",
];

const fn global(module: &'static str, name: &'static str, result: CallResult) -> Global {
    Global { module, name, result }
}

/// A stored entry of the zip file.
#[derive(Clone, Copy)]
struct Entry {
    offset: u64,
    size: u64,
}

pub(super) fn read(source: &dyn Source) -> Result<Vec<Tensor>, Fault> {
    let entries = entries(source)?;
    let is_pickle = |name: &&String| name.ends_with("/data.pkl") || *name == "data.pkl";
    let name = entries.keys().filter(is_pickle).min().cloned();
    let name = name.ok_or_else(|| ErrorKind::MissingEntry("data.pkl".into()))?;
    let root = name.trim_end_matches("data.pkl");
    check_byte_order(source, entries.get(&format!("{root}byteorder")))?;
    let entry = entries[&name];
    if entry.size > MAX_PICKLE {
        return Err(ErrorKind::OverLimit { what: "bytes of pickle", limit: MAX_PICKLE }.into());
    }
    let mut pickle = vec![0; usize::try_from(entry.size).unwrap_or(0)];
    source.read(entry.offset, &mut pickle)?;
    let rules = Rules { keys: Keys::All, globals: &GLOBALS, depth: 64, expansion: 8 };
    let (data, value) = omniheap_pickle::parse(&pickle, rules)
        .map_err(|failure| Fault::at(entry.offset + failure.at as u64, failure.kind.into()))?;
    let mut collector =
        Collector::new(Reader { data: &data, entries: &entries, root }, pickle.len());
    collector.collect(value)?;
    Ok(collector.tensors)
}

impl From<Refusal> for ErrorKind {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::Header("the pickle makes no sense".into()),
            Refusal::Truncated => Self::Header("the pickle ends too early".into()),
            Refusal::Forbidden(Some(name)) if OTHER_LAYOUTS.contains(&name.as_str()) => {
                Self::Layout(name)
            }
            Refusal::Forbidden(global) => Self::Forbidden(global),
            Refusal::OverLimit { what, limit } => Self::OverLimit { what, limit },
        }
    }
}

/// Returns the entries by name; refuses those that are not stored as they are.
fn entries(source: &dyn Source) -> Result<HashMap<String, Entry>, Fault> {
    let damaged = |error: ZipError| match error {
        ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => ErrorKind::Io(error),
        error => ErrorKind::Header(error.to_string()),
    };
    // The file starts with an entry. A search for the start would take the records of a zip64 file, which PyTorch always writes, for bytes
    // before it: where the first name has 30 letters, it finds the second entry instead.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let archive = ZipArchive::with_config(config, Cursor { source, at: 0 });
    let mut archive = archive.map_err(damaged)?;
    if archive.len() > MAX_ENTRIES {
        let kind = ErrorKind::OverLimit { what: "zip entries", limit: MAX_ENTRIES as u64 };
        return Err(kind.into());
    }
    let mut entries = HashMap::with_capacity(archive.len());
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(damaged)?;
        let name = core::str::from_utf8(entry.name_raw()).map_err(|_| ErrorKind::NotUtf8)?;
        let name = String::from(name);
        if entry.encrypted() {
            return Err(ErrorKind::Encrypted(name).into());
        }
        if entry.compression() != CompressionMethod::Stored
            || entry.compressed_size() != entry.size()
        {
            return Err(ErrorKind::Compressed(name).into());
        }
        let offset = entry.data_start().ok_or_else(|| ErrorKind::MissingEntry(name.clone()))?;
        inside(source, offset, entry.size())?;
        if entries.insert(name.clone(), Entry { offset, size: entry.size() }).is_some() {
            return Err(ErrorKind::DuplicateName(name).into());
        }
    }
    Ok(entries)
}

fn check_byte_order(source: &dyn Source, entry: Option<&Entry>) -> Result<(), Fault> {
    // Older files have no such entry; they were written by little-endian machines.
    let Some(entry) = entry.filter(|entry| entry.size <= 16) else { return Ok(()) };
    let mut order = vec![0; usize::try_from(entry.size).unwrap_or(0)];
    source.read(entry.offset, &mut order)?;
    if order == b"little" { Ok(()) } else { Err(Fault::at(entry.offset, ErrorKind::Endianness)) }
}

/// Collects the tensors of a pickle, and counts each before it is kept: a pickle may describe far more than it has bytes.
struct Collector<'a> {
    reader: Reader<'a>,
    /// Name of the value that is visited.
    name: String,
    /// Containers around that value.
    path: Vec<Cell>,
    /// Bytes of names so far.
    names: usize,
    /// Bytes that tensors may take, and those that they take so far.
    budget: usize,
    used: usize,
    tensors: Vec<Tensor>,
}

impl<'a> Collector<'a> {
    fn new(reader: Reader<'a>, pickle: usize) -> Self {
        let budget = pickle.saturating_mul(EXPANSION).saturating_add(FREE);
        let (name, path, tensors) = (String::new(), Vec::new(), Vec::new());
        Self { reader, name, path, names: 0, budget, used: 0, tensors }
    }

    /// Adds the tensors in `cell`. Passes over what is no tensor and holds none.
    fn collect(&mut self, cell: Cell) -> Result<(), Fault> {
        self.names += self.name.len() + VISIT;
        limit(self.names, "bytes of names", MAX_NAMES)?;
        limit(self.path.len(), "nested values", MAX_DEPTH)?;
        let data = self.reader.data;
        if let Some((global, arguments)) = data.call(cell) {
            return match global {
                TENSOR_V2 | TENSOR_V3 => {
                    self.add(self.reader.tensor(&self.name, global, arguments)?)
                }
                PARAMETER | PARAMETER_WITH_STATE => {
                    let inner = *arguments.first().ok_or_else(damaged)?;
                    self.within(cell, |collector| collector.collect(inner))
                }
                FROM_TYPE => self.add(self.reader.tensor_of_class(&self.name, arguments)?),
                _ => Ok(()),
            };
        }
        if let Some(items) = data.list(cell) {
            let mut items = items.iter().enumerate();
            return self.within(cell, |collector| {
                items.try_for_each(|(number, item)| collector.collect_as(number, *item))
            });
        }
        let Some(pairs) = data.pairs(cell) else { return Ok(()) };
        let mut pairs = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.within(cell, |collector| {
            pairs.try_for_each(|(key, value)| match key.value() {
                Value::Int(number) => collector.collect_as(number, value),
                Value::Text(..) => {
                    collector.collect_as(data.text(key).ok_or(ErrorKind::NotUtf8)?, value)
                }
                _ => Ok(()),
            })
        })
    }

    /// Adds the tensors in one value of a container, whose key ends the name.
    fn collect_as(&mut self, key: impl Display, value: Cell) -> Result<(), Fault> {
        let whole = self.name.len();
        let dot = if whole == 0 { "" } else { "." };
        self.name.push_str(dot);
        self.name.push_str(&key.to_string());
        let collected = self.collect(value);
        self.name.truncate(whole);
        collected
    }

    /// Looks into a container. Refuses one that lies in itself, and more nesting than checkpoints have.
    fn within(
        &mut self,
        container: Cell,
        look: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let endless = if self.path.contains(&container) { usize::MAX } else { 0 };
        limit(endless, "nested values", MAX_DEPTH)?;
        self.path.push(container);
        let looked = look(self);
        self.path.pop();
        looked
    }

    fn add(&mut self, tensor: Tensor) -> Result<(), Fault> {
        self.used += TENSOR + tensor.name.len() + size_of_val(&*tensor.shape);
        limit(self.used, "bytes of tensors for a pickle of this size", self.budget)?;
        self.tensors.push(tensor);
        Ok(())
    }
}

/// Refuses a count that no checkpoint reaches.
fn limit(count: usize, what: &'static str, limit: usize) -> Result<(), ErrorKind> {
    if count <= limit { Ok(()) } else { Err(ErrorKind::OverLimit { what, limit: limit as u64 }) }
}

/// Reads one tensor of a pickle.
#[derive(Clone, Copy)]
struct Reader<'a> {
    data: &'a Data<'a>,
    entries: &'a HashMap<String, Entry>,
    root: &'a str,
}

/// Bytes of a storage, and its class, which says their type in older files.
struct Storage {
    entry: Entry,
    class: Cell,
}

impl Reader<'_> {
    /// Returns a tensor of a class, or with attributes: `(function, class, arguments, attributes)`.
    fn tensor_of_class(&self, name: &str, arguments: &[Cell]) -> Result<Tensor, Fault> {
        let [function, _, inner, ..] = arguments else { return Err(damaged().into()) };
        match (function.value(), self.data.list(*inner)) {
            (Value::Global(global), Some(inner)) if global as usize <= TENSOR_V3 => {
                self.tensor(name, global as usize, inner)
            }
            _ => Err(damaged().into()),
        }
    }

    fn tensor(&self, name: &str, global: usize, arguments: &[Cell]) -> Result<Tensor, Fault> {
        let [storage, first, shape, strides, ..] = arguments else { return Err(damaged().into()) };
        let storage = self.storage(*storage)?;
        let (class, flags) = if global == TENSOR_V3 {
            (*arguments.get(6).ok_or_else(damaged)?, arguments.get(7))
        } else {
            (storage.class, arguments.get(6))
        };
        if flags.is_some_and(|flags| self.has_items(*flags)) {
            return Err(ErrorKind::Unresolved(name.into()).into());
        }
        let dtype = typed(name, class)?;
        let (shape, strides) = (self.items(*shape)?, self.items(*strides)?);
        // The shape alone is counted. More strides than that would be read again for each reference, and a pickle may have very many of both.
        if shape.len() != strides.len() {
            return Err(damaged().into());
        }
        let (shape, strides) = (numbers(shape)?, numbers(strides)?);
        let size = bytes_of(name, dtype, &shape)?;
        if size > 0 && !is_contiguous(&shape, &strides) {
            return Err(ErrorKind::NotContiguous(name.into()).into());
        }
        let skipped = dtype.bytes(number(*first)?).ok_or_else(damaged)?;
        let needs = skipped.checked_add(size).ok_or_else(damaged)?;
        if needs > storage.entry.size {
            let (name, has) = (name.into(), storage.entry.size);
            return Err(ErrorKind::SizeMismatch { name, needs, has }.into());
        }
        let offset = storage.entry.offset + skipped;
        let (name, shape) = (name.into(), shape.into());
        Ok(Tensor { name, dtype, shape, file: 0, offset, size })
    }

    /// Returns whether a dictionary has anything in it: that of a tensor's flags says what readers have to do with the bytes.
    fn has_items(&self, cell: Cell) -> bool {
        self.data.pairs(cell).is_some_and(|pairs| !pairs.is_empty())
    }

    /// Finds the entry of a persistent id: `("storage", type, key, location, elements)`.
    fn storage(&self, cell: Cell) -> Result<Storage, Fault> {
        let parts = self.data.persistent(cell).ok_or_else(damaged)?;
        let [kind, class, key, ..] = parts else { return Err(damaged().into()) };
        if self.data.text(*kind) != Some("storage") {
            return Err(damaged().into());
        }
        let key = self.data.text(*key).ok_or_else(damaged)?;
        let name = format!("{}data/{key}", self.root);
        let entry = *self.entries.get(&name).ok_or(ErrorKind::MissingEntry(name))?;
        Ok(Storage { entry, class: *class })
    }

    /// Returns the items of a tuple, plain or as `torch.Size`.
    fn items(&self, cell: Cell) -> Result<&[Cell], Fault> {
        let inner = self.data.call(cell).and_then(|(_, arguments)| arguments.first().copied());
        Ok(self.data.list(inner.unwrap_or(cell)).ok_or_else(damaged)?)
    }
}

fn damaged() -> ErrorKind {
    ErrorKind::Header("the pickle describes no tensor".into())
}

fn number(cell: Cell) -> Result<u64, Fault> {
    match cell.value() {
        Value::Int(value) => u64::try_from(value).map_err(|_| damaged().into()),
        _ => Err(damaged().into()),
    }
}

fn numbers(items: &[Cell]) -> Result<Vec<u64>, Fault> {
    items.iter().map(|item| number(*item)).collect()
}

/// Returns the type that a class of storages, or a type of `torch`, says for a tensor.
fn typed(name: &str, class: Cell) -> Result<Dtype, ErrorKind> {
    let Value::Global(index) = class.value() else { return Err(damaged()) };
    let index = index as usize;
    let known = index.checked_sub(DESCRIBING.len()).and_then(|at| TYPED.get(at));
    let unknown =
        || ErrorKind::UnknownDtype { name: name.into(), dtype: GLOBALS[index].name.into() };
    known.map(|typed| typed.1).ok_or_else(unknown)
}

fn is_contiguous(shape: &[u64], strides: &[u64]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
        let fits = extent == 1 || stride == expected;
        expected *= extent;
        fits
    })
}

/// A source as the standard library reads it.
struct Cursor<'a> {
    source: &'a dyn Source,
    at: u64,
}

impl Read for Cursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.source.size().saturating_sub(self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.source.read(self.at, &mut buffer[..count]).map_err(|fault| match fault.kind {
            ErrorKind::Io(error) => error,
            other => io::Error::other(other),
        })?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.source.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
