//! The memory of the device under test: runs of equal bytes, so that a gigabyte costs as little as a byte.
#![expect(unsafe_code, reason = "the host sees some of the bytes by pointers")]
use core::alloc::Layout;
use core::ptr::NonNull;
use omniheap_core::bytes;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Byte of memory that nobody has written.
pub(crate) const UNWRITTEN: u8 = 0xF5;

/// The memory of a block or of a page.
pub(crate) enum Memory {
    /// Only the device sees it.
    Device(Mutex<Runs>),
    /// The host sees it too.
    Shared(HostBytes),
    /// Addresses; memory is where pages are mapped.
    Reserved { page: u64, pages: Mutex<Vec<Option<Arc<Self>>>> },
}

/// Some equal bytes.
pub(crate) type Run = (u64, u8);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub(crate) fn device() -> Self {
        Self::Device(Mutex::new(Runs(BTreeMap::from([(0, UNWRITTEN)]))))
    }

    /// The bytes of a range, in order; `None` where a page of it is not mapped.
    pub(crate) fn get(&self, offset: u64, size: u64) -> Option<Vec<Run>> {
        match self {
            Self::Device(runs) => Some(lock(runs).get(offset, size)),
            Self::Shared(host) => Some(host.get(offset, size)),
            Self::Reserved { page, .. } => {
                let mut all = Vec::new();
                for (at, start, part) in parts(*page, offset, size) {
                    all.extend(self.page(at)?.get(start, part)?);
                }
                Some(all)
            }
        }
    }

    /// Sets the bytes from `offset` on; `None` where a page is not mapped.
    pub(crate) fn set(&self, mut offset: u64, runs: &[Run]) -> Option<()> {
        for (size, value) in runs {
            self.set_run(offset, *size, *value)?;
            offset += size;
        }
        Some(())
    }

    fn set_run(&self, offset: u64, size: u64, value: u8) -> Option<()> {
        match self {
            Self::Device(runs) => lock(runs).set(offset, size, value),
            Self::Shared(host) => host.fill(offset, size, value),
            Self::Reserved { page, .. } => {
                for (at, start, part) in parts(*page, offset, size) {
                    self.page(at)?.set_run(start, part, value)?;
                }
            }
        }
        Some(())
    }

    /// The memory at a position.
    fn page(&self, at: usize) -> Option<Arc<Self>> {
        let Self::Reserved { pages, .. } = self else { return None };
        lock(pages).get(at)?.clone()
    }
}

/// The pages that a range lies in: which, where in it, and how many bytes.
fn parts(page: u64, offset: u64, size: u64) -> impl Iterator<Item = (usize, u64, u64)> {
    let (mut at, end) = (offset, offset + size);
    core::iter::from_fn(move || {
        let (number, start) = (usize::try_from(at / page).expect("small"), at % page);
        let part = (page - start).min(end - at);
        at += part;
        (part > 0).then_some((number, start, part))
    })
}

/// Start of each run of equal bytes; the last one has no end.
pub(crate) struct Runs(BTreeMap<u64, u8>);

impl Runs {
    fn value_at(&self, at: u64) -> u8 {
        self.0.range(..=at).next_back().map_or(UNWRITTEN, |(_, value)| *value)
    }

    fn get(&self, offset: u64, size: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let (mut at, mut value) = (offset, self.value_at(offset));
        for (next, following) in self.0.range(offset + 1..(offset + size).max(offset + 1)) {
            runs.push((next - at, value));
            (at, value) = (*next, *following);
        }
        runs.push((offset + size - at, value));
        runs
    }

    fn set(&mut self, offset: u64, size: u64, value: u8) {
        let after = self.value_at(offset + size);
        let inside: Vec<u64> = self.0.range(offset..offset + size).map(|(at, _)| *at).collect();
        for at in inside {
            self.0.remove(&at);
        }
        self.0.insert(offset + size, after);
        if size > 0 {
            self.0.insert(offset, value);
        }
    }
}

/// Bytes that the host sees.
pub(crate) struct HostBytes {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are accessed by pointers and by the functions for shared bytes only.
unsafe impl Send for HostBytes {}
// SAFETY: as above.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    pub(crate) fn new(size: u64) -> Self {
        let size = usize::try_from(size).expect("host memory");
        let layout = Layout::from_size_align(size, 4096).expect("not near the end of 64 bits");
        // SAFETY: no block is empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self { base: base.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The byte at `offset`, of which `size` follow inside.
    fn at(&self, offset: u64, size: usize) -> NonNull<u8> {
        let offset = usize::try_from(offset).expect("checked when it was submitted");
        assert!(offset + size <= self.layout.size(), "checked when it was submitted");
        // SAFETY: inside, as was just checked.
        unsafe { self.base.add(offset) }
    }

    fn get(&self, offset: u64, size: u64) -> Vec<Run> {
        let mut bytes = vec![0; usize::try_from(size).expect("small")];
        // SAFETY: `at` checked the range, and nobody has references to these bytes.
        unsafe { bytes::read(self.at(offset, bytes.len()), &mut bytes) };
        runs_of(&bytes)
    }

    fn fill(&self, offset: u64, size: u64, value: u8) {
        let size = usize::try_from(size).expect("small");
        // SAFETY: as for `get`.
        unsafe { bytes::fill(self.at(offset, size), size, value) };
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Bytes as runs.
pub(crate) fn runs_of(bytes: &[u8]) -> Vec<Run> {
    // Most often all are equal, which one comparison shows.
    if let Some((first, rest)) = bytes.split_first()
        && *rest == bytes[..rest.len()]
    {
        return vec![(bytes.len() as u64, *first)];
    }
    bytes.chunk_by(PartialEq::eq).map(|run| (run.len() as u64, run[0])).collect()
}

#[test]
fn runs_hold_what_bytes_hold() {
    let mut random = omniheap_model::Random(7);
    let (memory, mut bytes) = (Memory::device(), [UNWRITTEN; 64]);
    for _ in 0..2000 {
        let start = random.index(64);
        let (size, value) = (random.index(65 - start), random.pick(&[0, 1, 2]));
        memory.set(start as u64, &[(size as u64, value)]);
        bytes[start..start + size].fill(value);
        let (start, mut all) = (random.index(64), Vec::new());
        for (size, value) in memory.get(start as u64, 64 - start as u64).expect("no pages") {
            all.resize(all.len() + usize::try_from(size).expect("small"), value);
        }
        assert_eq!(all, bytes[start..]);
    }
}
