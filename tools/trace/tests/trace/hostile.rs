//! Whatever a reader accepts can be summed up, replayed, drawn and exported, without a panic.

use omniheap_trace::binary::{self, Record, Writer};
use omniheap_trace::export::{chrome, snapshot};
use omniheap_trace::{
    Alignment, Backing, HeapId, LabelId, Limits, Region, Rung, StreamId, Trace, csv, model, report,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Does with `trace` everything that can be done with one.
fn use_everywhere(trace: &Trace) {
    let outcome = model::pytorch(trace);
    assert!(outcome.oom > 0 || outcome.peak_live_bytes == trace.summary().peak_live_bytes);
    let _ = model::replay(trace, model::PyTorch::with_capacity(64 << 20), &mut ());
    let data = report::from_trace(trace, "hostile");
    report::write_html(&data, std::io::sink()).unwrap();
    chrome::write(trace, chrome::Detail::Allocations, std::io::sink()).unwrap();
    csv::write(trace, std::io::sink()).unwrap();
    let _ = report::bind_by_model(trace, &Limits::default());
    let copy = binary::write(trace, Vec::new()).unwrap();
    assert_eq!(Trace::read(&copy[..], &Limits::default()).unwrap().events(), trace.events());
    let mut file = Vec::new();
    snapshot::write(trace, &mut file).unwrap();
    let _ = Trace::read(&file[..], &Limits::default());
}

/// Turns bytes into records that mostly make sense, and sometimes do not.
struct Story {
    recorder: Writer<Vec<u8>>,
    live: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, u64>,
    asked: BTreeSet<u64>,
    now_us: u64,
}

impl Story {
    fn step(&mut self, [what, which, much, luck]: [u8; 4]) {
        let size = 1 + (u64::from(luck) << (much % if luck == 255 { 56 } else { 40 }));
        self.now_us += u64::from(luck % 5);
        // Now and then a record is made up whatever is live, and the reader must refuse it.
        let wild = luck == 7 && much > 128;
        let pick = |map: &BTreeMap<u64, u64>| {
            map.keys().nth(usize::from(which) % map.len().max(1)).copied()
        };
        let id = pick(&self.live).or(wild.then_some(u64::from(which)));
        let block = pick(&self.blocks).or(wild.then_some(u64::from(which)));
        let stream = StreamId(u16::from(luck % 3));
        let label = LabelId(u32::from(which % 4));
        let record = match (what % 12, id, block) {
            (3, Some(id), _) if wild || self.asked.insert(id) => {
                Record::FreeRequested { id, stream }
            }
            (4 | 5, Some(id), _) => {
                self.live.remove(&id);
                Record::FreeCompleted { id, stream }
            }
            (6 | 7, Some(id), Some(block)) => match self.fits(id, block, luck) {
                Some(offset) if what % 12 == 6 => Record::Bind { id, block, offset },
                Some(offset) => Record::Move { id, block, offset },
                None => return,
            },
            (8, Some(id), _) => Record::BlockOffset { id, region: Region::Device, reason: label },
            (9, ..) => self.block(u64::from(which) | u64::from(much) << 40, size, HeapId(which)),
            (10, _, Some(block)) => {
                self.blocks.remove(&block);
                Record::BlockFree { block }
            }
            (11, ..) => Record::OutOfMemory {
                size,
                stream,
                rung: if luck > 99 { Rung::Failed } else { Rung::Trim },
            },
            _ => self.allocation(u64::from(which) | u64::from(much) << 8, size, label, stream),
        };
        self.recorder.record(self.now_us, &record);
    }

    fn block(&mut self, low: u64, size: u64, heap: HeapId) -> Record {
        let block = low | self.now_us << 8;
        self.blocks.insert(block, size);
        Record::BlockAllocate { block, size, heap, backing: Backing::Memory }
    }

    fn allocation(&mut self, low: u64, size: u64, label: LabelId, stream: StreamId) -> Record {
        let id = low | self.now_us << 16;
        self.live.insert(id, size);
        self.asked.remove(&id);
        let align = Alignment::new(1 << (low % 64)).unwrap_or_default();
        Record::Allocate { id, size, stream, align, label }
    }

    /// Returns an offset at which `id` fits into `block`.
    fn fits(&self, id: u64, block: u64, luck: u8) -> Option<u64> {
        let size = self.live.get(&id)?;
        self.blocks.get(&block)?.checked_sub(*size).map(|room| room / (1 + u64::from(luck)))
    }
}

fn story(steps: &[[u8; 4]]) -> Vec<u8> {
    let mut recorder = Writer::new(Vec::new());
    let top = recorder.label(LabelId::NONE, "<top>");
    recorder.label(top, "\"below\"\n");
    recorder.label(LabelId::NONE, "");
    let (live, blocks, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut story = Story { recorder, live, blocks, asked, now_us: 0 };
    steps.iter().for_each(|step| story.step(*step));
    story.recorder.finish().unwrap()
}

proptest! {
    #[test]
    fn what_is_accepted_can_be_used(steps in proptest::collection::vec(any::<[u8; 4]>(), 0..80)) {
        // A step that is refused ends the reading; what stands before it is a trace of its own.
        for length in (1..=steps.len()).rev() {
            if let Ok(trace) = Trace::read(&story(&steps[..length])[..], &Limits::default()) {
                use_everywhere(&trace);
                break;
            }
        }
    }
}

#[test]
fn stories_are_mostly_accepted() {
    let mut state = 1_u64;
    let mut step = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        <[u8; 4]>::try_from(&state.to_be_bytes()[..4]).unwrap()
    };
    let longest = (0..50).map(|_| {
        let steps: Vec<_> = (0..40).map(|_| step()).collect();
        (0..=40)
            .rev()
            .find(|&length| Trace::read(&story(&steps[..length])[..], &Limits::default()).is_ok())
            .unwrap()
    });
    let mean = longest.sum::<usize>() / 50;
    assert!(mean >= 30, "the generator must reach deep states, not {mean} steps");
}
