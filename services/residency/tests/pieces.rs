//! Small pieces of device memory and one stretch of host memory: every byte arrives, and no other byte changes.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use omniheap_core::*;
use omniheap_host::Host;
use omniheap_layers::{CallKind, Record};
use omniheap_residency::{Piece, gather, scatter};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ON: TimelineId = TimelineId::MAIN;

type Device = Record<Host>;

fn manager() -> Manager<Device> {
    Manager::new(Record::new(Host::new()))
}

/// Bytes that say where they are: every 4 KiB in its first word, and each word in those.
fn marked(size: u64, seed: u64) -> Vec<u8> {
    let line: Vec<u8> = (0..512u64).flat_map(|at| (at ^ seed << 32).to_le_bytes()).collect();
    let mut bytes = line.repeat(usize::try_from(size / 4096).unwrap());
    for (at, part) in (0u64..).zip(bytes.chunks_mut(4096)) {
        part[..8].copy_from_slice(&(at << 16 ^ seed).to_le_bytes());
    }
    bytes
}

fn read(allocation: &Allocation<Device>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(allocation.size()).unwrap()];
    allocation.read(0, &mut bytes).unwrap();
    bytes
}

fn part(bytes: &[u8], piece: &Piece<'_, Device>) -> Vec<u8> {
    let start = usize::try_from(piece.offset).unwrap();
    bytes[start..start + usize::try_from(piece.size).unwrap()].to_vec()
}

/// Two caches, a stretch, and pieces of both caches in no order.
struct World {
    manager: Manager<Device>,
    caches: [Allocation<Device>; 2],
    stretch: Allocation<Device>,
}

impl World {
    fn new() -> Self {
        let manager = manager();
        let caches =
            [56 * MIB, 24 * MIB].map(|size| manager.allocate(&Request::new(size)).unwrap());
        (1..).zip(&caches).for_each(|(seed, one)| one.write(0, &marked(one.size(), seed)).unwrap());
        let stretch = manager.allocate(&Request::new(56 * MIB).usage(Usage::Readback)).unwrap();
        stretch.write(0, &marked(56 * MIB, 3)).unwrap();
        Self { manager, caches, stretch }
    }

    /// Every other block of 16 KiB of both caches, an empty one, and a piece that is larger than a batch.
    fn pieces(&self) -> Vec<Piece<'_, Device>> {
        let of = |cache: usize, block: u64| Piece {
            allocation: &self.caches[cache],
            offset: (block * 769 % 640) * 32 * KIB,
            size: 16 * KIB,
        };
        let mut pieces: Vec<_> = (0..640).flat_map(|block| [of(0, block), of(1, block)]).collect();
        pieces.insert(3, Piece { size: 0, ..pieces[0] });
        pieces.insert(700, Piece { allocation: &self.caches[0], offset: 21 * MIB, size: 33 * MIB });
        pieces
    }

    fn stretch(&self, offset: u64) -> Piece<'_, Device> {
        Piece { allocation: &self.stretch, offset, size: self.stretch.size() - offset }
    }
}

/// The link waits while the host lists the first pieces.
#[test]
fn the_first_batch_is_short_and_the_next_ones_grow() {
    let world = World::new();
    let mut pieces = world.pieces();
    pieces.retain(|piece| piece.size == 16 * KIB);
    let copies = |mib: u64| {
        let calls = || world.manager.backend().calls().of(CallKind::Copy);
        let (before, count) = (calls(), usize::try_from(mib * 64).unwrap());
        gather(&world.manager, ON, &pieces[..count], world.stretch(0)).unwrap();
        calls() - before
    };
    let one = copies(1);
    assert_eq!([2, 5, 6, 20].map(copies), [2, 2, 3, 3].map(|batches| batches * one));
}

