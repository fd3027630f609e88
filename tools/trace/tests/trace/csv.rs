//! The CSV format: what is accepted, what is refused and with which line.

use flate2::Compression;
use flate2::write::GzEncoder;
use omniheap_trace::{ErrorKind, Field, Limits, Op, Position, StreamId, Trace, csv};
use proptest::prelude::*;
use std::io::Write;

const HEAD: &str = "op,id,size,stream,time_us\n";

fn parse(body: &str) -> Result<Trace, omniheap_trace::Error> {
    Trace::read(format!("{HEAD}{body}").as_bytes(), &Limits::default())
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Asserts that `body` is refused at `line` (the header is line 1) with a kind that matches.
macro_rules! refused {
    ($body:expr, $line:expr, $kind:pat) => {
        let error = parse($body).expect_err("this must be refused");
        assert_eq!(error.position(), Position::Line($line), "{error}");
        assert!(matches!(error.kind(), $kind), "{error:?}");
    };
}

#[test]
fn a_small_trace_is_read_whole() {
    let trace =
        parse("a,7,100,0,0\na,900000,5,2,1\nr,7,,0,1\nf,7,100,0,4\nr,900000,5,2,9\n").unwrap();
    assert_eq!(trace.allocations(), 2);
    assert_eq!(trace.events().len(), 5);
    assert_eq!(trace.events()[4].time_us, 9);
    let Op::FreeRequested { id, size, stream } = trace.events()[4].op else {
        panic!("the last line is r")
    };
    assert_eq!((id.0, size, stream), (1, 5, StreamId(2)));
    let summary = trace.summary();
    assert_eq!(
        (summary.peak_live_bytes, summary.peak_held_bytes, summary.final_live_bytes),
        (105, 105, 5)
    );
    assert_eq!((summary.streams, summary.peak_live, summary.duration_us), (3, 2, 9));
}

#[test]
fn a_stream_that_only_frees_is_counted() {
    assert_eq!(parse("a,0,8,0,0\nr,0,,4,0\nf,0,,0,0\n").unwrap().summary().streams, 5);
    assert_eq!(parse("a,0,8,0,0\nf,0,,2,0\n").unwrap().summary().streams, 3);
}

#[test]
fn a_free_without_a_request_is_both() {
    let summary = parse("a,0,8,0,0\nf,0,,0,0\na,1,4,0,0\n").unwrap().summary();
    assert_eq!((summary.peak_live_bytes, summary.peak_held_bytes), (8, 8));
}

#[test]
fn an_id_may_live_again_after_its_free() {
    let trace = parse("a,3,8,0,0\nf,3,,0,0\na,3,4,0,0\nf,3,4,0,0\n").unwrap();
    assert_eq!(trace.allocations(), 2);
}

#[test]
fn carriage_returns_are_accepted() {
    let text = "op,id,size,stream,time_us\r\na,0,8,0,0\r\nf,0,,0,0\r\n";
    assert_eq!(Trace::read(text.as_bytes(), &Limits::default()).unwrap().events().len(), 2);
}

#[test]
fn every_malformed_line_is_refused_with_its_number() {
    refused!("a,0,8,0,0\n\n", 3, ErrorKind::MissingField(Field::Op));
    refused!("a\n", 2, ErrorKind::MissingField(Field::Id));
    refused!("a,0\n", 2, ErrorKind::MissingField(Field::Size));
    refused!("a,0,8\n", 2, ErrorKind::MissingField(Field::Stream));
    refused!("a,0,8,0\n", 2, ErrorKind::MissingField(Field::Time));
    refused!("a,0,8,0,\n", 2, ErrorKind::MissingField(Field::Time));
    refused!("a,,8,0,0\n", 2, ErrorKind::MissingField(Field::Id));
    refused!("a,0,,0,0\n", 2, ErrorKind::MissingField(Field::Size));
    refused!("a,0,8,0,0,1\n", 2, ErrorKind::ExtraField);
    refused!("x,0,8,0,0\n", 2, ErrorKind::UnknownOp);
    refused!("alloc,0,8,0,0\n", 2, ErrorKind::UnknownOp);
    refused!("a,-1,8,0,0\n", 2, ErrorKind::NotANumber(Field::Id));
    refused!("a,0,8.5,0,0\n", 2, ErrorKind::NotANumber(Field::Size));
    refused!("a,0,8, 0,0\n", 2, ErrorKind::NotANumber(Field::Stream));
    refused!("a,0,8,0,1e3\n", 2, ErrorKind::NotANumber(Field::Time));
    refused!("a,0,8,0,0\0\n", 2, ErrorKind::NotANumber(Field::Time));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    refused!("a,18446744073709551616,8,0,0\n", 2, ErrorKind::TooLarge(Field::Id));
    refused!("a,0,99999999999999999999,0,0\n", 2, ErrorKind::TooLarge(Field::Size));
    refused!("a,0,8,65536,0\n", 2, ErrorKind::TooLarge(Field::Stream));
    refused!("a,0,18446744073709551615,0,0\na,1,1,0,0\n", 3, ErrorKind::LiveOverflow);
    assert!(
        parse("a,18446744073709551615,18446744073709551615,65535,18446744073709551615\n").is_ok()
    );
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    refused!("a,0,0,0,0\n", 2, ErrorKind::ZeroSize);
    refused!("a,5,8,0,0\na,5,8,0,0\n", 3, ErrorKind::DuplicateId(5));
    refused!("a,5,8,0,0\nr,5,,0,0\na,5,8,0,0\n", 4, ErrorKind::DuplicateId(5));
    refused!("r,9,,0,0\n", 2, ErrorKind::UnknownId(9));
    refused!("f,9,,0,0\n", 2, ErrorKind::UnknownId(9));
    refused!("a,1,8,0,0\nr,1,,0,0\nr,1,,0,0\n", 4, ErrorKind::DoubleFree(1));
    refused!("a,1,8,0,0\nf,1,,0,0\nf,1,,0,0\n", 4, ErrorKind::DoubleFree(1));
    refused!("a,1,8,0,0\nf,1,,0,0\nr,1,,0,0\n", 4, ErrorKind::DoubleFree(1));
    refused!("a,1,8,0,0\nr,1,9,0,0\n", 3, ErrorKind::SizeMismatch { given: 9, allocated: 8 });
    refused!("a,1,8,0,5\nf,1,,0,4\n", 3, ErrorKind::TimeGoesBack { before: 5, now: 4 });
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    refused!("a,0,8,0,0\nf,0,,0,12", 3, ErrorKind::Truncated);
    let empty = Trace::read(&b""[..], &Limits::default()).unwrap_err();
    assert!(matches!(empty.kind(), ErrorKind::Truncated));
    let whole = gzip(format!("{HEAD}{}", "a,0,8,0,0\nf,0,,0,0\n".repeat(5000)).as_bytes());
    for cut in [3, 12, 40, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let error = Trace::read(&whole[..cut], &Limits::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated), "cut at {cut}: {error:?}");
    }
    assert_eq!(Trace::read(&whole[..], &Limits::default()).unwrap().events().len(), 10_000);
}

