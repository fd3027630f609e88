//! The fuzz target of the planner's tables on its corpus, on every beginning of it, and with each byte changed.

#[path = "../../../../tests/fuzz/src/plan.rs"]
#[expect(unreachable_pub, reason = "the fuzz package makes a target of this function")]
mod targets;

use std::fs;
use std::path::Path;

/// Bytes that mean something to the reader, and two that mean nothing.
const CHANGES: &[u8] = b",\n-0 9\x00\xff";

#[test]
fn tables_from_the_corpus_and_near_it_are_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/plan_csv");
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let files: Vec<_> = entries
        .map(|entry| fs::read(entry.expect("it can be listed").path()).expect("it can be read"))
        .collect();
    assert!(files.len() >= 10, "{} inputs", files.len());
    for file in files {
        for end in 0..=file.len() {
            targets::csv(&file[..end]);
        }
        for at in 0..file.len() {
            for change in CHANGES {
                let mut changed = file.clone();
                changed[at] = *change;
                targets::csv(&changed);
            }
        }
    }
}
