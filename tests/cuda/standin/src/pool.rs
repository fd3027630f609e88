//! Pools of stream-ordered memory, and the bytes that each holds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::budget::{self, DEVICES};
use crate::code::{Answer, Code};
use crate::handle;
use crate::space::{self, GRANULE, Kind, Life, Range};

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    device: u32,
    is_default: bool,
    /// True if the pool was destroyed, and lives only until its memory is freed.
    is_going: bool,
    /// Flags for three ways of reusing memory.
    reuse: [u32; 3],
    threshold: u64,
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    access: u32,
}

#[derive(Debug)]
struct Pools {
    all: BTreeMap<u64, Pool>,
    defaults: [u64; DEVICES],
    current: [u64; DEVICES],
}

static POOLS: Mutex<Pools> =
    Mutex::new(Pools { all: BTreeMap::new(), defaults: [0; DEVICES], current: [0; DEVICES] });

fn pools() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pools {
    fn add(&mut self, device: u32, is_default: bool) -> u64 {
        let handle = handle::fresh();
        let pool = Pool { device, is_default, reuse: [1; 3], access: 3, ..Pool::default() };
        self.all.insert(handle, pool);
        handle
    }

    fn default(&mut self, device: u32) -> u64 {
        let index = device as usize;
        if self.defaults[index] == 0 {
            self.defaults[index] = self.add(device, true);
            self.current[index] = self.defaults[index];
        }
        self.defaults[index]
    }

    fn get(&mut self, pool: u64) -> Answer<&mut Pool> {
        self.all.get_mut(&pool).filter(|pool| !pool.is_going).ok_or(Code::INVALID_VALUE)
    }

    /// Returns unused bytes of all pools of a device, beyond `keep` for each pool.
    fn trim_all(&mut self, device: u32, keep: impl Fn(&Pool) -> u64) {
        for pool in self.all.values_mut().filter(|pool| pool.device == device) {
            let keep = keep(pool);
            pool.trim(keep);
        }
        self.all.retain(|_, pool| !pool.is_going || pool.used > 0);
    }
}

impl Pool {
    fn trim(&mut self, keep: u64) {
        let least = self.used.next_multiple_of(GRANULE).max(keep.min(self.reserved));
        let more = self.reserved.saturating_sub(least);
        budget::refund(self.device, more);
        self.reserved -= more;
    }

    fn take(&mut self, size: u64) -> Answer {
        let used = self.used.checked_add(size).ok_or(Code::OUT_OF_MEMORY)?;
        let wanted = used.checked_next_multiple_of(GRANULE).ok_or(Code::OUT_OF_MEMORY)?;
        let more = wanted.saturating_sub(self.reserved);
        budget::charge(self.device, more)?;
        self.reserved += more;
        self.used = used;
        self.used_high = self.used_high.max(used);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }
}

pub(crate) fn create(device: u32) -> u64 {
    pools().add(device, false)
}

/// Returns the pool that a device has from the start.
pub(crate) fn default(device: u32) -> u64 {
    pools().default(device)
}

/// Returns the pool that requests without one take from.
pub(crate) fn current(device: u32) -> u64 {
    let mut pools = pools();
    pools.default(device);
    pools.current[device as usize]
}

pub(crate) fn set_current(device: u32, pool: u64) -> Answer {
    let mut pools = pools();
    if pools.get(pool)?.device != device {
        return Err(Code::INVALID_VALUE);
    }
    // Made first, so that it is not made current later.
    pools.default(device);
    pools.current[device as usize] = pool;
    Ok(())
}

pub(crate) fn destroy(pool: u64) -> Answer {
    let mut pools = pools();
    let found = pools.get(pool)?;
    if found.is_default {
        return Err(Code::INVALID_VALUE);
    }
    found.is_going = true;
    let device = found.device;
    pools.default(device);
    if pools.current[device as usize] == pool {
        pools.current[device as usize] = pools.defaults[device as usize];
    }
    pools.trim_all(device, |pool| if pool.is_going { 0 } else { u64::MAX });
    Ok(())
}

