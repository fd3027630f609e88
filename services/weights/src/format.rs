//! Headers of the formats. Each reader sees untrusted bytes: everything is bounded and checked, and no tensor data is read.

mod gguf;
mod index;
mod safetensors;
mod source;
mod torch;

pub(crate) use index::Index;
pub(crate) use source::{FileSource, Source};

use crate::Tensor;
use crate::error::{ErrorKind, Fault};

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// safetensors.
    Safetensors,
    /// GGUF, version 2 or 3.
    Gguf,
    /// A zip file of `torch.save`.
    Torch,
}

impl Format {
    /// Returns the name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Gguf => "GGUF",
            Self::Torch => "PyTorch",
        }
    }
}

/// Reads the header of a file of any format. Names may be there twice.
pub(crate) fn read(source: &dyn Source) -> Result<(Format, Vec<Tensor>), Fault> {
    let mut head = [0; 9];
    let has = source.size().min(9);
    source.read(0, &mut head[..usize::try_from(has).unwrap_or(9)])?;
    match head {
        [b'G', b'G', b'U', b'F', ..] => Ok((Format::Gguf, gguf::read(source)?)),
        [b'F', b'U', b'G', b'G', ..] => Err(Fault::at(0, ErrorKind::Endianness)),
        [b'P', b'K', 3, 4, ..] => Ok((Format::Torch, torch::read(source)?)),
        [.., b'{'] if has == 9 => Ok((Format::Safetensors, safetensors::read(source)?)),
        _ => Err(Fault::at(0, ErrorKind::UnknownFormat)),
    }
}

/// Refuses a range that leaves the file.
fn inside(source: &dyn Source, offset: u64, size: u64) -> Result<(), Fault> {
    let (needs, has) = (offset.saturating_add(size), source.size());
    if needs <= has { Ok(()) } else { Err(Fault::at(has, ErrorKind::Truncated { needs, has })) }
}
