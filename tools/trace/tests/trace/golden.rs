//! Tests of the texts that are read from fixed files and written of a fixed recording, to the letter.
//!
//! `data/golden/NAME.txt` holds each text. Where one is not as it was, the new one is written to the folder of temporary files, and the
//! message says where: whoever changes a format compares the two, and puts the new one in place.

use crate::kept::{is_kept, told};
use crate::report::{column, numbers};
use crate::sample::allocate;
use core::fmt::Write as _;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::export::{chrome, snapshot};
use omniheap_trace::ranks::{self, Digest, Job};
use omniheap_trace::report::{self, Columns, Comparison, ReportData};
use omniheap_trace::{
    Alignment, Backing, HeapId, LabelId, Limits, Region, Residence, Rung, StreamId, Trace, csv,
};
use std::path::Path;

fn open(bytes: &[u8]) -> Trace {
    Trace::read(bytes, &Limits::default()).unwrap()
}

#[test]
fn files_of_other_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in [
        "snapshot-4.pickle",
        "expandable.pickle",
        "holes.pickle",
        "rmm.csv",
        "vma.json",
        "vma-virtual.json",
        "vma-lavapipe.json",
        "step.omt",
        "real/shortage.pickle.gz",
    ] {
        let trace = Trace::open(folder.join(name)).unwrap();
        is_kept(&format!("{}.txt", name.replace('/', "-")), &told(&trace));
    }
}

const fn memory(block: u64, size: u64, heap: u8) -> Record {
    Record::BlockAllocate { block, size, heap: HeapId(heap), backing: Backing::Memory }
}

const fn pages(block: u64, size: u64, heap: u8) -> Record {
    Record::BlockAllocate { block, size, heap: HeapId(heap), backing: Backing::Pages }
}

/// An allocation of the story: its number says its alignment too.
fn named(id: u64, size: u64, stream: u16, label: LabelId) -> Record {
    let (stream, align) = (StreamId(stream), Alignment::new(64 << id).unwrap());
    Record::Allocate { id, size, stream, align, label }
}

const fn fails(size: u64, stream: u16, rung: Rung) -> Record {
    Record::OutOfMemory { size, stream: StreamId(stream), rung }
}

/// The first half: allocations with and without a place, and a request that fails.
fn beginning([weights, bias, scratch, reason]: [LabelId; 4]) -> Vec<(u64, Record)> {
    let (label, align) = (scratch, Alignment::UNKNOWN);
    let (block, offset, size, stream) = (71, 4096, 1300, StreamId(2));
    vec![
        (2, memory(70, 10_000, 3)),
        (3, pages(71, 1 << 30, 5)),
        (3, Record::PagesTake { bytes: 8192, heap: HeapId(5) }),
        (4, named(1, 1100, 0, weights)),
        (4, Record::Bind { id: 1, block: 70, offset: 128 }),
        (6, named(2, 1200, 1, bias)),
        (6, Record::BlockOffset { id: 2, region: Region::Staging, reason }),
        (6, Record::Bind { id: 2, block: 70, offset: 1300 }),
        (9, Record::AllocateAt { id: 3, size, stream, align, label, block, offset }),
        (11, allocate(4, 1400)),
        (12, allocate(5, 1500)),
        (13, Record::Bind { id: 5, block: 70, offset: 8000 }),
        (15, Record::Use { id: 1, stream: StreamId(4) }),
        (16, Record::FreeRequested { id: 2, stream: StreamId(1) }),
        (100, fails(3000, 5, Rung::Retire)),
        (101, fails(3001, 5, Rung::Trim)),
        (102, fails(3002, 5, Rung::Trim)),
        (103, fails(3003, 5, Rung::Failed)),
        (110, Record::FreeCompleted { id: 2, stream: StreamId(1) }),
    ]
}

/// The second half: moves, frees, a sleep, and a block whose number is used again.
fn end([weights, bias, ..]: [LabelId; 4]) -> Vec<(u64, Record)> {
    vec![
        (111, memory(72, 6000, 3)),
        (112, Record::Move { id: 5, block: 70, offset: 1228 }),
        (113, Record::Move { id: 3, block: 72, offset: 200 }),
        (114, Record::Name { id: 5, label: weights }),
        (115, Record::Move { id: 3, block: 72, offset: 0 }),
        (120, fails(7000, 6, Rung::Failed)),
        (121, Record::FreeRequested { id: 4, stream: StreamId(0) }),
        (121, Record::FreeCompleted { id: 4, stream: StreamId(0) }),
        (122, Record::FreeRequested { id: 3, stream: StreamId(2) }),
        (125, Record::FreeCompleted { id: 3, stream: StreamId(2) }),
        (126, fails(5999, 7, Rung::Failed)),
        (130, Record::Reside { block: 71, residence: Residence::Host }),
        (131, Record::HostPagesTake { bytes: 16_384, heap: HeapId(6) }),
        (132, Record::HostPagesReturn { bytes: 12_288, heap: HeapId(6) }),
        (133, Record::Reside { block: 71, residence: Residence::Device }),
        (134, Record::BlockFree { block: 72 }),
        (135, memory(73, 9000, 1)),
        (136, named(6, 1600, 3, bias)),
        (136, Record::Bind { id: 6, block: 73, offset: 7400 }),
        (137, named(7, 300, 3, LabelId::NONE)),
        (137, Record::Bind { id: 7, block: 73, offset: 0 }),
        (140, Record::FreeRequested { id: 6, stream: StreamId(3) }),
        (141, Record::PagesReturn { bytes: 4096, heap: HeapId(5) }),
    ]
}

