//! Pools of the caller's own.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{OmniheapManager, OmniheapPool, Owner, POOLS, Pool, holder};
use crate::open::{OMNIHEAP_WAITING_LAST_RESORT, waiting};
use crate::request::heap;
use crate::sized::{grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use omniheap::seam::lock;
use omniheap::{Align, ErrorKind, GiveBack, PoolConfig, StrategyKind, seam::Layout};
use std::sync::Arc;

/// Any size in any order.
pub const OMNIHEAP_STRATEGY_GENERAL: u32 = 0;
/// Powers of two; `piece` is the smallest.
pub const OMNIHEAP_STRATEGY_BUDDY: u32 = 1;
/// One size, which is `piece`.
pub const OMNIHEAP_STRATEGY_SLAB: u32 = 2;
/// Last in, first out.
pub const OMNIHEAP_STRATEGY_STACK: u32 = 3;
/// First in, first out in one block.
pub const OMNIHEAP_STRATEGY_RING: u32 = 4;
/// Everything dies together.
pub const OMNIHEAP_STRATEGY_BUMP: u32 = 5;

/// Configuration of a pool. Start from `omniheap_pool_config_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapPoolConfig {
    /// Bytes of this struct, which `omniheap_pool_config_default` sets.
    pub struct_size: usize,
    /// Bytes taken from the driver when the pool is made, and kept.
    pub minimum: u64,
    /// Bytes that the pool never exceeds.
    pub maximum: u64,
    /// The size of every block; 0 lets the pool choose.
    pub block: u64,
    /// Size of a piece, for the strategies that need one.
    pub piece: u64,
    /// `OMNIHEAP_STRATEGY_…`.
    pub strategy: u32,
    /// Non-zero: build the pool from pages where the heap has them.
    pub paged: u32,
    /// `OMNIHEAP_WAITING_…`.
    pub waiting: u32,
    /// Lanes for threads; 1 makes the pool deterministic across threads, 0 is one for each core.
    pub lanes: u32,
    /// Non-zero: the pool can sleep (`omniheap_pool_sleep`). It is then built from pages, and has one lane unless `lanes` says otherwise.
    pub sleepable: u32,
    /// Non-zero: a request wakes the pool when it is asleep, instead of failing with `Asleep`.
    pub wakes_on_request: u32,
}

/// A general-purpose pool without limits; C has it as an inline function.
#[must_use]
pub fn omniheap_pool_config_default() -> OmniheapPoolConfig {
    OmniheapPoolConfig {
        struct_size: size_of::<OmniheapPoolConfig>(),
        minimum: 0,
        maximum: u64::MAX,
        block: 0,
        piece: 0,
        strategy: OMNIHEAP_STRATEGY_GENERAL,
        paged: 0,
        waiting: OMNIHEAP_WAITING_LAST_RESORT,
        lanes: 0,
        sleepable: 0,
        wakes_on_request: 0,
    }
}

grows!(OmniheapPoolConfig to wakes_on_request: "config" from "omniheap_pool_config_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_pool_config_default` is the short way.
///
/// # Safety
///
/// `config` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_config_init(
    config: *mut OmniheapPoolConfig,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(config, struct_size, &omniheap_pool_config_default()) }
}

fn strategy(config: &OmniheapPoolConfig) -> Result<StrategyKind, Failure> {
    Ok(match config.strategy {
        OMNIHEAP_STRATEGY_GENERAL => StrategyKind::General,
        OMNIHEAP_STRATEGY_BUDDY if Align::new(config.piece).is_some() => {
            StrategyKind::Buddy(config.piece)
        }
        OMNIHEAP_STRATEGY_BUDDY => {
            return Err(Failure::invalid(
                "config.piece is not a power of two; it is the smallest piece",
            ));
        }
        OMNIHEAP_STRATEGY_SLAB if config.piece > 0 => StrategyKind::Slab(Layout::new(config.piece)),
        OMNIHEAP_STRATEGY_SLAB => {
            return Err(Failure::invalid("config.piece is zero; it is the size"));
        }
        OMNIHEAP_STRATEGY_STACK => StrategyKind::Stack,
        OMNIHEAP_STRATEGY_RING => StrategyKind::Ring,
        OMNIHEAP_STRATEGY_BUMP => StrategyKind::Bump,
        other => {
            return Err(Failure::invalid(format!("config.strategy is {other}, which is none")));
        }
    })
}

/// The settings as the core has them.
fn settings(config: &OmniheapPoolConfig) -> Result<PoolConfig, Failure> {
    let mut settings = PoolConfig::new()
        .strategy(strategy(config)?)
        .minimum(config.minimum)
        .maximum(config.maximum)
        .block((config.block > 0).then_some(config.block))
        .waiting(waiting(config.waiting)?)
        .lanes((config.lanes > 0).then_some(config.lanes));
    settings.sleepable = config.sleepable != 0;
    settings.wakes_on_request = config.wakes_on_request != 0;
    settings.paged = config.paged != 0 || settings.sleepable;
    Ok(settings)
}

