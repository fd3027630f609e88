//! The picture of a trace, with what other allocators reserve for the same events.
use crate::output;
use crate::replay::{Device, Paging, Program};
use omniheap::trace::report::{self, Comparison, Curve, Origin, ReportData};
use omniheap::trace::{Limits, Op, Trace};
use std::panic::resume_unwind;
use std::thread;

/// Returns whether the trace says where allocations lie.
pub fn is_placed(trace: &Trace) -> bool {
    trace.events().iter().any(|event| matches!(event.op, Op::Bind { .. }))
}

/// Returns the recording, and what PyTorch's policy and omniheap reserve for the same events.
///
/// # Errors
///
/// Fails where the trace is too large for a page.
pub fn page_of(trace: &Trace, name: &str) -> Result<ReportData, omniheap::trace::Error> {
    let mut data = if is_placed(trace) {
        report::from_trace(trace, name)
    } else {
        report::from_trace_by_model(trace, name, &Limits::default())?
    };
    let others = thread::scope(|scope| {
        let model = scope.spawn(|| Comparison::pytorch(trace));
        let replay = omniheap(trace);
        [Some(model.join().unwrap_or_else(|panic| resume_unwind(panic))), replay]
    });
    data.comparison.extend(others.into_iter().flatten());
    Ok(data)
}

/// Returns a replay through omniheap's own manager, on a device that keeps accounts only. `None` when it cannot serve the trace.
fn omniheap(trace: &Trace) -> Option<Comparison> {
    let (device, program) = (Device::open(None, 0).ok()?, Program::new(trace));
    let (played, curve) = device.reserved_curve(&program, Paging::Wanted, 0).ok()?;
    played.failed.is_empty().then(|| Comparison {
        name: "omniheap, paged pools".into(),
        origin: Origin::Replay,
        peak_reserved_bytes: played.peak_reserved,
        ratio: output::ratio(played.peak_reserved, program.peak_live(&[])),
        curve: Some(Curve::new(&curve)),
    })
}
