//! Exactly what readers say: every event of a random recording against a model, every rule with the byte where it is broken, and the
//! last value that each limit allows.

use crate::sample;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::{
    Alignment, AllocationId, Backing, BlockId, Error, ErrorKind, HeapId, LabelId, Limits, Op,
    Position, Region, Residence, Rung, StreamId, Trace, rmm,
};
use std::collections::HashMap;

const RESIDENCES: [Residence; 4] =
    [Residence::Device, Residence::Host, Residence::File, Residence::Nothing];

fn open(bytes: &[u8]) -> Result<Trace, Error> {
    Trace::read(bytes, &Limits::default())
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.0 >> 33) % end
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Live,
    Requested,
    Gone,
}

/// State of a recording, computed a second time.
#[derive(Default)]
struct Shadow {
    allocations: HashMap<u64, (AllocationId, u64, Life)>,
    blocks: HashMap<u64, (BlockId, u64, Backing)>,
    count: u32,
    pages: u64,
    host_pages: u64,
    held: u64,
    reserved: u64,
    peak_held: u64,
    peak_reserved: u64,
    driver_calls: u64,
    oom: u64,
    expected: Vec<(u64, Op)>,
}

impl Shadow {
    fn live_bytes(&self) -> u64 {
        let live = self.allocations.values().filter(|(_, _, life)| *life != Life::Gone);
        live.map(|(_, size, _)| size).sum()
    }

    /// Notes a record that breaks no rule.
    fn note(&mut self, time: u64, record: Record) {
        let op = match record {
            Record::Allocate { id, size, stream, align, .. } => {
                let number = AllocationId(self.count);
                self.count += 1;
                self.allocations.insert(id, (number, size, Life::Live));
                self.held += size;
                self.peak_held = self.peak_held.max(self.held);
                Op::Allocate { id: number, size, stream, align }
            }
            Record::FreeRequested { id, stream } => {
                let (number, size, life) = self.allocations.get_mut(&id).unwrap();
                *life = Life::Requested;
                self.held -= *size;
                Op::FreeRequested { id: *number, size: *size, stream }
            }
            Record::FreeCompleted { id, stream } => {
                let (number, size, life) = self.allocations.get_mut(&id).unwrap();
                self.held -= if *life == Life::Live { *size } else { 0 };
                *life = Life::Gone;
                Op::FreeCompleted { id: *number, size: *size, stream }
            }
            Record::Bind { id, block, offset } => {
                Op::Bind { id: self.allocations[&id].0, block: self.blocks[&block].0, offset }
            }
            Record::Move { id, block, offset } => {
                Op::Move { id: self.allocations[&id].0, block: self.blocks[&block].0, offset }
            }
            Record::Use { id, stream } => Op::Use { id: self.allocations[&id].0, stream },
            other => self.note_driver(other),
        };
        self.expected.push((time, op));
    }

    /// As [`note`](Self::note), for records of no single allocation.
    fn note_driver(&mut self, record: Record) -> Op {
        match record {
            Record::BlockAllocate { block, size, heap, backing } => {
                let taken =
                    |number: &u16| self.blocks.values().any(|(known, ..)| known.0 == *number);
                let number = BlockId((0..).find(|number| !taken(number)).unwrap());
                self.blocks.insert(block, (number, size, backing));
                self.reserve(if backing == Backing::Memory { size } else { 0 });
                Op::BlockAllocate { block: number, size, heap, backing }
            }
            Record::BlockFree { block } => {
                let (number, size, backing) = self.blocks.remove(&block).unwrap();
                self.reserved -= if backing == Backing::Memory { size } else { 0 };
                self.driver_calls += 1;
                Op::BlockFree { block: number, size, backing }
            }
            Record::PagesTake { bytes, heap } => {
                self.pages += bytes;
                self.reserve(bytes);
                Op::PagesTake { bytes, heap }
            }
            Record::PagesReturn { bytes, heap } => {
                self.pages -= bytes;
                self.reserved -= bytes;
                self.driver_calls += 1;
                Op::PagesReturn { bytes, heap }
            }
            Record::OutOfMemory { size, stream, rung } => {
                self.oom += u64::from(rung == Rung::Failed);
                Op::OutOfMemory { size, stream, rung }
            }
            other => self.note_away(other),
        }
    }

