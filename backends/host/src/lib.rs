//! Host memory as an omniheap backend: reference and default.
//!
//! Real memory with real limits: blocks are `mmap`ed and committed when touched, transfers run asynchronously on
//! worker threads, pages are remapped with `memfd` and `mmap`. It can look like any device ([`Host::like`]), be held
//! back ([`Host::hold`]) and be lost ([`Host::lose`]), and it refuses whatever a driver would leave undefined.
//!
//! ```
//! use omniheap_seam::{Backend, HeapKind, Place, TimelineId};
//! use omniheap_host::{Host, heap};
//!
//! # fn main() -> omniheap_seam::Result<()> {
//! let host = Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open()?;
//! let (id, _) = host.caps().heap_ids().next().expect("one heap was added");
//! let block = host.allocate(id, 4096)?;
//! let transfer = host.as_transfer().expect("host memory can be written");
//! transfer.write(TimelineId::MAIN, Place { block: &block, offset: 0 }, b"hello")?;
//! let mut bytes = [0; 5];
//! transfer.read(TimelineId::MAIN, Place { block: &block, offset: 0 }, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! // SAFETY: the block came from `host`, and `read` waited for all work on it.
//! unsafe { host.free(block) }
//! # }
//! ```

mod backend;
mod block;
mod caps;
mod device;
mod driver;
#[cfg(target_os = "linux")]
mod export;
mod hold;
mod launch;
mod ledger;
mod map;
#[cfg(target_os = "linux")]
mod pages;
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
pub use hold::Hold;
