//! Pools of one manager that make room for each other.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{OmniheapManager, OmniheapPool, POOLS, Pool, holder};
use crate::manager::put_optional;
use crate::sleep::{OMNIHEAP_SLEEP_HOST_MAPPED_WHEN_FULL, OmniheapSleep, asked, store};
use crate::status::{Failure, OmniheapStatus, call, check};
use omniheap::residency::{Held, Moved, Resident, Residents, WhenFull};
use omniheap::seam::lock;
use omniheap::{AllocateError, AnyBackend, ErrorKind};
use std::sync::MutexGuard;

/// Lets a pool make room for the others that were added, and for requests of its manager: before a request fails for want of memory, pools fall
/// asleep, the lowest priority first, and of these the one that was used least lately. Held pools stay awake. The pool was created with `sleepable`. Added
/// again, it sleeps as is said now.
///
/// # Safety
///
/// `sleep` is null, which is a sleep to host memory, or settings whose `directory` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_add_resident(
    pool: OmniheapPool,
    sleep: *const OmniheapSleep,
    priority: i32,
) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        // SAFETY: the caller's promise.
        let given = unsafe { asked(sleep) }?;
        let when_full = match given.flags {
            0 => WhenFull::Fail,
            OMNIHEAP_SLEEP_HOST_MAPPED_WHEN_FULL => WhenFull::HostMapped,
            _ => {
                let why = "sleep.flags is neither 0 nor OMNIHEAP_SLEEP_HOST_MAPPED_WHEN_FULL; a pool that makes room may fall asleep at any request, so its pins must keep it awake";
                return Err(Failure::invalid(why));
            }
        };
        // SAFETY: as above.
        let store = unsafe { store(&given, entry.owner.holder()) }?;
        let how = Resident::to(store).priority(priority).when_full(when_full);
        Ok(entry.with(|pool| residents_of(&entry).add(pool, how))??)
    })
}

/// Wakes a pool if it is asleep, and keeps it awake until as many calls of `omniheap_pool_release`; the others make room. `Stale` for a pool that was not added.
/// On failure it is asleep and has all its bytes.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_hold(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        let held = entry.with(|pool| residents_of(&entry).hold(pool))??;
        holds(&entry).push(held);
        Ok(())
    })
}

/// Holds a pool if it is awake, as `omniheap_pool_hold` does; never waits for the device or for a copy. If it is asleep, prefetches it and returns `Asleep`: draw without it, and
/// call again in the next frame.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_hold_if_awake(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        let held = entry.with(|pool| residents_of(&entry).hold_if_awake(pool))??;
        holds(&entry).push(held.ok_or(ErrorKind::Asleep)?);
        Ok(())
    })
}

/// Ends what one call of `omniheap_pool_hold` or `omniheap_pool_hold_if_awake` began. `InvalidArgument` where none did.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_release(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        let held = holds(&entry).pop();
        held.map(drop).ok_or_else(|| Failure::invalid("the pool is not held"))
    })
}

/// Notes that a pool was used now: of those with its priority it makes room last.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_touch(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        entry.with(|pool| residents_of(&entry).touch(pool))
    })
}

/// Says that a pool is needed soon, after those that were named before: a thread wakes it, so that `omniheap_pool_hold` finds it awake. What is needed now
/// comes first: where the others cannot make room, it stays asleep until it is held.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_expect(pool: OmniheapPool) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        entry.with(|pool| residents_of(&entry).expect([pool]))
    })
}

/// Follows the budgets: pools fall asleep where more is held than the soft limit or the driver's budget, and those that made room come back where there is
/// some again. Call it once a frame. Does not wait: a background thread does the work. Returns how many pools fell asleep and woke up since the last call.
///
/// # Safety
///
/// `slept` and `woken` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_residents_step(
    manager: OmniheapManager,
    slept: *mut u64,
    woken: *mut u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { put_moved(manager, slept, woken, Residents::step) }
}

/// Waits until the background thread is idle: expected pools are awake or have no room, and the budgets are met. Returns how many pools fell asleep and woke up
/// since this or `omniheap_residents_step` was called last.
///
/// # Safety
///
/// As for `omniheap_residents_step`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_residents_settle(
    manager: OmniheapManager,
    slept: *mut u64,
    woken: *mut u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { put_moved(manager, slept, woken, Residents::settle) }
}

/// Writes the counts of a step or settle.
///
/// # Safety
///
/// As for `omniheap_residents_step`.
unsafe fn put_moved(
    manager: OmniheapManager,
    slept: *mut u64,
    woken: *mut u64,
    ask: impl FnOnce(&Residents<AnyBackend>) -> Result<Moved, AllocateError>,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        if !woken.is_null() {
            check(woken, "woken")?;
        }
        let mut moved = None;
        let asked = || Ok(moved.insert(ask(holder.residents())?).slept);
        // SAFETY: the caller's promise.
        unsafe { put_optional(slept, asked) }?;
        // SAFETY: as above.
        unsafe { put_optional(woken, || Ok(moved.unwrap_or_default().woken)) }
    })
}

/// The set that a pool may be in.
fn residents_of(entry: &Pool) -> &Residents<AnyBackend> {
    entry.owner.holder().residents()
}

fn holds(entry: &Pool) -> MutexGuard<'_, Vec<Held<AnyBackend>>> {
    lock(&entry.holds)
}