    /// As [`note`](Self::note), for records of memory that is not the device's.
    fn note_away(&mut self, record: Record) -> Op {
        match record {
            Record::HostPagesTake { bytes, heap } => {
                self.host_pages += bytes;
                self.driver_calls += 1;
                Op::HostPagesTake { bytes, heap }
            }
            Record::HostPagesReturn { bytes, heap } => {
                self.host_pages -= bytes;
                self.driver_calls += 1;
                Op::HostPagesReturn { bytes, heap }
            }
            Record::Reside { block, residence } => {
                Op::Reside { block: self.blocks[&block].0, residence }
            }
            other => panic!("{other:?} is not made here"),
        }
    }

    fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.driver_calls += 1;
    }

    /// A record that breaks no rule, or none where the dice ask for one that would.
    fn next(&self, random: &mut Random) -> Option<Record> {
        let (id, block) = (random.below(12), random.below(3));
        let stream = StreamId(random.below(5) as u16);
        let known = self.allocations.get(&id).copied();
        let unfreed = known.filter(|(_, _, life)| *life != Life::Gone);
        Some(match random.below(12) {
            0 | 1 if unfreed.is_none() => {
                let (size, align) = (1 + random.below(1000), Alignment::new(256).unwrap());
                Record::Allocate { id, size, stream, align, label: LabelId::NONE }
            }
            2 if unfreed?.2 == Life::Live => Record::FreeRequested { id, stream },
            3 if unfreed.is_some() => Record::FreeCompleted { id, stream },
            4 | 5 => {
                let (_, bytes, _) = self.blocks.get(&block)?;
                // To the last byte of its block.
                let offset = bytes.checked_sub(unfreed?.1)?;
                match random.below(2) {
                    0 => Record::Bind { id, block, offset },
                    _ => Record::Move { id, block, offset },
                }
            }
            6 if unfreed.is_some() => Record::Use { id, stream },
            7..=10 => return self.next_of_driver(random, block),
            11 => {
                let rung = [Rung::Retire, Rung::Wait, Rung::Failed][random.below(3) as usize];
                Record::OutOfMemory { size: random.below(1 << 40), stream, rung }
            }
            _ => return None,
        })
    }

    /// As [`next`](Self::next), for blocks and pages.
    fn next_of_driver(&self, random: &mut Random, block: u64) -> Option<Record> {
        let (is_held, heap) = (self.blocks.contains_key(&block), HeapId(random.below(4) as u8));
        Some(match random.below(7) {
            0 if !is_held => {
                let backing = [Backing::Memory, Backing::Pages][random.below(2) as usize];
                Record::BlockAllocate { block, size: 1 + random.below(4000), heap, backing }
            }
            1 if is_held => Record::BlockFree { block },
            2 => Record::PagesTake { bytes: 1 + random.below(4096), heap },
            3 if self.pages > 0 => {
                Record::PagesReturn { bytes: 1 + random.below(self.pages), heap }
            }
            5 => Record::HostPagesTake { bytes: 1 + random.below(4096), heap },
            6 if self.host_pages > 0 => {
                Record::HostPagesReturn { bytes: 1 + random.below(self.host_pages), heap }
            }
            4 if is_held => {
                Record::Reside { block, residence: RESIDENCES[random.below(4) as usize] }
            }
            _ => return None,
        })
    }
}

