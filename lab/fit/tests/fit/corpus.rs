//! The fuzz target of models on its corpus and on mutations of it: fuzzing that every test run does.

#[path = "../../../../tests/fuzz/replay.rs"]
mod replay;
#[path = "../../../../tests/fuzz/src/fit.rs"]
#[expect(unreachable_pub, reason = "the fuzz package makes a target of this function")]
mod targets;
#[path = "../../../../tests/fuzz/src/trace.rs"]
#[expect(unreachable_pub, dead_code, reason = "the target of models uses a part of it")]
mod trace;

#[test]
fn onnx() {
    replay::run("fit_onnx", targets::onnx);
}
