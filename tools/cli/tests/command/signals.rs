//! Runs the command and sends it Ctrl-C; `omniheap-lab` is tested with the same.
use crate::support::{binary, folder, text};
use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;

/// Waits until a process handles Ctrl-C itself: from then on it is in the long part of its work. Returns whether it was seen
/// there: it may have ended before anybody looked.
fn wait_for_handler(child: &mut Child) -> bool {
    let status = format!("/proc/{}/status", child.id());
    // Minutes: a command that never watches for Ctrl-C would be waited for in vain.
    for _ in 0..200_000 {
        if child.try_wait().expect("it is a child").is_some() {
            return false;
        }
        let told = fs::read_to_string(&status).unwrap_or_default();
        let caught = told.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // Signals are counted from one.
        if caught.is_some_and(|mask| mask >> (libc::SIGINT - 1) & 1 == 1) {
            return true;
        }
        sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    panic!("it does not watch for Ctrl-C");
}

/// Number of times that a command is run until a signal comes in time.
const ATTEMPTS: u32 = 10;

/// Runs the command, and interrupts it in its work. On a busy machine that may be over when the signal comes: then once more.
pub(crate) fn interrupted(arguments: &[&str]) -> (String, String) {
    let paths = arguments.iter().map(Path::new);
    let written: Vec<_> = paths.filter(|path| path.is_absolute() && !path.exists()).collect();
    for _ in 0..ATTEMPTS {
        let Output { status, stdout, stderr } = signalled(arguments);
        let (out, err) = (text(&stdout), text(&stderr));
        if status.success() && !err.contains("interrupted") {
            written.iter().for_each(|path| drop(fs::remove_file(path)));
            continue;
        }
        assert_eq!(status.code(), Some(130), "{arguments:?}: {out}{err}");
        assert!(err.contains("interrupted: ") && err.contains("partial"), "{arguments:?}: {err}");
        return (out, err);
    }
    panic!("{arguments:?}: does not stop, or its work is too short to be interrupted");
}

/// Runs the command, and sends it one signal.
fn signalled(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.env("XDG_RUNTIME_DIR", folder()).env("OMNIHEAP_PROFILES", "off").args(arguments);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(folder());
    let mut child = piped.spawn().expect("the command starts");
    if wait_for_handler(&mut child) {
        // Nobody has waited for it, so its number is its own, also if it has ended meanwhile.
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }
    child.wait_with_output().expect("it ends")
}

/// A folder of its own, which is empty.
pub(crate) fn empty(name: &str) -> PathBuf {
    let path = folder().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the folder for tests can be written");
    path
}

pub(crate) fn shown(path: &Path) -> &str {
    path.to_str().expect("the folder has a plain name")
}

pub(crate) fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("it is there").next().is_none()
}
