//! Sizes and offsets.

use core::mem::{align_of, offset_of, size_of};

use hip_sys::hiprt as theirs;
use omniheap_hip::sys as ours;

macro_rules! same_layout {
    ($($name:ident { $($field:ident),* })*) => {$(
        const _: () = assert!(size_of::<ours::$name>() == size_of::<theirs::$name>(), stringify!($name));
        const _: () = assert!(align_of::<ours::$name>() == align_of::<theirs::$name>(), stringify!($name));
        $(const _: () = assert!(
            offset_of!(ours::$name, $field) == offset_of!(theirs::$name, $field),
            concat!(stringify!($name), ".", stringify!($field))
        );)*
    )*};
}

same_layout! {
    hipMemAccessDesc { location, flags }
    hipIpcMemHandle_t { reserved }
    hipStream_t {}
    hipEvent_t {}
    hipMemPool_t {}
    hipMemGenericAllocationHandle_t {}
    hipModule_t {}
    hipFunction_t {}
}

// Fields that are Rust keywords, or have another name in HIP 5.
const _: () = assert!(size_of::<ours::hipMemLocation>() == size_of::<theirs::hipMemLocation>());
const _: () =
    assert!(offset_of!(ours::hipMemLocation, r#type) == offset_of!(theirs::hipMemLocation, type_));
const _: () =
    assert!(offset_of!(ours::hipMemLocation, id) == offset_of!(theirs::hipMemLocation, id));
const _: () = assert!(size_of::<ours::hipUUID>() == size_of::<theirs::hipUUID_t>());

type OurPointer = ours::hipPointerAttribute_t;
type TheirPointer = theirs::hipPointerAttribute_t;
const _: () = assert!(size_of::<OurPointer>() == size_of::<TheirPointer>());
const _: () = assert!(offset_of!(OurPointer, r#type) == offset_of!(TheirPointer, memoryType));
const _: () = assert!(offset_of!(OurPointer, device) == offset_of!(TheirPointer, device));
const _: () =
    assert!(offset_of!(OurPointer, devicePointer) == offset_of!(TheirPointer, devicePointer));
const _: () = assert!(offset_of!(OurPointer, hostPointer) == offset_of!(TheirPointer, hostPointer));
const _: () = assert!(offset_of!(OurPointer, isManaged) == offset_of!(TheirPointer, isManaged));
const _: () =
    assert!(offset_of!(OurPointer, allocationFlags) == offset_of!(TheirPointer, allocationFlags));

// HIP 5 reserves 64 bytes where HIP 6 has `maxSize` and reserves 56.
type OurPool = ours::hipMemPoolProps;
type TheirPool = theirs::hipMemPoolProps;
const _: () = assert!(size_of::<OurPool>() == size_of::<TheirPool>());
const _: () = assert!(offset_of!(OurPool, allocType) == offset_of!(TheirPool, allocType));
const _: () = assert!(offset_of!(OurPool, handleTypes) == offset_of!(TheirPool, handleTypes));
const _: () = assert!(offset_of!(OurPool, location) == offset_of!(TheirPool, location));
const _: () = assert!(
    offset_of!(OurPool, win32SecurityAttributes) == offset_of!(TheirPool, win32SecurityAttributes)
);
const _: () = assert!(offset_of!(OurPool, maxSize) == offset_of!(TheirPool, reserved));
const _: () = assert!(offset_of!(OurPool, reserved) == offset_of!(OurPool, maxSize) + 8);

// HIP 5.7 reordered this structure to CUDA's order, which every later release keeps.
type OurProp = ours::hipMemAllocationProp;
const _: () = assert!(size_of::<OurProp>() == 32 && offset_of!(OurProp, r#type) == 0);
const _: () =
    assert!(offset_of!(OurProp, requestedHandleType) == 4 && offset_of!(OurProp, location) == 8);
const _: () = assert!(
    offset_of!(OurProp, win32HandleMetaData) == 16 && offset_of!(OurProp, allocFlags) == 24
);
const _: () = assert!(offset_of!(ours::hipMemAllocationPropFlags, gpuDirectRDMACapable) == 1);
const _: () = assert!(offset_of!(ours::hipMemAllocationPropFlags, usage) == 2);

// The properties of HIP 5; HIP 6 has another structure under another symbol.
type OldProp = ours::hipDeviceProp_tR0000;
const _: () = assert!(size_of::<OldProp>() == size_of::<theirs::hipDeviceProp_t>());
const _: () = assert!(align_of::<OldProp>() == align_of::<theirs::hipDeviceProp_t>());
const _: () = assert!(OldProp::name == offset_of!(theirs::hipDeviceProp_t, name));
const _: () = assert!(OldProp::gcnArchName == offset_of!(theirs::hipDeviceProp_t, gcnArchName));
const _: () = assert!(size_of::<ours::hipDeviceProp_tR0600>() == 1472);
