//! The binary format: every kind of record, every cut, every flipped byte.

use crate::sample;
use omniheap_trace::binary::{self, Record, Writer};
use omniheap_trace::report::bind_by_model;
use omniheap_trace::{Alignment, Ending, ErrorKind, Event, LabelId, Limits, Op, StreamId, Trace};
use proptest::prelude::*;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

fn open(bytes: &[u8]) -> Result<Trace, omniheap_trace::Error> {
    Trace::read(bytes, &Limits::default())
}

#[test]
fn every_kind_of_record_survives() {
    let trace = open(&sample::every_record()).unwrap();
    assert_eq!(trace.meta().title, "sample");
    assert_eq!(trace.meta().ending, Ending::Complete);
    assert_eq!(
        trace.labels().path(trace.label_of(omniheap_trace::AllocationId(0))),
        "model/weights"
    );
    assert_eq!(trace.summary().peak_reserved_bytes, 3 << 20);
    assert_eq!(trace.summary().oom, 1);
    let again = open(&binary::write(&trace, Vec::new()).unwrap()).unwrap();
    assert_eq!(again, trace);
}

#[test]
fn a_cut_gives_the_prefix_and_says_so() {
    let bytes = sample::churn(5000);
    let whole = open(&bytes).unwrap();
    let mut seen = 0;
    for cut in (16..bytes.len()).step_by(997) {
        let part = open(&bytes[..cut]).unwrap();
        assert_eq!(part.meta().ending, Ending::CutOff);
        assert_eq!(part.events(), &whole.events()[..part.events().len()]);
        seen = seen.max(part.events().len());
    }
    assert!(seen > 0, "whole chunks before the cut are read");
    assert!(matches!(open(&bytes[..12]).unwrap_err().kind(), ErrorKind::Truncated));
}

#[test]
fn a_changed_byte_is_always_noticed() {
    let bytes = sample::every_record();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            // A longer chunk than there are bytes looks like a cut; everything else is refused.
            if let Ok(trace) = open(&changed) {
                assert_eq!(trace.meta().ending, Ending::CutOff, "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn later_versions_are_refused_and_later_records_skipped() {
    let mut bytes = sample::every_record();
    bytes[8] = 2;
    assert!(matches!(open(&bytes).unwrap_err().kind(), ErrorKind::Version(2)));
}

#[test]
fn contradictions_are_refused_with_their_byte() {
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &Record::FreeCompleted { id: 3, stream: StreamId(0) });
    let error = open(&recorder.finish().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnknownId(3)), "{error:?}");
    assert_eq!(error.position(), omniheap_trace::Position::Byte(28));
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &sample::allocate(1, 100));
    recorder.record(
        0,
        &Record::BlockAllocate {
            block: 9,
            size: 99,
            heap: omniheap_trace::HeapId(0),
            backing: omniheap_trace::Backing::Memory,
        },
    );
    recorder.record(0, &Record::Bind { id: 1, block: 9, offset: 0 });
    let error = open(&recorder.finish().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutsideBlock { block_size: 99 }), "{error:?}");
}

#[test]
fn a_chunk_must_hold_as_many_records_as_it_says() {
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &sample::allocate(1, 100));
    recorder.record(1, &sample::allocate(2, 100));
    let file = recorder.finish().unwrap();
    // The payload of the only chunk: behind the heads of file and chunk, before the closing mark.
    let payload = &file[28..file.len() - 12];
    assert_eq!(open(&sample::chunk_of(payload, 2)).unwrap().events().len(), 2);
    for records in [0, 1, 3, u32::MAX - 1] {
        let error = open(&sample::chunk_of(payload, records)).expect_err("the count is wrong");
        assert!(matches!(error.kind(), ErrorKind::Malformed("chunk")), "{records}: {error:?}");
    }
}

/// A file that others can look at while it is written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_drop_during_a_panic_closes_the_file() {
    let file = Shared::default();
    let sink = file.clone();
    let panicked = std::thread::spawn(move || {
        let mut recorder = Writer::new(sink);
        recorder.record(5, &sample::allocate(1, 8));
        panic!("the program fails");
    })
    .join();
    assert!(panicked.is_err());
    let trace = open(&file.0.lock().unwrap()).unwrap();
    assert_eq!((trace.events().len(), trace.meta().ending), (1, Ending::Complete));
}

