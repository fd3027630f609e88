//! Exports for other tools.

use crate::sample;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::export::{chrome, snapshot};
use omniheap_trace::{
    Alignment, Backing, HeapId, LabelId, Limits, Op, Source, StreamId, Trace, report,
};
use serde_json::Value;

fn open(bytes: &[u8]) -> Trace {
    Trace::read(bytes, &Limits::default()).unwrap()
}

fn events(trace: &Trace, detail: chrome::Detail) -> Vec<Value> {
    let mut text = Vec::new();
    chrome::write(trace, detail, &mut text).unwrap();
    let json: Value = serde_json::from_slice(&text).unwrap();
    json["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn chrome_gets_counters_and_bars() {
    let trace = open(&sample::every_record());
    let with = |phase: &str, all: &[Value]| {
        all.iter().filter(|event| event["ph"] == phase).cloned().collect::<Vec<_>>()
    };
    let counters = events(&trace, chrome::Detail::Counters);
    assert_eq!(with("b", &counters).len(), 0);
    let live: Vec<u64> = with("C", &counters)
        .iter()
        .filter(|event| event["name"] == "live bytes")
        .map(|event| event["args"]["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(live.iter().max(), Some(&(4096 + (1 << 20))));
    assert_eq!(live.last(), Some(&4096));
    let all = events(&trace, chrome::Detail::Allocations);
    assert_eq!((with("b", &all).len(), with("e", &all).len(), with("i", &all).len()), (2, 1, 2));
    assert_eq!(with("b", &all)[0]["name"], "model/weights");
    assert_eq!(
        with("e", &all)[0]["name"],
        with("b", &all)[1]["name"],
        "both ends of a bar have one name"
    );
}

#[test]
fn chrome_gets_one_sample_of_each_time_with_an_event() {
    let mut recorder = Writer::new(Vec::new());
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    for (id, time) in [3, 3, 3, 5, 8, 8].into_iter().enumerate() {
        let id = id as u64;
        recorder.record(time, &Record::Allocate { id, size: 10, stream, align, label });
    }
    let trace = open(&recorder.finish().unwrap());
    let all = events(&trace, chrome::Detail::Counters);
    let samples = all.iter().filter(|event| event["name"] == "live bytes");
    let samples: Vec<_> = samples
        .map(|one| (one["ts"].as_u64().unwrap(), one["args"]["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(samples, [(3, 30), (5, 40), (8, 60)]);
    assert!(all.iter().all(|event| event["name"] != "reserved bytes"), "nothing was recorded");
}

/// Returns a file of allocations whose labels are a chain: each lies below the one before.
fn chain(labels: u64) -> Vec<u8> {
    let mut recorder = Writer::new(Vec::new());
    let (stream, align, mut label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    for id in 0..labels {
        label = recorder.label(label, &format!("l{id}"));
        recorder.record(id, &Record::Allocate { id, size: 1, stream, align, label });
        recorder.record(id, &Record::FreeCompleted { id, stream });
    }
    recorder.finish().unwrap()
}

#[test]
fn deep_labels_do_not_multiply_what_is_written() {
    let sizes = |labels| {
        let trace = open(&chain(labels));
        let (mut bars, mut pickle) = (Vec::new(), Vec::new());
        chrome::write(&trace, chrome::Detail::Allocations, &mut bars).unwrap();
        snapshot::write(&trace, &mut pickle).unwrap();
        [bars.len(), pickle.len()]
    };
    let (some, twice) = (sizes(2000), sizes(4000));
    for (some, twice) in some.into_iter().zip(twice) {
        assert!(twice * 10 < some * 23, "twice the labels, {some} and {twice} bytes");
    }
    let all = events(&open(&chain(300)), chrome::Detail::Allocations);
    let names: Vec<_> = all.iter().filter(|event| event["ph"] == "b").collect();
    let name = |at: usize| names[at]["name"].as_str().unwrap();
    assert_eq!((name(0), name(2)), ("l0", "l0/l1/l2"));
    assert!(name(299).starts_with('…') && name(299).ends_with("/l298/l299"), "{}", name(299));
    assert_eq!(name(299).len(), "…".len() + 256);
}

#[test]
fn a_snapshot_is_read_back_as_the_same_story() {
    let trace = open(&sample::every_record());
    let mut file = Vec::new();
    snapshot::write(&trace, &mut file).unwrap();
    let back = open(&file);
    assert_eq!(back.meta().source, Source::PyTorch);
    let (was, is) = (trace.summary(), back.summary());
    assert_eq!(is.peak_live_bytes, was.peak_live_bytes);
    assert_eq!(is.peak_reserved_bytes, was.peak_reserved_bytes);
    assert_eq!(is.final_live_bytes, was.final_live_bytes);
    assert_eq!(is.oom, was.oom);
    assert_eq!(is.allocations, was.allocations + 1, "the move is a free and an allocation");
    assert_eq!(back.labels().path(back.label_of(omniheap_trace::AllocationId(0))), "model/weights");
}

#[test]
fn a_snapshot_is_a_pickle_of_protocol_four_and_a_full_segment_has_no_rest() {
    let piece = |size| {
        let mut recorder = Writer::new(Vec::new());
        let (heap, backing) = (HeapId(0), Backing::Memory);
        recorder.record(0, &Record::BlockAllocate { block: 1, size: 1 << 20, heap, backing });
        recorder.record(1, &sample::allocate(0, size));
        recorder.record(1, &Record::Bind { id: 0, block: 1, offset: 0 });
        let mut file = Vec::new();
        snapshot::write(&open(&recorder.finish().unwrap()), &mut file).unwrap();
        assert_eq!(file[..2], [0x80, 4]);
        file.windows(8).any(|word| word == b"inactive")
    };
    assert!(piece((1 << 20) - 512) && !piece(1 << 20));
}

/// Returns what is mapped after each event of a snapshot that maps or unmaps.
fn mapped(trace: &Trace) -> Vec<u64> {
    let mut file = Vec::new();
    snapshot::write(trace, &mut file).unwrap();
    let back = open(&file);
    let mut held = 0;
    let changes = back.events().iter().filter_map(|event| match event.op {
        Op::BlockAllocate { size, .. } => Some((size, 0)),
        Op::BlockFree { size, .. } => Some((0, size)),
        _ => None,
    });
    changes
        .map(|(more, less)| {
            held = held + more - less;
            held
        })
        .collect()
}

#[test]
fn of_a_block_of_pages_a_snapshot_shows_what_has_memory() {
    const MIB: u64 = 1 << 20;
    let mut recorder = Writer::new(Vec::new());
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    let (heap, backing) = (HeapId(0), Backing::Pages);
    let mut time = 0;
    let mut write = |record: Record| {
        time += 1;
        recorder.record(time, &record);
    };
    write(Record::BlockAllocate { block: 1, size: 1 << 40, heap, backing });
    write(Record::PagesTake { bytes: 8 * MIB, heap });
    for (id, offset) in [(1, 0), (2, MIB), (3, 6 * MIB), (4, 4 * MIB)] {
        write(Record::Allocate { id, size: MIB, stream, align, label });
        write(Record::Bind { id, block: 1, offset });
    }
    write(Record::FreeCompleted { id: 4, stream });
    write(Record::PagesReturn { bytes: 2 * MIB, heap });
    for id in [1, 2, 3] {
        write(Record::FreeCompleted { id, stream });
    }
    write(Record::PagesReturn { bytes: 6 * MIB, heap });
    write(Record::BlockFree { block: 1 });
    let seen: Vec<_> =
        mapped(&open(&recorder.finish().unwrap())).iter().map(|held| held / MIB).collect();
    assert_eq!(seen[..3], [2, 4, 6]);
    assert_eq!((seen[3], seen.last()), (4, Some(&0)), "{seen:?}");
}

#[test]
fn pages_that_a_heap_gives_back_are_its_own() {
    const MIB: u64 = 1 << 20;
    let mut recorder = Writer::new(Vec::new());
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    let mut write = |record: Record| recorder.record(0, &record);
    for heap in [0, 1] {
        let (id, block, heap) = (heap.into(), heap.into(), HeapId(heap));
        write(Record::BlockAllocate { block, size: 1 << 40, heap, backing: Backing::Pages });
        write(Record::PagesTake { bytes: 2 * MIB, heap });
        write(Record::Allocate { id, size: MIB, stream, align, label });
        write(Record::Bind { id, block, offset: 0 });
        write(Record::FreeCompleted { id, stream });
    }
    write(Record::PagesReturn { bytes: 2 * MIB, heap: HeapId(0) });
    write(Record::Allocate { id: 2, size: MIB, stream, align, label });
    write(Record::Bind { id: 2, block: 1, offset: 0 });
    let seen = mapped(&open(&recorder.finish().unwrap()));
    assert_eq!(seen, [2 * MIB, 4 * MIB, 2 * MIB], "the other heap has its page");
}

#[test]
fn a_long_snapshot_survives_too() {
    let trace = report::bind_by_model(&open(&sample::churn(20_000)), &Limits::default()).unwrap();
    let mut file = Vec::new();
    snapshot::write(&trace, &mut file).unwrap();
    let back = open(&file);
    assert_eq!(back.summary().peak_live_bytes, trace.summary().peak_live_bytes);
    assert_eq!(back.summary().peak_reserved_bytes, trace.summary().peak_reserved_bytes);
    assert_eq!(back.allocations(), trace.allocations());
}

#[test]
fn a_trace_without_places_still_makes_a_snapshot() {
    let trace = open(&sample::churn(500));
    let mut file = Vec::new();
    snapshot::write(&trace, &mut file).unwrap();
    assert_eq!(open(&file).summary().peak_held_bytes, trace.summary().peak_held_bytes);
}
