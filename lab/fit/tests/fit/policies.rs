//! Models of allocators against the same policies written down plainly: lists that are searched from end to end.

use omniheap_fit::Ranges;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::model::{self, Observe, Outcome, PyTorch};
use omniheap_trace::{Alignment, AllocationId, LabelId, Limits, Op, StreamId, Trace};
use std::collections::{BTreeMap, HashMap};

const MIB: u64 = 1 << 20;

/// Events that a model tells, blocks by their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Taken(u64),
    Returned(usize),
    Bound(u32, usize, u64),
    Refused(u32, u64),
    Reserved(u64),
    Replayed(usize),
}

/// Writes down what a model tells.
#[derive(Default)]
struct Listener {
    told: Vec<Told>,
    /// Ages of blocks that are held, by their number.
    held: HashMap<u32, usize>,
    ages: usize,
}

impl Observe for Listener {
    fn block_allocated(&mut self, block: u32, size: u64) {
        assert_eq!(self.held.insert(block, self.ages), None, "block {block} is held");
        self.ages += 1;
        self.told.push(Told::Taken(size));
    }
    fn block_freed(&mut self, block: u32) {
        self.told.push(Told::Returned(self.held.remove(&block).unwrap()));
    }
    fn bound(&mut self, id: AllocationId, block: u32, offset: u64) {
        self.told.push(Told::Bound(id.0, self.held[&block], offset));
    }
    fn refused(&mut self, id: AllocationId, size: u64) {
        self.told.push(Told::Refused(id.0, size));
    }
    fn reserved(&mut self, bytes: u64) {
        self.told.push(Told::Reserved(bytes));
    }
    fn replayed(&mut self, index: usize) {
        self.told.push(Told::Replayed(index));
    }
}

/// A policy, written down plainly.
trait Plain {
    /// Allocates; whether it could.
    fn allocate(&mut self, id: u32, size: u64, stream: u16, books: &mut Books) -> bool;
    fn free(&mut self, id: u32);
}

/// Memory that a policy holds, and the events that it would tell.
struct Books {
    capacity: u64,
    reserved: u64,
    outcome: Outcome,
    told: Vec<Told>,
}

impl Books {
    /// Takes bytes from the driver, where the device has them.
    fn take(&mut self, bytes: u64) -> bool {
        if self.reserved + bytes > self.capacity {
            return false;
        }
        self.reserved += bytes;
        let peak = &mut self.outcome.peak_reserved_bytes;
        *peak = self.reserved.max(*peak);
        self.outcome.driver_calls += 1;
        true
    }

    fn give_back(&mut self, bytes: u64) {
        self.reserved -= bytes;
        self.outcome.driver_calls += 1;
    }

    fn tell_reserved(&mut self) {
        self.told.push(Told::Reserved(self.reserved));
    }
}

fn replay(trace: &Trace, mut policy: impl Plain, capacity: u64) -> (Outcome, Vec<Told>) {
    let (outcome, told) = (Outcome::default(), Vec::new());
    let mut books = Books { capacity, reserved: 0, outcome, told };
    let mut live = BTreeMap::new();
    for (index, event) in trace.events().iter().enumerate() {
        match event.op {
            Op::Allocate { id: AllocationId(id), size, stream: StreamId(stream), .. } => {
                if policy.allocate(id, size, stream, &mut books) {
                    live.insert(id, size);
                } else {
                    books.outcome.oom += 1;
                    books.told.push(Told::Refused(id, size));
                }
                let now = live.values().sum();
                books.outcome.peak_live_bytes = books.outcome.peak_live_bytes.max(now);
            }
            Op::FreeCompleted { id: AllocationId(id), .. } if live.remove(&id).is_some() => {
                policy.free(id);
            }
            _ => {}
        }
        books.told.push(Told::Replayed(index));
    }
    (books.outcome, books.told)
}

/// Joins neighbours of which `both` says that they are one.
fn join<T: Copy>(pieces: &mut Vec<T>, both: impl Fn(T, T) -> Option<T>) {
    let mut joined: Vec<T> = Vec::new();
    for piece in pieces.drain(..) {
        match joined.last().and_then(|last| both(*last, piece)) {
            Some(one) => *joined.last_mut().unwrap() = one,
            None => joined.push(piece),
        }
    }
    *pieces = joined;
}

/// A block of the caching allocator, with its pieces by address: bytes and who has them.
struct Block {
    age: usize,
    is_small: bool,
    stream: u16,
    pieces: Vec<(u64, Option<u32>)>,
}

