//! The demo, which runs once for all tests.
use crate::support::{folder, json};
use serde_json::Value;
use std::sync::LazyLock;

/// The demo on host memory: what it says. Its page is `demo.html`, its recording `demo.trace`.
pub(crate) static DEMO: LazyLock<Value> = LazyLock::new(|| {
    json(&["demo", "--backend", "host", "--out", "demo.html", "--record", "demo.trace"]).remove(0)
});

/// The demo's recording.
pub(crate) fn recorded() -> String {
    LazyLock::force(&DEMO);
    folder().join("demo.trace").to_str().expect("the folder has a plain name").to_owned()
}
