//! The structure of a device's properties, filled by offset: most of its 1472 bytes are of no use here and stay 0.

#![expect(unsafe_code, reason = "calls the CUDA driver")]

use crate::attribute;
use crate::code::Code;
use crate::export::cu;
use crate::state;

/// `hipDeviceProp_tR0600`
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Properties {
    bytes: [u8; 1472],
}

/// Fields that are an attribute: where they are, and which.
const FIELDS: &[(usize, u32)] = &[
    (304, 71),      // registers
    (308, 87),      // threads in step
    (320, 56),      // threads of a group
    (348, 5),       // clock
    (360, 23),      // major version of the architecture
    (364, 61),      // minor version of the architecture
    (388, 63),      // multiprocessors
    (396, 16),      // integrated
    (400, 3),       // host memory can be mapped
    (584, 67),      // bus
    (588, 68),      // device on the bus
    (592, 69),      // domain
    (604, 85),      // unified addresses
    (616, 19),      // second-level cache
    (652, 24),      // managed memory
    (672, 65),      // pageable memory access
    (676, 9),       // concurrent managed access
    (728, 90),      // host registration
    (744, 88),      // pools
    (1464, 10_011), // large BAR
];

impl Properties {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Returns what a device says about itself.
pub(crate) fn of(device: i32) -> Result<Properties, Code> {
    let (cuda, device) = (state::driver()?, state::known(device)?);
    let mut properties = Properties { bytes: [0; 1472] };
    let mut name = [0_u8; 200];
    cu!(cuda, cuDeviceGetName(name.as_mut_ptr().cast(), 200, device))?;
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    properties.put(0, &name[..length]);
    properties.put(length, b" (HIP forwarded to CUDA)");
    let mut uuid = [0_u8; 16];
    cu!(cuda, cuDeviceGetUuid(uuid.as_mut_ptr().cast(), device))?;
    properties.put(256, &uuid);
    let mut total = 0_usize;
    cu!(cuda, cuDeviceTotalMem_v2(&raw mut total, device))?;
    properties.put(288, &total.to_ne_bytes());
    for &(offset, attribute) in FIELDS {
        properties.put(offset, &attribute::get(attribute, device)?.to_ne_bytes());
    }
    // Sizes that the structure has with 64 bits: shared and constant bytes, and shared ones when asked for.
    for (offset, attribute) in [(296, 74), (352, 83), (696, 75)] {
        properties.put(offset, &i64::from(attribute::get(attribute, device)?).to_ne_bytes());
    }
    properties.put(1160, architecture(device)?.as_bytes());
    Ok(properties)
}

/// Returns the name of a device's architecture, as the compiler takes it.
pub(crate) fn architecture(device: i32) -> Result<String, Code> {
    Ok(format!("sm_{}{}", attribute::get(23, device)?, attribute::get(61, device)?))
}
