#![doc = include_str!("../README.md")]
#[cfg(feature = "compile")]
pub mod compile;
mod host;
mod kernels;
mod placed;
#[doc(hidden)]
pub mod template;

pub use kernels::*;
pub use placed::Placed;

#[cfg(test)]
mod tests;
