//! Traces whose pictures are known.

use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::report::{self, Comparison, ReportData};
use omniheap_trace::{
    Alignment, Backing, HeapId, LabelId, Limits, Residence, Rung, StreamId, Trace,
};

pub(crate) const MIB: u64 = 1 << 20;
/// A name that would run a program if it were taken for HTML.
pub(crate) const HOSTILE: &str = "<img src=x onerror=\"window.hacked = 1\">";

fn read(file: &[u8]) -> Trace {
    Trace::read(file, &Limits::default()).expect("a right trace")
}

fn allocation(id: u64, size: u64, stream: u16, label: LabelId) -> Record {
    Record::Allocate { id, size, stream: StreamId(stream), align: Alignment::UNKNOWN, label }
}

/// One second. 16 MiB of weights from start to end; 8 MiB of activations on stream 1 from 0.2 s to 0.8 s; 24 MiB with a
/// hostile name on stream 2 from 0.4 s to 0.6 s: a peak of 48 MiB. A block of 64 MiB holds them. A request fails at 0.5 s.
pub(crate) fn three() -> Trace {
    let mut recorder = Writer::new(Vec::new());
    let model = recorder.label(LabelId::NONE, "model");
    let weights = recorder.label(model, "weights");
    let activations = recorder.label(model, "activations");
    let hostile = recorder.label(LabelId::NONE, HOSTILE);
    let (heap, backing) = (HeapId(0), Backing::Memory);
    let place = |id, offset| Record::Bind { id, block: 1, offset: offset * MIB };
    let free = |id, stream| Record::FreeCompleted { id, stream: StreamId(stream) };
    recorder.record(0, &Record::BlockAllocate { block: 1, size: 64 * MIB, heap, backing });
    recorder.record(0, &allocation(0, 16 * MIB, 0, weights));
    recorder.record(0, &place(0, 0));
    recorder.record(200_000, &allocation(1, 8 * MIB, 1, activations));
    recorder.record(200_000, &place(1, 16));
    recorder.record(400_000, &allocation(2, 24 * MIB, 2, hostile));
    recorder.record(400_000, &place(2, 32));
    let (size, stream, rung) = (30 * MIB, StreamId(2), Rung::Failed);
    recorder.record(500_000, &Record::OutOfMemory { size, stream, rung });
    recorder.record(600_000, &free(2, 2));
    recorder.record(800_000, &free(1, 1));
    recorder.record(1_000_000, &free(0, 0));
    read(&recorder.finish().expect("a vector takes every byte"))
}

/// One allocation with a call stack for a name, and a tag of its own that is long.
pub(crate) fn stack() -> Trace {
    let mut recorder = Writer::new(Vec::new());
    let main = recorder.label(LabelId::NONE, "main (train.py:8)");
    let step = recorder.label(main, "step of the training loop with its gradients (train.py:3)");
    let leaf = recorder.label(step, HOSTILE);
    recorder.record(0, &allocation(0, MIB, 0, leaf));
    recorder.record(5, &Record::FreeCompleted { id: 0, stream: StreamId(0) });
    read(&recorder.finish().expect("a vector takes every byte"))
}

/// As [`three`], without blocks and places, and with the model of PyTorch's policy.
pub(crate) fn modelled() -> ReportData {
    let csv = "op,id,size,stream,time_us\na,0,16777216,0,0\na,1,8388608,1,200000\n\
               f,1,,1,800000\nf,0,,0,1000000\n";
    let trace = read(csv.as_bytes());
    let mut data =
        report::from_trace_by_model(&trace, "modelled", &Limits::default()).expect("a small trace");
    data.comparison.push(Comparison::pytorch(&trace));
    data
}

