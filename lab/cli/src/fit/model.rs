//! The files of a model as a trace: its weights, and the cache of a context.
use omniheap::trace::binary::{Record, Writer};
use omniheap::trace::{Alignment, LabelId, Limits, StreamId, Trace};
use omniheap::weights::{Dtype, ErrorKind, Tensor, WeightsFile};
use omniheap_cli::Failure;
use std::path::{Path, PathBuf};

/// Work that a model serves at once.
#[derive(clap::Args, Debug)]
pub(super) struct Context {
    /// Tokens whose keys and values are cached, with the files of a model
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    context: Option<u64>,
    /// Sequences that have such a context
    #[arg(long, value_name = "N", default_value_t = 1, requires = "context", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sequences: u64,
    /// Bits of a cached element
    #[arg(long, value_name = "BITS", default_value_t = 16, requires = "context", value_parser = clap::value_parser!(u64).range(1..=64))]
    cache_bits: u64,
}

impl Context {
    pub(super) fn is_given(&self) -> bool {
        self.context.is_some()
    }
}

/// Returns whether a file is called as files of weights are.
pub(super) fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    [".safetensors", ".gguf", ".index.json"].iter().any(|end| name.ends_with(end))
}

/// Reads the headers, and returns the allocations of a program that loads everything and caches a context.
pub(super) fn open(files: &[PathBuf], context: &Context) -> Result<Trace, Failure> {
    let file = WeightsFile::open(files).map_err(|error| match error.kind() {
        ErrorKind::Io(_) => Failure::failed(error.to_string()),
        _ => Failure::input(error.to_string()),
    })?;
    let mut script = Script { writer: Writer::new(Vec::new()), next: 0 };
    script.writer.title("weights and cache; activations are not in the files of a model");
    for tensor in file.tensors() {
        script.allocate("parameter", &tensor.name, &typed(tensor), tensor.size);
    }
    if let Some(tokens) = context.context {
        script.cache(&file, tokens, context)?;
    }
    script.finish()
}

/// Returns a tensor's type and shape as labels have them. Types that pack elements have names of their own.
fn typed(tensor: &Tensor) -> String {
    let dtype = match tensor.dtype {
        Dtype::F64 => "float64",
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        other => other.name(),
    };
    let shape: Vec<_> = tensor.shape.iter().map(u64::to_string).collect();
    if shape.is_empty() { dtype.to_owned() } else { format!("{dtype}[{}]", shape.join("x")) }
}

/// Writes allocations, one after the other.
struct Script {
    writer: Writer<Vec<u8>>,
    next: u64,
}

impl Script {
    fn allocate(&mut self, category: &str, name: &str, typed: &str, size: u64) {
        if size == 0 {
            return;
        }
        let (path, last) = name.rsplit_once('.').unwrap_or(("", name));
        let parts =
            core::iter::once(category).chain(path.split('.').filter(|part| !part.is_empty()));
        let above = parts.fold(LabelId::NONE, |parent, text| self.writer.label(parent, text));
        let label = self.writer.label(above, &format!("{last} {typed}"));
        let (id, stream, align) = (self.next, StreamId(0), Alignment::UNKNOWN);
        self.writer.record(id, &Record::Allocate { id, size, stream, align, label });
        self.next += 1;
    }

    fn cache(&mut self, file: &WeightsFile, tokens: u64, context: &Context) -> Result<(), Failure> {
        let layers = file.cache();
        if layers.is_empty() {
            let why =
                "no projections of keys and values are named in it, so the cache is not known";
            let shown = file.files().first().map(|part| part.path.display().to_string());
            return Err(Failure::input(format!(
                "{}: {why}; leave --context out",
                shown.unwrap_or_default()
            )));
        }
        for layer in layers {
            for (name, elements) in [("keys", layer.keys), ("values", layer.values)] {
                let factors = [tokens, context.sequences, context.cache_bits];
                let bits =
                    factors.iter().try_fold(elements, |bits, factor| bits.checked_mul(*factor));
                let bits = bits.ok_or_else(|| {
                    Failure::input("the cache exceeds 64 bits; ask for fewer tokens")
                })?;
                let name = format!("{}.{name}", layer.layer);
                self.allocate(
                    "cache",
                    &name,
                    &format!("{} bits", context.cache_bits),
                    bits.div_ceil(8),
                );
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Trace, Failure> {
        if self.next == 0 {
            return Err(Failure::input("the files hold no weights; name those of a model"));
        }
        let bytes = self.writer.finish()?;
        let wrong = |error: omniheap::trace::Error| Failure::input(error.to_string());
        Trace::read(&bytes[..], &Limits::default()).map_err(wrong)
    }
}
