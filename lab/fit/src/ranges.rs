//! Address ranges that memory is mapped into chunk by chunk: what growing policies have in common.

use omniheap_trace::StreamId;
use omniheap_trace::model::{Model, Observe, Place, PyTorch};
use std::collections::{BTreeSet, HashMap};

const NONE: u32 = u32::MAX;

/// Addresses of one range: more than any device has bytes.
const ADDRESSES: u64 = 1 << 56;

/// Rules by which policies differ.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Memory is mapped in multiples of this, for small requests and for large ones.
    chunks: [u64; 2],
    /// Largest rounded size that goes to the range of small requests; 0 for one range.
    small: u64,
    /// True if each stream has ranges of its own.
    by_stream: bool,
}

/// For each stream one range of small requests, grown by 2 MiB, and one of large ones, grown by 20 MiB.
const EXPANDABLE: Rules = Rules {
    chunks: [PyTorch::SMALL_BLOCK, PyTorch::LARGE_BLOCK],
    small: PyTorch::SMALL,
    by_stream: true,
};
/// One range for all streams, grown by 32 MiB.
const STREAM_ORDERED: Rules = Rules { chunks: [32 << 20; 2], small: 0, by_stream: false };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Allocated,
    Free,
    Unmapped,
}

/// One piece of a range; pieces of a range are linked by address.
#[derive(Debug, Clone, Copy)]
struct Piece {
    address: u64,
    size: u64,
    before: u32,
    after: u32,
    range: u32,
    state: State,
}

/// Ranges, their pieces, and ordered lists of the free and the unmapped ones.
///
/// A request takes the best fit among free pieces. Without one, chunks are mapped behind the free piece at the lowest
/// unmapped address that has room. Chunks are unmapped only when the device has no more.
///
/// # Cost
/// *O*(log pieces) per allocate and free; a request that finds the device full looks at every free piece.
#[derive(Debug)]
pub struct Ranges {
    rules: Rules,
    pieces: Vec<Piece>,
    vacant: Vec<u32>,
    numbers: HashMap<(u16, bool), u32>,
    /// Chunk size by range.
    chunks: Vec<u64>,
    /// Free pieces by range, size, address.
    free: BTreeSet<(u32, u64, u64, u32)>,
    /// Unmapped pieces by range, address.
    unmapped: BTreeSet<(u32, u64, u32)>,
    capacity: u64,
    reserved: u64,
    peak_reserved: u64,
    driver_calls: u64,
}

impl Ranges {
    /// PyTorch's caching allocator with `expandable_segments:True`, on a device of `capacity` bytes.
    #[must_use]
    pub fn expandable(capacity: u64) -> Self {
        Self::new(EXPANDABLE, capacity)
    }

    /// A stream-ordered pool, as behind `cudaMallocAsync`, on a device of `capacity` bytes.
    ///
    /// The driver's own policy is not published. This model shares its granularity and its reuse between streams once a
    /// free has completed. On six recordings it reserves 0.80 to 1.00 of what the driver did: an estimate, and a low one.
    #[must_use]
    pub fn stream_ordered(capacity: u64) -> Self {
        Self::new(STREAM_ORDERED, capacity)
    }

    fn new(rules: Rules, capacity: u64) -> Self {
        Self {
            rules,
            pieces: Vec::new(),
            vacant: Vec::new(),
            numbers: HashMap::new(),
            chunks: Vec::new(),
            free: BTreeSet::new(),
            unmapped: BTreeSet::new(),
            capacity,
            reserved: 0,
            peak_reserved: 0,
            driver_calls: 0,
        }
    }
}

impl Model for Ranges {
    fn allocate(
        &mut self,
        size: u64,
        stream: StreamId,
        observer: &mut impl Observe,
    ) -> Option<Place> {
        let size =
            size.checked_next_multiple_of(PyTorch::ROUNDING).filter(|size| *size <= ADDRESSES)?;
        let range = self.range(stream.0, size <= self.rules.small);
        let found = match self.best_fit(range, size) {
            Some(found) => found,
            None => self.grow(range, size, observer)?,
        };
        self.unlist(found);
        if self.piece(found).size > size {
            self.split(found, size);
        }
        self.pieces[found as usize].state = State::Allocated;
        Some(Place(found))
    }