#[test]
fn a_killed_process_leaves_whole_chunks() {
    let file = Shared::default();
    let mut recorder = Writer::new(file.clone());
    for id in 0..100_000 {
        recorder.record(id, &sample::allocate(id, 8));
    }
    let left = file.0.lock().unwrap().clone();
    let trace = open(&left).unwrap();
    assert_eq!(trace.meta().ending, Ending::CutOff);
    assert!(trace.events().len() > 90_000, "at most one chunk is lost: {}", trace.events().len());
    recorder.flush();
    let left = file.0.lock().unwrap().clone();
    assert_eq!(open(&left).unwrap().events().len(), 100_000);
}

#[test]
fn a_failing_disk_is_reported_once_at_the_end() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("disk full"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut recorder = Writer::new(Full);
    for id in 0..10 {
        recorder.record(id, &sample::allocate(id, 8));
    }
    assert_eq!(recorder.lost(), 10);
    assert_eq!(recorder.finish().err().unwrap().to_string(), "disk full");
}

#[test]
fn labels_are_bounded_and_shared() {
    let mut recorder = Writer::new(Vec::new());
    let long = "ü".repeat(5000);
    let a = recorder.label(LabelId::NONE, &long);
    assert_eq!(recorder.label(LabelId::NONE, &long), a);
    let align = Alignment::new(256).unwrap();
    recorder.record(0, &Record::Allocate { id: 0, size: 1, stream: StreamId(1), align, label: a });
    let trace = open(&recorder.finish().unwrap()).unwrap();
    assert_eq!(trace.labels().text(a).len(), 4096);
    assert_eq!(trace.labels().len(), 1);
}

#[test]
fn a_label_below_one_that_is_not_there_is_none() {
    let mut recorder = Writer::new(Vec::new());
    assert_eq!(recorder.label(LabelId(1), "below"), LabelId::NONE);
    let first = recorder.label(LabelId::NONE, "first");
    assert_eq!(recorder.label(LabelId(2), "below"), LabelId::NONE);
    assert_eq!((first, recorder.label(first, "below")), (LabelId(1), LabelId(2)));
    let none = open(&Writer::new(Vec::new()).finish().unwrap()).unwrap();
    let two = open(&recorder.finish().unwrap()).unwrap();
    assert!(none.labels().is_empty() && !two.labels().is_empty());
}

proptest! {
    #[test]
    fn no_change_makes_it_panic(at in 0_usize..2000, value: u8, cut in 0_usize..2000) {
        let mut bytes = sample::every_record();
        let length = bytes.len();
        bytes[at % length] = value;
        bytes.truncate(length - cut % length);
        let _ = open(&bytes);
    }

    #[test]
    fn no_payload_makes_it_panic(payload in proptest::collection::vec(any::<u8>(), 0..300), records in 0_u32..20) {
        let _ = open(&sample::chunk_of(&payload, records));
    }
}

/// Takes 10 MiB for an allocation.
fn take(id: u64) -> Record {
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    Record::Allocate { id, size: 10 << 20, stream, align, label }
}

fn free(id: u64) -> Record {
    Record::FreeCompleted { id, stream: StreamId(0) }
}

fn trace(records: &[Record]) -> Trace {
    let mut writer = Writer::new(Vec::new());
    records.iter().for_each(|record| writer.record(1, record));
    open(&writer.finish().unwrap()).unwrap()
}

#[test]
fn the_last_mark_counts_and_is_written_again() {
    let marked = trace(&[take(0), Record::Step, free(0), Record::Step, take(1), take(2)]);
    assert_eq!(marked.meta().last_step, Some(2));
    let again = binary::write(&marked, Vec::new()).unwrap();
    assert_eq!(open(&again).unwrap(), marked);
    assert_eq!(trace(&[take(0)]).meta().last_step, None);
    let empty = trace(&[take(0), Record::Step]);
    let again = binary::write(&empty, Vec::new()).unwrap();
    assert_eq!(open(&again).unwrap(), empty);
}

#[test]
fn a_step_begins_at_the_same_request_once_places_are_known() {
    let marked = trace(&[take(0), free(0), Record::Step, take(1), free(1)]);
    let bound = bind_by_model(&marked, &Limits::default()).unwrap();
    let step = bound.meta().last_step.unwrap() as usize;
    let frees = |events: &[Event]| {
        events.iter().filter(|event| matches!(event.op, Op::FreeCompleted { .. })).count()
    };
    assert_eq!((frees(&bound.events()[..step]), frees(&bound.events()[step..])), (1, 1));
}