#[test]
fn pieces_lie_side_by_side_and_come_back() {
    let world = World::new();
    let (pieces, at) = (world.pieces(), 4096);
    let before = world.caches.each_ref().map(read);
    let calls = || world.manager.backend().calls().of(CallKind::Copy);
    let first = calls();
    gather(&world.manager, ON, &pieces, world.stretch(at)).unwrap();
    assert!(calls() - first < 12, "{} batches for {} pieces", calls() - first, pieces.len());
    let mut wanted = marked(56 * MIB, 3)[..4096].to_vec();
    let cache = |piece: &Piece<'_, Device>| {
        usize::from(core::ptr::eq(piece.allocation, &raw const world.caches[1]))
    };
    pieces.iter().for_each(|piece| wanted.extend(part(&before[cache(piece)], piece)));
    let total = wanted.len();
    wanted.extend_from_slice(&marked(56 * MIB, 3)[total..]);
    assert!(
        read(&world.stretch) == wanted,
        "side by side, in their order, and nothing beside them"
    );

    let other = marked(56 * MIB, 4);
    world.stretch.write(0, &other).unwrap();
    scatter(&world.manager, ON, world.stretch(at), &pieces).unwrap();
    let mut wanted = before;
    let mut from = usize::try_from(at).unwrap();
    for piece in &pieces {
        let (start, size) =
            (usize::try_from(piece.offset).unwrap(), usize::try_from(piece.size).unwrap());
        wanted[cache(piece)][start..start + size].copy_from_slice(&other[from..from + size]);
        from += size;
    }
    assert!(
        world.caches.each_ref().map(read) == wanted,
        "each to its place, and nothing beside them"
    );
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_copied() {
    let world = World::new();
    let before = (world.caches.each_ref().map(read), read(&world.stretch));
    let kind = |result: Result<()>| result.unwrap_err().kind();
    let one = Piece { allocation: &world.caches[0], offset: 0, size: 16 * KIB };
    let short = Piece { size: 32 * KIB - 1, ..world.stretch(0) };
    assert_eq!(kind(gather(&world.manager, ON, &[one, one], short)), ErrorKind::OutOfRange);
    assert_eq!(kind(scatter(&world.manager, ON, short, &[one, one])), ErrorKind::OutOfRange);
    let huge = Piece { size: u64::MAX, ..one };
    assert_eq!(
        kind(gather(&world.manager, ON, &[one, huge], world.stretch(0))),
        ErrorKind::OutOfRange
    );
    let outside = Piece { offset: 56 * MIB - 8 * KIB, ..one };
    assert_eq!(
        kind(gather(&world.manager, ON, &[one, outside], world.stretch(0))),
        ErrorKind::OutOfRange
    );
    let beyond = Piece { size: u64::MAX, ..world.stretch(56 * MIB) };
    assert_eq!(kind(gather(&world.manager, ON, &[one], beyond)), ErrorKind::OutOfRange);
    let stranger = manager();
    assert_eq!(kind(gather(&stranger, ON, &[one, one], world.stretch(0))), ErrorKind::Foreign);
    gather(&world.manager, ON, &[], world.stretch(0)).unwrap();
    assert!((world.caches.each_ref().map(read), read(&world.stretch)) == before);
}

#[test]
fn a_device_that_copies_nothing_inside_a_block_is_served_too() {
    let mut caps = Host::new().caps().clone();
    caps.copy.inside_block = InsideBlock::Forbidden;
    let manager = Manager::new(Host::like(caps).unwrap());
    let cache = manager.allocate(&Request::new(MIB)).unwrap();
    cache.fill(0, MIB, 6).unwrap();
    let stretch = manager.allocate(&Request::new(64 * KIB).dedicated()).unwrap();
    let blocks =
        [1, 9, 5, 3].map(|at| Piece { allocation: &cache, offset: at * 16 * KIB, size: 16 * KIB });
    let all = Piece { allocation: &stretch, offset: 0, size: 64 * KIB };
    gather(&manager, ON, &blocks, all).unwrap();
    let mut seen = vec![0; 64 << 10];
    stretch.read(0, &mut seen).unwrap();
    assert!(seen == vec![6; 64 << 10]);
}