    fn free(&mut self, place: Place) {
        self.pieces[place.0 as usize].state = State::Free;
        self.settle(place.0);
    }

    fn locate(&self, _: Place) -> Option<(u32, u64)> {
        None
    }

    fn extent(&self, place: Place) -> (u64, u64) {
        let piece = self.piece(place.0);
        (piece.address, piece.size)
    }

    fn peak_reserved_bytes(&self) -> u64 {
        self.peak_reserved
    }

    fn driver_calls(&self) -> u64 {
        self.driver_calls
    }
}

impl Ranges {
    /// Returns the number of a range, which begins with nothing mapped.
    fn range(&mut self, stream: u16, small: bool) -> u32 {
        let stream = if self.rules.by_stream { stream } else { 0 };
        let next = u32::try_from(self.chunks.len()).expect("two ranges for each of 2^16 streams");
        let range = *self.numbers.entry((stream, small)).or_insert(next);
        if range == next {
            self.chunks.push(self.rules.chunks[usize::from(!small)]);
            let (before, after, state) = (NONE, NONE, State::Unmapped);
            let whole = Piece { address: 0, size: ADDRESSES, before, after, range, state };
            let index = self.add(whole);
            self.list(index);
        }
        range
    }

    /// Returns the smallest free piece that fits. One that can grow counts with the addresses behind it, so that
    /// larger pieces in the middle are used before it.
    fn best_fit(&self, range: u32, size: u64) -> Option<u32> {
        let mut fits = self.free.range((range, size, 0, 0)..(range + 1, 0, 0, 0));
        let mut best = fits.next()?.3;
        for &(_, _, _, next) in fits {
            if self.room(next) >= self.room(best) {
                break;
            }
            best = next;
        }
        Some(best)
    }

    /// Returns the bytes that a free piece can have once what lies behind it is mapped.
    fn room(&self, index: u32) -> u64 {
        let piece = self.piece(index);
        let behind = self.neighbour(piece.after, State::Unmapped);
        piece.size + behind.map_or(0, |behind| self.piece(behind).size)
    }

    /// Maps chunks until a free piece has `size` bytes; unmaps what nobody uses when the device is full.
    fn grow(&mut self, range: u32, size: u64, observer: &mut impl Observe) -> Option<u32> {
        if let Some(found) = self.map_for(range, size, observer) {
            return Some(found);
        }
        self.release_cached(observer);
        // Memory that was mapped on the first attempt may have been unmapped with the rest.
        self.best_fit(range, size).or_else(|| self.map_for(range, size, observer))
    }

    fn map_for(&mut self, range: u32, size: u64, observer: &mut impl Observe) -> Option<u32> {
        let mut at = self.candidate(range, size)?;
        if self.piece(at).state == State::Unmapped {
            at = self.map(at, size, observer)?;
        }
        while self.piece(at).size < size {
            let missing = size - self.piece(at).size;
            at = self.map(self.piece(at).after, missing, observer)?;
        }
        Some(at)
    }

    /// Returns where a run of free and unmapped pieces with `size` bytes begins, at the lowest unmapped address.
    fn candidate(&self, range: u32, size: u64) -> Option<u32> {
        let starts = self.unmapped.range((range, 0, 0)..(range + 1, 0, 0)).map(|&(_, _, index)| {
            self.neighbour(self.piece(index).before, State::Free).unwrap_or(index)
        });
        starts.into_iter().find(|&start| self.run(start, size) >= size)
    }

    /// Adds up free and unmapped pieces from `at` on, until there are `enough` bytes.
    fn run(&self, mut at: u32, enough: u64) -> u64 {
        let mut bytes = 0;
        while bytes < enough && at != NONE && self.piece(at).state != State::Allocated {
            bytes += self.piece(at).size;
            at = self.piece(at).after;
        }
        bytes
    }

