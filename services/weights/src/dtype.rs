//! Element types, and the bytes that they take.

/// Declares every element type once: name, elements of a block, bytes of a block.
macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $elements:literal $bytes:literal,)*) => {
        /// Type of a tensor's elements. Types of less than a byte, and GGUF's quantised ones, come in blocks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])* $variant,)*
        }

        impl Dtype {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name that files use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the elements and the bytes of one block; most types have one element per block.
            #[must_use]
            pub const fn block(self) -> (u64, u64) {
                match self { $(Self::$variant => ($elements, $bytes),)* }
            }
        }
    };
}

dtypes! {
    /// One byte, 0 or 1.
    Bool "BOOL" 1 1,
    /// Unsigned.
    U8 "U8" 1 1,
    /// Signed.
    I8 "I8" 1 1,
    /// Unsigned.
    U16 "U16" 1 2,
    /// Signed.
    I16 "I16" 1 2,
    /// Unsigned.
    U32 "U32" 1 4,
    /// Signed.
    I32 "I32" 1 4,
    /// Unsigned.
    U64 "U64" 1 8,
    /// Signed.
    I64 "I64" 1 8,
    /// IEEE half precision.
    F16 "F16" 1 2,
    /// Brain float.
    Bf16 "BF16" 1 2,
    /// IEEE single precision.
    F32 "F32" 1 4,
    /// IEEE double precision.
    F64 "F64" 1 8,
    /// Two F32.
    C64 "C64" 1 8,
    /// Two F64.
    C128 "C128" 1 16,
    /// Eight bits, five of exponent.
    F8E5M2 "F8_E5M2" 1 1,
    /// Eight bits, four of exponent.
    F8E4M3 "F8_E4M3" 1 1,
    /// Eight bits, exponent only.
    F8E8M0 "F8_E8M0" 1 1,
    /// As `F8_E5M2`, without negative zero.
    F8E5M2Fnuz "F8_E5M2FNUZ" 1 1,
    /// As `F8_E4M3`, without negative zero.
    F8E4M3Fnuz "F8_E4M3FNUZ" 1 1,
    /// Six bits, two of exponent.
    F6E2M3 "F6_E2M3" 4 3,
    /// Six bits, three of exponent.
    F6E3M2 "F6_E3M2" 4 3,
    /// Four bits.
    F4 "F4" 2 1,
    /// GGUF block type.
    Q4_0 "Q4_0" 32 18,
    /// GGUF block type.
    Q4_1 "Q4_1" 32 20,
    /// GGUF block type.
    Q5_0 "Q5_0" 32 22,
    /// GGUF block type.
    Q5_1 "Q5_1" 32 24,
    /// GGUF block type.
    Q8_0 "Q8_0" 32 34,
    /// GGUF block type.
    Q8_1 "Q8_1" 32 36,
    /// GGUF block type.
    Q2K "Q2_K" 256 84,
    /// GGUF block type.
    Q3K "Q3_K" 256 110,
    /// GGUF block type.
    Q4K "Q4_K" 256 144,
    /// GGUF block type.
    Q5K "Q5_K" 256 176,
    /// GGUF block type.
    Q6K "Q6_K" 256 210,
    /// GGUF block type.
    Q8K "Q8_K" 256 292,
    /// GGUF block type.
    Iq2Xxs "IQ2_XXS" 256 66,
    /// GGUF block type.
    Iq2Xs "IQ2_XS" 256 74,
    /// GGUF block type.
    Iq3Xxs "IQ3_XXS" 256 98,
    /// GGUF block type.
    Iq1S "IQ1_S" 256 50,
    /// GGUF block type.
    Iq4Nl "IQ4_NL" 32 18,
    /// GGUF block type.
    Iq3S "IQ3_S" 256 110,
    /// GGUF block type.
    Iq2S "IQ2_S" 256 82,
    /// GGUF block type.
    Iq4Xs "IQ4_XS" 256 136,
    /// GGUF block type.
    Iq1M "IQ1_M" 256 56,
    /// GGUF block type.
    Tq1_0 "TQ1_0" 256 54,
    /// GGUF block type.
    Tq2_0 "TQ2_0" 256 66,
    /// Microscaling four-bit float, as GGUF stores it.
    Mxfp4 "MXFP4" 32 17,
    /// NVIDIA's four-bit float, as GGUF stores it.
    Nvfp4 "NVFP4" 64 36,
    /// GGUF block type.
    Q1_0 "Q1_0" 128 18,
}

impl Dtype {
    /// Finds a type of safetensors by its name.
    #[must_use]
    pub fn from_safetensors(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name && !dtype.is_gguf_block())
    }

    /// Finds a type of GGUF by its number.
    #[must_use]
    pub const fn from_gguf(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            9 => Self::Q8_1,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            15 => Self::Q8K,
            16 => Self::Iq2Xxs,
            17 => Self::Iq2Xs,
            18 => Self::Iq3Xxs,
            19 => Self::Iq1S,
            20 => Self::Iq4Nl,
            21 => Self::Iq3S,
            22 => Self::Iq2S,
            23 => Self::Iq4Xs,
            24 => Self::I8,
            25 => Self::I16,
            26 => Self::I32,
            27 => Self::I64,
            28 => Self::F64,
            29 => Self::Iq1M,
            30 => Self::Bf16,
            34 => Self::Tq1_0,
            35 => Self::Tq2_0,
            39 => Self::Mxfp4,
            40 => Self::Nvfp4,
            41 => Self::Q1_0,
            _ => return None,
        })
    }

    /// Returns whether it is one of GGUF's quantised types.
    #[must_use]
    pub const fn is_gguf_block(self) -> bool {
        self.block().0 >= 32
    }

    /// Returns the bytes of `elements` elements; `None` where they are no whole blocks, or exceed 64 bits.
    #[must_use]
    pub const fn bytes(self, elements: u64) -> Option<u64> {
        let (per_block, bytes) = self.block();
        if elements.is_multiple_of(per_block) {
            (elements / per_block).checked_mul(bytes)
        } else {
            None
        }
    }
}
