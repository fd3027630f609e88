//! The kernels, as the build script made them of the folders beside this one.
#![expect(unsafe_code, reason = "answers for the text of the kernels")]
use crate::Placed;
use omniheap_seam::{Kernel, KernelText, Slot};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
