//! Reports of a manager or a trace: JSON with a schema, and one HTML file that needs no network.
//!
//! [`ReportData`] is plain data (`docs/report.schema.json` is its published schema). Build it from a manager
//! with [`from_manager`] or from a trace with [`from_trace`]; [`write_html`] turns it into a page (`docs/report.md`).
//!
//! # Examples
//! ```
//! use omniheap_trace::{Limits, Trace, report};
//! let text = b"op,id,size,stream,time_us\na,0,100,0,0\nf,0,,0,1\n";
//! let trace = Trace::read(&text[..], &Limits::default())?;
//! // CSV does not say where allocations lie. A model of PyTorch's policy places them, and the page says so.
//! let data = report::from_trace_by_model(&trace, "a tiny trace", &Limits::default())?;
//! let mut page = Vec::new();
//! report::write_html(&data, &mut page)?;
//! assert!(page.starts_with(b"<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base64;
mod build;
mod columns;
mod data;
mod html;
mod json;
mod live;
mod post_mortem;
mod state;
mod unpack;

pub use build::{bind_by_model, from_trace, from_trace_by_model};
pub use data::{
    Blocker, Columns, Comparison, Curve, Defragmentation, Fact, Figures, Fit, Gain, Gap, Heap,
    HeapBytes, Hole, Label, MapBlock, MapSpan, Moment, Origin, PostMortem, ReportData, SpanState,
};
pub(crate) use html::write_page;
pub use html::{write_html, write_runs};
pub use json::{read_json, write_json};
pub use live::from_manager;
