//! Holds the HIP backend's C interface against `hip-sys`, at compile time: this crate builds, or the interface is wrong.
//!
//! `hip-sys` describes HIP 5.4, links AMD's library at build time and gives C enums as Rust enums, so it cannot carry
//! calls here. It is an independent description of the same headers, which makes it a good oracle: `layout` compares
//! sizes and offsets, `values` numbers, `signatures` every function, argument by argument. Where HIP 6 changed
//! something, the difference itself is asserted. No symbol of the library is referenced, so nothing has to be installed.
//! The run-time compiler's functions and `hipStreamGetDevice` are not in `hip-sys`; `tests/hip/workout` calls them.

mod layout;
mod signatures;
mod values;

pub use signatures::{Compatible, same};
