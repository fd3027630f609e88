//! The manager: any order of calls, any settings, any driver.
//!
//! `tests/model/tests/manager/corpus.rs` runs the same functions on the corpus, with a stable compiler.

/// Calls of the public interface in any order, with contents checked.
pub fn operations(data: &[u8]) {
    omniheap_model::session::run(data);
}

/// The same over a driver that fails as the first bytes say.
pub fn faults(data: &[u8]) {
    omniheap_model::session::run_with_faults(data);
}

/// Settings of managers and pools.
pub fn configuration(data: &[u8]) {
    omniheap_model::configuration::run(data);
}