#[test]
fn limits_are_those_that_are_documented_for_nobody_to_raise() {
    let expected = Limits {
        events: 200_000_000,
        live: 50_000_000,
        bytes: 16 << 30,
        expansion: 100,
        line: 1024,
        string: 65_536,
        depth: 64,
    };
    assert_eq!(Limits::default(), expected);
}

/// A line may have a carriage return more than the limit; whether it is too long or cut is told apart.
#[test]
fn a_last_line_without_an_end_is_cut_or_too_long() {
    let limits = Limits { line: 30, ..Limits::default() };
    let read = |length: usize| {
        let text = format!("op,id,size,stream,time_us\n{}", "1".repeat(length));
        Trace::read(text.as_bytes(), &limits).unwrap_err()
    };
    assert!(matches!(read(31).kind(), ErrorKind::Truncated), "{:?}", read(31));
    assert!(matches!(read(32).kind(), ErrorKind::OverLimit { limit: 30, .. }), "{:?}", read(32));
}

/// A line of just as many bytes as the limit has, and a carriage return.
#[test]
fn a_line_may_be_as_long_as_its_limit() {
    let line = "a,0,100,0,12345678901234567890";
    let read = |more: &str, limit| {
        let limits = Limits { line: limit, ..Limits::default() };
        let text = format!("op,id,size,stream,time_us{more}\n{line}{more}\n");
        Trace::read(text.as_bytes(), &limits).map(|trace| trace.events().len())
    };
    for more in ["", "\r"] {
        assert_eq!(read(more, line.len()).ok(), Some(1), "{more:?}");
    }
    let refused = read("\r", line.len() - 1).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::OverLimit { .. }), "{refused:?}");
}

