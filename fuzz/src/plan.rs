//! Tables of the offline planner.

/// The planner's CSV.
pub fn csv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = omniheap_plan::csv::read(&text, Some(1 << 20)) {
        assert!(!error.to_string().is_empty());
    }
}
