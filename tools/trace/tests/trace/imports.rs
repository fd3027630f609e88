//! Files of other programs: what is understood, what is refused, and that nothing makes a reader panic.

use omniheap_trace::{
    AllocationId, Error, ErrorKind, Limits, Op, Position, Source, Trace, pytorch, rmm, vma,
};
use proptest::prelude::*;

const SNAPSHOTS: [&[u8]; 4] = [
    include_bytes!("../data/snapshot-2.pickle"),
    include_bytes!("../data/snapshot-3.pickle"),
    include_bytes!("../data/snapshot-4.pickle"),
    include_bytes!("../data/snapshot-5.pickle"),
];
const EXPANDABLE: &[u8] = include_bytes!("../data/expandable.pickle");
const HOLES: &[u8] = include_bytes!("../data/holes.pickle");
const RMM: &[u8] = include_bytes!("../data/rmm.csv");
const VMA: &[u8] = include_bytes!("../data/vma.json");

fn open(bytes: &[u8]) -> Result<Trace, Error> {
    Trace::read(bytes, &Limits::default())
}

#[test]
fn a_snapshot_of_every_protocol_gives_the_same_trace() {
    let first = open(SNAPSHOTS[0]).unwrap();
    assert_eq!(first.meta().source, Source::PyTorch);
    for snapshot in &SNAPSHOTS[1..] {
        assert_eq!(open(snapshot).unwrap(), first);
    }
}

#[test]
fn a_snapshot_starts_with_what_was_there_before_its_history() {
    let trace = open(SNAPSHOTS[2]).unwrap();
    let summary = trace.summary();
    // Before: 2 MiB held with 4096 and 512 bytes live. Then 20 MiB more, 5,000,000 bytes, a free and 1000 bytes.
    assert_eq!(summary.peak_reserved_bytes, 22 << 20);
    assert_eq!(summary.peak_live_bytes, 4096 + 512 + 5_000_000);
    assert_eq!(summary.final_live_bytes, 1000 + 512 + 5_000_000);
    assert_eq!((summary.streams, summary.oom, summary.allocations), (2, 1, 4));
    assert_eq!(summary.duration_us, 6, "times count from the first event");
    let bound = trace.events().iter().filter(|event| matches!(event.op, Op::Bind { .. })).count();
    assert_eq!(bound, 4, "every allocation lies in a known segment");
    assert_eq!(trace.meta().skipped, 1, "the event `snapshot` says nothing about memory");
}

#[test]
fn frames_become_a_path_of_labels() {
    let trace = open(SNAPSHOTS[3]).unwrap();
    let paths: Vec<_> =
        (0..4).map(|id| trace.labels().path(trace.label_of(AllocationId(id)))).collect();
    assert!(
        paths.contains(&"main model.py:30/forward model.py:20/linear model.py:10".to_owned()),
        "{paths:?}"
    );
    assert!(
        paths.contains(&"main model.py:30/backward model.py:20/linear model.py:10".to_owned()),
        "{paths:?}"
    );
    assert_eq!(trace.labels().len(), 5, "the stacks share `main`");
}

#[test]
fn expandable_segments_grow_and_shrink_by_pieces() {
    let trace = open(EXPANDABLE).unwrap();
    let summary = trace.summary();
    assert_eq!((summary.peak_reserved_bytes, summary.driver_calls), (8 << 20, 3));
    let bound = trace.events().iter().filter(|event| matches!(event.op, Op::Bind { .. })).count();
    assert_eq!(bound, 1, "the second allocation spans two pieces");
}

#[test]
fn a_history_with_holes_is_read_and_counted() {
    let trace = open(HOLES).unwrap();
    let summary = trace.summary();
    // The last free says that something lay there before: it is live at the start, and gone when 1024 bytes come.
    assert_eq!((summary.peak_live_bytes, summary.final_live_bytes, summary.oom), (2048, 0, 0));
    assert!(trace.meta().skipped >= 3, "{:?}", trace.meta());
}

#[test]
fn a_device_can_be_chosen() {
    let read = |device| pytorch::read(SNAPSHOTS[0], device, &Limits::default()).unwrap();
    assert_eq!(read(pytorch::Device::Index(0)), read(pytorch::Device::Busiest));
    let other = read(pytorch::Device::Index(1));
    assert_eq!((other.events().len(), other.meta().skipped), (0, 7));
}

#[test]
fn code_in_a_pickle_is_refused() {
    // Output of `pickle.dumps` for an object whose `__reduce__` calls `os.system("true")`, protocols 2 and 4.
    let two = b"\x80\x02cposix\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.";
    let four = b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.";
    for bytes in [&two[..], &four[..]] {
        let error = open(bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Forbidden), "{error:?}");
    }
    assert_eq!(open(two).unwrap_err().position(), Position::Byte(2));
}