#[test]
fn numbers_that_differ_in_one_bit_are_different_allocations() {
    let mut recorder = Writer::new(Vec::new());
    let others = (0..64).map(|bit| (1 << 50) ^ (1 << bit));
    let ids: Vec<u64> = core::iter::once(1 << 50).chain(others).collect();
    for (size, id) in (1..).zip(&ids) {
        recorder.record(0, &sample::allocate(*id, size));
    }
    for id in ids.iter().rev() {
        recorder.record(1, &Record::FreeCompleted { id: *id, stream: StreamId(0) });
    }
    let trace = open(&recorder.finish().unwrap()).unwrap();
    let freed: Vec<u64> = trace.events()[65..]
        .iter()
        .map(|event| match event.op {
            Op::FreeCompleted { size, .. } => size,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(freed, (1..=65).rev().collect::<Vec<_>>());
}

#[test]
fn a_writer_knows_as_many_labels_as_it_says() {
    let mut recorder = Writer::new(Vec::new());
    let mut add = |name: u32| recorder.label(LabelId::NONE, &name.to_string());
    assert!((0..1 << 18).all(|name| add(name) != LabelId::NONE));
    assert_eq!(add(1 << 18), LabelId::NONE);
}

#[test]
fn every_event_and_every_figure_is_the_models() {
    for seed in 0..50 {
        let (mut random, mut shadow) = (Random(seed), Shadow::default());
        let (mut recorder, mut time, mut peak) = (Writer::new(Vec::new()), 0, 0);
        while shadow.expected.len() < 400 {
            let Some(record) = shadow.next(&mut random) else { continue };
            time += random.below(3);
            recorder.record(time, &record);
            shadow.note(time, record);
            peak = peak.max(shadow.live_bytes());
        }
        let trace = open(&recorder.finish().unwrap()).unwrap();
        // Numbers of blocks are the reader's choice, as long as no two that are held share one.
        let mut blocks: HashMap<BlockId, BlockId> = HashMap::new();
        for (event, (time, op)) in trace.events().iter().zip(&shadow.expected) {
            let (mut op, time) = (*op, *time);
            match (&mut op, event.op) {
                (Op::BlockAllocate { block, .. }, Op::BlockAllocate { block: theirs, .. }) => {
                    let ours = *block;
                    assert!(!blocks.values().any(|held| *held == theirs), "{theirs:?} is held");
                    blocks.insert(ours, theirs);
                    *block = theirs;
                }
                (Op::BlockFree { block, .. }, _) => *block = blocks.remove(block).unwrap(),
                (Op::Bind { block, .. } | Op::Move { block, .. } | Op::Reside { block, .. }, _) => {
                    *block = blocks[block];
                }
                _ => {}
            }
            assert_eq!((event.time_us, event.op), (time, op), "seed {seed}");
        }
        let sum = trace.summary();
        assert_eq!((sum.events, sum.duration_us), (400, time));
        assert_eq!(u64::from(shadow.count), sum.allocations);
        assert_eq!((sum.peak_live_bytes, sum.final_live_bytes), (peak, shadow.live_bytes()));
        assert_eq!((sum.peak_held_bytes, sum.oom), (shadow.peak_held, shadow.oom));
        assert_eq!(
            (sum.peak_reserved_bytes, sum.driver_calls),
            (shadow.peak_reserved, shadow.driver_calls)
        );
    }
}

/// A recording with something in every state.
fn begun() -> Writer<Vec<u8>> {
    let mut recorder = Writer::new(Vec::new());
    let stream = StreamId(0);
    recorder.label(LabelId::NONE, "only");
    for record in [
        sample::allocate(1, 100),
        sample::allocate(2, 100),
        sample::allocate(3, 100),
        Record::FreeRequested { id: 2, stream },
        Record::FreeCompleted { id: 3, stream },
        memory(7, 164),
        memory(8, 10),
        Record::BlockFree { block: 8 },
        Record::PagesTake { bytes: 50, heap: HeapId(0) },
        Record::HostPagesTake { bytes: 70, heap: HeapId(0) },
    ] {
        recorder.record(5, &record);
    }
    recorder
}

const STREAM: StreamId = StreamId(0);
const HEAP: HeapId = HeapId(0);

const fn memory(block: u64, size: u64) -> Record {
    Record::BlockAllocate { block, size, heap: HEAP, backing: Backing::Memory }
}

const fn pages(bytes: u64) -> Record {
    Record::PagesTake { bytes, heap: HEAP }
}

/// Records that just break a rule behind what [`begun`] has recorded, and what is said of each.
const BROKEN: [(Record, &str); 30] = [
    (sample::allocate(1, 1), "DuplicateId(1)"),
    (sample::allocate(2, 1), "DuplicateId(2)"),
    (sample::allocate(9, 0), "ZeroSize"),
    (sample::allocate(9, u64::MAX - 199), "LiveOverflow"),
    (Record::FreeRequested { id: 2, stream: STREAM }, "DoubleFree(2)"),
    (Record::FreeRequested { id: 3, stream: STREAM }, "DoubleFree(3)"),
    (Record::FreeRequested { id: 9, stream: STREAM }, "UnknownId(9)"),
    (Record::FreeCompleted { id: 3, stream: STREAM }, "DoubleFree(3)"),
    (Record::FreeCompleted { id: 9, stream: STREAM }, "UnknownId(9)"),
    (Record::Use { id: 3, stream: STREAM }, "DoubleFree(3)"),
    (Record::Use { id: 9, stream: STREAM }, "UnknownId(9)"),
    (Record::Bind { id: 3, block: 7, offset: 0 }, "DoubleFree(3)"),
    (Record::Bind { id: 1, block: 7, offset: 65 }, "OutsideBlock { block_size: 164 }"),
    (Record::Move { id: 1, block: 7, offset: u64::MAX }, "OutsideBlock { block_size: 164 }"),
    (Record::Move { id: 1, block: 8, offset: 0 }, "UnknownBlock(8)"),
    (Record::BlockFree { block: 8 }, "UnknownBlock(8)"),
    (Record::Reside { block: 8, residence: Residence::Host }, "UnknownBlock(8)"),
    (Record::HostPagesTake { bytes: 0, heap: HEAP }, "ZeroSize"),
    (Record::HostPagesTake { bytes: u64::MAX - 69, heap: HEAP }, "LiveOverflow"),
    (
        Record::HostPagesReturn { bytes: 71, heap: HEAP },
        "Malformed(\"host pages: more given back than taken\")",
    ),
    (memory(7, 1), "DuplicateBlock(7)"),
    (memory(9, 0), "ZeroSize"),
    (memory(9, u64::MAX - 213), "LiveOverflow"),
    (pages(0), "ZeroSize"),
    (pages(u64::MAX - 213), "LiveOverflow"),
    (Record::PagesReturn { bytes: 51, heap: HEAP }, "Malformed(\"pages"),
    (Record::Name { id: 9, label: LabelId(1) }, "UnknownId(9)"),
    (Record::Name { id: 1, label: LabelId(2) }, "Malformed(\"label\")"),
    (Record::BlockOffset { id: 9, region: Region::Device, reason: LabelId(1) }, "UnknownId(9)"),
    (
        Record::BlockOffset { id: 1, region: Region::Device, reason: LabelId(2) },
        "Malformed(\"label\")",
    ),
];

/// Each rule with a record that just breaks it; errors name the byte where the record begins.
#[test]
fn what_breaks_a_rule_is_refused_at_its_byte() {
    let whole = begun().finish().unwrap();
    let at = whole.len() as u64 - 12; // Before the closing mark.
    for (record, kind) in &BROKEN {
        let mut recorder = begun();
        recorder.record(5, record);
        let error = open(&recorder.finish().unwrap()).expect_err(kind);
        assert!(format!("{:?}", error.kind()).starts_with(kind), "{record:?}: {error:?}");
        assert_eq!(error.position(), Position::Byte(at), "{record:?}: {error:?}");
    }
}

#[test]
fn what_just_keeps_a_rule_is_read() {
    let stream = StreamId(0);
    let cases = [
        sample::allocate(3, 1),
        sample::allocate(9, u64::MAX - 200),
        Record::FreeCompleted { id: 1, stream },
        Record::FreeCompleted { id: 2, stream },
        Record::Use { id: 2, stream },
        Record::Reside { block: 7, residence: Residence::File },
        Record::Bind { id: 2, block: 7, offset: 64 },
        memory(8, u64::MAX - 214),
        Record::PagesTake { bytes: u64::MAX - 214, heap: HeapId(0) },
        Record::PagesReturn { bytes: 50, heap: HeapId(0) },
        Record::HostPagesTake { bytes: u64::MAX - 70, heap: HeapId(0) },
        Record::HostPagesReturn { bytes: 70, heap: HeapId(0) },
        Record::BlockOffset { id: 3, region: Region::Shared, reason: LabelId(1) },
        Record::Name { id: 3, label: LabelId(1) },
    ];
    for record in cases {
        let mut recorder = begun();
        recorder.record(5, &record);
        let read = open(&recorder.finish().unwrap());
        let named = matches!(record, Record::Name { .. });
        let events = read.unwrap_or_else(|error| panic!("{record:?}: {error:?}")).events().len();
        assert_eq!(events, if named { 10 } else { 11 }, "{record:?}");
    }
}

#[test]
fn a_name_given_later_replaces_the_first() {
    let mut recorder = Writer::new(Vec::new());
    let [one, two] = ["one", "two"].map(|text| recorder.label(LabelId::NONE, text));
    recorder.record(0, &sample::allocate(1, 8));
    recorder.record(0, &sample::allocate(2, 8));
    for (id, label) in [(2, one), (2, two), (1, one)] {
        recorder.record(1, &Record::Name { id, label });
    }
    let trace = open(&recorder.finish().unwrap()).unwrap();
    assert_eq!([0, 1].map(|id| trace.label_of(AllocationId(id))), [one, two]);
}

#[test]
fn the_heads_of_a_file_and_the_end_of_it_are_checked() {
    let whole = sample::every_record();
    let kind = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        format!("{:?}", open(&bytes).unwrap_err().kind())
    };
    assert_eq!(kind(&|bytes| bytes[8] = 0), "Malformed(\"file head\")");
    for at in 10..16 {
        assert_eq!(kind(&|bytes| bytes[at] = 1), "Malformed(\"file head\")", "byte {at}");
    }
    assert_eq!(kind(&|bytes| bytes[9] = 1), "Version(257)");
    assert_eq!(kind(&|bytes| bytes.push(0)), "Malformed(\"closing mark\")");
    assert_eq!(kind(&|bytes| bytes.truncate(15)), "Truncated");
}

/// The last value that a limit allows, and the first that it does not.
#[test]
fn a_limit_allows_what_it_says_and_no_more() {
    let head = "op,id,size,stream,time_us\n";
    let text = format!("{head}a,0,8,0,0\nf,0,,0,0\na,1,8,0,0\na,2,8,0,0\nf,1,,0,0\na,3,8,0,0\n");
    let longest = head.len() - 1;
    let read = |limits: Limits| Trace::read(text.as_bytes(), &limits).map(|_| ());
    let usual = Limits::default();
    let bytes = text.len() as u64;
    for (least, over) in [
        (Limits { events: 6, ..usual }, Limits { events: 5, ..usual }),
        // Never more than two at a time, though four were made.
        (Limits { live: 2, ..usual }, Limits { live: 1, ..usual }),
        (Limits { bytes, ..usual }, Limits { bytes: bytes - 1, ..usual }),
        (Limits { line: longest, ..usual }, Limits { line: longest - 2, ..usual }),
    ] {
        assert!(read(least).is_ok(), "{:?}", read(least));
        let error = read(over).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OverLimit { .. }), "{error:?}");
    }
    // Bytes that were freed are live no more.
    let huge = format!("{head}a,0,{0},0,0\nf,0,,0,0\na,1,{0},0,0\n", u64::MAX);
    assert!(open(huge.as_bytes()).is_ok());
}

