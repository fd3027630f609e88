#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
mod host;
#[cfg(feature = "lookups")]
mod lookup;
mod placed;

pub use kernels::*;
#[cfg(feature = "lookups")]
pub use lookup::Lookup;
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
