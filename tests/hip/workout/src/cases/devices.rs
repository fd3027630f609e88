//! Devices: how many, and what they say about themselves.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_int;

use omniheap_hip::sys::{
    Properties, hipDeviceAttribute_t, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t,
};

use crate::run::{Run, call, quiet};

pub(crate) fn describe(run: &mut Run) {
    let (core, device) = (run.api.core, run.api.device);
    let (mut version, mut count) = (0, 0);
    call!(run, core, hipRuntimeGetVersion(&raw mut version));
    run.fact("major version", version / 10_000_000);
    call!(run, core, hipInit(0));
    call!(run, device, hipGetDeviceCount(&raw mut count));
    run.check("there is a device", count > 0);
    call!(run, device, hipSetDevice(count));
    call!(run, device, hipSetDevice(0));
    for (name, attribute) in [
        ("threads in step", hipDeviceAttribute_t::hipDeviceAttributeWarpSize),
        ("threads of a group", hipDeviceAttribute_t::hipDeviceAttributeMaxThreadsPerBlock),
        (
            "shared bytes of a group",
            hipDeviceAttribute_t::hipDeviceAttributeMaxSharedMemoryPerBlock,
        ),
        ("constant bytes", hipDeviceAttribute_t::hipDeviceAttributeTotalConstantMemory),
        ("managed memory", hipDeviceAttribute_t::hipDeviceAttributeManagedMemory),
        (
            "concurrent managed access",
            hipDeviceAttribute_t::hipDeviceAttributeConcurrentManagedAccess,
        ),
        ("pools", hipDeviceAttribute_t::hipDeviceAttributeMemoryPoolsSupported),
        (
            "virtual memory",
            hipDeviceAttribute_t::hipDeviceAttributeVirtualMemoryManagementSupported,
        ),
        ("host registration", hipDeviceAttribute_t::hipDeviceAttributeHostRegisterSupported),
        ("large BAR", hipDeviceAttribute_t::hipDeviceAttributeIsLargeBar),
        ("integrated", hipDeviceAttribute_t::hipDeviceAttributeIntegrated),
    ] {
        let mut value: c_int = -1;
        let code = quiet!(device, hipDeviceGetAttribute(&raw mut value, attribute, 0));
        run.fact(name, format_args!("{value} ({})", run.name(code)));
    }
    run.fact("architecture", architecture(run));
    let mut bus = [0; 32];
    call!(run, device, hipDeviceGetPCIBusId(bus.as_mut_ptr(), 32, 0));
    run.check("the bus address is text", bus[0] != 0);
}

/// Without a device: calls answer that there is none, and nothing crashes.
pub(crate) fn absent(run: &mut Run) {
    let (core, device) = (run.api.core, run.api.device);
    let mut count = -1;
    let init = call!(run, core, hipInit(0));
    run.check("says that there is no device", init == hipError_t::hipErrorNoDevice);
    call!(run, device, hipGetDeviceCount(&raw mut count));
    run.check("counts none", count == 0);
    let mut pointer = core::ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut pointer, 16));
    call!(run, device, hipSetDevice(0));
    let (mut free, mut total) = (0, 0);
    call!(run, core, hipMemGetInfo(&raw mut free, &raw mut total));
}

/// Returns the name of the device's architecture, features included.
pub(crate) fn architecture(run: &Run) -> String {
    let (mut new, mut old) = (hipDeviceProp_tR0600::ZERO, hipDeviceProp_tR0000::ZERO);
    let bytes = match run.api.properties {
        Some(Properties::R0600(ask)) => {
            quiet!(Asked { ask }, ask(&raw mut new, 0));
            &new.bytes[hipDeviceProp_tR0600::gcnArchName..]
        }
        Some(Properties::R0000(ask)) => {
            quiet!(Asked { ask }, ask(&raw mut old, 0));
            &old.bytes[hipDeviceProp_tR0000::gcnArchName..]
        }
        None => return "unknown".to_owned(),
    };
    bytes.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect()
}

/// A table of one function.
struct Asked<F> {
    ask: F,
}
