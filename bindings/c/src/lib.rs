//! The C ABI of omniheap. `include/omniheap.h` is generated from this crate by `cargo xtask header`.
//!
//! | module | holds |
//! |---|---|
//! | `sized` | structs that may grow, passed with their size |
//! | `status` | what every function returns, and the guard around each of them |
//! | `table`, `handle` | handles that know when they are stale, and what is behind them |
//! | `open`, `wrap` | devices of ours, and devices that the caller owns |
//! | `request` | what is wanted, as plain data |
//! | `allocation`, `bytes` | allocate and free; map, write, read, copy |
//! | `timeline` | streams and queues |
//! | `manager` | plan, explain, budgets, trim, defragment |
//! | `defrag`, `pass` | passes that ask about every move; passes of the caller's own |
//! | `pool`, `sleep`, `residents` | pools of the caller's own; their sleep; pools that make room for each other |
//! | `share` | memory that processes publish and attach |
//! | `weights` | weights files, loaded into memory |
//! | `report` | JSON and HTML |
//! | `guards` | writes behind the end of allocations |
//! | `hooks` | log messages, and memory pressure |
//! | `vulkan` | memory for buffers and images that the caller made |
//!
//! No function unwinds, and no callback may. Every argument is checked. Every function may be called from any thread.
mod allocation;
mod bytes;
mod defrag;
mod guards;
mod handle;
mod hooks;
mod manager;
mod open;
mod pass;
mod pool;
mod report;
mod request;
mod residents;
#[cfg(target_os = "linux")]
mod share;
mod sized;
mod sleep;
mod status;
mod table;
mod timeline;
mod vulkan;
mod weights;
mod wrap;

pub use allocation::*;
pub use bytes::*;
pub use defrag::*;
pub use guards::*;
pub use handle::{OmniheapAllocation, OmniheapManager, OmniheapPool, adopt};
pub use hooks::*;
pub use manager::*;
pub use open::*;
pub use pass::*;
pub use pool::*;
pub use report::*;
pub use request::*;
pub use residents::*;
#[cfg(target_os = "linux")]
pub use share::*;
pub use sleep::*;
pub use status::*;
pub use timeline::*;
pub use vulkan::*;
pub use weights::*;
pub use wrap::*;
