//! Any CUDA program on omniheap, without recompiling: the library that `omniheap run` puts before a program with `LD_PRELOAD`.
//!
//! | module | holds |
//! |---|---|
//! | `door` | `dlsym`, and the table of what programs get instead of the driver's functions |
//! | `hooks` | the functions that programs get |
//! | `real` | the driver's own functions |
//! | `inside` | which threads are in this library, and forks |
//! | `memory`, `ask` | what the functions do: memory, and questions about it |
//! | `capture` | how many graphs are being captured |
//! | `book` | one context: its manager, what is live by address, frees that wait |
//! | `books` | the books of all contexts |
//! | `control`, `gate` | orders to a running program, and its work on memory that sleeps |
//! | `settings` | what the environment says |
//! | `ending` | what is said and written when the program ends |
//!
//! A call that this library does not answer goes to the driver's own function, with the caller's arguments: odd arguments, memory
//! of other owners, captures, and every call from within this library. So the driver decides what is an error, and which.
//!
//! The library is never unloaded and frees nothing at exit: the driver may be gone before it. It does nothing when it is loaded.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod ask;
mod book;
mod books;
mod capture;
mod control;
mod door;
mod ending;
mod gate;
mod hooks;
mod inside;
mod memory;
mod real;
mod settings;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Result code of a driver call.
type Code = u32;

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
