//! Recordings as files: what a process leaves that ends well, panics or is killed.

use omniheap_core::{Manager, ManagerConfig, Request, TimelineId};
use omniheap_host::Host;
use omniheap_trace::{Ending, Limits, Recorder, Trace};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_recording_holds_the_requests_up_to_its_end() {
    let path = scratch("recorded.trace");
    let recorder = Recorder::create(&path).unwrap();
    let config = ManagerConfig::default().observed(recorder.clone());
    let manager = Manager::with_config(Host::new(), config);
    let kept = manager.allocate(&Request::new(1000).on(TimelineId::MAIN)).unwrap();
    drop(manager.allocate(&Request::new(500)).unwrap());
    recorder.finish().unwrap();
    drop(kept);
    assert!(recorder.lost() > 0, "freed after the end");
    let summary = Trace::open(&path).unwrap().summary();
    assert_eq!((summary.allocations, summary.peak_live_bytes), (2, 1500));
    assert_eq!((summary.final_live_bytes, summary.streams), (1000, 2));
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs this test binary again as a child that does `what` and writes to `path`.
fn child(what: &str, path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::what_children_do", "--nocapture"])
        .env("OMNIHEAP_CHILD", what)
        .env("OMNIHEAP_CHILD_FILE", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn what_children_do() {
    let Ok(what) = std::env::var("OMNIHEAP_CHILD") else { return };
    let path = std::env::var_os("OMNIHEAP_CHILD_FILE").unwrap();
    let recorder = Recorder::create(path).unwrap();
    let config = ManagerConfig::default().observed(recorder.clone());
    let manager = Manager::with_config(Host::new(), config);
    match what.as_str() {
        // Never ends: the parent kills it.
        "churn" => loop {
            let live: Vec<_> = (1..200)
                .map(|size| manager.allocate(&Request::new(size * 700).name("churn")).unwrap())
                .collect();
            drop(live);
            println!("round");
        },
        "panic" => {
            let kept = manager.allocate(&Request::new(777).name("kept")).unwrap();
            // As if panics ended the process: nothing is dropped, so only the hook can write.
            core::mem::forget((kept, manager, recorder));
            panic!("on purpose");
        }
        other => unreachable!("no child does {other}"),
    }
}

#[test]
fn a_killed_process_leaves_a_readable_prefix() {
    let path = scratch("killed.trace");
    let mut child = child("churn", &path);
    let mut rounds = [0; 240];
    child.stdout.take().unwrap().read_exact(&mut rounds).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.meta().ending, Ending::CutOff);
    assert!(trace.summary().allocations > 2000, "{:?}", trace.summary());
    // Any prefix is readable, not only the one that chance left.
    let bytes = std::fs::read(&path).unwrap();
    for length in (16..bytes.len()).step_by(bytes.len() / 97) {
        let cut = Trace::read(&bytes[..length], &Limits::default()).unwrap();
        assert_eq!(cut.meta().ending, Ending::CutOff);
    }
}

#[test]
fn a_panic_leaves_everything_that_came_before_it() {
    let path = scratch("panicked.trace");
    assert!(!child("panic", &path).wait().unwrap().success());
    let summary = Trace::open(&path).unwrap().summary();
    assert_eq!((summary.allocations, summary.peak_live_bytes), (1, 777));
}