/// PyTorch's caching allocator. The youngest block lies lowest.
#[derive(Default)]
struct Caching {
    blocks: Vec<Block>,
    ages: usize,
}

impl Caching {
    /// Free pieces of a pool, by size and address: bytes, block, place in it.
    fn holes(&self, is_small: bool, stream: u16) -> Vec<(u64, usize, usize)> {
        let mut holes = Vec::new();
        for (at, block) in self.blocks.iter().enumerate().rev() {
            let fits = block.is_small == is_small && block.stream == stream;
            let pieces = block.pieces.iter().enumerate().filter(|(_, piece)| piece.1.is_none());
            holes.extend(pieces.filter(|_| fits).map(|(place, piece)| (piece.0, at, place)));
        }
        holes.sort_by_key(|(size, ..)| *size);
        holes
    }

    fn grow(&mut self, is_small: bool, stream: u16, size: u64, books: &mut Books) -> bool {
        let size = match size {
            _ if is_small => 2 * MIB,
            ..0xa0_0000 => 20 * MIB,
            _ => size.div_ceil(2 * MIB) * 2 * MIB,
        };
        if books.reserved + size > books.capacity {
            self.return_empty(books);
        }
        if !books.take(size) {
            return false;
        }
        books.told.push(Told::Taken(size));
        books.tell_reserved();
        let pieces = vec![(size, None)];
        self.blocks.push(Block { age: self.ages, is_small, stream, pieces });
        self.ages += 1;
        true
    }

    /// Small blocks first, then by stream, size and address.
    fn return_empty(&mut self, books: &mut Books) {
        let is_empty = |block: &mut Block| matches!(block.pieces[..], [(_, None)]);
        let mut empty: Vec<Block> = self.blocks.extract_if(.., is_empty).collect();
        empty.sort_by_key(|it| (!it.is_small, it.stream, it.pieces[0].0, usize::MAX - it.age));
        for block in empty {
            books.give_back(block.pieces[0].0);
            books.told.push(Told::Returned(block.age));
            books.tell_reserved();
        }
    }
}

impl Plain for Caching {
    fn allocate(&mut self, id: u32, size: u64, stream: u16, books: &mut Books) -> bool {
        let size = size.div_ceil(512) * 512;
        let is_small = size <= MIB;
        let fit = |this: &Self| {
            this.holes(is_small, stream).into_iter().find(|(bytes, ..)| *bytes >= size)
        };
        let found = fit(self);
        if found.is_none() && !self.grow(is_small, stream, size, books) {
            return false;
        }
        let (bytes, at, place) = found.or_else(|| fit(self)).unwrap();
        let block = &mut self.blocks[at];
        let rest = bytes - size;
        block.pieces[place].1 = Some(id);
        if rest > if is_small { 0 } else { MIB } {
            block.pieces[place].0 = size;
            block.pieces.insert(place + 1, (rest, None));
        }
        let offset = block.pieces[..place].iter().map(|piece| piece.0).sum();
        books.told.push(Told::Bound(id, block.age, offset));
        true
    }

