//! The fuzz targets on their corpus and on mutations of it: fuzzing that every test run does.

#[path = "../../../../tests/fuzz/src/trace.rs"]
#[expect(unreachable_pub, reason = "the fuzz package makes targets of these functions")]
mod targets;

#[path = "../../../../tests/fuzz/replay.rs"]
mod replay;

use replay::{CORPUS, run};
use std::fs;
use std::path::Path;

#[test]
fn csv() {
    run("trace_csv", targets::csv);
}

#[test]
fn binary() {
    run("trace_binary", targets::binary);
}

#[test]
fn pickle() {
    run("trace_pickle", targets::pickle);
}

#[test]
fn rmm() {
    run("trace_rmm", targets::rmm);
}

#[test]
fn vma() {
    run("trace_vma", targets::vma);
}

#[test]
fn report() {
    let seed = fs::read(Path::new(CORPUS).join("trace_report/story.json")).unwrap();
    omniheap_trace::report::read_json(&seed[..]).expect("a seed that is refused mutates nothing");
    run("trace_report", targets::report);
}
