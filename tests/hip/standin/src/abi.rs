//! HSA's C types, as far as the HIP runtime hands them to us.

/// Status that a call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u32);

impl Status {
    /// `HSA_STATUS_SUCCESS`
    pub const SUCCESS: Self = Self(0);
    pub(crate) const ERROR: Self = Self(0x1000);
    pub(crate) const INVALID_ARGUMENT: Self = Self(0x1001);
    pub(crate) const INVALID_ALLOCATION: Self = Self(0x1003);
    pub(crate) const INVALID_AGENT: Self = Self(0x1004);
    pub(crate) const INVALID_SIGNAL: Self = Self(0x1006);
    pub(crate) const INVALID_QUEUE: Self = Self(0x1007);
    /// `HSA_STATUS_ERROR_OUT_OF_RESOURCES`
    pub const OUT_OF_RESOURCES: Self = Self(0x1008);
    pub(crate) const RESOURCE_FREE: Self = Self(0x100A);
    pub(crate) const INVALID_ISA: Self = Self(0x100F);
    pub(crate) const INVALID_CODE_OBJECT: Self = Self(0x1010);
    pub(crate) const INVALID_EXECUTABLE: Self = Self(0x1011);
    pub(crate) const INVALID_SYMBOL_NAME: Self = Self(0x1013);
    pub(crate) const VARIABLE_UNDEFINED: Self = Self(0x1015);
    pub(crate) const INVALID_EXECUTABLE_SYMBOL: Self = Self(0x1019);
    pub(crate) const INVALID_CODE_OBJECT_READER: Self = Self(0x1021);
    pub(crate) const INVALID_MEMORY_POOL: Self = Self(40);
}

/// Answer of a function of ours before it becomes a [`Status`].
pub(crate) type Answer = Result<(), Status>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) u64);
    )*};
}

handles! {
    /// `hsa_agent_t`
    AgentHandle;
    /// `hsa_amd_memory_pool_t`
    PoolHandle;
    /// `hsa_signal_t`, the address of an `amd_signal_t`; 0 is no signal.
    SignalHandle;
    /// `hsa_isa_t`
    IsaHandle;
    /// `hsa_code_object_reader_t`
    ReaderHandle;
    /// `hsa_executable_t`
    ExecutableHandle;
    /// `hsa_executable_symbol_t`
    SymbolHandle;
    /// `hsa_loaded_code_object_t`
    LoadedHandle;
    /// `hsa_amd_vmem_alloc_handle_t`
    PhysicalHandle;
    /// An address that C gives as a pointer and we treat as a number.
    Address;
}

/// `hsa_signal_condition_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Condition(pub(crate) u32);

impl Condition {
    pub(crate) const EQUAL: Self = Self(0);
    pub(crate) const LESS: Self = Self(2);

    pub(crate) const fn holds(self, value: i64, reference: i64) -> bool {
        match self.0 {
            0 => value == reference,
            1 => value != reference,
            2 => value < reference,
            _ => value >= reference,
        }
    }
}

/// `hsa_amd_pointer_info_t`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PointerInfo {
    pub(crate) size: u32,
    pub(crate) kind: u32,
    pub(crate) agent_base: u64,
    pub(crate) host_base: u64,
    pub(crate) bytes: u64,
    pub(crate) user_data: u64,
    pub(crate) owner: u64,
    pub(crate) global_flags: u32,
    pub(crate) registered: u8,
}

/// `hsa_amd_memory_access_desc_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDesc {
    pub(crate) permissions: u32,
    pub(crate) agent: AgentHandle,
}

/// `hsa_pitched_ptr_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Pitched {
    pub(crate) base: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// `hsa_dim3_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// `hsa_amd_profiling_async_copy_time_t` and `hsa_amd_profiling_dispatch_time_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Times {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// `hsa_amd_svm_attribute_pair_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SvmPair {
    pub(crate) attribute: u64,
    pub(crate) value: u64,
}

const _: () = assert!(size_of::<PointerInfo>() == 56);
const _: () = assert!(size_of::<AccessDesc>() == 16);
