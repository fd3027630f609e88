//! Tables of the offline planner: whatever the input is, the reader returns, and what it accepts can be written and read.
//!
//! `lab/plan/tests/suite/corpus.rs` runs the same function on the corpus and on pieces of it, with a stable compiler.

/// The planner's CSV.
pub fn csv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match omniheap_plan::csv::read(&text, Some(1 << 20)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(table) => {
            let offsets: Vec<u64> = (0..table.names.len() as u64).map(|at| at * 64).collect();
            let written = omniheap_plan::csv::write(&table, &offsets);
            let again = omniheap_plan::csv::read(&written, Some(1 << 20));
            let again = again.expect("what is written can be read");
            assert_eq!((&again.problem, &again.names), (&table.problem, &table.names));
            assert_eq!(again.offsets, offsets.into_iter().map(Some).collect::<Vec<_>>());
        }
    }
}
