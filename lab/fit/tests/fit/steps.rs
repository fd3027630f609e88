//! Fit: peaks, categories, changes and lines in the batch, on a step small enough to check by hand.

use crate::kept::is_kept;
use omniheap_fit::{
    BatchError, Category, Change, Lines, Moment, Optimizer, Peak, Ranges, completes, largest,
};
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::model::PyTorch;
use omniheap_trace::{Alignment, LabelId, Limits, Op, StreamId, Trace};

const MIB: u64 = 1 << 20;

/// Writes a trace from labelled allocations and frees.
struct Script(Writer<Vec<u8>>, u64);

impl Script {
    fn new(title: &str) -> Self {
        let mut writer = Writer::new(Vec::new());
        writer.title(title);
        Self(writer, 0)
    }

    fn allocate(&mut self, id: u64, size: u64, path: &str) {
        let add = |parent, text| self.0.label(parent, text);
        let label = path.split('/').fold(LabelId::NONE, add);
        let (stream, align) = (StreamId(0), Alignment::UNKNOWN);
        self.1 += 1;
        self.0.record(self.1, &Record::Allocate { id, size, stream, align, label });
    }

    fn free(&mut self, ids: &[u64]) {
        for &id in ids {
            self.1 += 1;
            self.0.record(self.1, &Record::FreeCompleted { id, stream: StreamId(0) });
        }
    }

    fn trace(self) -> Trace {
        Trace::read(&self.0.finish().unwrap()[..], &Limits::default()).unwrap()
    }
}

/// A training step of an embedding and two blocks. At batch 1, in MiB: weights 1 each, in each block 4 for a moment,
/// 8 saved, 2 returned; in each backward pass 4 for a moment and 1 of gradients; then 2 of state for each block.
fn step(batch: u64) -> Trace {
    steps(batch, 1)
}

/// Several such steps; the state is made after the last.
fn steps(batch: u64, count: u64) -> Trace {
    let mut script = Script::new("step");
    for (id, name) in [(0, "wte"), (1, "h/0"), (2, "h/1")] {
        script.allocate(id, MIB, &format!("parameter/{name}/weight float32[1024x256]"));
    }
    for number in 0..count {
        passes(&mut script, batch, 100 * number);
        if number + 1 < count {
            script.free(&[100 * number + 14, 100 * number + 24]);
        }
    }
    for (id, block) in [(8000, 0), (8002, 1)] {
        script.allocate(id, MIB, &format!("optimizer/h/{block}/weight/exp_avg float32[1024x256]"));
        let path = format!("optimizer/h/{block}/weight/exp_avg_sq float32[1024x256]");
        script.allocate(id + 1, MIB, &path);
    }
    script.allocate(9000, MIB, "temporary/AdamW/sqrt[optimizer] float32");
    script.free(&[9000]);
    script.trace()
}

/// The file that Python's writer is tested to write.
#[test]
fn a_recording_of_pythons_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/trace/tests/data/step.omt");
    let trace = Trace::open(path).unwrap();
    let ids = (0..trace.allocations()).map(omniheap_trace::AllocationId);
    let labels: Vec<_> = ids.map(|id| trace.labels().path(trace.label_of(id))).collect();
    let expected = [
        "parameter/h/0/weight float32[32x32]",
        "temporary/h/0/aten.mm.default float32",
        "activation/h/0/aten.gelu.default[output] float32",
        "temporary/h/0/aten.mm.default[backward] float32",
    ];
    assert_eq!(labels, expected);
    assert_eq!(trace.meta().title, "a step");
    let summary = trace.summary();
    assert_eq!((summary.peak_live_bytes, summary.final_live_bytes), ((1 << 40) + 4296, 4096));
    assert_eq!(summary.duration_us, 3);
}

/// The forward and the backward pass of both blocks.
fn passes(script: &mut Script, batch: u64, base: u64) {
    for block in [0, 1] {
        let id = base + 10 * (block + 1);
        script.allocate(id, 4 * MIB * batch, &format!("temporary/h/{block}/mm float32"));
        script.allocate(id + 1, 8 * MIB * batch, &format!("activation/h/{block}/gelu float32"));
        script.free(&[id]);
        let path = format!("activation/h/{block}/add[output] float32");
        script.allocate(id + 2, 2 * MIB * batch, &path);
    }
    for block in [1, 0] {
        let id = base + 10 * (block + 1);
        let path = format!("temporary/h/{block}/mm[backward] float32");
        script.allocate(id + 3, 4 * MIB * batch, &path);
        script.allocate(id + 4, MIB, &format!("gradient/h/{block}/weight float32[1024x256]"));
        script.free(&[id + 3, id + 1, id + 2]);
    }
}

