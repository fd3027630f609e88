//! A process of its own for what would otherwise take the host's memory.
use crate::{blocks, targets};
use std::process::{Command, ExitCode};

/// Names the device that the child exhausts.
const VARIABLE: &str = "OMNIHEAP_WGPU_EXHAUST";

/// Address space of the child in KiB: room for the driver and a few of the largest blocks.
const LIMIT_KIB: u64 = 12 << 20;

/// Returns whether this process is such a child.
pub(crate) fn is_one() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Runs the child's work.
pub(crate) fn run() -> ExitCode {
    let label = std::env::var(VARIABLE).expect("asked by main");
    let target = targets().into_iter().find(|target| target.label == label);
    blocks::exhaust(&(target.expect("the parent has it").open)());
    ExitCode::SUCCESS
}

/// Exhausts a device in a child.
pub(crate) fn exhaust(label: &str) {
    if cfg!(not(unix)) {
        eprintln!("no address-space limit on this platform: not run");
        return;
    }
    let program = std::env::current_exe().expect("this test");
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {LIMIT_KIB}; exec \"$0\"")])
        .arg(program)
        .env(VARIABLE, label)
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}
