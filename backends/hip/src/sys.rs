//! HIP's C interface as this backend uses it: types, values, and tables of functions found at run time.
//!
//! Names are AMD's, so that a name here can be looked up in AMD's documentation. Every C enum is a number with named
//! values, never a Rust enum: newer runtimes answer values that older headers lack. Nothing here behaves; `driver`
//! turns calls into results. `tests/hip/abi-check` compares all of it with `hip-sys`.

#![expect(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "the names are AMD's"
)]

mod functions;
mod library;
mod table;
mod types;
mod values;

pub use library::{Api, LIBRARY_VARIABLE, Missing};
pub use table::{
    Captures, Core, Device, Kernels, Managed, Peer, Pools, Properties, Rtc, StreamDevice, Virtual,
};
pub use types::*;
pub use values::*;
