//! The kernels that this project launches: the backend's own of `backends/stream/kernels`, and those of its tests by the names and
//! arguments of `tests/hip/workout/src/kernels.hip`.

use core::time::Duration;
use std::thread;

use crate::kernel::Dispatch;
use crate::{pages, symbol};

/// Finds the emulation of one of our kernels.
pub(crate) fn find(name: &str) -> Option<fn(&Dispatch)> {
    match name {
        "fill" => Some(fill),
        "lookup" => Some(lookup),
        "copy" => Some(copy),
        "compact" => Some(|dispatch| compact(dispatch, dispatch.wide(8))),
        "omniheap_compact" => Some(|dispatch| compact(dispatch, dispatch.word(8).into())),
        "spin" => Some(spin),
        "hold" => Some(hold),
        _ => None,
    }
}

/// Destination, 32-bit value, count of values. As the kernel does, writes no more values than there are threads.
fn fill(dispatch: &Dispatch) {
    let count = dispatch.wide(16).min(dispatch.grid[0].into());
    let value = dispatch.word(8).to_ne_bytes();
    let bytes = value.repeat(usize::try_from(count).expect("at most the grid"));
    pages::write(dispatch.wide(0), &bytes);
}

/// Destination, count of values; they come from the module's constant array `table`.
fn lookup(dispatch: &Dispatch) {
    let table =
        symbol::named("table").expect("the module that defines this kernel defines the array");
    pages::copy(dispatch.wide(0), table.address, 4 * dispatch.wide(8));
}

/// Destination, source, bytes.
fn copy(dispatch: &Dispatch) {
    pages::copy(dispatch.wide(0), dispatch.wide(8), dispatch.wide(16));
}

/// List of moves (destination, source, bytes: 24 bytes each), and how many.
fn compact(dispatch: &Dispatch, count: u64) {
    let list = dispatch.wide(0);
    for index in 0..count {
        let entry = pages::read(list + 24 * index, 24);
        let word =
            |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
        pages::copy(word(0), word(8), word(16));
    }
}

/// Nanoseconds to take.
fn spin(dispatch: &Dispatch) {
    thread::sleep(Duration::from_nanos(dispatch.wide(0)));
}

/// A word to wait for until it is not 0.
fn hold(dispatch: &Dispatch) {
    let word = dispatch.wide(0);
    while pages::read_volatile(word) == 0 {
        thread::sleep(Duration::from_micros(50));
    }
}
