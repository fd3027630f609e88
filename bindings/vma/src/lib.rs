//! The interface of the Vulkan Memory Allocator (VMA) 3.4, over omniheap: `include/vk_mem_alloc.h` declares it, and this library is
//! behind it. `docs/vma.md` shows how programs use it.
//!
//! | module | holds |
//! |---|---|
//! | `abi` | the types, as C lays them out |
//! | `call`, `args` | the guard around every function; pointers of the program |
//! | `slots`, `spin` | the table of live allocations, whose handles can be checked; a lock |
//! | `open`, `allocator` | the program's device and functions; allocators |
//! | `choice` | the memory type for a request |
//! | `memory`, `pools`, `linear`, `counts` | allocations; their pools; their sums, and the return of empty memory |
//! | `info`, `resource`, `map` | calls about allocations, about buffers and images, and about mapped bytes |
//! | `stats`, `budget`, `text` | sums, budgets, and reports as JSON |
//! | `defrag` | passes of moves that the program makes |
//! | `margin` | overwrites behind allocations |
//! | `virtual_block` | ranges of the program's own, divided |
//!
//! No function unwinds. Every handle is checked. Calls on which VMA would assert are refused and logged. Any thread may call any function,
//! but `vmaDestroyAllocator` excludes other calls on its allocator.

pub mod abi;
mod allocator;
mod args;
mod budget;
mod call;
mod choice;
mod counts;
mod defrag;
mod info;
mod linear;
mod map;
mod margin;
mod memory;
mod open;
mod pools;
mod resource;
mod slots;
mod spin;
mod stats;
mod text;
mod virtual_block;

pub use allocator::*;
pub use defrag::*;
pub use info::*;
pub use map::*;
pub use margin::*;
pub use pools::*;
pub use resource::*;
pub use stats::*;
pub use text::*;
pub use virtual_block::*;
