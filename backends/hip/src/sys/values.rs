//! The values of HIP's enums and flags that this backend sends or understands.

use core::ffi::c_uint;

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident { $($value:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub c_uint);

        impl $name {$(
            #[doc = concat!("AMD's `", stringify!($value), "`.")]
            pub const $value: Self = Self($number);
        )*}
    )*};
}

values! {
    /// Result code of a call. Numbers that HIP shares with CUDA have the same meaning.
    hipError_t {
        hipSuccess = 0,
        hipErrorInvalidValue = 1,
        hipErrorOutOfMemory = 2,
        hipErrorNotInitialized = 3,
        hipErrorDeinitialized = 4,
        hipErrorInvalidConfiguration = 9,
        hipErrorInvalidDevicePointer = 17,
        hipErrorInsufficientDriver = 35,
        hipErrorNoDevice = 100,
        hipErrorInvalidDevice = 101,
        hipErrorInvalidImage = 200,
        hipErrorInvalidContext = 201,
        hipErrorNoBinaryForGpu = 209,
        hipErrorInvalidHandle = 400,
        hipErrorNotFound = 500,
        hipErrorNotReady = 600,
        hipErrorIllegalAddress = 700,
        hipErrorLaunchOutOfResources = 701,
        hipErrorPeerAccessAlreadyEnabled = 704,
        hipErrorPeerAccessNotEnabled = 705,
        hipErrorContextIsDestroyed = 709,
        hipErrorHostMemoryAlreadyRegistered = 712,
        hipErrorHostMemoryNotRegistered = 713,
        hipErrorLaunchFailure = 719,
        hipErrorNotSupported = 801,
        hipErrorStreamCaptureUnsupported = 900,
        hipErrorUnknown = 999,
    }
    /// Capture state of a stream.
    hipStreamCaptureStatus {
        hipStreamCaptureStatusNone = 0,
        hipStreamCaptureStatusActive = 1,
        hipStreamCaptureStatusInvalidated = 2,
    }
    /// Capture mode: the calls that invalidate a capture.
    hipStreamCaptureMode {
        hipStreamCaptureModeGlobal = 0,
        hipStreamCaptureModeThreadLocal = 1,
        hipStreamCaptureModeRelaxed = 2,
    }
    /// The direction of a copy.
    hipMemcpyKind {
        hipMemcpyHostToHost = 0,
        hipMemcpyHostToDevice = 1,
        hipMemcpyDeviceToHost = 2,
        hipMemcpyDeviceToDevice = 3,
        hipMemcpyDefault = 4,
    }
    /// The kind of memory behind a pointer, since HIP 6; HIP 5 counted Host 0, Device 1, Managed 4.
    hipMemoryType {
        hipMemoryTypeUnregistered = 0,
        hipMemoryTypeHost = 1,
        hipMemoryTypeDevice = 2,
        hipMemoryTypeManaged = 3,
        hipMemoryTypeArray = 10,
        hipMemoryTypeUnified = 11,
    }
    /// Device attributes. The numbers are stable since HIP 5.
    hipDeviceAttribute_t {
        hipDeviceAttributeConcurrentManagedAccess = 9,
        hipDeviceAttributeIntegrated = 16,
        hipDeviceAttributeManagedMemory = 24,
        hipDeviceAttributeMaxThreadsPerBlock = 56,
        hipDeviceAttributeMultiprocessorCount = 63,
        hipDeviceAttributePageableMemoryAccess = 65,
        hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
        hipDeviceAttributeSharedMemPerBlockOptin = 75,
        hipDeviceAttributeTotalConstantMemory = 83,
        hipDeviceAttributeWarpSize = 87,
        hipDeviceAttributeMemoryPoolsSupported = 88,
        hipDeviceAttributeVirtualMemoryManagementSupported = 89,
        hipDeviceAttributeHostRegisterSupported = 90,
        hipDeviceAttributeMemoryPoolSupportedHandleTypes = 91,
        hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002,
        hipDeviceAttributeIsLargeBar = 10011,
        hipDeviceAttributeFineGrainSupport = 10016,
    }
    /// Kind of a [`hipMemLocation`](super::hipMemLocation).
    hipMemLocationType {
        hipMemLocationTypeInvalid = 0,
        hipMemLocationTypeDevice = 1,
    }
    /// The kind of memory to create.
    hipMemAllocationType {
        hipMemAllocationTypeInvalid = 0,
        hipMemAllocationTypePinned = 1,
    }
    /// Handle type for sharing memory with another process.
    hipMemAllocationHandleType {
        hipMemHandleTypeNone = 0,
        hipMemHandleTypePosixFileDescriptor = 1,
    }
    /// The access that a device gets.
    hipMemAccessFlags {
        hipMemAccessFlagsProtNone = 0,
        hipMemAccessFlagsProtRead = 1,
        hipMemAccessFlagsProtReadWrite = 3,
    }
    /// Kind of granularity to query.
    hipMemAllocationGranularity_flags {
        hipMemAllocationGranularityMinimum = 0,
        hipMemAllocationGranularityRecommended = 1,
    }
    /// Attributes of a pool.
    hipMemPoolAttr {
        hipMemPoolReuseFollowEventDependencies = 1,
        hipMemPoolReuseAllowOpportunistic = 2,
        hipMemPoolReuseAllowInternalDependencies = 3,
        hipMemPoolAttrReleaseThreshold = 4,
        hipMemPoolAttrReservedMemCurrent = 5,
        hipMemPoolAttrReservedMemHigh = 6,
        hipMemPoolAttrUsedMemCurrent = 7,
        hipMemPoolAttrUsedMemHigh = 8,
    }
    /// Advice about managed memory.
    hipMemoryAdvise {
        hipMemAdviseSetReadMostly = 1,
        hipMemAdviseUnsetReadMostly = 2,
        hipMemAdviseSetPreferredLocation = 3,
        hipMemAdviseUnsetPreferredLocation = 4,
        hipMemAdviseSetAccessedBy = 5,
        hipMemAdviseUnsetAccessedBy = 6,
        hipMemAdviseSetCoarseGrain = 100,
        hipMemAdviseUnsetCoarseGrain = 101,
    }
    /// Attributes of managed memory.
    hipMemRangeAttribute {
        hipMemRangeAttributeReadMostly = 1,
        hipMemRangeAttributePreferredLocation = 2,
        hipMemRangeAttributeAccessedBy = 3,
        hipMemRangeAttributeLastPrefetchLocation = 4,
    }
    /// Settable attributes of a kernel.
    hipFuncAttribute {
        hipFuncAttributeMaxDynamicSharedMemorySize = 8,
    }
    /// Readable attributes of a kernel.
    hipFunction_attribute {
        HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
        HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
        HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    }
    /// Result code of the run-time compiler.
    hiprtcResult {
        HIPRTC_SUCCESS = 0,
        HIPRTC_ERROR_COMPILATION = 6,
    }
}

