#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
mod host;
mod lookup;
mod placed;

pub use kernels::*;
pub use placed::{Lookup, Placed};

/// The kernels, as the build script made them of the folders beside this one.
mod kernels {
    use crate::{Lookup, Placed};
    use omniheap_placement::{Dependence, Pattern, Work};
    use omniheap_seam::{Kernel, Slot};
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

#[cfg(test)]
mod tests;
