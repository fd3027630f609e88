//! The command `omniheap` from the outside: what it prints, what it exits with, what it leaves behind.
mod arbiter;
mod bad_input;
#[cfg(target_os = "linux")]
mod closed;
#[cfg(feature = "conformance")]
mod conformance;
mod demo;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(unix)]
mod lab;
mod others;
mod planned;
mod ranks;
mod replay;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod shell;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod streams;
mod support;
mod trace;
mod weights;
