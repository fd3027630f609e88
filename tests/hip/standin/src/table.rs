//! Table of all memory: device budgets, allocations, pinned host ranges, and their owners.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::Status;
use crate::agent::{Agent, Device};
use crate::knobs::knobs;
use crate::pages;
use crate::pool::Pool;

/// Memory that a pool gave out.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    /// Bytes, rounded up to the granule.
    pub(crate) size: u64,
    pub(crate) pool: Pool,
    /// The agents that may touch it, one bit each.
    pub(crate) access: u64,
}

/// Host memory that was pinned; the same range may be pinned many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) base: u64,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
struct Tables {
    allocations: BTreeMap<u64, Allocation>,
    pinned: Vec<Pinned>,
}

static TABLES: Mutex<Tables> =
    Mutex::new(Tables { allocations: BTreeMap::new(), pinned: Vec::new() });
static USED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn tables() -> MutexGuard<'static, Tables> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn used(device: Device) -> &'static AtomicU64 {
    &USED[usize::try_from(device.0).expect("at most 8 devices")]
}

/// Bytes of a device that nobody holds.
pub(crate) fn free_bytes(device: Device) -> u64 {
    knobs().vram.saturating_sub(used(device).load(Ordering::SeqCst))
}

/// Takes bytes from a pool's budget; host pools have none.
pub(crate) fn charge(pool: Pool, size: u64) -> Result<(), Status> {
    let Some(device) = pool.device() else { return Ok(()) };
    let more = |held: u64| held.checked_add(size).filter(|&sum| sum <= knobs().vram);
    let taken = used(device).fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    taken.map(drop).map_err(|_| Status::OUT_OF_RESOURCES)
}

/// Gives bytes back to a pool's budget.
pub(crate) fn refund(pool: Pool, size: u64) {
    if let Some(device) = pool.device() {
        used(device).fetch_sub(size, Ordering::SeqCst);
    }
}

/// Allocates `size` bytes, rounded up to the pool's granule.
pub(crate) fn allocate(pool: Pool, size: u64) -> Result<u64, Status> {
    let granule = pool.granule();
    let size = size.checked_next_multiple_of(granule).ok_or(Status::INVALID_ALLOCATION)?;
    charge(pool, size)?;
    // Larger granules are alignment too, as they are on a device.
    let address = if granule > pages::PAGE { aligned(size, granule) } else { pages::map(size) };
    let Some(address) = address else {
        refund(pool, size);
        return Err(Status::OUT_OF_RESOURCES);
    };
    let access = pool.owner().bit() | Agent::Host.bit();
    tables().allocations.insert(address, Allocation { size, pool, access });
    Ok(address)
}

fn aligned(size: u64, align: u64) -> Option<u64> {
    let address = pages::reserve(size, align)?;
    pages::protect(address, size, pages::Access::ReadWrite).map(|()| address)
}

/// Frees what [`allocate`] gave out at `address`.
pub(crate) fn free(address: u64) -> Result<(), Status> {
    let gone = tables().allocations.remove(&address).ok_or(Status::INVALID_ALLOCATION)?;
    pages::unmap(address, gone.size);
    refund(gone.pool, gone.size);
    Ok(())
}

/// Finds the allocation that `address` lies in.
pub(crate) fn find(address: u64) -> Option<(u64, Allocation)> {
    let tables = tables();
    let (&base, found) = tables.allocations.range(..=address).next_back()?;
    (address - base < found.size).then(|| (base, found.clone()))
}

/// Sets the agents that may touch the allocation at `address`.
pub(crate) fn allow(address: u64, access: u64) -> Result<(), Status> {
    match tables().allocations.get_mut(&address) {
        Some(found) => {
            found.access = access | found.pool.owner().bit();
            Ok(())
        }
        None => Err(Status::ERROR),
    }
}

/// Pins a range of host memory.
pub(crate) fn pin(range: Pinned) {
    tables().pinned.push(range);
}

/// Undoes one [`pin`] of the range at `base`.
pub(crate) fn unpin(base: u64) {
    let mut tables = tables();
    // AMD's library answers success for strangers too; HIP keeps its own count.
    if let Some(index) = tables.pinned.iter().rposition(|range| range.base == base) {
        tables.pinned.swap_remove(index);
    }
}

/// Finds a pinned range that `address` lies in.
pub(crate) fn find_pinned(address: u64) -> Option<Pinned> {
    let holds = |range: &&Pinned| address >= range.base && address - range.base < range.size;
    tables().pinned.iter().find(holds).copied()
}

#[cfg(test)]
mod tests {
    use super::{Pinned, allocate, find, find_pinned, free, free_bytes, pin, unpin};
    use crate::abi::Status;
    use crate::agent::Device;
    use crate::knobs::knobs;
    use crate::pool::{DeviceKind, Pool};

    const VRAM: Pool = Pool::Device(Device(7), DeviceKind::Coarse);

    #[test]
    fn the_budget_holds() {
        let all = knobs().vram;
        let first = allocate(VRAM, 1).expect("fits");
        assert_eq!(free_bytes(Device(7)), all - 4096);
        assert_eq!(allocate(VRAM, all), Err(Status::OUT_OF_RESOURCES));
        assert_eq!(find(first + 4095).map(|found| found.0), Some(first));
        assert_eq!(free(first + 1), Err(Status::INVALID_ALLOCATION));
        assert_eq!(free(first), Ok(()));
        assert_eq!(free(first), Err(Status::INVALID_ALLOCATION));
        assert_eq!(free_bytes(Device(7)), all);
        assert_eq!(allocate(VRAM, u64::MAX), Err(Status::INVALID_ALLOCATION));
    }

    #[test]
    fn pins_are_counted() {
        let range = Pinned { base: 0x5000, size: 16 };
        pin(range);
        pin(range);
        unpin(0x5000);
        assert_eq!(find_pinned(0x500f), Some(range));
        assert_eq!(find_pinned(0x5010), None);
        unpin(0x5000);
        assert_eq!(find_pinned(0x5000), None);
    }
}
