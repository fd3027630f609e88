//! A manager's state as the report's data: for JSON, for the HTML page, and for other languages.
use omniheap_core::{Backend, Manager};
use omniheap_trace::report::{self, ReportData};

/// Returns a snapshot of a manager, as described by `docs/report.schema.json`.
///
/// # Examples
///
/// ```
/// use omniheap::{Manager, Request, host::Host, report::picture};
/// let manager = Manager::new(Host::new());
/// let weights = manager.allocate(&Request::new(4096).name("weights"))?;
/// let data = picture(&manager, "my engine");
/// assert_eq!(data.labels[0].text, "weights");
/// # drop(weights);
/// # Ok::<(), omniheap::AllocateError>(())
/// ```
pub fn picture<B: Backend>(manager: &Manager<B>, title: &str) -> ReportData {
    report::from_manager(&manager.report(), manager.caps(), title)
}
