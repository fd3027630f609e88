//! Bodies of the fuzz targets. Each area has a file here; each function is a target.
pub mod arbiter;
pub mod fit;
pub mod manager;
mod meter;
pub mod plan;
pub mod trace;
pub mod weights;

use omniheap_fit::onnx::Tensors;
use omniheap_trace::{Limits, Trace};

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Runs a target that reads weights, which may take as many bytes as `services/weights/tests/memory.rs` says.
pub fn read_weights(data: &[u8], target: fn(&[u8])) {
    if data.starts_with(b"PK") {
        // For the directory of a zip file, as many entries are reserved as it claims and the file could have, without touching them.
        return target(data);
    }
    meter::within(32, data, || target(data));
}

/// Reads a trace, which may take as many bytes as `tools/trace/tests/memory.rs` says. Then runs a target, which uses it in every way and takes more.
pub fn read_trace(data: &[u8], target: fn(&[u8])) {
    // Compressed traces have limits of their own.
    if !data.starts_with(&[0x1f, 0x8b]) {
        let _ = meter::within(4, data, || Trace::read(data, &Limits::default()));
    }
    target(data);
}

/// Reads a model, which may take as many bytes as `lab/fit/tests/memory.rs` says. Then runs a target, which makes traces of it and takes more.
pub fn read_model(data: &[u8], target: fn(&[u8])) {
    let _ = meter::within(256, data, || Tensors::read(data, &std::collections::BTreeMap::new()));
    target(data);
}

/// Runs a target that reads frames, which may take as many bytes as `services/arbiter/tests/corpus.rs` says.
pub fn read_frames(data: &[u8], target: fn(&[u8])) {
    meter::within(32, data, || target(data));
}