/// A recording in which everything happens, few numbers of one kind are equal, and most requests have a name.
fn story() -> Trace {
    let mut recorder = Writer::new(Vec::new());
    recorder.title("a \"story\" \\ <all>");
    let model = recorder.label(LabelId::NONE, "model");
    let [weights, bias] = ["weights", "bias"].map(|name| recorder.label(model, name));
    let scratch = recorder.label(LabelId::NONE, "scratch, \"hot\"");
    let labels = [weights, bias, scratch, recorder.label(LabelId::NONE, "written by kernels")];
    for (time, record) in beginning(labels).into_iter().chain(end(labels)) {
        recorder.record(time, &record);
    }
    open(&recorder.finish().unwrap())
}

/// Columns as numbers: how they are packed may change.
fn columns(events: &Columns) -> String {
    let mut text = format!("{} {:?}\n", events.count, column(&events.kinds));
    let columns = [
        &events.steps,
        &events.sizes,
        &events.labels,
        &events.streams,
        &events.backs,
        &events.blocks,
        &events.offsets,
    ];
    columns.into_iter().for_each(|all| writeln!(text, "{:?}", numbers(all)).unwrap());
    text
}

fn shown(mut data: ReportData) -> String {
    let events = data.events.take().unwrap();
    let curves = data.comparison.iter_mut().filter_map(|one| one.curve.take());
    let curves: Vec<_> =
        curves.map(|curve| (numbers(&curve.steps), numbers(&curve.bytes))).collect();
    let data = serde_json::to_string_pretty(&data).unwrap();
    format!("{data}\n{curves:?}\n{}", columns(&events))
}

#[test]
fn a_recording_and_its_copies() {
    let trace = story();
    is_kept("story.txt", &told(&trace));
    let mut text = Vec::new();
    csv::write(&trace, &mut text).unwrap();
    is_kept("story.csv", &String::from_utf8(text).unwrap());
    let mut file = Vec::new();
    snapshot::write(&trace, &mut file).unwrap();
    is_kept("story.pickle.txt", &format!("{}\n{}", file.escape_ascii(), told(&open(&file))));
}

#[test]
fn a_report() {
    let mut data = report::from_trace(&story(), "a report");
    data.comparison.push(Comparison::pytorch(&story()));
    is_kept("report.txt", &shown(data));
    is_kept("report-cut.txt", &shown(report::from_trace(&one_label(), "cut off")));
}

#[test]
fn a_report_by_a_model() {
    let trace = story();
    let data = report::from_trace_by_model(&trace, "by a model", &Limits::default()).unwrap();
    is_kept("report-model.txt", &shown(data));
}

#[test]
fn exports() {
    let trace = story();
    for (name, detail) in
        [("chrome.json", chrome::Detail::Counters), ("bars.json", chrome::Detail::Allocations)]
    {
        let mut text = Vec::new();
        chrome::write(&trace, detail, &mut text).unwrap();
        is_kept(name, &String::from_utf8(text).unwrap());
    }
}

/// A recording whose only label is its first, and which was cut off.
fn one_label() -> Trace {
    let mut recorder = Writer::new(Vec::new());
    let label = recorder.label(LabelId::NONE, "only");
    let (stream, align) = (StreamId(0), Alignment::UNKNOWN);
    recorder.record(3, &Record::Allocate { id: 0, size: 40, stream, align, label });
    let file = recorder.finish().unwrap();
    open(&file[..file.len() - 1])
}

/// A job of the story, of parts of it, and of its report, as ranks that differ in everything.
fn job() -> Job {
    let trace = story();
    let whole = Digest { rank: Some(0), world: Some(6), ..Digest::of_trace(&trace) };
    let data = report::from_trace(&trace, "as a report");
    let reported =
        Digest { rank: Some(1), origin: "b".into(), ..Digest::of_report(&data).unwrap() };
    let mut moment = data;
    moment.events = None;
    moment.facts.push(report::Fact { name: "rank".into(), value: "2".into() });
    moment.facts.push(report::Fact { name: "world size".into(), value: "7".into() });
    moment.facts.push(report::Fact { name: "rung lend".into(), value: "77".into() });
    let moment = Digest { origin: "c".into(), ..Digest::of_report(&moment).unwrap() };
    let short = b"op,id,size,stream,time_us\na,0,1100,0,0\na,1,1200,0,5\nf,0,,0,9\na,2,77,0,9\n";
    let short = Digest::read(&short[..], "rank4.csv").unwrap();
    let named = Digest { rank: Some(5), origin: "d".into(), ..Digest::of_trace(&one_label()) };
    let twin = Digest { origin: "rank4.twin".into(), ..short.clone() };
    let nobody = Digest { rank: None, origin: "nobody".into(), ..short.clone() };
    let broken = ranks::Problem { file: "broken".into(), why: "it is cut".into() };
    let all = [whole, reported, moment, short, named, twin, nobody].map(Ok);
    Job::new(all.into_iter().chain([Err(broken)]))
}

#[test]
fn ranks_of_a_job() {
    let job = job();
    let mut text = String::new();
    for (rank, digest) in job.ranks() {
        writeln!(text, "{rank}: {}", serde_json::to_string(digest).unwrap()).unwrap();
    }
    is_kept("digests.txt", &text);
    let mut page = Vec::new();
    ranks::write_html(&job, "a <job>", &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    is_kept("ranks.json", &format!("{}\n", serde_json::to_string_pretty(&data).unwrap()));
}