    fn free(&mut self, id: u32) {
        for block in &mut self.blocks {
            for piece in block.pieces.iter_mut().filter(|piece| piece.1 == Some(id)) {
                piece.1 = None;
            }
            let both = |a: (u64, Option<u32>), b: (u64, Option<u32>)| {
                (a.1.is_none() && b.1.is_none()).then_some((a.0 + b.0, None))
            };
            join(&mut block.pieces, both);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Allocated(u32),
    Free,
    Unmapped,
}

/// The stream of a range, and whether its requests are small.
type RangeKey = (u16, bool);

/// Ranges of addresses that chunks are mapped into; the pieces of each by address.
struct Growing {
    /// Chunks of small requests and of large ones, the largest small request, and whether streams share ranges.
    rules: ([u64; 2], u64, bool),
    ranges: Vec<(RangeKey, Vec<(u64, State)>)>,
}

/// Addresses of a range.
const ADDRESSES: u64 = 1 << 56;

impl Growing {
    const fn expandable() -> Self {
        Self { rules: ([2 * MIB, 20 * MIB], MIB, false), ranges: Vec::new() }
    }

    const fn stream_ordered() -> Self {
        Self { rules: ([32 * MIB; 2], 0, true), ranges: Vec::new() }
    }

    fn chunk(&self, range: usize) -> u64 {
        let (_, is_small) = self.ranges[range].0;
        self.rules.0[usize::from(!is_small)]
    }

    fn range(&mut self, stream: u16, is_small: bool) -> usize {
        let key = (if self.rules.2 { 0 } else { stream }, is_small);
        let known = self.ranges.iter().position(|(other, _)| *other == key);
        known.unwrap_or_else(|| {
            self.ranges.push((key, vec![(ADDRESSES, State::Unmapped)]));
            self.ranges.len() - 1
        })
    }

    /// The free piece that a request takes: the smallest, or the next ones up as long as they have less room behind them.
    fn fit(&self, range: usize, size: u64) -> Option<usize> {
        let pieces = &self.ranges[range].1;
        let room = |at: usize| match pieces.get(at + 1) {
            Some((more, State::Unmapped)) => pieces[at].0 + more,
            _ => pieces[at].0,
        };
        let fits = |at: &usize| pieces[*at].1 == State::Free && pieces[*at].0 >= size;
        let mut all: Vec<usize> = (0..pieces.len()).filter(fits).collect();
        all.sort_by_key(|at| pieces[*at].0);
        let falls = all.windows(2).take_while(|pair| room(pair[1]) < room(pair[0])).count();
        all.get(falls).copied()
    }

    /// Maps chunks at the lowest addresses where a run of free and unmapped ones has room.
    fn map(&mut self, range: usize, size: u64, books: &mut Books) -> bool {
        let chunk = self.chunk(range);
        let pieces = &self.ranges[range].1;
        let is_taken = |piece: &(u64, State)| matches!(piece.1, State::Allocated(_));
        let run = |start: usize| {
            let rest = pieces[start..].iter().take_while(|piece| !is_taken(piece));
            rest.map(|piece| piece.0).sum::<u64>()
        };
        let unmapped = (0..pieces.len()).filter(|at| pieces[*at].1 == State::Unmapped);
        let starts = unmapped.map(|at| match at.checked_sub(1) {
            Some(before) if pieces[before].1 == State::Free => before,
            _ => at,
        });
        let Some(start) = starts.into_iter().find(|start| run(*start) >= size) else {
            return false;
        };
        loop {
            let pieces = &mut self.ranges[range].1;
            let (has, at) = match pieces[start].1 {
                State::Free => (pieces[start].0, start + 1),
                _ => (0, start),
            };
            if has >= size {
                return true;
            }
            let there = pieces[at].0;
            let bytes = ((size - has).min(there).div_ceil(chunk) * chunk).min(there);
            if !books.take(bytes) {
                return false;
            }
            books.tell_reserved();
            pieces[at] = (bytes, State::Free);
            if bytes < there {
                pieces.insert(at + 1, (there - bytes, State::Unmapped));
            }
            self.settle(range);
        }
    }

    fn settle(&mut self, range: usize) {
        let both = |a: (u64, State), b: (u64, State)| (a.1 == b.1).then_some((a.0 + b.0, a.1));
        join(&mut self.ranges[range].1, both);
    }

    /// Unmaps the chunks that are free as a whole, range by range, the smallest pieces first.
    fn unmap(&mut self, books: &mut Books) {
        for range in 0..self.ranges.len() {
            let chunk = self.chunk(range);
            let mut at = 0;
            let mut whole = Vec::new();
            let pieces = core::mem::take(&mut self.ranges[range].1);
            let mut cut = Vec::new();
            for (size, state) in pieces {
                let (start, end) = (at, at + size);
                at = end;
                let (low, high) = (start.div_ceil(chunk) * chunk, end / chunk * chunk);
                if state == State::Free && low < high {
                    whole.push((size, high - low));
                    cut.extend([(low - start, State::Free), (high - low, State::Unmapped)]);
                    cut.push((end - high, State::Free));
                } else {
                    cut.push((size, state));
                }
            }
            cut.retain(|piece| piece.0 > 0);
            self.ranges[range].1 = cut;
            self.settle(range);
            whole.sort_by_key(|(size, _)| *size);
            for (_, bytes) in whole {
                books.give_back(bytes);
                books.tell_reserved();
            }
        }
    }
}

impl Plain for Growing {
    fn allocate(&mut self, id: u32, size: u64, stream: u16, books: &mut Books) -> bool {
        let size = size.div_ceil(512) * 512;
        let range = self.range(stream, size <= self.rules.1);
        if self.fit(range, size).is_none() && !self.map(range, size, books) {
            self.unmap(books);
            if self.fit(range, size).is_none() && !self.map(range, size, books) {
                return false;
            }
        }
        let at = self.fit(range, size).unwrap();
        let pieces = &mut self.ranges[range].1;
        let rest = pieces[at].0 - size;
        pieces[at] = (size, State::Allocated(id));
        if rest > 0 {
            pieces.insert(at + 1, (rest, State::Free));
        }
        self.settle(range);
        true
    }

    fn free(&mut self, id: u32) {
        for range in 0..self.ranges.len() {
            for piece in &mut self.ranges[range].1 {
                if piece.1 == State::Allocated(id) {
                    piece.1 = State::Free;
                }
            }
            self.settle(range);
        }
    }
}

/// Requests of sizes at the edges of every class and between them, on three streams.
fn requests(seed: u64) -> Trace {
    const EDGES: [u64; 8] = [512, 1536, MIB, 2 * MIB, 10 * MIB - 512, 10 * MIB, 20 * MIB, 32 * MIB];
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % end
    };
    let mut recorder = Writer::new(Vec::new());
    let mut live: Vec<u64> = Vec::new();
    for id in 0..300 {
        let edge = EDGES[below(8) as usize];
        let size = match below(3) {
            0 => edge + below(3) - 1,
            1 => 1 + below(2 * edge),
            _ => 1 + below(MIB),
        };
        let stream = StreamId(below(3) as u16);
        let (align, label) = (Alignment::UNKNOWN, LabelId::NONE);
        recorder.record(id, &Record::Allocate { id, size, stream, align, label });
        live.push(id);
        while live.len() as u64 > 4 + below(16) {
            let freed = live.swap_remove(below(live.len() as u64) as usize);
            recorder.record(id, &Record::FreeCompleted { id: freed, stream });
        }
    }
    Trace::read(&recorder.finish().unwrap()[..], &Limits::default()).unwrap()
}

/// Capacities from a few blocks to more than is ever held.
const CAPACITIES: [u64; 6] = [34 * MIB, 64 * MIB, 122 * MIB, 180 * MIB, 301 * MIB, 1 << 40];

#[test]
fn the_caching_allocator_decides_as_a_search_from_end_to_end_does() {
    let mut failures = 0;
    for (seed, capacity) in (0..6).flat_map(|seed| CAPACITIES.map(|capacity| (seed, capacity))) {
        let (trace, mut listener) = (requests(seed), Listener::default());
        let outcome = model::replay(&trace, PyTorch::with_capacity(capacity), &mut listener);
        let (expected, told) = replay(&trace, Caching::default(), capacity);
        assert_eq!(listener.told, told, "seed {seed}, {capacity} bytes");
        assert_eq!(outcome, expected);
        failures += outcome.oom;
    }
    assert!(failures > 50, "requests must fail too, not {failures}");
}

#[test]
fn growing_ranges_decide_as_a_search_from_end_to_end_does() {
    let mut failures = 0;
    for (seed, capacity) in (0..6).flat_map(|seed| CAPACITIES.map(|capacity| (seed, capacity))) {
        let trace = requests(seed);
        for (model, plain) in [
            (Ranges::expandable(capacity), Growing::expandable()),
            (Ranges::stream_ordered(capacity), Growing::stream_ordered()),
        ] {
            let mut listener = Listener::default();
            let outcome = model::replay(&trace, model, &mut listener);
            let (expected, told) = replay(&trace, plain, capacity);
            assert_eq!(listener.told, told, "seed {seed}, {capacity} bytes");
            assert_eq!(outcome, expected);
            failures += outcome.oom;
        }
    }
    assert!(failures > 50, "requests must fail too, not {failures}");
}

/// The model of expandable segments reserves what PyTorch reserved with them, and maps as often.
#[test]
fn the_model_of_expandable_segments_reserves_what_pytorch_reserved() {
    let recorded =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/trace/tests/data/real/expandable");
    let counters = std::fs::read(format!("{recorded}.json")).unwrap();
    let counters: serde_json::Value = serde_json::from_slice(&counters).unwrap();
    let trace = Trace::open(format!("{recorded}.pickle.gz")).unwrap();
    let outcome = model::replay(&trace, Ranges::expandable(u64::MAX), &mut ());
    assert_eq!(counters["peak_reserved"], outcome.peak_reserved_bytes);
    assert_eq!(counters["device_allocs"], outcome.driver_calls);
}