    /// Maps at least `wanted` bytes, or the whole, of an unmapped piece. Returns the free piece that they are part of.
    fn map(&mut self, index: u32, wanted: u64, observer: &mut impl Observe) -> Option<u32> {
        let Piece { size, range, .. } = self.piece(index);
        let bytes = wanted.min(size).next_multiple_of(self.chunks[range as usize]).min(size);
        if self.reserved.checked_add(bytes)? > self.capacity {
            return None;
        }
        self.unlist(index);
        if bytes < size {
            self.split(index, bytes);
        }
        self.pieces[index as usize].state = State::Free;
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.driver_calls += 1;
        observer.reserved(self.reserved);
        Some(self.settle(index))
    }

    /// Unmaps every chunk that lies in a free piece as a whole.
    fn release_cached(&mut self, observer: &mut impl Observe) {
        for (range, size, address, index) in self.free.clone() {
            let chunk = self.chunks[range as usize];
            let start = address.next_multiple_of(chunk);
            let end = (address + size) / chunk * chunk;
            if start < end {
                self.unlist(index);
                self.unmap(index, start, end);
                self.reserved -= end - start;
                self.driver_calls += 1;
                observer.reserved(self.reserved);
            }
        }
    }

    /// Cuts the addresses `start..end` out of a free piece that is not listed, and marks them as unmapped.
    fn unmap(&mut self, index: u32, start: u64, end: u64) {
        let mut middle = index;
        let whole = self.piece(index);
        if whole.address < start {
            self.split(index, start - whole.address);
            middle = self.piece(index).after;
            self.unlist(middle);
            self.list(index);
        }
        if end < whole.address + whole.size {
            self.split(middle, end - start);
        }
        self.pieces[middle as usize].state = State::Unmapped;
        self.settle(middle);
    }

    fn piece(&self, index: u32) -> Piece {
        self.pieces[index as usize]
    }

    fn neighbour(&self, index: u32, state: State) -> Option<u32> {
        (index != NONE && self.piece(index).state == state).then_some(index)
    }

    /// Merges a piece that is not listed with its neighbours of the same state, and lists the result.
    fn settle(&mut self, index: u32) -> u32 {
        let Piece { before, after, state, .. } = self.piece(index);
        if let Some(after) = self.neighbour(after, state) {
            self.unlist(after);
            self.merge(index, after);
        }
        let mut at = index;
        if let Some(before) = self.neighbour(before, state) {
            self.unlist(before);
            self.merge(before, index);
            at = before;
        }
        self.list(at);
        at
    }

    fn list(&mut self, index: u32) {
        let Piece { address, size, range, state, .. } = self.piece(index);
        match state {
            State::Free => drop(self.free.insert((range, size, address, index))),
            State::Unmapped => drop(self.unmapped.insert((range, address, index))),
            State::Allocated => {}
        }
    }

    fn unlist(&mut self, index: u32) {
        let Piece { address, size, range, state, .. } = self.piece(index);
        match state {
            State::Free => drop(self.free.remove(&(range, size, address, index))),
            State::Unmapped => drop(self.unmapped.remove(&(range, address, index))),
            State::Allocated => {}
        }
    }

    /// Cuts a piece that is not listed after `size` bytes, and lists the rest.
    fn split(&mut self, index: u32, size: u64) {
        let whole = self.piece(index);
        let (address, left) = (whole.address + size, whole.size - size);
        let rest = self.add(Piece { address, size: left, before: index, ..whole });
        if whole.after != NONE {
            self.pieces[whole.after as usize].before = rest;
        }
        let first = &mut self.pieces[index as usize];
        (first.size, first.after) = (size, rest);
        self.list(rest);
    }

    /// Joins `next` to the end of `index`; neither is listed.
    fn merge(&mut self, index: u32, next: u32) {
        let gone = self.piece(next);
        let kept = &mut self.pieces[index as usize];
        kept.size += gone.size;
        kept.after = gone.after;
        if gone.after != NONE {
            self.pieces[gone.after as usize].before = index;
        }
        self.vacant.push(next);
    }

    fn add(&mut self, piece: Piece) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.pieces[index as usize] = piece;
            return index;
        }
        self.pieces.push(piece);
        u32::try_from(self.pieces.len() - 1).expect("below 2^30 allocations split twice at most")
    }
}
