//! Readers of traces: whatever the input is, they return, and what they accept can be used everywhere.
//!
//! `tools/trace/tests/trace/corpus.rs` runs the same functions on the corpus and on mutations of it, with a stable compiler.

use omniheap_trace::export::{chrome, snapshot};
use omniheap_trace::{Error, Limits, Trace, binary, model, pytorch, report, rmm, vma};

/// Small enough for thousands of runs a second.
pub const LIMITS: Limits = Limits {
    events: 20_000,
    live: 20_000,
    bytes: 1 << 20,
    expansion: 100,
    line: 1024,
    string: 1 << 12,
    depth: 64,
};

/// CSV.
pub fn csv(data: &[u8]) {
    accept(omniheap_trace::csv::read(data, &LIMITS));
}

/// The binary format, with every checksum made right: damage is found by other tests.
pub fn binary(data: &[u8]) {
    accept(binary::read(data, &LIMITS));
    accept(binary::read(&mended(data)[..], &LIMITS));
}

/// PyTorch's snapshots.
pub fn pickle(data: &[u8]) {
    accept(pytorch::read(data, pytorch::Device::Busiest, &LIMITS));
}

/// RMM's logs.
pub fn rmm(data: &[u8]) {
    accept(rmm::read(data, &LIMITS));
}

/// VMA's dumps.
pub fn vma(data: &[u8]) {
    accept(vma::read(data, &LIMITS));
}

/// Reports in JSON.
pub fn report(data: &[u8]) {
    if let Ok(report) = report::read_json(data) {
        report::write_html(&report, std::io::sink()).expect("a sink takes everything");
    }
}

fn accept(outcome: Result<Trace, Error>) {
    match outcome {
        Ok(trace) => use_everywhere(&trace),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Does with a trace everything that can be done with one.
pub fn use_everywhere(trace: &Trace) {
    let outcome = model::pytorch(trace);
    let summary = trace.summary();
    assert!(outcome.oom > 0 || outcome.peak_live_bytes == summary.peak_live_bytes);
    let data = report::from_trace(trace, "fuzz");
    report::write_html(&data, std::io::sink()).expect("a sink takes everything");
    chrome::write(trace, chrome::Detail::Allocations, std::io::sink())
        .expect("a sink takes everything");
    omniheap_trace::csv::write(trace, std::io::sink()).expect("a sink takes everything");
    snapshot::write(trace, std::io::sink()).expect("a sink takes everything");
    let copy = binary::write(trace, Vec::new()).expect("a vector takes everything");
    let copy = binary::read(&copy[..], &Limits::default()).expect("what is written can be read");
    assert_eq!(copy.events(), trace.events());
    assert_eq!(copy.summary(), summary);
}

/// Returns the file with the checksum that each of its chunks should have.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut file = data.to_vec();
    let mut at = 16;
    while let Some(head) = file.get(at..at + 12) {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = (at + 12).saturating_add(length);
        if length > binary::MAX_CHUNK || end > file.len() {
            break;
        }
        let sum = binary::checksum(&file[at..at + 8], &file[at + 12..end]);
        file[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    file
}
