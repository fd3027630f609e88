//! Files that the real programs wrote: PyTorch's snapshots beside PyTorch's own counters, and a log of RMM.

use omniheap_trace::{Limits, Source, Summary, Trace, model, report};
use serde_json::Value;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/real")).join(name)
}

/// Returns a snapshot, and a way to ask what PyTorch itself counted.
fn open(name: &str) -> (Trace, impl Fn(&str) -> u64) {
    let counters = std::fs::read(path(&format!("{name}.json"))).unwrap();
    let counters: Value = serde_json::from_slice(&counters).unwrap();
    let trace = Trace::open(path(&format!("{name}.pickle.gz"))).unwrap();
    assert_eq!(trace.meta().source, Source::PyTorch);
    (trace, move |counter: &str| counters[counter].as_u64().unwrap())
}

/// Whole histories: what is read is what PyTorch counted, to the byte.
#[test]
fn whole_histories_agree_with_pytorchs_own_counters() {
    for name in ["unet", "stacks", "train", "streams", "expandable", "shortage"] {
        let (trace, counted) = open(name);
        let Summary { peak_live_bytes, final_live_bytes, peak_reserved_bytes, oom, .. } =
            trace.summary();
        assert_eq!(peak_live_bytes, counted("peak_requested"), "{name}");
        assert_eq!(final_live_bytes, counted("live"), "{name}");
        assert_eq!(peak_reserved_bytes, counted("peak_reserved"), "{name}");
        assert_eq!(oom, counted("ooms"), "{name}");
        let calls = counted("device_allocs") + counted("device_frees");
        assert_eq!(trace.summary().driver_calls, calls, "{name}");
        // One allocation was made before the recording began.
        assert_eq!(trace.summary().allocations + 1, counted("allocs"), "{name}");
        assert_eq!(trace.meta().skipped, 0, "{name}");
    }
}

/// The model of PyTorch's policy, on requests alone, reserves what PyTorch really reserved.
#[test]
fn the_model_reserves_what_pytorch_reserved() {
    for name in ["unet", "stacks", "train", "streams"] {
        let (trace, counted) = open(name);
        let outcome = model::pytorch(&trace);
        assert_eq!(outcome.peak_reserved_bytes, counted("peak_reserved"), "{name}");
        assert_eq!(outcome.driver_calls, counted("device_allocs"), "{name}");
    }
}

#[test]
fn a_history_that_was_cut_short_starts_with_what_was_there() {
    let (trace, counted) = open("ring");
    let summary = trace.summary();
    assert_eq!(summary.peak_reserved_bytes, counted("peak_reserved"));
    assert_eq!(summary.final_live_bytes, counted("live"));
    assert!(summary.allocations < counted("allocs"));
    // Everything that is freed later was live when the history began.
    assert_eq!(trace.events()[0].time_us, 0);
    assert_eq!(summary.allocations, 573);
}

#[test]
fn python_stacks_become_labels() {
    let (trace, _) = open("stacks");
    let paths: Vec<_> = trace
        .events()
        .iter()
        .filter_map(|event| match event.op {
            omniheap_trace::Op::Allocate { id, .. } => {
                Some(trace.labels().path(trace.label_of(id)))
            }
            _ => None,
        })
        .collect();
    assert!(paths.iter().all(|path| path.contains("snap.py")));
    assert!(paths.iter().any(|path| path.contains("conv.py") && path.contains("forward")));
}

#[test]
fn a_real_failure_is_explained() {
    let (trace, _) = open("shortage");
    let data = report::from_trace(&trace, "shortage");
    let failure = &data.out_of_memory[0];
    assert!(failure.largest_hole.is_none() || failure.largest_hole.unwrap().size < failure.size);
    assert!(failure.moment.is_some());
    // Kept memory lies in segments of its own: no gathering of holes makes one of them larger.
    assert!(!failure.fits_after_defragment);
}

#[test]
fn a_real_rmm_log_is_read() {
    let trace = Trace::open(path("rmm.csv")).unwrap();
    let summary = trace.summary();
    assert_eq!((trace.meta().source, trace.meta().skipped), (Source::Rmm, 0));
    assert_eq!((summary.allocations, summary.final_live_bytes, summary.oom), (82, 0, 1));
    // By the log itself, summed up elsewhere.
    assert_eq!(summary.peak_live_bytes, 17_146_130);
}

#[test]
fn real_files_survive_every_export() {
    for name in ["train", "streams", "expandable", "ring"] {
        let (trace, _) = open(name);
        let mut file = Vec::new();
        omniheap_trace::export::snapshot::write(&trace, &mut file).unwrap();
        let again = Trace::read(&file[..], &Limits::default()).unwrap();
        let (a, b) = (trace.summary(), again.summary());
        assert_eq!(a.peak_live_bytes, b.peak_live_bytes, "{name}");
        assert_eq!(a.peak_reserved_bytes, b.peak_reserved_bytes, "{name}");
        assert_eq!(a.final_live_bytes, b.final_live_bytes, "{name}");
    }
}
