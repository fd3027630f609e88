//! A stand-in for AMD's `libhsa-runtime64.so.1` that runs on plain host memory.
//!
//! Put in front of AMD's own library, it lets AMD's unmodified HIP runtime 6 and 7 run on a machine without an AMD device:
//! HIP's own bookkeeping, error codes, pools, virtual memory and module loading are AMD's; devices, queues, copies and
//! memory behind them are ours. Kernels are not executed, they are emulated by name (see [`kernel`]). What it does not
//! show: the driver, real device memory, caches, timing, page migration.
//!
//! | part | module |
//! |---|---|
//! | what can be set from outside | [`knobs`], [`fault`] |
//! | devices and their attributes | `agent`, `system` |
//! | memory: pools and budget, host pages, virtual memory, managed memory | `pool`, `table`, `pages`, `vmem`, `svm` |
//! | progress: signals, handlers, copies, queues | `bell`, `signal`, `worker`, `handler`, `copy`, `queue`, `packet` |
//! | code: ELF, executables, kernels | `elf`, `executable`, [`kernel`], `blit`, `own` |
//!
//! Handles are checked as AMD's library checks them, since HIP relies on its answers.

mod abi;
mod agent;
mod agent_info;
mod bell;
mod blit;
mod copy;
mod elf;
mod executable;
pub mod fault;
mod ffi;
mod handler;
pub mod kernel;
pub mod knobs;
mod own;
mod packet;
mod pages;
mod pool;
mod queue;
mod rest;
mod signal;
mod svm;
mod symbol;
mod system;
mod table;
mod vmem;
mod worker;

pub use abi::Status;