fn live(change: Change) -> (u64, u64) {
    let summary = change.apply(&step(1)).unwrap().summary();
    (summary.peak_live_bytes, summary.final_live_bytes)
}

#[test]
fn a_peak_names_its_operator_and_its_categories() {
    let trace = step(1);
    assert_eq!(trace.summary().peak_live_bytes, 28 * MIB);
    // Five blocks of 2 MiB for weights, gradients and state, the last of them for state; two of 20 MiB for the rest.
    let peak = Peak::of(&trace, PyTorch::unlimited());
    assert_eq!(peak.reserved_bytes, 50 * MIB);
    assert!(Moment::at(&trace, peak.event).label.starts_with("optimizer/h/1/weight/"));
    let moment = Moment::busiest(&trace);
    assert_eq!(moment.label, "gradient/h/1/weight float32[1024x256]");
    let bytes = |category| {
        let found = moment.categories.iter().find(|each| each.category == category);
        found.map_or(0, |each| each.bytes / MIB)
    };
    assert_eq!(
        [Category::Parameter, Category::Activation, Category::Temporary].map(bytes),
        [3, 20, 4]
    );
    assert_eq!(moment.live_bytes, 28 * MIB);
}

#[test]
fn types_and_states_change_sizes() {
    assert_eq!(live(Change::Bfloat16), (14 * MIB, 9 * MIB / 2));
    let quantized = Change::Quantized { bits: 8, group: None };
    assert_eq!(live(quantized).0, 25 * MIB + 3 * (MIB / 4 + 2));
    let grouped = Change::Quantized { bits: 4, group: Some(128) };
    assert_eq!(live(grouped).0, 25 * MIB + 3 * (MIB / 8 + 2 * 2048));
    assert_eq!(live(Change::Sparse24).0, 28 * MIB, "float32 has no 2:4 kernels");
    assert_eq!(live(Change::Optimizer(Optimizer::AdamW)).1, 9 * MIB);
    assert_eq!(live(Change::Optimizer(Optimizer::Sgd)).1, 5 * MIB);
    assert_eq!(live(Change::Optimizer(Optimizer::Adafactor)).1, 5 * MIB + 2 * 4 * (1024 + 256));
    assert_eq!(live(Change::Optimizer(Optimizer::AdamW8Bit)).1, 5 * MIB + 2 * (MIB / 2 + 8 * 1024));
    assert_eq!(live(Change::OffloadOptimizer), (28 * MIB, 5 * MIB));
    assert_eq!(live(Change::OneLayout), (28 * MIB, 9 * MIB));
}

#[test]
fn two_of_four_keeps_half_and_two_bits() {
    let mut script = Script::new("");
    script.allocate(0, 1600, "parameter/h/0/weight bfloat16[20x40]");
    script.allocate(1, 80, "parameter/h/0/bias bfloat16[40]");
    let changed = Change::Sparse24.apply(&script.trace()).unwrap();
    assert_eq!(changed.summary().peak_live_bytes, 1600 * 9 / 16 + 80);
}

#[test]
fn an_optimizer_elsewhere_makes_nothing_here() {
    let last = |change: Change| {
        let trace = change.apply(&step(1)).unwrap();
        Moment::at(&trace, trace.events().len() - 2).live_bytes
    };
    assert_eq!(last(Change::OneLayout), 10 * MIB);
    assert_eq!(last(Change::Optimizer(Optimizer::AdamW8Bit)), 6 * MIB + 2 * (MIB / 2 + 8 * 1024));
    let labels = |change: Change| {
        let trace = change.apply(&step(1)).unwrap();
        let ids = (0..trace.allocations()).map(omniheap_trace::AllocationId);
        ids.map(|id| trace.labels().path(trace.label_of(id))).collect::<Vec<_>>()
    };
    for change in [Change::OffloadOptimizer, Change::Optimizer(Optimizer::Sgd)] {
        assert!(labels(change).iter().all(|path| !path.contains("optimizer")), "{change}");
    }
}

