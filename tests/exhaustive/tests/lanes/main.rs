//! The worlds of lane and pool: a manager's public calls over a strict device, in every order.
mod beside;
mod device;
mod paths;
mod store;
mod world;

use device::CELL;
use omniheap_core::{InsideBlock, PoolConfig, StrategyKind};
use omniheap_exhaustive::{Limits, check};
use world::{Kind, May, MayBend, Setting};

/// Defines a world, and the test that explores it to a depth.
macro_rules! worlds {
    ($($(#[$about:meta])* $name:ident to $depth:literal: { $($field:ident: $value:expr),* $(,)? })*) => {
        $(
            $(#[$about])*
            fn $name() -> Setting {
                Setting { name: stringify!($name), $($field: $value,)* ..BLOCKS }
            }
        )*

        mod explored {
            use super::{Limits, check};

            $(
                #[test]
                fn $name() {
                    check(stringify!($name), &super::$name(), Limits::depth($depth));
                }
            )*
        }
    };
}

/// Three blocks of four cells, one lane, two timelines.
const BLOCKS: Setting = Setting {
    name: "blocks",
    cell: CELL,
    heaps: &[(12 * CELL, 4 * CELL)],
    pages: false,
    inside: InsideBlock::Allowed,
    pool: PoolConfig::new(),
    own_pool: true,
    slots: 3,
    lines: 2,
    sizes: &[2],
    homes: &[Some(0), Some(1), None],
    kinds: &[Kind::Plain],
    may: &[],
    bends: MayBend::Nothing,
};

/// Bytes of a cell where a pool's slack counts.
const LARGE: u64 = 8 << 20;

fn blocks_of_four() -> PoolConfig {
    PoolConfig::new().block(4 * CELL).lanes(1)
}

fn pages() -> PoolConfig {
    PoolConfig::new().paged().lanes(1)
}

const SIX_PAGES: &[(u64, u64)] = &[(12 * CELL, 12 * CELL)];

worlds! {
    /// Holes that others used last.
    order to 5: {
        pool: blocks_of_four(),
        may: &[May::Use, May::Swap, May::Trim],
    }
    /// Holes side by side that different timelines used last.
    neighbours to 5: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        sizes: &[1, 3],
        homes: &[Some(0), Some(1)],
        may: &[May::FreeAfter, May::Retire],
    }
    /// A timeline that ends, and a pool with a minimum.
    ends to 5: {
        pool: blocks_of_four().minimum(5 * CELL),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[2, 4],
        homes: &[Some(1), None],
        may: &[May::Use, May::Close, May::Destroy, May::Trim],
    }
    /// Secrets, blocks of their own, and bytes that are final, in a pool with a maximum.
    kinds to 4: {
        pool: blocks_of_four().maximum(8 * CELL),
        sizes: &[3],
        homes: &[Some(1), None],
        kinds: &[Kind::Plain, Kind::Secret, Kind::Dedicated, Kind::SecretDedicated],
        may: &[May::Use, May::Publish, May::Close, May::Trim],
    }
    /// A minimum beside blocks of one allocation each.
    minimum to 6: {
        pool: blocks_of_four().minimum(4 * CELL),
        sizes: &[3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Dedicated],
        may: &[May::FreeAfter, May::Trim],
    }
    /// Memory that goes where it is needed.
    paged to 5: {
        pool: pages().minimum(3 * CELL),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[2, 5],
        homes: &[Some(0), Some(1)],
        may: &[May::Use, May::Trim],
    }
    /// Passes over blocks.
    passes to 6: {
        pool: blocks_of_four(),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[1, 3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Consent],
        may: &[May::Use, May::Pass],
    }
    /// Passes over pages.
    paged_passes to 6: {
        pool: pages(),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[1, 2],
        homes: &[Some(0), None],
        may: &[May::Pass, May::Use],
    }
    /// Slides, shifts and packing.
    slides to 4: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        sizes: &[1, 2],
        homes: &[Some(0), Some(1)],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Defragment, May::Use],
    }
    /// The same over pages.
    paged_slides to 5: {
        pool: pages(),
        heaps: &[(8 * CELL, 8 * CELL)],
        pages: true,
        sizes: &[1, 3],
        homes: &[Some(0), Some(1)],
        may: &[May::Defragment],
    }
    /// A pool that sleeps.
    sleeps to 4: {
        pool: PoolConfig::new().sleepable(),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[2, 3],
        homes: &[Some(1), None],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::GiveUp, May::Sleep, May::Use, May::Close],
    }
    /// Passes that a sleep meets.
    sleeps_passes to 7: {
        pool: PoolConfig::new().sleepable(),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[1],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Sleep, May::Pass],
    }
    /// Bytes that come back to the heap that suits them.
    recalls to 6: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL), (8 * CELL, 4 * CELL)],
        own_pool: false,
        sizes: &[2],
        homes: &[Some(0), Some(1)],
        may: &[May::Recall, May::Use],
    }
    /// Cells so large that a request rather takes what another timeline may still use than let the pool grow.
    ordered to 6: {
        cell: LARGE,
        pool: PoolConfig::new().block(4 * LARGE).lanes(1),
        heaps: &[(12 * LARGE, 4 * LARGE)],
        sizes: &[2],
        homes: &[Some(0), Some(1)],
        may: &[May::Use, May::FreeAfter],
    }
    /// The same with one refused call.
    ordered_refused to 4: {
        cell: LARGE,
        pool: PoolConfig::new().block(4 * LARGE).lanes(1),
        heaps: &[(12 * LARGE, 4 * LARGE)],
        sizes: &[3],
        homes: &[Some(0), Some(1)],
        bends: MayBend::Refusals,
    }
    /// The same with other threads.
    ordered_threads to 4: {
        cell: LARGE,
        pool: PoolConfig::new().block(4 * LARGE).lanes(1),
        heaps: &[(12 * LARGE, 4 * LARGE)],
        sizes: &[3],
        homes: &[Some(0), Some(1)],
        may: &[May::Ask, May::Defragment, May::Use],
        bends: MayBend::Threads,
    }
    /// A pool whose strategy knows the last use of a block only.
    stacked to 5: {
        pool: blocks_of_four().strategy(StrategyKind::Stack),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[1, 3],
        homes: &[Some(0), Some(1)],
        may: &[May::Use, May::FreeAfter, May::Trim],
    }
    /// The same in powers of two.
    buddies to 4: {
        pool: blocks_of_four().strategy(StrategyKind::Buddy(CELL)),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[1, 2],
        homes: &[Some(0), Some(1)],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Use, May::Trim],
    }
    /// Passes and slides where the device copies inside no block.
    bounced to 6: {
        pool: PoolConfig::new().block(8 * CELL).lanes(1),
        heaps: &[(12 * CELL, 8 * CELL)],
        inside: InsideBlock::Forbidden,
        sizes: &[1, 3],
        homes: &[Some(1)],
        may: &[May::Use, May::Pass, May::Defragment],
    }
    /// The same with one refused call.
    bounced_refused to 5: {
        pool: PoolConfig::new().block(8 * CELL).lanes(1),
        heaps: &[(12 * CELL, 8 * CELL)],
        inside: InsideBlock::Forbidden,
        sizes: &[1, 3],
        homes: &[Some(1)],
        may: &[May::Pass, May::Defragment],
        bends: MayBend::Refusals,
    }
    /// Two lanes: what one lends the other.
    beside to 4: {
        pool: blocks_of_four().lanes(2),
        sizes: &[2],
        homes: &[Some(0), Some(1)],
        may: &[May::Beside, May::Use, May::Trim],
    }
    /// Two lanes of pages.
    paged_beside to 4: {
        pool: pages().lanes(2),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[2, 5],
        homes: &[Some(0), Some(1)],
        may: &[May::Beside, May::Trim],
    }
    /// Three timelines: what two have used, a third may have after both.
    several to 5: {
        cell: LARGE,
        pool: PoolConfig::new().block(4 * LARGE).lanes(1),
        heaps: &[(8 * LARGE, 4 * LARGE)],
        lines: 3,
        sizes: &[3],
        homes: &[Some(0), Some(1)],
        kinds: &[Kind::Plain, Kind::Dedicated],
        may: &[May::Use, May::FreeAhead],
    }
    /// Secrets that two timelines use, one of which ends.
    closing to 5: {
        pool: blocks_of_four(),
        slots: 2,
        lines: 3,
        homes: &[Some(1)],
        kinds: &[Kind::Secret],
        may: &[May::Use, May::Close],
    }
    /// Windows between a look at a timeline and what is made of it.
    windows to 7: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        slots: 2,
        sizes: &[2],
        homes: &[Some(1)],
        may: &[May::Ask, May::Trim],
        bends: MayBend::Threads,
    }
    /// Slides with one refused call.
    slides_refused to 6: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        sizes: &[1, 3],
        homes: &[Some(1)],
        may: &[May::Defragment],
        bends: MayBend::Refusals,
    }
    /// Slides with other threads.
    slides_threads to 5: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        sizes: &[1],
        homes: &[Some(1), None],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Defragment],
        bends: MayBend::Threads,
    }
    /// What is freed while a pass has it, and another timeline uses it.
    passes_freed to 7: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        slots: 2,
        sizes: &[1],
        homes: &[Some(0), Some(1)],
        may: &[May::Pass, May::Use],
    }
    /// Frees after a pass that nobody could follow.
    passes_lost to 7: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL)],
        slots: 2,
        sizes: &[1],
        homes: &[Some(1)],
        may: &[May::Pass],
        bends: MayBend::Refusals,
    }
    /// One refused call at each place, over blocks.
    refused to 4: {
        pool: blocks_of_four(),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Secret, Kind::Dedicated],
        may: &[May::Use, May::FreeAfter, May::Trim, May::Destroy],
        bends: MayBend::Refusals,
    }
    /// The same over pages.
    paged_refused to 4: {
        pool: pages(),
        heaps: &[(8 * CELL, 8 * CELL)],
        pages: true,
        sizes: &[3],
        homes: &[Some(0), Some(1)],
        may: &[May::Trim, May::Defragment, May::Destroy],
        bends: MayBend::Refusals,
    }
    /// The same in passes.
    passes_refused to 5: {
        pool: blocks_of_four(),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[1, 4],
        homes: &[Some(1)],
        may: &[May::Pass, May::Defragment],
        bends: MayBend::Refusals,
    }
    /// The same while a pool falls asleep and wakes.
    sleeps_refused to 5: {
        pool: PoolConfig::new().sleepable(),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Sleep],
        bends: MayBend::Refusals,
    }
    /// Acts of another thread in the middle of a call, over blocks.
    threads to 4: {
        pool: blocks_of_four(),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Secret, Kind::SecretDedicated],
        may: &[May::Ask, May::Use, May::FreeAfter, May::Publish, May::Trim],
        bends: MayBend::Threads,
    }
    /// The same over pages.
    paged_threads to 4: {
        pool: pages(),
        heaps: &[(8 * CELL, 8 * CELL)],
        pages: true,
        sizes: &[3],
        homes: &[Some(0), Some(1)],
        may: &[May::GiveUp, May::Ask, May::Trim, May::Defragment],
        bends: MayBend::Threads,
    }
    /// The same in passes.
    passes_threads to 5: {
        pool: blocks_of_four(),
        heaps: &[(8 * CELL, 4 * CELL)],
        sizes: &[1, 4],
        homes: &[Some(1)],
        may: &[May::Ask, May::Pass, May::Defragment],
        bends: MayBend::Threads,
    }
    /// The same in recalls.
    recalls_threads to 6: {
        pool: blocks_of_four(),
        heaps: &[(4 * CELL, 4 * CELL), (4 * CELL, 4 * CELL)],
        own_pool: false,
        sizes: &[3],
        homes: &[Some(1)],
        may: &[May::Recall, May::Close, May::Trim],
        bends: MayBend::Threads,
    }
    /// The same while a pool falls asleep and wakes.
    sleeps_threads to 4: {
        pool: PoolConfig::new().sleepable(),
        heaps: SIX_PAGES,
        pages: true,
        sizes: &[3],
        homes: &[Some(1)],
        kinds: &[Kind::Plain, Kind::Secret],
        may: &[May::Ask, May::Sleep, May::Use, May::Trim],
        bends: MayBend::Threads,
    }
}
