//! The kernels of omniheap, in CUDA C++ and WGSL, each with a reference in Rust.
//!
//! `probes/` holds the kernels that calibration measures, `judged/` those that placements are judged with.
//!
//! WGSL becomes SPIR-V when this crate is built, so no backend needs a shader compiler it does not have anyway. Load a
//! kernel with [`Launch::load`](omniheap_seam::Launch::load).
//!
//! ```
//! use omniheap_seam::Slot;
//! use omniheap_shaders::SCALE;
//! assert_eq!(SCALE.slots, [Slot::Read, Slot::Write]);
//! assert_eq!(SCALE.parameters, 12);
//! ```
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
