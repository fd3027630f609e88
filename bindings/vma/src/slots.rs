//! The table of live allocations. A handle is the number of a slot, not an address. Two comparisons find a null, foreign, stale or
//! invented handle, and nothing is read through it. Slots stay in place until the allocator ends, and readers see only atomic
//! fields: a reader that races with a free sees old or new numbers, and nothing worse.
#![forbid(unsafe_code)]
use crate::spin::Spin;
use ash::vk;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ffi::CString;
use std::sync::OnceLock;

/// Bits of a handle: the slot, the allocator, and the generation. A slot whose generation would overflow is not used again.
const SLOT_BITS: u32 = 32;
const OWNER_BITS: u32 = 12;
const LAST_GENERATION: u32 = (1 << (64 - SLOT_BITS - OWNER_BITS)) - 1;
/// Slots in the first chunk; each further chunk has twice as many.
const FIRST_CHUNK: usize = 64;
const CHUNKS: usize = 26;
const SHARDS: usize = 16;
/// Fresh slots that a shard takes at once, and the most that it keeps back from others.
const BATCH: usize = 32;
/// Bytes to free before a look for empty memory is worthwhile.
pub(crate) const WORTH_A_LOOK: u64 = 4 << 20;
/// Weight of an allocation that no tally counts.
pub(crate) const NO_WEIGHT: Weight = (0, 0);

const _: () = assert!(size_of::<usize>() == 8, "a handle is a pointer of 64 bits");

/// The handle of a slot in use. A `VmaAllocation` is this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(u64);

impl Handle {
    fn new(owner: u16, at: usize, generation: u32) -> Self {
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        Self(u64::from(generation) << (SLOT_BITS + OWNER_BITS) | u64::from(owner) << SLOT_BITS | at)
    }

    pub(crate) fn from_address(address: usize) -> Self {
        Self(u64::try_from(address).unwrap_or(0))
    }

    pub(crate) fn address(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    fn slot(self) -> usize {
        usize::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
    }

    /// Returns the number of its slot, from one on. A pool outlives its allocations, so the number that they carry stays valid.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.slot() + 1).unwrap_or(u32::MAX)
    }

    fn owner(self) -> u64 {
        self.0 >> SLOT_BITS & ((1 << OWNER_BITS) - 1)
    }

    fn generation(self) -> u64 {
        self.0 >> (SLOT_BITS + OWNER_BITS)
    }
}

/// Fields of an allocation that readers see.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) memory: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) size: AtomicU64,
    pub(crate) align: AtomicU64,
    pub(crate) block_size: AtomicU64,
    /// Host address of its first byte if the block is mapped, else zero.
    pub(crate) host: AtomicUsize,
    /// Bits of `About`.
    pub(crate) about: AtomicU64,
    /// Usage flags of the buffer or image.
    pub(crate) usage: AtomicU32,
    /// Calls of `vmaMapMemory` without their `vmaUnmapMemory`.
    pub(crate) maps: AtomicU32,
    pub(crate) user_data: AtomicPtr<c_void>,
    name: AtomicPtr<c_char>,
}

impl Facts {
    /// Sets the place in the block, and the block's host address: zero if it is not mapped.
    #[inline]
    pub(crate) fn set_place(&self, offset: u64, base: u64) {
        self.offset.store(offset, Relaxed);
        let host = if base == 0 { 0 } else { base + offset };
        self.host.store(usize::try_from(host).unwrap_or(0), Relaxed);
    }

    /// Exchanges the places of two allocations.
    pub(crate) fn swap_place(&self, other: &Self) {
        for (a, b) in [
            (&self.memory, &other.memory),
            (&self.offset, &other.offset),
            (&self.block_size, &other.block_size),
        ] {
            b.store(a.swap(b.load(Relaxed), Relaxed), Relaxed);
        }
        other.host.store(self.host.swap(other.host.load(Relaxed), Relaxed), Relaxed);
    }
}

/// One place for an allocation.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    /// Handle of the allocation in this slot; zero if there is none.
    handle: AtomicU64,
    generation: AtomicU32,
    pub(crate) facts: Facts,
    /// Owner of the memory, and the name. Readers may hold the address of the name.
    owned: Spin<Owned<T>>,
}

