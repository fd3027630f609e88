//! Tasks of real programs, as short functions that pass every error on.
mod bytes;
mod memory;
mod promises;
mod rest;
mod sleep;
mod time;

use super::scene::Scene;
use bytes::{copy_batch, download, fill, map, map_twice, staging_to_device, upload};
use memory::{
    aligned, array, buddy_pool, constants, dedicated, defragment, first, grow,
    ladder_with_callback, many_small, named, next_heap, no_grow, over_budget, pool,
    pool_to_its_maximum, pool_with_minimum, recall, registrable, ring_pool, slab_pool, trim,
    trim_and_grow,
};
use omniheap_core::{Backend, ErrorKind, Result};
use omniheap_layers::CallKind;
use promises::{domain, incoherent, install, kernel, resize, resize_secret, secret, steps, zeroed};
use rest::{budget_query, explain, export, report, teardown, threads, two_managers};
use sleep::sleep_and_wake;
use time::{
    closed_timeline, collect, cross_timeline, free_after, ordered, shortage_waits, used_elsewhere,
};

/// One thing that people do.
pub(crate) struct Scenario<B: Backend> {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Scene<B>) -> Result<()>,
    /// Failures that it may absorb, beside those that every scenario may.
    pub(super) absorbs: &'static [Absorbs],
}

/// Returns true if a failure of this call with this answer may end in success.
pub(super) type Absorbs = fn(CallKind, ErrorKind) -> bool;

/// A free cannot fail: bytes that could not be zeroed go to nobody else.
fn any_fill(kind: CallKind, _: ErrorKind) -> bool {
    kind == CallKind::Fill
}

/// A place that could not be zeroed now is left for another one.
fn busy_fill(kind: CallKind, error: ErrorKind) -> bool {
    kind == CallKind::Fill && error == ErrorKind::Busy
}

/// Zeros that were short of memory are written once the ladder has found some.
fn short_fill(kind: CallKind, error: ErrorKind) -> bool {
    kind == CallKind::Fill && error.is_out_of_memory()
}

/// A handle that was refused for want of memory is asked for again once unused memory was returned.
fn short_handle(kind: CallKind, error: ErrorKind) -> bool {
    kind == CallKind::AllocateExportable && error.is_out_of_memory()
}

macro_rules! scenarios {
    ($($name:ident $(absorbs $absorbs:ident)?),* $(,)?) => {
        pub(super) fn all<B: Backend + 'static>() -> Vec<Scenario<B>> {
            vec![$(Scenario {
                name: stringify!($name),
                run: $name::<B>,
                absorbs: &[$($absorbs)?],
            }),*]
        }
    };
}

scenarios! {
    first, grow, aligned, dedicated, registrable absorbs short_handle, many_small, array, named, ladder_with_callback, next_heap, constants,
    no_grow, over_budget, trim, trim_and_grow, pool, pool_with_minimum, pool_to_its_maximum, slab_pool, ring_pool,
    buddy_pool, upload, download, fill, copy_batch, staging_to_device, map, map_twice, cross_timeline, used_elsewhere,
    free_after, collect, shortage_waits, closed_timeline, ordered, threads, budget_query, report, explain, teardown,
    two_managers, sleep_and_wake, export, defragment, recall, resize,
    install absorbs busy_fill, steps, kernel, incoherent,
    zeroed absorbs short_fill, domain absorbs short_fill, secret absorbs any_fill, resize_secret absorbs any_fill,
}
