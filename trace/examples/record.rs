//! Records a small made-up program and writes the trace: `cargo run -p omniheap-trace --example record -- OUT.trace`
//!
//! It loads a model, serves requests of several sizes, runs out of memory once and defragments.

use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::{Alignment, Backing, HeapId, LabelId, Rung, StreamId};
use std::fs::File;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 64 * MIB;

/// One block that is filled from the front, with holes where something was freed.
struct Program<W: std::io::Write> {
    recorder: Writer<W>,
    now_us: u64,
    next_id: u64,
    live: Vec<(u64, u64, u64, u64)>,
}

impl<W: std::io::Write> Program<W> {
    fn allocate(&mut self, block: u64, offset: u64, size: u64, label: LabelId) {
        let (id, stream, align) =
            (self.next_id, StreamId(0), Alignment::new(256).unwrap_or_default());
        self.next_id += 1;
        self.now_us += 90;
        self.recorder.record(self.now_us, &Record::Allocate { id, size, stream, align, label });
        self.recorder.record(self.now_us, &Record::Bind { id, block, offset });
        self.live.push((id, block, offset, size));
    }

    fn free(&mut self, index: usize) {
        let (id, ..) = self.live.remove(index);
        self.now_us += 40;
        self.recorder.record(self.now_us, &Record::FreeRequested { id, stream: StreamId(0) });
        self.now_us += 25;
        self.recorder.record(self.now_us, &Record::FreeCompleted { id, stream: StreamId(0) });
    }

    /// Slides everything in `block` to its front.
    fn defragment(&mut self, block: u64) {
        self.now_us += 500;
        let mut end = 0;
        self.live.sort_by_key(|&(_, block, offset, _)| (block, offset));
        for (id, _, offset, size) in self.live.iter_mut().filter(|live| live.1 == block) {
            if *offset != end {
                *offset = end;
                self.recorder.record(self.now_us, &Record::Move { id: *id, block, offset: end });
            }
            end += *size;
        }
    }
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: record OUT.trace")?;
    let recorder = Writer::new(File::create(&path)?);
    let mut program = Program { recorder, now_us: 0, next_id: 0, live: Vec::new() };
    program.recorder.title("a made-up program");
    for (block, heap) in [(0, HeapId(0)), (1, HeapId(0)), (2, HeapId(1))] {
        program.recorder.record(
            1,
            &Record::BlockAllocate { block, size: BLOCK, heap, backing: Backing::Memory },
        );
    }
    load(&mut program);
    serve(&mut program);
    program.recorder.finish()?;
    Ok(())
}

fn load<W: std::io::Write>(program: &mut Program<W>) {
    let uploads = program.recorder.label(LabelId::NONE, "uploads");
    program.allocate(2, 20 * MIB, 30 * MIB, uploads);
    let model = program.recorder.label(LabelId::NONE, "model");
    for layer in 0..12 {
        let label = program.recorder.label(model, &format!("layer {layer}"));
        let weights = program.recorder.label(label, "weights");
        program.allocate(0, layer * 5 * MIB, 4 * MIB + layer * MIB / 16, weights);
    }
}

fn serve<W: std::io::Write>(program: &mut Program<W>) {
    let requests = program.recorder.label(LabelId::NONE, "requests");
    for (turn, name) in (0..150_u64).zip(["cache", "activations", "logits"].into_iter().cycle()) {
        let label = program.recorder.label(requests, name);
        program.allocate(1, turn % 60 * MIB, (turn * 7 % 9 + 1) * MIB / 10, label);
        if turn >= 40 {
            let oldest = program.live.iter().position(|live| live.1 == 1).unwrap_or(0);
            program.free(oldest);
        }
    }
    let (size, stream) = (40 * MIB, StreamId(0));
    for rung in [Rung::Retire, Rung::Trim, Rung::Failed] {
        program.recorder.record(program.now_us, &Record::OutOfMemory { size, stream, rung });
    }
    program.defragment(1);
}