#[derive(Debug)]
struct Owned<T> {
    memory: Option<T>,
    name: Option<CString>,
}

impl<T> Slot<T> {
    fn new() -> Self {
        let (facts, owned) = (Facts::default(), Owned { memory: None, name: None });
        let (handle, generation) = (AtomicU64::new(0), AtomicU32::new(1));
        Self { handle, generation, facts, owned: Spin::new(owned) }
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(self.handle.load(Relaxed))
    }

    /// Runs `with` on the owner of the memory, unless it was freed meanwhile.
    pub(crate) fn with<R>(&self, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.owned.take().memory.as_mut().map(with)
    }

    /// Runs `with` on the owner of the memory if the slot is in use by `handle` still. A slot that is being filled has none yet: null
    /// is nobody's.
    pub(crate) fn with_of<R>(&self, handle: Handle, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut owned = self.owned.take();
        let is_same = handle.0 != 0 && self.handle.load(Acquire) == handle.0;
        owned.memory.as_mut().filter(|_| is_same).map(with)
    }

    /// Exchanges the memory of two slots in use.
    pub(crate) fn swap(&self, other: &Self) {
        let (first, second) =
            if ptr::from_ref(self) < ptr::from_ref(other) { (self, other) } else { (other, self) };
        if ptr::eq(first, second) {
            return;
        }
        let (mut a, mut b) = (first.owned.take(), second.owned.take());
        core::mem::swap(&mut a.memory, &mut b.memory);
    }

    pub(crate) fn name(&self) -> *const c_char {
        self.facts.name.load(Relaxed)
    }

    pub(crate) fn name_text(&self) -> Option<String> {
        self.owned.take().name.as_ref().map(|name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn set_name(&self, name: Option<&CStr>) {
        let mut owned = self.owned.take();
        owned.name = name.map(CStr::to_owned);
        let address = owned.name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        self.facts.name.store(address.cast_mut(), Relaxed);
    }
}

/// Numbers of allocations and their bytes, by memory type. The numbers of one shard may be negative, because other threads free too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally([(i64, i64); vk::MAX_MEMORY_TYPES]);

impl Tally {
    #[inline]
    fn add(&mut self, (memory_type, bytes): Weight, count: i64) {
        let at = usize::try_from(memory_type).unwrap_or(0) % vk::MAX_MEMORY_TYPES;
        let (live, live_bytes) = &mut self.0[at];
        *live += count;
        *live_bytes += count * i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Returns the number of a memory type's allocations, and their bytes.
    pub(crate) fn of(&self, memory_type: u32) -> (u64, u64) {
        let at = usize::try_from(memory_type).unwrap_or(usize::MAX);
        let (live, bytes) = self.0.get(at).copied().unwrap_or_default();
        (u64::try_from(live).unwrap_or(0), u64::try_from(bytes).unwrap_or(0))
    }

    /// Returns the bytes of all types.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.0.iter().map(|(_, bytes)| bytes).sum::<i64>()).unwrap_or(0)
    }
}

/// Memory type of an allocation, and its bytes.
pub(crate) type Weight = (u32, u64);

/// Free slots and sums of some threads, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Spin<Part>);

#[derive(Debug, Default)]
struct Part {
    free: Vec<usize>,
    tally: Tally,
    /// Bytes freed since the last look for empty memory.
    freed: u64,
}

/// The memory of a slot that ended.
pub(crate) struct Ended<T> {
    pub(crate) memory: T,
    /// True if enough bytes were freed since the last look for empty memory.
    pub(crate) is_worth_a_look: bool,
}

/// All slots of one allocator.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    owner: u16,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    shards: [Shard; SHARDS],
    /// Slots that were ever handed to a shard.
    count: AtomicUsize,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the shard of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut known = SHARD.get();
    if known == usize::MAX {
        known = NEXT.fetch_add(1, Relaxed) % SHARDS;
        SHARD.set(known);
    }
    known
}

/// Returns the chunk of a slot, and its place there.
fn place(at: usize) -> Option<(usize, usize)> {
    let shifted = at.checked_add(FIRST_CHUNK)?;
    let chunk = usize::try_from(shifted.ilog2() - FIRST_CHUNK.ilog2()).ok()?;
    (chunk < CHUNKS).then(|| (chunk, shifted - (FIRST_CHUNK << chunk)))
}

impl<T> Slots<T> {
    /// A table of the allocator with this number, which is below 4096.
    pub(crate) fn new(owner: u16) -> Self {
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Self { owner, chunks, shards: Default::default(), count: AtomicUsize::new(0) }
    }

