//! Numbers of enums and flags.

use hip_sys::hiprt as theirs;
use omniheap_hip::sys as ours;

macro_rules! same_values {
    ($($name:ident { $($value:ident),* $(,)? })*) => {$($(
        const _: () = assert!(
            ours::$name::$value.0 == theirs::$name::$value as u32,
            concat!(stringify!($name), "::", stringify!($value))
        );
    )*)*};
}

same_values! {
    hipError_t {
        hipSuccess, hipErrorInvalidValue, hipErrorOutOfMemory, hipErrorNotInitialized, hipErrorDeinitialized,
        hipErrorInvalidConfiguration, hipErrorInvalidDevicePointer, hipErrorInsufficientDriver, hipErrorNoDevice,
        hipErrorInvalidDevice, hipErrorInvalidImage, hipErrorInvalidContext, hipErrorNoBinaryForGpu,
        hipErrorInvalidHandle, hipErrorNotFound, hipErrorNotReady, hipErrorIllegalAddress,
        hipErrorLaunchOutOfResources, hipErrorPeerAccessAlreadyEnabled, hipErrorPeerAccessNotEnabled,
        hipErrorContextIsDestroyed, hipErrorHostMemoryAlreadyRegistered, hipErrorHostMemoryNotRegistered,
        hipErrorLaunchFailure, hipErrorNotSupported, hipErrorStreamCaptureUnsupported, hipErrorUnknown,
    }
    hipStreamCaptureStatus {
        hipStreamCaptureStatusNone, hipStreamCaptureStatusActive, hipStreamCaptureStatusInvalidated,
    }
    hipStreamCaptureMode {
        hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed,
    }
    hipMemcpyKind {
        hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault,
    }
    hipDeviceAttribute_t {
        hipDeviceAttributeConcurrentManagedAccess, hipDeviceAttributeIntegrated, hipDeviceAttributeManagedMemory,
        hipDeviceAttributeMaxThreadsPerBlock, hipDeviceAttributeMultiprocessorCount,
        hipDeviceAttributePageableMemoryAccess, hipDeviceAttributeMaxSharedMemoryPerBlock,
        hipDeviceAttributeTotalConstantMemory, hipDeviceAttributeWarpSize, hipDeviceAttributeMemoryPoolsSupported,
        hipDeviceAttributeVirtualMemoryManagementSupported,
        hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, hipDeviceAttributeIsLargeBar,
    }
    hipMemLocationType { hipMemLocationTypeInvalid, hipMemLocationTypeDevice }
    hipMemAllocationType { hipMemAllocationTypeInvalid, hipMemAllocationTypePinned }
    hipMemAllocationHandleType { hipMemHandleTypeNone, hipMemHandleTypePosixFileDescriptor }
    hipMemAccessFlags { hipMemAccessFlagsProtNone, hipMemAccessFlagsProtRead, hipMemAccessFlagsProtReadWrite }
    hipMemAllocationGranularity_flags { hipMemAllocationGranularityMinimum }
    hipMemPoolAttr {
        hipMemPoolReuseFollowEventDependencies, hipMemPoolReuseAllowOpportunistic,
        hipMemPoolReuseAllowInternalDependencies, hipMemPoolAttrReleaseThreshold, hipMemPoolAttrReservedMemCurrent,
        hipMemPoolAttrReservedMemHigh, hipMemPoolAttrUsedMemCurrent, hipMemPoolAttrUsedMemHigh,
    }
    hipMemoryAdvise {
        hipMemAdviseSetReadMostly, hipMemAdviseUnsetReadMostly, hipMemAdviseSetPreferredLocation,
        hipMemAdviseUnsetPreferredLocation, hipMemAdviseSetAccessedBy, hipMemAdviseUnsetAccessedBy,
        hipMemAdviseSetCoarseGrain, hipMemAdviseUnsetCoarseGrain,
    }
    hipMemRangeAttribute {
        hipMemRangeAttributeReadMostly, hipMemRangeAttributePreferredLocation, hipMemRangeAttributeAccessedBy,
        hipMemRangeAttributeLastPrefetchLocation,
    }
    hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize }
    hipFunction_attribute {
        HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    }
}

// HIP 6 renumbered the kinds of memory; ours are the new numbers, and the old ones must not come back.
const _: () = assert!(
    ours::hipMemoryType::hipMemoryTypeHost.0 == theirs::hipMemoryType::hipMemoryTypeHost as u32 + 1
);
const _: () = assert!(
    ours::hipMemoryType::hipMemoryTypeDevice.0
        == theirs::hipMemoryType::hipMemoryTypeDevice as u32 + 1
);
const _: () = assert!(
    ours::hipMemoryType::hipMemoryTypeManaged.0 + 1
        == theirs::hipMemoryType::hipMemoryTypeManaged as u32
);

macro_rules! same_flags {
    ($($ours:path = $theirs:ident;)*) => {$(
        const _: () = assert!($ours == theirs::$theirs, stringify!($theirs));
    )*};
}

same_flags! {
    ours::hipHostMallocFlags::hipHostMallocPortable = hipHostMallocPortable;
    ours::hipHostMallocFlags::hipHostMallocMapped = hipHostMallocMapped;
    ours::hipHostMallocFlags::hipHostMallocWriteCombined = hipHostMallocWriteCombined;
    ours::hipHostMallocFlags::hipHostMallocCoherent = hipHostMallocCoherent;
    ours::hipHostMallocFlags::hipHostMallocNonCoherent = hipHostMallocNonCoherent;
    ours::hipDeviceMallocDefault = hipDeviceMallocDefault;
    ours::hipDeviceMallocFinegrained = hipDeviceMallocFinegrained;
    ours::hipMemAttachGlobal = hipMemAttachGlobal;
    ours::hipStreamNonBlocking = hipStreamNonBlocking;
    ours::hipEventDisableTiming = hipEventDisableTiming;
}

// Another number that HIP 6 changed: 0 before, 1 since.
const _: () =
    assert!(ours::hipIpcMemLazyEnablePeerAccess == theirs::hipIpcMemLazyEnablePeerAccess + 1);
