#![doc = include_str!("../README.md")]
mod arrange;
mod cache;
mod disk;
mod dtype;
mod error;
mod file;
mod format;
mod list;
mod load;
mod origin;
mod packing;
mod picture;
mod plan;
mod ring;
mod run;
mod tensor;

pub use arrange::{Arrangement, Spot, arrange};
pub use cache::CacheLayer;
pub use dtype::Dtype;
pub use error::{Error, ErrorKind};
pub use file::{Part, WeightsFile};
pub use format::Format;
pub use load::{Destination, Load, LoadWeights, Loaded, LoadedTensor, Progress};
pub use origin::Origin;
pub use packing::Packing;
pub use picture::{layer_of, treemap};
pub use tensor::{Name, Tensor};

#[cfg(all(test, target_os = "linux"))]
mod tests;
