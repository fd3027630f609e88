//! Texts that are kept, to the letter; `lab/fit` has some too.

use core::fmt::Write as _;
use omniheap_trace::{LabelId, Trace};
use std::path::Path;

/// Compares a text with the one that is kept.
pub(crate) fn is_kept(name: &str, text: &str) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    if std::fs::read_to_string(&kept).is_ok_and(|kept| kept == text) {
        return;
    }
    let now = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&now, text).unwrap();
    panic!("{} is not as it was: compare it with {}", kept.display(), now.display());
}

/// Everything that a trace says.
pub(crate) fn told(trace: &Trace) -> String {
    let mut text = format!("{:?}\n{:?}\n", trace.meta(), trace.summary());
    for label in (1..=trace.labels().len() as u32).map(LabelId) {
        let (parent, words) = (trace.labels().parent(label).0, trace.labels().text(label));
        writeln!(text, "label {} below {parent}: {words:?}", label.0).unwrap();
    }
    for event in trace.events() {
        writeln!(text, "{} {:?}", event.time_us, event.op).unwrap();
        if let omniheap_trace::Op::Allocate { id, .. } = event.op
            && trace.label_of(id) != LabelId::NONE
        {
            writeln!(text, "    is label {}", trace.label_of(id).0).unwrap();
        }
    }
    text
}