#[test]
fn every_way_to_write_a_time_gives_its_microseconds() {
    let time = |text: &str| {
        let log =
            format!("{}\n1,0:00:00,allocate,0x1,8,0\n1,{text},allocate,0x2,8,0\n", rmm::HEADER);
        rmm::read(log.as_bytes(), &Limits::default()).map(|trace| trace.events()[1].time_us)
    };
    for (text, expected) in [
        ("5", 5_000_000),
        ("5.25", 5_250_000),
        ("0.000001", 1),
        ("0.0000019", 1),
        ("1:2:3", 3_723_000_000),
        ("1:2:3.5", 3_723_500_000),
        ("1:2:3:05", 3_723_050_000),
        ("10:59:59.999999", 39_599_999_999),
    ] {
        assert_eq!(time(text).unwrap(), expected, "{text}");
    }
    for text in ["", "1:", "1:2", "1:2:", "1:2:3:", "1:2:3:4:5", "1.", ".5", "1:2:x", "1:2:3.5x"] {
        let error = time(text).expect_err(text);
        assert!(matches!(error.kind(), ErrorKind::NotANumber(_)), "{text}: {error:?}");
    }
}

#[test]
fn every_line_of_an_rmm_log_is_its_event() {
    let log = format!(
        "{}\n1,1:00:00,allocate,0x10,1,0x7a\n1,1:00:01,allocate failure,(nil),99,0\n1,1:00:01,free,0x10,1,0\n\
         1,1:00:02,allocate,0X10,5,0x7a\n1,1:00:02,free,0x99,5,1\n1,1:00:03,allocate,(nil),0,2\n\
         1,1:00:03,free,0X10,0,2\n",
        rmm::HEADER
    );
    let trace = rmm::read(log.as_bytes(), &Limits::default()).unwrap();
    let align = Alignment::UNKNOWN;
    let (first, second, one, two) = (AllocationId(0), AllocationId(1), StreamId(0), StreamId(1));
    let expected = [
        (0, Op::Allocate { id: first, size: 1, stream: one, align }),
        (1_000_000, Op::OutOfMemory { size: 99, stream: two, rung: Rung::Failed }),
        (1_000_000, Op::FreeRequested { id: first, size: 1, stream: two }),
        (1_000_000, Op::FreeCompleted { id: first, size: 1, stream: two }),
        (2_000_000, Op::Allocate { id: second, size: 5, stream: one, align }),
    ];
    let events: Vec<_> = trace.events().iter().map(|event| (event.time_us, event.op)).collect();
    assert_eq!(events, expected);
    assert_eq!(trace.meta().skipped, 3);
    let wrong = format!("{}\n1,1,allocate,0x10,8,0\n1,1,free,0x10,9,0\n", rmm::HEADER);
    let error = rmm::read(wrong.as_bytes(), &Limits::default()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::SizeMismatch { given: 9, allocated: 8 }),
        "{error:?}"
    );
}

