#![doc = include_str!("../README.md")]

mod backend;
mod block;
mod caps;
mod device;
mod devices;
mod driver;
#[cfg(target_os = "linux")]
mod export;
mod hold;
mod launch;
mod ledger;
mod map;
#[cfg(target_os = "linux")]
mod pages;
mod programs;
#[cfg(target_os = "linux")]
mod remap;
#[cfg(target_os = "linux")]
mod slots;
mod timeline;
mod transfer;
mod work;

pub use block::Block;
pub use caps::{Config, heap};
pub use device::Host;
pub use devices::real_devices;
pub use hold::Hold;
