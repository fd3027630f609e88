//! Readers take at most four bytes for each byte of input, whatever the input is.
#![expect(clippy::unwrap_used, reason = "a test that is wrong stops where it is wrong")]

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package counts with the same functions")]
mod meter;

use core::fmt::Write;
use flate2::Compression;
use flate2::write::GzEncoder;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::{Alignment, Backing, HeapId, LabelId, Limits, StreamId, Trace};
use std::io::Write as _;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Reads `input` and asserts that it took at most four times its size, whether or not it was accepted.
fn within_four_times(name: &str, input: &[u8]) {
    println!("{name}");
    let _ = meter::within(4, input, || Trace::read(input, &Limits::default()));
}

fn csv(line: impl Fn(u64, &mut String)) -> Vec<u8> {
    let mut text = String::from("op,id,size,stream,time_us\n");
    (0..200_000).for_each(|number| line(number, &mut text));
    text.into_bytes()
}

fn text_formats() {
    within_four_times(
        "one id again and again",
        &csv(|_, text| text.push_str("a,0,1,0,0\nf,0,,0,0\n")),
    );
    within_four_times("dense ids", &csv(|id, text| writeln!(text, "a,{id},1,0,0").unwrap()));
    within_four_times(
        "sparse ids",
        &csv(|id, text| writeln!(text, "a,{},1,0,0", 900_000 + id * 3).unwrap()),
    );
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    (0..200_000).for_each(|id| {
        writeln!(log, "1,0:0:0,allocate,0x{:x},1,{}", id * 16, id % 60_000).unwrap();
    });
    within_four_times("RMM", log.as_bytes());
    let span = "{\"Offset\":0,\"Size\":1,\"Type\":\"A\"},".repeat(100_000);
    let vma = format!(
        "{{\"DefaultPools\":{{\"T\":{{\"DedicatedAllocations\":[{}]}}}}}}",
        span.trim_end_matches(',')
    );
    within_four_times("VMA, dedicated", vma.as_bytes());
    let mut spans = String::new();
    (0..100_000)
        .for_each(|at| write!(spans, "{{\"Offset\":{at},\"Size\":1,\"Type\":\"A\"}},").unwrap());
    let spans = spans.trim_end_matches(',');
    let block = format!("{{\"0\":{{\"TotalBytes\":999999,\"Suballocations\":[{spans}]}}}}");
    let vma = format!("{{\"DefaultPools\":{{\"T\":{{\"Blocks\":{block}}}}}}}");
    within_four_times("VMA, one block", vma.as_bytes());
}

/// Checks that compressed input counts at its full length.
fn compressed() {
    let texts = [
        csv(|_, text| text.push_str("a,0,1,0,0\nf,0,,0,0\n")),
        csv(|id, text| writeln!(text, "a,{id},1,0,0").unwrap()),
        csv(|_, text| text.push('\n')),
    ];
    for text in texts {
        let mut file = GzEncoder::new(Vec::new(), Compression::best());
        file.write_all(&text).unwrap();
        let file = file.finish().unwrap();
        println!("{} bytes that are {} compressed", text.len(), file.len());
        let _ = meter::within(4, &text, || Trace::read(&file[..], &Limits::default()));
    }
}

fn binary_format() {
    let (stream, align) = (StreamId(0), Alignment::UNKNOWN);
    let mut recorder = Writer::new(Vec::new());
    for _ in 0..100_000 {
        recorder
            .record(0, &Record::Allocate { id: 0, size: 1, stream, align, label: LabelId::NONE });
        recorder.record(0, &Record::FreeRequested { id: 0, stream });
        recorder.record(0, &Record::FreeCompleted { id: 0, stream });
    }
    within_four_times("binary", &recorder.finish().unwrap());
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &Record::Allocate { id: 0, size: 1, stream, align, label: LabelId::NONE });
    for _ in 0..400_000 {
        recorder.record(0, &Record::Use { id: 0, stream });
        recorder.record(0, &Record::PagesTake { bytes: 1, heap: HeapId(0) });
    }
    within_four_times("uses and pages", &recorder.finish().unwrap());
    for ends in [false, true] {
        let mut recorder = Writer::new(Vec::new());
        let (size, heap, backing) = (u64::MAX >> 1, HeapId(0), Backing::Memory);
        recorder.record(0, &Record::BlockAllocate { block: 0, size, heap, backing });
        for id in 0..100_000 {
            let (id, size, label) = (if ends { 0 } else { id }, 1, LabelId::NONE);
            let (block, offset) = (0, 0);
            recorder
                .record(0, &Record::AllocateAt { id, size, stream, align, label, block, offset });
            if ends {
                recorder.record(0, &Record::FreeCompleted { id, stream });
            }
        }
        within_four_times("allocated at a place", &recorder.finish().unwrap());
    }
    let mut recorder = Writer::new(Vec::new());
    for number in 0..100_000 {
        recorder.label(LabelId::NONE, &format!("{number:x}"));
    }
    within_four_times("labels", &recorder.finish().unwrap());
}

fn pickles() {
    for (name, opcodes) in
        [("dictionaries", &b"}\x94"[..]), ("lists", b"]"), ("numbers", b"K\x01"), ("nothing", b"N")]
    {
        within_four_times(name, &[b"\x80\x04", &opcodes.repeat(1 << 20)[..], b"."].concat());
    }
    let mut event = b"}(".to_vec();
    for (memo, value) in [(2, &b"h\x03"[..]), (4, b"J\0\0\0\x01"), (5, b"K\x01"), (6, b"K\0")] {
        event.extend_from_slice(&[b'h', memo]);
        event.extend_from_slice(value);
    }
    event.push(b'u');
    let words = ["segments", "device_traces", "action", "oom", "addr", "size", "stream"];
    let mut file = b"\x80\x04".to_vec();
    for word in words {
        file.extend_from_slice(&[0x8c, u8::try_from(word.len()).unwrap()]);
        file.extend_from_slice(word.as_bytes());
        file.extend_from_slice(b"\x940");
    }
    file.extend_from_slice(b"}(h\x00]h\x01](](");
    file.extend_from_slice(&event.repeat(100_000));
    file.extend_from_slice(b"eeu.");
    within_four_times("short events", &file);
}

/// Reads the files that fuzzers start from: they count with the same limit.
fn corpora() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    for target in ["trace_binary", "trace_csv", "trace_pickle", "trace_rmm", "trace_vma"] {
        for entry in std::fs::read_dir(folder.join(target)).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            if bytes.starts_with(&[0x1f, 0x8b]) {
                continue; // What is compressed has limits of its own.
            }
            within_four_times(&path.display().to_string(), &bytes);
            // Lengths that lie.
            (0..bytes.len()).step_by(7).for_each(|at| bytes[at] = 0xff);
            within_four_times(&path.display().to_string(), &bytes);
        }
    }
}

/// One test, so that nothing else allocates while it counts.
#[test]
fn no_reader_takes_more_than_four_times_its_input() {
    text_formats();
    compressed();
    binary_format();
    pickles();
    corpora();
}
