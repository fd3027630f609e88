//! The command `omniheap` from the outside: what it prints, what it exits with, what it leaves behind.
mod arbiter;
mod bad_input;
#[cfg(feature = "conformance")]
mod conformance;
mod fit;
#[cfg(target_os = "linux")]
mod interrupt;
mod onnx;
mod others;
mod plan;
mod planned;
mod ranks;
mod replay;
mod streams;
mod support;
mod trace;
mod weights;
