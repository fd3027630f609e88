#![doc = include_str!("../README.md")]
mod host;
mod kernels;
mod placed;

#[cfg(feature = "lookups")]
pub use host::Lookup;
pub use kernels::*;
pub use placed::Placed;

#[cfg(test)]
mod tests;
