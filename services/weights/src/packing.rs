//! Parameters behind packed and sparse tensors, by the naming rules of the tools that write them.

use crate::{Dtype, Tensor, WeightsFile};

/// Packing of parameters in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Packing {
    /// One element per parameter.
    Plain,
    /// GGUF blocks, which hold scales as well.
    Blocks,
    /// Four-bit parameters, packed into wider integers (GPTQ, AWQ, bitsandbytes, compressed-tensors).
    Int4,
    /// Two of each four parameters; the others are zero.
    Sparse24,
    /// Two of each four parameters, four bits each.
    SparseInt4,
}

impl Packing {
    /// Returns the name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Blocks => "blocks",
            Self::Int4 => "int4 packed",
            Self::Sparse24 => "2:4 sparse",
            Self::SparseInt4 => "2:4 sparse int4",
        }
    }
}

impl WeightsFile {
    /// Returns how a tensor is packed, judged by its name, its type and the tensors beside it.
    #[must_use]
    pub fn packing(&self, tensor: &Tensor) -> Packing {
        let (stem, leaf) = tensor.name.rsplit_once('.').unwrap_or(("", &tensor.name));
        let has = |name: &str| self.get(&format!("{stem}.{name}")).is_some();
        let is_integer = matches!(tensor.dtype, Dtype::I32 | Dtype::U32 | Dtype::U8 | Dtype::I8);
        match leaf {
            _ if tensor.dtype.is_gguf_block() => Packing::Blocks,
            "weight_packed" if is_integer && has("meta") => Packing::SparseInt4,
            "qweight" | "weight_packed" if is_integer => Packing::Int4,
            "weight"
                if tensor.dtype == Dtype::U8
                    && (has("weight.quant_state.bitsandbytes__nf4")
                        || has("weight.quant_state.bitsandbytes__fp4")) =>
            {
                Packing::Int4
            }
            "compressed" if has("bitmask") => Packing::Sparse24,
            _ => Packing::Plain,
        }
    }

    /// Returns the parameters that a tensor stands for; saturates at 64 bits.
    #[must_use]
    pub fn parameters(&self, tensor: &Tensor) -> u64 {
        let nibbles = tensor.size.saturating_mul(2);
        match self.packing(tensor) {
            Packing::Plain | Packing::Blocks => tensor.elements(),
            Packing::Int4 => nibbles,
            Packing::Sparse24 => tensor.elements().saturating_mul(2),
            Packing::SparseInt4 => nibbles.saturating_mul(2),
        }
    }
}
