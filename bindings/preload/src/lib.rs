//! Any CUDA or HIP program on omniheap, without recompiling: the library that `omniheap run` puts before a program with `LD_PRELOAD`.
//!
//! | module | holds |
//! |---|---|
//! | `door` | `dlsym`, and the choice between our function and the driver's |
//! | `vendor` | what CUDA and HIP have alike, over which the modules below are written once |
//! | `cuda`, `hip`, `hooks` | the drivers' functions, those that programs get instead, and the macro of these tables |
//! | `real` | the C library's own `dlsym` |
//! | `inside` | a mark on threads that are in this library, and on forks |
//! | `memory`, `ask` | the answers: allocations and frees, and questions about memory |
//! | `contexts` | CUDA's contexts, which come and go |
//! | `pools` | the pool that each device has from the start |
//! | `capture` | graph captures under way |
//! | `book` | one context: its manager, frees that wait |
//! | `live` | its live allocations |
//! | `streams` | the timelines of its streams |
//! | `books` | the books of all contexts |
//! | `control`, `gate` | orders to a running program; the wait of its work while memory sleeps |
//! | `settings` | environment variables |
//! | `ending` | the recording, and the lines and the report at the end |
//!
//! A call that this library does not answer goes to the driver's own function, with the caller's arguments. These are calls with
//! odd arguments, about memory of other owners, during captures, and from within this library. So every error code is the driver's.
//!
//! The library is never unloaded and frees nothing at exit: the driver may be gone before it. It does nothing when it is loaded.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod ask;
mod book;
mod books;
mod capture;
mod contexts;
mod control;
mod cuda;
mod door;
mod ending;
mod gate;
mod hip;
mod hooks;
mod inside;
mod live;
mod memory;
mod pools;
mod real;
mod settings;
mod streams;
mod vendor;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Result code of a driver call.
type Code = u32;

/// Locks a mutex, also a poisoned one: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