#[test]
fn every_cut_of_a_snapshot_is_refused() {
    for cut in 2..SNAPSHOTS[2].len() {
        let error = open(&SNAPSHOTS[2][..cut]).expect_err("a cut pickle is no snapshot");
        assert!(matches!(error.kind(), ErrorKind::Truncated), "cut at {cut}: {error:?}");
    }
}

#[test]
fn dense_and_deep_pickles_are_refused_within_their_budget() {
    let dense = [&b"\x80\x04"[..], &b"}\x94".repeat(1 << 20), b"."].concat();
    let deep = [&b"\x80\x04"[..], &b"(".repeat(1 << 20), b"."].concat();
    let shared = [&b"\x80\x04]\x94("[..], &b"h\x00".repeat(1 << 20), b"e."].concat();
    for bytes in [dense, deep, shared] {
        let error = open(&bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OverLimit { .. }), "{error:?}");
    }
}

#[test]
fn one_event_listed_often_is_refused() {
    // {"segments": [], "device_traces": [[e, e]]} with one and the same dictionary e.
    let bytes = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}\x94(\x8c\x06action\x8c\x08snapshotuh\x00eeu.";
    let error = open(bytes).unwrap_err();
    assert!(error.to_string().contains("listed twice"), "{error}");
}

#[test]
fn negative_numbers_are_read_as_such() {
    // {"segments": [], "device_traces": [[{"action": "oom", "size": …, "stream": …}]]}
    let with = |size: &[u8], stream: &[u8]| {
        let start = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x03oom\x8c\x04size";
        open(&[&start[..], size, b"\x8c\x06stream", stream, b"ueeu."].concat())
    };
    with(b"K\x01", b"J\xff\xff\xff\xff").unwrap();
    for negative in
        [&b"J\xff\xff\xff\xff"[..], b"\x8a\x01\xff", b"\x8a\x02\x00\x80", b"\x8b\x01\0\0\0\x80"]
    {
        let error = with(negative, b"K\x00").expect_err("no size is negative");
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error:?}");
    }
}

#[test]
fn a_pickle_of_something_else_is_no_snapshot() {
    for bytes in [
        &b"\x80\x04N."[..],
        b"\x80\x04]\x94.",
        b"\x80\x04}\x94.",
        b"\x80\x02}X\x08\x00\x00\x00segmentsNs.",
    ] {
        let error = open(bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error:?}");
    }
}

#[test]
fn an_rmm_log_is_read() {
    let trace = open(RMM).unwrap();
    assert_eq!(trace.meta().source, Source::Rmm);
    let summary = trace.summary();
    assert_eq!((summary.allocations, summary.oom, summary.streams), (3, 1, 2));
    assert_eq!(summary.peak_live_bytes, 1_048_576 + 4096);
    assert_eq!(summary.final_live_bytes, 4096 + 2048);
    assert_eq!(summary.duration_us, 400_000, "midnight lies in between");
    assert_eq!(trace.meta().skipped, 2, "an empty request, and a free of what came before the log");
}

#[test]
fn an_rmm_log_may_last_for_days() {
    let times = |lines: &[&str]| {
        let log = lines.iter().enumerate().map(|(n, time)| format!("1,{time},allocate,{n:#x},8,0"));
        let log =
            [rmm::HEADER.to_owned()].into_iter().chain(log).collect::<Vec<_>>().join("\n") + "\n";
        let trace = rmm::read(log.as_bytes(), &Limits::default()).unwrap();
        trace.events().iter().map(|event| event.time_us / 1_000_000).collect::<Vec<_>>()
    };
    let (hour, day) = (3600, 86_400);
    let days = times(&[
        "20:00:00", "01:00:00", "12:00:00", "23:00:00", "02:00:00", "22:00:00", "03:00:00",
    ]);
    let expected = [
        0,
        5 * hour,
        16 * hour,
        day + 3 * hour,
        day + 6 * hour,
        2 * day + 2 * hour,
        2 * day + 7 * hour,
    ];
    assert_eq!(days, expected);
    // A thread may log a time before midnight after another's from behind it: that is no day more.
    assert_eq!(times(&["23:59:58", "00:00:01", "23:59:59", "00:00:02"]), [0, 3, 3, 4]);
}

