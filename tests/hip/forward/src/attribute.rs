//! Attributes of devices: HIP's numbers and CUDA's.

#![expect(unsafe_code, reason = "calls the CUDA driver")]

use crate::code::Code;
use crate::export::cu;
use crate::state;

/// Meaning of an attribute on CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// CUDA has it under this number.
    Same(u32),
    /// CUDA has no such attribute; this is the answer that fits.
    Fixed(i32),
}

/// HIP's number and CUDA's of what both have.
const SHARED: &[(u32, u32)] = &[
    (0, 32),   // memory errors are corrected
    (2, 40),   // copy engines
    (3, 19),   // host memory can be mapped
    (4, 91),   // registered memory keeps its address
    (5, 13),   // clock
    (7, 90),   // kernels can be interrupted
    (8, 31),   // concurrent kernels
    (9, 89),   // concurrent managed access
    (10, 95),  // cooperative launches
    (13, 101), // direct access to managed memory
    (16, 18),  // integrated
    (19, 38),  // second-level cache
    (23, 75),  // major version of the architecture
    (24, 83),  // managed memory
    (26, 2),   // largest group
    (27, 3),
    (28, 4),
    (29, 5), // largest grid
    (30, 6),
    (31, 7),
    (56, 1),   // threads of a group
    (57, 39),  // threads of a multiprocessor
    (59, 37),  // memory width
    (60, 36),  // memory clock
    (61, 76),  // minor version of the architecture
    (63, 16),  // multiprocessors
    (65, 88),  // pageable memory access
    (67, 33),  // bus
    (68, 34),  // device on the bus
    (69, 50),  // domain
    (71, 12),  // registers
    (74, 8),   // shared bytes of a group
    (75, 97),  // the same, when asked for
    (76, 81),  // shared bytes of a multiprocessor
    (83, 9),   // constant bytes
    (85, 41),  // unified addresses
    (87, 10),  // threads in step
    (88, 115), // pools
    (89, 102), // virtual memory
    (90, 99),  // host registration
    (91, 119), // how pools can be shared
    (10_002, 81),
];

/// Attributes that only HIP has, and the answers that fit a CUDA device.
const FIXED: &[(u32, i32)] = &[
    (10_011, 0), // large BAR: through CUDA the host cannot touch device memory
    (10_016, 0), // fine-grained memory of the device
];

fn meaning(attribute: u32) -> Option<Meaning> {
    let shared =
        SHARED.iter().find(|(hip, _)| *hip == attribute).map(|&(_, cuda)| Meaning::Same(cuda));
    shared.or_else(|| {
        FIXED.iter().find(|(hip, _)| *hip == attribute).map(|&(_, answer)| Meaning::Fixed(answer))
    })
}

/// Asks a device for a HIP attribute.
pub(crate) fn get(attribute: u32, device: i32) -> Result<i32, Code> {
    let mut value = 0;
    match meaning(attribute).ok_or(Code::INVALID_VALUE)? {
        Meaning::Fixed(value) => state::known(device).map(|_| value),
        Meaning::Same(number) => {
            let device = state::known(device)?;
            cu!(state::driver()?, cuDeviceGetAttribute(&raw mut value, number, device))
                .map(|()| value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, meaning};

    #[test]
    fn attributes_the_backend_asks_for_have_a_meaning() {
        for attribute in [9, 16, 24, 56, 63, 65, 74, 83, 87, 88, 89, 90, 91, 10_002, 10_011, 10_016]
        {
            assert!(meaning(attribute).is_some(), "{attribute}");
        }
        assert_eq!(meaning(87), Some(Meaning::Same(10)));
        assert_eq!(meaning(77_777), None);
    }
}
