#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod books;
pub mod frame;
mod policy;

pub use policy::{Policy, PolicyError};