/// Takes memory. It becomes usable when the stream reaches the allocation.
pub(crate) fn allocate(pool: u64, size: u64, context: u64) -> Answer<u64> {
    let mut pools = pools();
    let device = pools.get(pool)?.device;
    if pools.get(pool)?.take(size).is_err() {
        pools.trim_all(device, |_| 0);
        pools.get(pool)?.take(size)?;
    }
    let range = Range::new(size, Kind::Pooled(pool), context, device);
    space::allocate(Range { life: Life::Coming, ..range }).inspect_err(|_| {
        if let Some(pool) = pools.all.get_mut(&pool) {
            pool.used -= size;
        }
    })
}

/// Subtracts freed bytes from a pool's use.
pub(crate) fn give_back(pool: u64, size: u64) {
    if let Some(pool) = pools().all.get_mut(&pool) {
        pool.used -= size;
    }
}

/// Frees memory of a pool or of `cuMemAlloc` when a stream reaches the free.
pub(crate) fn release(base: u64) {
    if let Some((_, Range { kind: Kind::Pooled(pool), size, .. })) = space::find(base) {
        give_back(pool, size);
    }
    space::free(base);
}

/// Returns unused bytes above each pool's threshold. The driver does so when programs wait for streams.
pub(crate) fn settle() {
    let mut pools = pools();
    for device in 0..u32::try_from(DEVICES).expect("few") {
        pools.trim_all(device, |pool| pool.threshold);
    }
}

/// Returns a pool's unused bytes, beyond a number of bytes to keep.
pub(crate) fn trim_to(pool: u64, keep: u64) -> Answer {
    pools().get(pool)?.trim(keep);
    Ok(())
}

/// Subtracts a context's memory from its pools. The caller drops the ranges.
pub(crate) fn forget(context: u64) {
    for (pool, size) in space::pooled(context) {
        give_back(pool, size);
    }
    settle();
}

/// Value of an attribute of a pool: four bytes wide, or eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Switch(u32),
    Bytes(u64),
}

pub(crate) fn attribute(pool: u64, attribute: u32) -> Answer<Value> {
    let mut pools = pools();
    let pool = pools.get(pool)?;
    Ok(match attribute {
        1..=3 => Value::Switch(pool.reuse[attribute as usize - 1]),
        4 => Value::Bytes(pool.threshold),
        5 => Value::Bytes(pool.reserved),
        6 => Value::Bytes(pool.reserved_high),
        7 => Value::Bytes(pool.used),
        8 => Value::Bytes(pool.used_high),
        _ => return Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_attribute(pool: u64, attribute: u32, value: Value) -> Answer {
    let mut pools = pools();
    let pool = pools.get(pool)?;
    match (attribute, value) {
        (1..=3, Value::Switch(value)) => pool.reuse[attribute as usize - 1] = value,
        (4, Value::Bytes(bytes)) => pool.threshold = bytes,
        // The high marks can only be set to zero, which makes them the present values.
        (6, Value::Bytes(0)) => pool.reserved_high = pool.reserved,
        (8, Value::Bytes(0)) => pool.used_high = pool.used,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

/// Returns a device's access to memory of a pool.
pub(crate) fn access(pool: u64, device: u32) -> Answer<u32> {
    let mut pools = pools();
    let pool = pools.get(pool)?;
    Ok(if pool.device == device { 3 } else { pool.access & 3 })
}

/// Changes other devices' access to memory of a pool.
pub(crate) fn set_access(pool: u64, device: u32, access: u32) -> Answer {
    let mut pools = pools();
    let pool = pools.get(pool)?;
    if pool.device == device && access != 3 {
        return Err(Code::INVALID_DEVICE);
    }
    pool.access = access;
    Ok(())
}
