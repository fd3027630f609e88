//! The command `omniheap-lab` from the outside: what it prints, what it exits with, what it leaves behind.
mod bad_input;
mod calibrate;
#[cfg(target_os = "linux")]
#[path = "../../../../tools/cli/tests/command/closed.rs"]
mod closed;
mod fit;
#[cfg(target_os = "linux")]
mod interrupt;
mod onnx;
mod plan;
#[cfg(target_os = "linux")]
#[path = "../../../../tools/cli/tests/command/signals.rs"]
mod signals;
#[cfg(target_os = "linux")]
mod streams;
#[path = "../../../../tools/cli/tests/command/support.rs"]
#[expect(dead_code, reason = "the tests of `omniheap` use more of it")]
mod support;
