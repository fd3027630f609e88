#![doc = include_str!("../README.md")]
mod backend;
mod block;
mod caps;
mod driver;
mod export;
mod launch;
mod open;
mod programs;
mod remap;
#[cfg(feature = "manager")]
mod resource;
#[cfg(test)]
mod rig;
mod timeline;
mod transfer;

pub use ash;
pub use backend::{BlockOptions, Vulkan};
pub use block::Block;
pub use caps::{Paging, features::Feature};
pub use driver::{
    hooks::{Hooks, MemoryEvent, MemoryEventKind, MemoryExtras},
    validation::{Messages, Validation},
};
pub use open::{Bare, Existing, Options, Which};
#[cfg(feature = "manager")]
pub use resource::{
    Alone, Bind, Needs,
    owned::{Native, Resource},
    sleepable::SleepableResource,
    twin::Twin,
};
pub use timeline::{clock::Clocks, family::Exclusive, retired::Object};
pub use transfer::copier::Copies;