#[test]
fn damaged_gzip_is_refused() {
    let mut whole = gzip(format!("{HEAD}{}", "a,0,8,0,0\nf,0,,0,0\n".repeat(5000)).as_bytes());
    let check = whole.len() - 6;
    whole[check] ^= 1;
    let error = Trace::read(&whole[..], &Limits::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Gzip), "{error:?}");
    whole[check] ^= 1;
    whole.extend_from_slice(b"trailing");
    let error = Trace::read(&whole[..], &Limits::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Gzip | ErrorKind::Truncated), "{error:?}");
}

#[test]
fn other_content_is_no_trace() {
    for text in ["op;id\n", "hello", "\n", "op,id,size,stream\na,0,8,0\n"] {
        let error = Trace::read(text.as_bytes(), &Limits::default()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnknownFormat | ErrorKind::Header(_)),
            "{text:?}: {error:?}"
        );
    }
}

#[test]
fn each_limit_is_kept() {
    let body = "a,0,8,0,0\na,1,8,0,0\na,2,8,0,0\n";
    let text = format!("{HEAD}{body}");
    let over = |limits: Limits| match Trace::read(text.as_bytes(), &limits).unwrap_err().kind() {
        ErrorKind::OverLimit { what, limit } => (*what, *limit),
        other => panic!("{other:?}"),
    };
    assert_eq!(over(Limits { events: 2, ..Limits::default() }), ("events", 2));
    assert_eq!(over(Limits { live: 2, ..Limits::default() }), ("live allocations", 2));
    assert_eq!(over(Limits { bytes: 50, ..Limits::default() }), ("bytes of input", 50));
    assert_eq!(over(Limits { line: 8, ..Limits::default() }), ("bytes in one line", 8));
}

