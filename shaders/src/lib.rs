#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
mod host;
mod placed;

#[cfg(feature = "lookups")]
pub use host::Lookup;
pub use kernels::*;
pub use placed::Placed;

/// The kernels, as the build script made them of the folders beside this one.
mod kernels {
    use crate::Placed;
    use omniheap_seam::{Kernel, Slot};
    #[cfg(feature = "lookups")]
    use {
        crate::Lookup,
        omniheap_placement::{Dependence, Pattern, Work},
    };
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

#[cfg(test)]
mod tests;
