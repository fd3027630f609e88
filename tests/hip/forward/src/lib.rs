//! HIP's functions, answered by the CUDA driver: the HIP backend runs on an NVIDIA device, unchanged.
//!
//! The library shows the backend's own code under true asynchrony, on real device memory, with real kernels (through
//! NVRTC). It shows nothing about AMD: granularity, pools, coherence and limits are CUDA's. It says version 7 and so
//! follows HIP 7 where HIP 6 differs, and every device's name says that it is forwarded.
//!
//! The library builds and loads without CUDA and then answers that there is no device. Cargo names the file
//! `libomniheap_hip_forward.so`, not `libamdhip64.so`: cargo puts its output folders on the loader's path, and a test of the
//! HIP backend must not find this library by accident. Name it in `OMNIHEAP_HIP_LIBRARY` to use it.
//!
//! Numbers are passed on where HIP and CUDA agree, which is nearly everywhere: errors (see `code`), flags,
//! structures of virtual memory and pools. Attributes and properties have tables of their own.

mod attribute;
mod code;
mod cuda;
mod device;
mod export;
mod kernels;
mod memory;
mod peer;
mod pools;
mod properties;
mod rtc;
mod state;
mod stream;
mod transfer;
mod virtual_memory;
