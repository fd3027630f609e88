//! A stand-in for NVIDIA's `libcuda.so.1` that runs on plain host memory.
//!
//! CUDA programs and the CUDA backend run over it on a machine without a device. It shows what they ask of the driver, in
//! which order, and whether they keep its rules: streams are threads that work some time after a call, device addresses
//! cannot be touched by the host, and work looks its addresses up when it runs. What it does not show: the real driver, its
//! speed, and device code, which is emulated by name (`kernel`).
//!
//! | part | module |
//! |---|---|
//! | what can be set from outside, what is counted | `knobs`, `count` |
//! | names, codes, life of the driver | `api`, `doors`, `entry`, `ffi`, `code`, `life` |
//! | memory: bytes, ranges, pools, virtual memory, handles for other processes | `pages`, `space`, `budget`, `pool`, `physical`, `ipc`, `file` |
//! | progress: streams, captures, events, graphs | `stream`, `marker`, `event`, `graph`, `op` |
//! | contexts, modules, kernels | `context`, `teardown`, `module`, `kernel`, `nvrtc` |
//!
//! Broken rules are said on standard error and counted: freeing twice or what is no allocation, using what is gone, not yet
//! there or not allowed, freeing or unmapping under work that was not waited for.

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
