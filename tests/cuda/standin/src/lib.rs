//! A stand-in for NVIDIA's `libcuda.so.1` that runs on plain host memory.
//!
//! CUDA programs and the CUDA backend run over it on a machine without a device. It checks that they keep the driver's rules.
//! Streams are threads that work some time after a call. The host cannot touch device addresses. Work looks its addresses up
//! when it runs. The stand-in proves nothing about the real driver, its speed, or device code: kernels are emulated by name
//! (`kernel`).
//!
//! | part | module |
//! |---|---|
//! | settings from outside, counts | `knobs`, `count` |
//! | names, codes, life of the driver | `api`, `doors`, `entry`, `ffi`, `code`, `life` |
//! | memory: bytes, ranges, pools, virtual memory, handles for other processes | `pages`, `space`, `budget`, `pool`, `physical`, `ipc`, `file` |
//! | progress: streams, captures, events, graphs | `stream`, `marker`, `event`, `graph`, `op` |
//! | contexts, modules, kernels | `context`, `teardown`, `module`, `kernel`, `nvrtc` |
//!
//! Broken rules are reported on standard error and counted. They are: a second free, or a free of another address; a use of memory
//! that is freed, not yet allocated or not accessible; a free or unmap under work that has not ended.

mod api;
mod budget;
mod code;
mod context;
mod count;
mod doors;
mod entry;
mod event;
mod ffi;
mod file;
mod graph;
mod handle;
mod ipc;
mod kernel;
mod knobs;
mod life;
mod marker;
mod module;
mod nvrtc;
mod op;
mod pages;
mod physical;
mod pool;
mod space;
mod stream;
mod teardown;