#[test]
fn what_was_given_back_counts_no_more() {
    let mut recorder = Writer::new(Vec::new());
    let all = u64::MAX;
    for _ in 0..2 {
        for record in [
            pages(all),
            Record::PagesReturn { bytes: all, heap: HEAP },
            memory(1, all),
            Record::BlockFree { block: 1 },
        ] {
            recorder.record(0, &record);
        }
    }
    // More than may be held at once, one after the other.
    for block in 0..70_000 {
        recorder.record(0, &memory(block, 1));
        recorder.record(0, &Record::BlockFree { block });
    }
    // Addresses are no memory.
    let backing = Backing::Pages;
    recorder.record(0, &Record::BlockAllocate { block: 1, size: all, heap: HEAP, backing });
    recorder.record(0, &memory(2, all));
    let trace = open(&recorder.finish().unwrap()).unwrap();
    assert_eq!(trace.events().len(), 8 + 140_000 + 2);
}

#[test]
fn midnight_is_a_step_back_of_more_than_half_a_day() {
    let second = |first: &str, then: &str| {
        let log =
            format!("{}\n1,{first},allocate,0x1,8,0\n1,{then},allocate,0x2,8,0\n", rmm::HEADER);
        rmm::read(log.as_bytes(), &Limits::default()).unwrap().events()[1].time_us / 1_000_000
    };
    assert_eq!(second("12:00:00", "0:00:00"), 0, "half a day: a line that came late");
    assert_eq!(second("10:00:00", "1:00:00"), 0);
    assert_eq!(second("12:00:01", "0:00:00"), 43_199);
}

#[test]
fn a_string_may_be_as_long_as_its_limit() {
    let mut recorder = Writer::new(Vec::new());
    recorder.label(LabelId::NONE, "12345678");
    let file = recorder.finish().unwrap();
    let read = |string| Trace::read(&file[..], &Limits { string, ..Limits::default() });
    assert!(read(8).is_ok());
    assert!(matches!(read(7).unwrap_err().kind(), ErrorKind::OverLimit { limit: 7, .. }));
}

#[test]
fn everything_in_a_dump_is_on_the_first_stream_and_a_virtual_block_in_the_first_heap() {
    let trace = open(include_bytes!("../data/vma-virtual.json")).unwrap();
    for event in trace.events() {
        match event.op {
            Op::Allocate { stream, align, .. } => {
                assert_eq!((stream, align), (StreamId(0), Alignment::UNKNOWN));
            }
            Op::BlockAllocate { heap, .. } => assert_eq!(heap, HEAP),
            _ => {}
        }
    }
    assert_eq!(open(b"op,id,size,stream,time_us\n").unwrap().summary().duration_us, 0);
}
