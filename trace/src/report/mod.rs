//! The picture: what a manager or a trace looks like, as JSON with a schema and as one HTML file.
//!
//! [`ReportData`] is plain data (`docs/report.schema.json` is its published schema). Build it from a manager
//! with [`from_manager`] or from a trace with [`from_trace`]; [`write_html`] turns it into a page that needs no network.
//!
//! # Examples
//! ```
//! use omniheap_trace::{Limits, Trace, report};
//! let text = b"op,id,size,stream,time_us\na,0,100,0,0\nf,0,,0,1\n";
//! let trace = Trace::read(&text[..], &Limits::default())?;
//! // CSV does not say where allocations lie; a model's places make a map possible.
//! let placed = report::bind_by_model(&trace, &Limits::default())?;
//! let mut page = Vec::new();
//! report::write_html(&report::from_trace(&placed, "a tiny trace"), &mut page)?;
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

pub use build::{bind_by_model, from_trace};
pub use columns::Columns;
pub use data::{
    Blocker, Comparison, Defragmentation, Fact, Figures, Heap, Hole, Label, MapBlock, MapSpan,
    Moment, PostMortem, ReportData, SpanState,
};
pub use html::write_html;
pub use json::{read_json, write_json};
pub use live::from_manager;
