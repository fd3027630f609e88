//! Handles and structures, laid out as HIP 6 and 7 have them (HIP 5 where it is said).

#![expect(unsafe_code, reason = "handles may go to other threads")]

use core::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

use super::values::*;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut c_void);

        // SAFETY: a handle is a number that is passed back to the runtime, which may be called from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());
        }
    )*};
}

handles! {
    /// A stream; null is the legacy default stream.
    hipStream_t;
    /// An event.
    hipEvent_t;
    /// Work that was recorded, or is being recorded.
    hipGraph_t;
    /// An object that lives as long as graphs refer to it.
    hipUserObject_t;
    /// A stream-ordered pool of the runtime.
    hipMemPool_t;
    /// Physical memory without an address.
    hipMemGenericAllocationHandle_t;
    /// Loaded code.
    hipModule_t;
    /// A kernel of a module.
    hipFunction_t;
    /// A program of the run-time compiler.
    hiprtcProgram;
}

/// The calling thread's own default stream.
pub const hipStreamPerThread: hipStream_t = hipStream_t(core::ptr::without_provenance_mut(2));

/// Location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipMemLocation {
    /// Kind of location that `id` names.
    pub r#type: hipMemLocationType,
    /// The device's number.
    pub id: c_int,
}

/// Access rights of a device to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipMemAccessDesc {
    /// The device that gets access.
    pub location: hipMemLocation,
    /// The access it gets.
    pub flags: hipMemAccessFlags,
}

/// The flags inside [`hipMemAllocationProp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipMemAllocationPropFlags {
    /// Compression flag; not used by AMD.
    pub compressionType: c_uchar,
    /// RDMA capability.
    pub gpuDirectRDMACapable: c_uchar,
    /// Usage flags; not used by AMD.
    pub usage: c_ushort,
}

/// Properties of memory to create; in this order since HIP 5.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipMemAllocationProp {
    /// The kind of memory.
    pub r#type: hipMemAllocationType,
    /// Handle type for sharing it with another process.
    pub requestedHandleType: hipMemAllocationHandleType,
    /// Its location.
    pub location: hipMemLocation,
    /// Windows only.
    pub win32HandleMetaData: *mut c_void,
    /// Rarely used flags.
    pub allocFlags: hipMemAllocationPropFlags,
}

/// Properties of a pool to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipMemPoolProps {
    /// The kind of memory.
    pub allocType: hipMemAllocationType,
    /// Handle type for sharing it with another process.
    pub handleTypes: hipMemAllocationHandleType,
    /// Its location.
    pub location: hipMemLocation,
    /// Windows only.
    pub win32SecurityAttributes: *mut c_void,
    /// Bytes the pool may hold; 0 leaves it to the runtime. HIP 5 reserves this field.
    pub maxSize: usize,
    /// Zero.
    pub reserved: [c_uchar; 56],
}

/// Attributes of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipPointerAttribute_t {
    /// The kind of memory; the numbers changed with HIP 6.
    pub r#type: hipMemoryType,
    /// The device that the memory belongs to.
    pub device: c_int,
    /// The address for the device.
    pub devicePointer: *mut c_void,
    /// The address for the host, null if it has none.
    pub hostPointer: *mut c_void,
    /// Non-zero for managed memory.
    pub isManaged: c_int,
    /// The flags the memory was made with.
    pub allocationFlags: c_uint,
}

/// Names memory to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipIpcMemHandle_t {
    /// Opaque bytes.
    pub reserved: [u8; 64],
}

/// A device's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct hipUUID {
    /// Sixteen characters on AMD, not necessarily text.
    pub bytes: [u8; 16],
}

/// The properties of a device since HIP 6: 1472 bytes, of which only the names are read.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct hipDeviceProp_tR0600 {
    /// The structure's bytes.
    pub bytes: [u8; Self::SIZE],
}

impl hipDeviceProp_tR0600 {
    /// Bytes of the structure.
    pub const SIZE: usize = 1472;
    /// Offset of the device's name.
    pub const name: usize = 0;
    /// Offset of the architecture's name.
    pub const gcnArchName: usize = 1160;
    /// A structure of zeros, for the runtime to fill.
    pub const ZERO: Self = Self { bytes: [0; Self::SIZE] };
}

/// The properties of a device before HIP 6: 792 bytes. The old symbol still writes these.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct hipDeviceProp_tR0000 {
    /// The structure's bytes.
    pub bytes: [u8; Self::SIZE],
}

impl hipDeviceProp_tR0000 {
    /// Bytes of the structure.
    pub const SIZE: usize = 792;
    /// Offset of the device's name.
    pub const name: usize = 0;
    /// Offset of the architecture's name.
    pub const gcnArchName: usize = 396;
    /// A structure of zeros, for the runtime to fill.
    pub const ZERO: Self = Self { bytes: [0; Self::SIZE] };
}