#[test]
fn copies_between_layouts_go() {
    let mut script = Script::new("");
    script.allocate(0, 100, "activation/aten.clone.default[layout] float32");
    script.allocate(1, 10, "activation/aten.clone.default float32");
    assert_eq!(Change::OneLayout.apply(&script.trace()).unwrap().summary().peak_live_bytes, 10);
}

#[test]
fn checkpointed_blocks_run_forward_again() {
    // In the backward pass of block 1: weights 3, both outputs 4, saved 8, passing 4, gradients 1.
    assert_eq!(live(Change::CheckpointBlocks), (20 * MIB, 9 * MIB));
    let changed = Change::CheckpointBlocks.apply(&step(1)).unwrap();
    assert_eq!(changed.allocations(), step(1).allocations() + 6, "three of each block again");
    // Each step is a pass of its own.
    let changed = Change::CheckpointBlocks.apply(&steps(1, 3)).unwrap();
    assert_eq!(changed.summary().peak_live_bytes, 20 * MIB);
    assert_eq!(changed.allocations(), steps(1, 3).allocations() + 18);
    // Offloaded activations come back without the rest of the forward pass.
    assert_eq!(live(Change::OffloadActivations).0, 20 * MIB);
    let changed = Change::OffloadActivations.apply(&step(1)).unwrap();
    assert_eq!(changed.allocations(), step(1).allocations() + 2);
}

/// Every allocation and free of a trace, a line each.
fn lines(trace: &Trace) -> String {
    let mut text = String::new();
    for event in trace.events() {
        let line = match event.op {
            Op::Allocate { id, size, .. } => {
                format!("+{} {size} {}", id.0, trace.labels().path(trace.label_of(id)))
            }
            Op::FreeCompleted { id, .. } => format!("-{}", id.0),
            other => format!("{other:?}"),
        };
        text += &format!("{} {line}\n", event.time_us);
    }
    text
}

#[test]
fn changed_steps_are_these() {
    let mut text = String::new();
    for change in Change::table() {
        text += &format!("# {change}\n{}", lines(&change.apply(&steps(1, 2)).unwrap()));
    }
    is_kept("changes.txt", &text);
}

#[test]
fn a_change_that_labels_do_not_tell_is_not_known() {
    let text = b"op,id,size,stream,time_us\na,0,100,0,0\n";
    let trace = Trace::read(&text[..], &Limits::default()).unwrap();
    for change in Change::table() {
        let error = change.apply(&trace).unwrap_err().to_string();
        assert!(error.starts_with("not known from this trace: "), "{change}: {error}");
    }
    let moment = Moment::at(&trace, 0);
    assert_eq!(moment.categories[0].category, Category::Unlabelled);
}

#[test]
fn a_capacity_makes_models_return_what_nobody_uses() {
    // 30 MiB, freed, then 40 MiB: the first range or block goes back before the second is taken.
    let text =
        b"op,id,size,stream,time_us\na,0,31457280,0,0\nf,0,,0,1\na,1,1000,0,2\na,2,41943040,1,3\n";
    let trace = Trace::read(&text[..], &Limits::default()).unwrap();
    let expandable = |capacity| Peak::of(&trace, Ranges::expandable(capacity));
    assert_eq!(Peak::of(&trace, Ranges::expandable(u64::MAX)).reserved_bytes, 82 * MIB);
    assert_eq!((expandable(50 * MIB).refused, expandable(50 * MIB).reserved_bytes), (0, 42 * MIB));
    assert_eq!(expandable(41 * MIB).refused, 1);
    let shared = Peak::of(&trace, Ranges::stream_ordered(u64::MAX));
    assert_eq!(shared.reserved_bytes, 64 * MIB, "streams share, and growth is by 32 MiB");
}

#[test]
fn sizes_are_lines_in_the_batch() {
    let traces = [2, 8, 4].map(|batch| (batch, step(batch)));
    let lines = Lines::new(&traces).unwrap();
    for batch in [1, 3, 8, 100] {
        assert_eq!(lines.at(batch).unwrap().events(), step(batch).events(), "{batch}");
    }
    // Between the traces a line need not pass through whole bytes.
    let sizes = [(2, 10), (5, 15), (8, 20)].map(|(batch, size)| {
        let mut script = Script::new("");
        script.allocate(0, size, "temporary/x");
        (batch, script.trace())
    });
    let at = |batch| Lines::new(&sizes).unwrap().at(batch).unwrap().summary().peak_live_bytes;
    assert_eq!([3, 4, 5].map(at), [12, 14, 15], "rounded up");
    let fits = |batch| Ok::<_, BatchError>(lines.at(batch)?.summary().peak_live_bytes <= 100 * MIB);
    assert_eq!(largest(1, 1 << 20, fits).unwrap(), Some(4));
}