#[test]
fn broken_rmm_lines_are_refused_with_their_number() {
    let with =
        |line: &str| rmm::read(format!("{}\n{line}\n", rmm::HEADER).as_bytes(), &Limits::default());
    for line in [
        "1,00:00:00.1,allocate,0x10,8",
        "1,00:00:00.1,allocate,0x10,8,0,9",
        "1,00:00:00.1,allocated,0x10,8,0",
        "1,00:00:00.1,allocate,10,8,0",
        "1,00:00:00.1,allocate,0x,8,0",
        "1,00:00:00.1,allocate,0x+1,8,0",
        "1,00:00:00.1,allocate,0x10,-8,0",
        "1,00:00:00.1,allocate,0x10,8,",
        "1,noon,allocate,0x10,8,0",
        "1,1:2:3:4:5,allocate,0x10,8,0",
        "1,99999999999999999:00:00.1,allocate,0x10,8,0",
        "",
    ] {
        assert_eq!(with(line).expect_err(line).position(), Position::Line(2), "{line}");
    }
    let twice = with("1,1:00:00.1,allocate,0x10,8,0\n1,1:00:00.1,allocate,0x10,8,0").unwrap_err();
    assert!(matches!(twice.kind(), ErrorKind::DuplicateId(16)));
    for time in ["5", "5.25", "1:2:3", "1:2:3.5", "1:2:3:500000"] {
        with(&format!("1,{time},allocate,0x10,8,0")).unwrap();
    }
}

#[test]
fn a_vma_dump_is_read() {
    let trace = open(VMA).unwrap();
    assert_eq!(trace.meta().source, Source::Vma);
    let summary = trace.summary();
    assert_eq!((summary.allocations, summary.driver_calls), (4, 3));
    assert_eq!(summary.peak_live_bytes, 1_048_576 + 3 * 4096);
    assert_eq!(summary.peak_reserved_bytes, 33_554_432 + 4096 + 65_536);
    let paths: Vec<_> =
        (0..4).map(|id| trace.labels().path(trace.label_of(AllocationId(id)))).collect();
    assert_eq!(paths[0], "Type 0/buffer/vertices");
    assert_eq!(paths[2], "Type 0/optimal image/depth \"buffer\"");
    assert_eq!(paths[3], "Type 1/staging/buffer");
    let heaps: Vec<_> = trace
        .events()
        .iter()
        .filter_map(|event| match event.op {
            Op::BlockAllocate { heap, .. } => Some(heap.0),
            _ => None,
        })
        .collect();
    assert_eq!(heaps, [0, 0, 1]);
}

/// Dumps that VMA 3 itself wrote: an allocator on lavapipe, and a virtual block.
#[test]
fn dumps_of_the_real_program_add_up() {
    let real: &[u8] = include_bytes!("../data/vma-lavapipe.json");
    let json: serde_json::Value = serde_json::from_slice(real).unwrap();
    let summary = open(real).unwrap().summary();
    let total = |name: &str| json["Total"][name].as_u64().unwrap();
    assert_eq!(summary.peak_live_bytes, total("AllocationBytes"));
    assert_eq!(summary.allocations, total("AllocationCount"));
    assert_eq!(summary.peak_reserved_bytes, total("BlockBytes"));
    assert_eq!(summary.driver_calls, total("BlockCount"));
    let summary = open(include_bytes!("../data/vma-virtual.json")).unwrap().summary();
    assert_eq!(
        (summary.allocations, summary.peak_live_bytes, summary.peak_reserved_bytes),
        (5, 18_000, 1 << 20)
    );
}

#[test]
fn broken_vma_dumps_are_refused() {
    let text = core::str::from_utf8(VMA).unwrap();
    let changed = |from: &str, to: &str| open(text.replace(from, to).as_bytes()).unwrap_err();
    assert!(matches!(
        changed("\"Offset\": 1052672", "\"Offset\": 5").kind(),
        ErrorKind::Malformed(_)
    ));
    assert!(matches!(changed("32497664", "18446744073709551615").kind(), ErrorKind::TooLarge(_)));
    assert!(matches!(
        changed("\"TotalBytes\": 65536", "\"TotalBytes\": 6").kind(),
        ErrorKind::OutsideBlock { .. }
    ));
    assert!(changed("DefaultPools", "Pools").to_string().contains("detailedMap"));
    assert!(matches!(changed("\"Size\": 4096,", "\"Size\": -1,").kind(), ErrorKind::Malformed(_)));
    let small = Limits { bytes: 100, ..Limits::default() };
    assert!(matches!(vma::read(VMA, &small).unwrap_err().kind(), ErrorKind::OverLimit { .. }));
    for cut in 1..VMA.trim_ascii_end().len() {
        let error = vma::read(&VMA[..cut], &Limits::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated), "cut at {cut}: {error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_change_makes_a_reader_panic(which in 0_usize..8, at: usize, value: u8, cut: usize) {
        let files = [SNAPSHOTS[0], SNAPSHOTS[1], SNAPSHOTS[2], SNAPSHOTS[3], EXPANDABLE, HOLES, RMM, VMA];
        let mut bytes = files[which].to_vec();
        let length = bytes.len();
        bytes[at % length] = value;
        if cut % 4 == 0 {
            bytes.truncate(cut / 4 % length);
        }
        let _ = open(&bytes);
    }

    #[test]
    fn no_pickle_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = open(&[b"\x80\x04", &body[..]].concat());
    }
}