/// One second with 4 MiB live, and at 0.3 s 32 MiB more for two microseconds.
pub(crate) fn spike() -> Trace {
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &allocation(0, 4 * MIB, 0, LabelId::NONE));
    recorder.record(300_000, &allocation(1, 32 * MIB, 0, LabelId::NONE));
    recorder.record(300_002, &Record::FreeCompleted { id: 1, stream: StreamId(0) });
    recorder.record(1_000_000, &Record::FreeCompleted { id: 0, stream: StreamId(0) });
    read(&recorder.finish().expect("a vector takes every byte"))
}

/// Returns a gibibyte of addresses with six mebibytes of pages.
pub(crate) fn paged() -> Trace {
    let (heap, backing) = (HeapId(0), Backing::Pages);
    let mut recorder = Writer::new(Vec::new());
    recorder.record(0, &Record::BlockAllocate { block: 1, size: 1 << 30, heap, backing });
    recorder.record(1, &Record::PagesTake { bytes: 6 * MIB, heap });
    recorder.record(1, &allocation(0, 2 * MIB, 0, LabelId::NONE));
    recorder.record(1, &Record::Bind { id: 0, block: 1, offset: 0 });
    recorder.record(2, &allocation(1, MIB, 0, LabelId::NONE));
    recorder.record(2, &Record::Bind { id: 1, block: 1, offset: 9 * MIB });
    recorder.record(9, &Record::FreeCompleted { id: 1, stream: StreamId(0) });
    read(&recorder.finish().expect("a vector takes every byte"))
}

/// One second of a pool of pages with 16 and 8 MiB. From 0.2 s on it sleeps in host memory; 8 MiB are freed at 0.4 s; it wakes up at
/// 0.6 s, with 10 MiB of the device and 6 of the host, and from 0.8 s to the end it sleeps in files.
pub(crate) fn asleep() -> Trace {
    let (heap, backing) = (HeapId(0), Backing::Pages);
    let mut recorder = Writer::new(Vec::new());
    let reside = |residence| Record::Reside { block: 1, residence };
    recorder.record(0, &Record::BlockAllocate { block: 1, size: 1 << 30, heap, backing });
    recorder.record(0, &Record::PagesTake { bytes: 24 * MIB, heap });
    for (id, size, offset) in [(0, 16 * MIB, 0), (1, 8 * MIB, 16 * MIB)] {
        recorder.record(0, &allocation(id, size, 0, LabelId::NONE));
        recorder.record(0, &Record::Bind { id, block: 1, offset });
    }
    recorder.record(200_000, &Record::PagesReturn { bytes: 24 * MIB, heap });
    recorder.record(200_000, &reside(Residence::Host));
    recorder.record(400_000, &Record::FreeCompleted { id: 1, stream: StreamId(0) });
    recorder.record(600_000, &Record::PagesTake { bytes: 10 * MIB, heap });
    recorder.record(600_000, &Record::HostPagesTake { bytes: 6 * MIB, heap });
    recorder.record(600_000, &reside(Residence::Device));
    recorder.record(800_000, &Record::PagesReturn { bytes: 10 * MIB, heap });
    recorder.record(800_000, &Record::HostPagesReturn { bytes: 6 * MIB, heap });
    recorder.record(800_000, &reside(Residence::File));
    recorder.record(1_000_000, &Record::Use { id: 0, stream: StreamId(0) });
    recorder.record(1_000_000, &Record::FreeCompleted { id: 0, stream: StreamId(0) });
    read(&recorder.finish().expect("a vector takes every byte"))
}

/// More events than a list of elements could hold: `pairs` allocations of which forty live at a time.
pub(crate) fn long(pairs: u64) -> Trace {
    let mut recorder = Writer::new(Vec::new());
    for id in 0..pairs {
        let stream = u16::try_from(id % 8).expect("below eight");
        recorder.record(id * 3, &allocation(id, 4096 + id * 7919 % MIB, stream, LabelId::NONE));
        if let Some(old) = id.checked_sub(40) {
            recorder.record(id * 3 + 1, &Record::FreeCompleted { id: old, stream: StreamId(0) });
        }
    }
    read(&recorder.finish().expect("a vector takes every byte"))
}