#[test]
fn the_largest_batch_is_found_from_wherever_the_search_begins() {
    for start in [0, 1, 7, 900, 1000, 1001, 4000, u64::MAX] {
        let fits = |batch: u64| Ok::<_, ()>(batch <= 1000);
        assert_eq!(
            [10, 1000, 5000, u64::MAX].map(|most| largest(start, most, fits).unwrap()),
            [10, 1000, 1000, 1000].map(Some)
        );
        assert_eq!(largest(start, 10, |_| Ok::<_, ()>(false)).unwrap(), None);
        for least in 1..9 {
            let found = largest(start, 10, |batch| Ok::<_, ()>(batch <= least));
            assert_eq!(found.unwrap(), Some(least));
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_may_have_larger_ones_that_do() {
    let except = |gap: u64, last: u64| move |batch: u64| Ok::<_, ()>(batch != gap && batch <= last);
    assert_eq!(largest(1, 200, except(84, 85)).unwrap(), Some(85));
    assert_eq!(largest(84, 200, except(84, 85)).unwrap(), Some(85));
    assert_eq!(largest(84, 84, except(84, 85)).unwrap(), Some(83), "85 is too large");
    // Few are tried, however large the batch.
    let mut tries = 0;
    let fits = |batch: u64| {
        tries += 1;
        Ok::<_, ()>(batch <= 1 << 20)
    };
    assert_eq!(largest(1 << 20, 1 << 30, fits).unwrap(), Some(1 << 20));
    assert!(tries < 20, "{tries}");
}

fn line(sizes: [u64; 3], label: &str) -> [(u64, Trace); 3] {
    let mut batch = 1;
    sizes.map(|size| {
        let mut script = Script::new("");
        script.allocate(0, size, label);
        batch *= 2;
        (batch, script.trace())
    })
}

#[test]
fn what_is_no_line_names_its_operator() {
    let traces = line([10, 21, 40], "activation/h/0/conv float32");
    let Err(BatchError::Differs(found)) = Lines::new(&traces) else { panic!("it is no line") };
    assert_eq!(found.label, "activation/h/0/conv float32");
    assert_eq!(found.what, "21 bytes at batch 4 are not on the line, which gives 20");
    let mut mixed = line([10, 21, 40], "activation/h/0/conv float32");
    mixed.rotate_left(1);
    let Err(BatchError::Differs(again)) = Lines::new(&mixed) else { panic!("it is no line") };
    assert_eq!((again.what, again.batches), (found.what, (2, 8)), "the outer ones make the line");
    // A negative slope is a line, as far as it has bytes.
    let falling = line([70, 60, 40], "temporary/search float32");
    let lines = Lines::new(&falling).unwrap();
    assert_eq!(lines.at(10).unwrap().summary().peak_live_bytes, 30);
    assert!(matches!(lines.at(16), Err(BatchError::OffTheLine { bytes: 0, .. })));
}

#[test]
fn sizes_beyond_64_bits_are_refused() {
    let [low, high] = [1_u64 << 62, 1 << 63].map(|size| (size, size - 1));
    let mut traces = Vec::new();
    for (batch, size) in [(2, low.0), (3, low.0 + (1 << 61)), (4, high.0)] {
        let mut script = Script::new("");
        script.allocate(0, size, "activation/a float32");
        script.allocate(1, 1, "activation/b float32");
        traces.push((batch, script.trace()));
    }
    let lines = Lines::new(&traces).unwrap();
    assert!(matches!(lines.at(8), Err(BatchError::OffTheLine { batch: 8, .. })));
    assert!(lines.at(u64::MAX).is_err());
    for sizes in [[u64::MAX; 3], [u64::MAX, 5, 1]] {
        let step = |size| {
            let mut script = Script::new("");
            script.allocate(0, size, "activation/a float32");
            script.trace()
        };
        let traces: Vec<_> = [1, 2, u64::MAX].into_iter().zip(sizes.map(step)).collect();
        assert_eq!(Lines::new(&traces).unwrap_err(), BatchError::TooLarge(u64::MAX), "{sizes:?}");
    }
    let mut script = Script::new("");
    script.allocate(0, high.1, "parameter/h/0/weight float32[2x2]");
    script.free(&[0]);
    script.allocate(1, high.1, "parameter/h/0/weight float32[2x2]");
    script.allocate(2, 100, "activation/h/0/mm float32");
    let trace = script.trace();
    assert_eq!(Peak::of(&trace, Ranges::expandable(u64::MAX)).refused, 2);
    let mut script = Script::new("");
    script.allocate(0, 8, "parameter/h/0/weight float32[2x1]");
    script.allocate(1, 16, "optimizer/h/0/weight/exp_avg float32[4294967296x4294967296]");
    let error = Change::Optimizer(Optimizer::AdamW).apply(&script.trace()).unwrap_err();
    assert!(error.to_string().contains("exceed 64 bits"), "{error}");
}

#[test]
fn traces_of_different_programs_are_refused() {
    assert_eq!(Lines::new(&[(2, step(2)), (2, step(2))]).unwrap_err(), BatchError::TooFew(1));
    assert_eq!(Lines::new(&[(2, step(2)), (4, step(4))]).unwrap_err(), BatchError::TooFew(2));
    let other = Script::new("another recorder").trace();
    let traces = [(1, step(1)), (2, step(2)), (3, other)];
    assert!(matches!(Lines::new(&traces), Err(BatchError::Versions(..))));
    let mut short = Script::new("step");
    short.allocate(0, MIB, "parameter/wte/weight float32[1024x256]");
    short.allocate(1, MIB, "parameter/other/weight float32[1024x256]");
    let traces = [(1, step(1)), (2, step(2)), (3, short.trace())];
    let two = Lines::unchecked((1, &traces[0].1), (3, &traces[2].1));
    assert!(matches!(two, Err(BatchError::Differs(_))), "two traces are compared as well");
    let none = Lines::unchecked((2, &traces[0].1), (2, &traces[1].1));
    assert_eq!(none.unwrap_err(), BatchError::TooFew(1));
    let Err(BatchError::Differs(found)) = Lines::new(&traces) else { panic!("labels differ") };
    assert_eq!((found.request, found.batches), (1, (1, 3)));
    assert!(found.what.contains("parameter/other/weight"), "{found}");
    let mut short = Script::new("step");
    short.allocate(0, MIB, "parameter/other/weight float32[1024x256]");
    let traces = [(1, step(1)), (3, step(3)), (2, short.trace())];
    let Err(BatchError::Differs(found)) = Lines::new(&traces) else { panic!("labels differ") };
    assert_eq!((found.request, found.batches), (0, (1, 2)), "whichever order they came in");
    let mut cut = Script::new("step");
    cut.allocate(0, MIB, "parameter/wte/weight float32[1024x256]");
    cut.free(&[0]);
    let traces = [(1, step(1)), (2, step(2)), (3, cut.trace())];
    let Err(BatchError::Differs(found)) = Lines::new(&traces) else { panic!("order differs") };
    assert!(found.what.contains("one allocates where the other frees"), "{found}");
}

#[test]
fn a_step_at_another_batch_begins_at_the_same_request() {
    let at = |batch| {
        let mut writer = Writer::new(Vec::new());
        let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
        let take = |id, mib| Record::Allocate { id, size: mib * MIB, stream, align, label };
        let ask = Record::FreeRequested { id: 0, stream };
        let free = Record::FreeCompleted { id: 0, stream };
        for record in [take(0, batch), ask, free, Record::Step, take(1, 2 * batch)] {
            writer.record(1, &record);
        }
        Trace::read(&writer.finish().unwrap()[..], &Limits::default()).unwrap()
    };
    let traces = [1, 2, 4].map(|batch| (batch, at(batch)));
    assert_eq!(traces[0].1.meta().last_step, Some(3));
    let larger = Lines::new(&traces).unwrap().at(10).unwrap();
    assert_eq!((larger.events().len(), larger.meta().last_step), (3, Some(2)));
    let fits = |mib: &u64| completes(&larger, PyTorch::with_capacity(mib * MIB));
    assert_eq!((1..).find(fits), Some(20));
}