    fn slot(&self, at: usize) -> Option<&Slot<T>> {
        let (chunk, place) = place(at)?;
        self.chunks[chunk].get()?.get(place)
    }

    /// Returns the slot of a live handle of this allocator.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&Slot<T>> {
        let slot = self.slot(handle.slot())?;
        (handle.0 != 0 && slot.handle.load(Acquire) == handle.0).then_some(slot)
    }

    /// Returns a sentence about why a handle is not live.
    pub(crate) fn why_not(&self, handle: Handle) -> &'static str {
        if handle.0 == 0 {
            "the allocation is null"
        } else if handle.owner() != u64::from(self.owner) {
            "the allocation is of another allocator, or never was one"
        } else if self
            .slot(handle.slot())
            .is_some_and(|slot| handle.generation() < u64::from(slot.generation.load(Relaxed)))
        {
            "the allocation was freed before"
        } else {
            "this never was an allocation"
        }
    }

    /// Keeps memory; `fill` writes the facts, and what lies behind the bytes, before anybody can see the slot.
    #[inline]
    pub(crate) fn keep(&self, weight: Weight, memory: T, fill: impl FnOnce(&Slot<T>)) -> &Slot<T> {
        let at = self.take_free(weight);
        let slot = self.slot(at).expect("a shard has only slots that were made");
        slot.owned.take().memory = Some(memory);
        fill(slot);
        let handle = Handle::new(self.owner, at, slot.generation.load(Relaxed));
        slot.handle.store(handle.0, Release);
        slot
    }

    /// Ends a slot. `None` if another thread was first. `weigh` returns its weight, and may read other facts.
    #[inline]
    pub(crate) fn release(
        &self,
        handle: Handle,
        weigh: impl FnOnce(&Facts) -> Weight,
    ) -> Option<Ended<T>> {
        let slot = self.get(handle)?;
        let mut owned = slot.owned.take();
        // Checked under the lock, so that only one of several threads finds it live.
        if slot.handle.load(Relaxed) != handle.0 {
            return None;
        }
        slot.handle.store(0, Relaxed);
        let (memory, weight) = (owned.memory.take(), weigh(&slot.facts));
        if owned.name.take().is_some() {
            slot.facts.name.store(ptr::null_mut(), Relaxed);
        }
        drop(owned);
        let generation = slot.generation.load(Relaxed);
        let mut part = self.shards[shard()].0.take();
        if generation < LAST_GENERATION {
            slot.generation.store(generation + 1, Relaxed);
            part.free.push(handle.slot());
        }
        part.tally.add(weight, -1);
        part.freed += weight.1;
        let is_worth_a_look = part.freed > WORTH_A_LOOK;
        part.freed = if is_worth_a_look { 0 } else { part.freed };
        drop(part);
        memory.map(|memory| Ended { memory, is_worth_a_look })
    }

    #[inline]
    fn take_free(&self, weight: Weight) -> usize {
        let mut part = self.shards[shard()].0.take();
        part.tally.add(weight, 1);
        let own = part.free.pop();
        drop(part);
        own.unwrap_or_else(|| self.more())
    }

    /// Returns the sums of all threads.
    pub(crate) fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for shard in &self.shards {
            let part = shard.0.take();
            for (to, (live, bytes)) in sum.0.iter_mut().zip(&part.tally.0) {
                (to.0, to.1) = (to.0 + live, to.1 + bytes);
            }
        }
        sum
    }

    /// Takes half of another shard's surplus slots, or else fresh slots.
    #[cold]
    fn more(&self) -> usize {
        let own = shard();
        for other in (0..SHARDS).filter(|other| *other != own) {
            let mut theirs = self.shards[other].0.take();
            if theirs.free.len() > BATCH {
                let half = theirs.free.len() / 2;
                let mut taken = theirs.free.split_off(half);
                drop(theirs);
                let one = taken.pop().expect("half of more than one");
                self.shards[own].0.take().free.append(&mut taken);
                return one;
            }
        }
        let first = self.count.fetch_add(BATCH, Relaxed);
        for at in first..first + BATCH {
            let (chunk, _) = place(at).expect("fewer allocations than four billion");
            self.chunks[chunk]
                .get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Slot::new()).collect());
        }
        self.shards[own].0.take().free.extend((first + 1..first + BATCH).rev());
        first
    }

    /// Returns the slots in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        chunks.flatten().filter(|slot| slot.handle.load(Acquire) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, vec::Vec};

    #[test]
    fn handles_know_when_they_are_stale_or_foreign() {
        let (slots, others) = (Slots::new(1), Slots::<u32>::new(2));
        let one = slots.keep((3, 5), 7, |slot| slot.facts.size.store(5, Relaxed)).handle();
        let two = slots.keep((3, 9), 8, |_| ()).handle();
        assert_ne!(one, two);
        assert!(others.get(one).is_none());
        assert!(others.why_not(one).contains("another allocator"));
        assert_eq!(slots.tally().of(3), (2, 14));
        let ended = slots.release(one, |facts| (3, facts.size.load(Relaxed)));
        assert_eq!(ended.map(|ended| ended.memory), Some(7));
        assert_eq!((slots.tally().of(3), slots.tally().bytes()), ((1, 9), 9));
        assert!(slots.get(one).is_none() && slots.release(one, |_| NO_WEIGHT).is_none());
        assert!(slots.why_not(one).contains("freed before"));
        let again = slots.keep((3, 9), 9, |_| ()).handle();
        assert_eq!((again.slot(), again == one), (one.slot(), false));
        assert!(slots.get(Handle::from_address(0)).is_none());
        assert!(slots.get(Handle::from_address(usize::MAX)).is_none());
        assert_eq!(slots.iter().count(), 2);
    }

    #[test]
    fn a_slot_that_is_being_filled_is_nobodys() {
        let slots = Slots::new(5);
        let first = slots.keep(NO_WEIGHT, 1, |_| ()).handle();
        assert!(slots.release(first, |_| NO_WEIGHT).is_some());
        let slot = slots.keep(NO_WEIGHT, 2, |slot| {
            // What a reader finds who asks now which handle the slot has.
            assert_eq!(slot.with_of(slot.handle(), |memory| *memory), None);
            assert_eq!(slot.with_of(first, |memory| *memory), None);
        });
        assert_eq!(slot.handle().slot(), first.slot());
        assert_eq!(slot.with_of(slot.handle(), |memory| *memory), Some(2));
    }

    #[test]
    fn one_of_many_threads_frees() {
        let slots = Slots::new(3);
        for _ in 0..200 {
            let handle = slots.keep(NO_WEIGHT, (), |_| ()).handle();
            let freed = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| slots.release(handle, |_| NO_WEIGHT).is_some()))
                    .collect();
                let won = threads.into_iter().map(|one| one.join().expect("no panic"));
                won.filter(|won| *won).count()
            });
            assert_eq!(freed, 1);
        }
    }

    #[test]
    fn slots_that_another_thread_frees_come_back() {
        let slots = Slots::new(4);
        for _ in 0..200 {
            let handles: Vec<_> =
                (0..64).map(|_| slots.keep(NO_WEIGHT, (), |_| ()).handle()).collect();
            let free = || {
                for one in &handles {
                    assert!(slots.release(*one, |_| NO_WEIGHT).is_some());
                }
            };
            thread::scope(|scope| scope.spawn(free).join()).expect("no panic");
        }
        assert!(slots.count.load(Relaxed) < 4096, "{:?}", slots.count);
    }
}