/// Makes a pool of a heap.
///
/// # Safety
///
/// `config` is null or settings, `pool` null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_create(
    manager: OmniheapManager,
    number: u32,
    config: *const OmniheapPoolConfig,
    pool: *mut OmniheapPool,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let config = unsafe { read_sized(config, omniheap_pool_config_default()) }?;
        check(pool, "pool")?;
        let made = holder.manager.create_pool(heap(number)?, settings(&config)?)?;
        let id = POOLS.insert(Pool::new(made, Owner::new(&holder)))?;
        // SAFETY: as above.
        unsafe { put(pool, OmniheapPool { id }, "pool") }
    })
}

/// Ends a pool. Refused with `Busy` while something in it is live, while it is held, or while another call uses it; the pool stays then.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_destroy(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        let mut held = lock(&entry.pool);
        let made = match Arc::try_unwrap(held.take().ok_or(ErrorKind::Stale)?) {
            Ok(made) => made,
            Err(shared) => {
                *held = Some(shared);
                let why =
                    "the pool is held, or another call uses it right now; release it, or try again";
                return Err(ErrorKind::Busy.because(why).into());
            }
        };
        if let Err(GiveBack { given: made, error }) =
            entry.owner.holder().manager.destroy_pool(made)
        {
            *held = Some(Arc::new(made));
            return Err(error.into());
        }
        drop(held);
        drop(entry);
        POOLS.remove(pool.id).map(drop)
    })
}

/// Says how many bytes a pool holds from the driver.
///
/// # Safety
///
/// `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_reserved(
    pool: OmniheapPool,
    bytes: *mut u64,
) -> OmniheapStatus {
    call(|| {
        let held = POOLS.get(pool.id)?.with(|pool| pool.reserved())?;
        // SAFETY: the caller's promise.
        unsafe { put(bytes, held, "bytes") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap::pool::Waiting;

    fn understood(config: OmniheapPoolConfig) -> PoolConfig {
        settings(&config).expect("every number stands for something")
    }

    #[test]
    fn the_usual_pool_is_that_of_the_core_and_every_field_arrives() {
        let usual = omniheap_pool_config_default();
        assert_eq!(understood(usual), PoolConfig::new());
        let small = OmniheapPoolConfig { minimum: 3, maximum: 4, block: 1, lanes: 1, ..usual };
        let expected = PoolConfig::new().minimum(3).maximum(4).block(1).lanes(1);
        assert_eq!(understood(small), expected);
        let waiting = OmniheapPoolConfig { waiting: crate::OMNIHEAP_WAITING_THRIFT, ..usual };
        assert_eq!(understood(waiting).waiting, Waiting::Thrift);
        let paged = understood(OmniheapPoolConfig { paged: 1, ..usual });
        assert_eq!((paged.paged, paged.sleepable, paged.wakes_on_request), (true, false, false));
        let sleepable = OmniheapPoolConfig { sleepable: 1, wakes_on_request: 1, ..usual };
        let sleepable = understood(sleepable);
        assert!(sleepable.paged && sleepable.sleepable && sleepable.wakes_on_request);
    }

    #[test]
    fn every_strategy_has_its_number_and_needs_what_it_divides_by() {
        let with = |number, piece| {
            strategy(&OmniheapPoolConfig {
                strategy: number,
                piece,
                ..omniheap_pool_config_default()
            })
            .ok()
        };
        for (number, piece, kind) in [
            (OMNIHEAP_STRATEGY_GENERAL, 0, StrategyKind::General),
            (OMNIHEAP_STRATEGY_BUDDY, 64, StrategyKind::Buddy(64)),
            (OMNIHEAP_STRATEGY_SLAB, 1, StrategyKind::Slab(Layout::new(1))),
            (OMNIHEAP_STRATEGY_STACK, 0, StrategyKind::Stack),
            (OMNIHEAP_STRATEGY_RING, 0, StrategyKind::Ring),
            (OMNIHEAP_STRATEGY_BUMP, 0, StrategyKind::Bump),
        ] {
            assert_eq!(with(number, piece), Some(kind));
        }
        for (number, piece) in [
            (OMNIHEAP_STRATEGY_BUDDY, 3),
            (OMNIHEAP_STRATEGY_SLAB, 0),
            (OMNIHEAP_STRATEGY_BUMP + 1, 1),
        ] {
            assert_eq!(with(number, piece), None);
        }
    }
}