#[test]
fn an_endless_line_and_a_bomb_stop_early() {
    let endless = Trace::read(HEAD.as_bytes().chain_zeros(), &Limits::default()).unwrap_err();
    assert!(
        matches!(endless.kind(), ErrorKind::OverLimit { what: "bytes in one line", .. }),
        "{endless:?}"
    );
    let bomb = gzip(format!("{HEAD}{}", "a,0,8,0,0\nf,0,,0,0\n".repeat(6_000_000)).as_bytes());
    let error = Trace::read(&bomb[..], &Limits::default()).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::OverLimit { what: "decompressed bytes per compressed byte", .. }
        ),
        "{error:?}"
    );
}

trait ChainZeros: std::io::Read + Sized {
    fn chain_zeros(self) -> std::io::Chain<Self, std::io::Repeat> {
        self.chain(std::io::repeat(b'0'))
    }
}
impl ChainZeros for &[u8] {}

#[test]
fn lines_may_cross_every_buffer_edge() {
    // Line lengths vary, so that over many buffers every split of a line happens.
    let mut body = String::from(HEAD);
    for id in 0..200_000_u64 {
        body.push_str(&format!("a,{id},{},0,{id}\n", 1 + id * id % 1_000_003));
    }
    let trace = Trace::read(body.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(trace.allocations(), 200_000);
    let mut text = Vec::new();
    assert_eq!(csv::write(&trace, &mut text).unwrap(), 0);
    assert!(text == body.as_bytes(), "what is written is what was read");
}

proptest! {
    #[test]
    fn no_input_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Trace::read(&bytes[..], &Limits::default());
    }

    #[test]
    fn no_body_makes_it_panic(body in "[arf0-9,\n-]{0,120}") {
        let _ = parse(&body);
    }

    #[test]
    fn what_is_written_is_read_back(ops in proptest::collection::vec((0_u8..3, 0_u64..20, 1_u64..5000, 0_u16..4), 0..200)) {
        let mut body = String::new();
        let mut state = [0_u8; 20];
        for (time, (op, id, size, stream)) in ops.into_iter().enumerate() {
            let life = &mut state[id as usize];
            match (op, *life) {
                (0, 0) => { *life = 1; body.push_str(&format!("a,{id},{size},{stream},{time}\n")); }
                (1, 1) => { *life = 2; body.push_str(&format!("r,{id},,{stream},{time}\n")); }
                (2, 1 | 2) => { *life = 0; body.push_str(&format!("f,{id},,{stream},{time}\n")); }
                _ => {}
            }
        }
        let trace = parse(&body).unwrap();
        let mut text = Vec::new();
        csv::write(&trace, &mut text).unwrap();
        prop_assert_eq!(Trace::read(&gzip(&text)[..], &Limits::default()).unwrap(), trace);
    }
}