/// Flags of `hipHostMalloc`. Always pass `Coherent` or `NonCoherent`: other flags alone change which one is meant.
pub mod hipHostMallocFlags {
    use core::ffi::c_uint;

    /// Pinned for every device.
    pub const hipHostMallocPortable: c_uint = 0x1;
    /// Mapped into the device's addresses.
    pub const hipHostMallocMapped: c_uint = 0x2;
    /// Fast to write, slow to read on the host.
    pub const hipHostMallocWriteCombined: c_uint = 0x4;
    /// Fine-grained: device and host see each other's writes while a kernel runs.
    pub const hipHostMallocCoherent: c_uint = 0x4000_0000;
    /// Coarse-grained: writes are seen when a kernel ends.
    pub const hipHostMallocNonCoherent: c_uint = 0x8000_0000;
}

/// Flags of `hipExtMallocWithFlags`: coarse-grained memory.
pub const hipDeviceMallocDefault: c_uint = 0;
/// Flags of `hipExtMallocWithFlags`: fine-grained memory of the device.
pub const hipDeviceMallocFinegrained: c_uint = 1;
/// Flag of `hipMallocManaged`: every stream may use the memory.
pub const hipMemAttachGlobal: c_uint = 1;
/// Flag of `hipStreamCreateWithFlags`: does not wait for the legacy default stream.
pub const hipStreamNonBlocking: c_uint = 1;
/// Flag of `hipEventCreateWithFlags`: measures no time, which makes the event cheap.
pub const hipEventDisableTiming: c_uint = 2;
/// Flag of `hipIpcOpenMemHandle`.
pub const hipIpcMemLazyEnablePeerAccess: c_uint = 1;
