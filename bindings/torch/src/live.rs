//! Addresses to what lives there: sharded, because every thread of a program frees through it.
use crate::lock;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;
use std::sync::Mutex;

/// A power of two, well above the threads that allocate at the same time.
const SHARDS: usize = 64;

/// Spreads addresses, whose low bits are all zero.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // An odd number close to 2^64 divided by the golden ratio; the high bits of the product depend on all of `value`.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

type Shard<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// Table of live allocations by address.
pub(crate) struct Live<T> {
    shards: Vec<Mutex<Shard<T>>>,
}

impl<T> Live<T> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, address: u64) -> &Mutex<Shard<T>> {
        let mut spread = Spread::default();
        spread.write_u64(address);
        // The map inside uses the low and the highest bits.
        &self.shards[usize::try_from(spread.0 >> 40).unwrap_or(0) % SHARDS]
    }

    /// Puts something at an address; returns what was there.
    pub(crate) fn insert(&self, address: u64, value: T) -> Option<T> {
        lock(self.shard(address)).insert(address, value)
    }

    /// Takes away what is at an address.
    pub(crate) fn remove(&self, address: u64) -> Option<T> {
        lock(self.shard(address)).remove(&address)
    }

    /// Shows everything, shard by shard.
    pub(crate) fn for_each(&self, mut show: impl FnMut(u64, &T)) {
        for shard in &self.shards {
            lock(shard).iter().for_each(|(address, value)| show(*address, value));
        }
    }

    /// Lets `change` look at what is at an address.
    pub(crate) fn with<R>(&self, address: u64, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        lock(self.shard(address)).get_mut(&address).map(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_at_an_address_is_found_there_once() {
        let live = Live::new();
        for at in 0..10_000_u64 {
            assert!(live.insert(at << 9, at).is_none());
        }
        assert_eq!(live.with(512, |value| *value), Some(1));
        for at in 0..10_000_u64 {
            assert_eq!(live.remove(at << 9), Some(at));
            assert_eq!(live.remove(at << 9), None);
        }
    }

    #[test]
    fn neighbouring_addresses_use_all_shards() {
        let live = Live::new();
        for at in 0..4096_u64 {
            live.insert(0x7f00_0000_0000 + (at << 9), ());
        }
        let fullest = live.shards.iter().map(|shard| lock(shard).len()).max();
        assert!(fullest.is_some_and(|most| most < 4096 / SHARDS * 3), "{fullest:?}");
    }
}
