//! Running the command, and traces to run it on; `omniheap-lab` is tested with the same.
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs the command with the built-in placement rules, whatever was measured here.
pub(crate) fn omniheap(arguments: &[&str]) -> Output {
    omniheap_with("off", arguments)
}

/// The command itself. A bundle names its own, and has `omniheap-lab` beside it.
pub(crate) fn binary() -> OsString {
    let bundled = std::env::var_os("OMNIHEAP_COMMAND");
    match (option_env!("CARGO_BIN_EXE_omniheap"), option_env!("CARGO_BIN_EXE_omniheap-lab")) {
        (Some(built), _) => bundled.unwrap_or_else(|| built.into()),
        (None, Some(built)) => {
            let beside = |path| PathBuf::from(path).with_file_name("omniheap-lab").into();
            bundled.map_or_else(|| built.into(), beside)
        }
        (None, None) => panic!("the tests are those of a command"),
    }
}

/// Runs the command with the profiles of a folder.
pub(crate) fn omniheap_with(profiles: &str, arguments: &[&str]) -> Output {
    let folder = folder();
    let mut command = Command::new(binary());
    // Without it, window-system libraries that drivers load complain on standard error.
    command.env("XDG_RUNTIME_DIR", &folder).env("OMNIHEAP_PROFILES", profiles);
    command.args(arguments).current_dir(folder).output().expect("the command starts")
}

/// Returns the folder that the tests of one command write to. A bundle names its command, and has no build folder
/// beside it.
pub(crate) fn folder() -> PathBuf {
    let folders = match std::env::var_os("OMNIHEAP_COMMAND") {
        Some(_) => std::env::temp_dir(),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    };
    let folder = folders.join(concat!("omniheap-tests-", env!("CARGO_CRATE_NAME")));
    fs::create_dir_all(&folder).expect("the folder for tests can be made");
    folder
}

/// Runs the command with `--json` and reads what it prints.
pub(crate) fn json(arguments: &[&str]) -> Vec<Value> {
    let output = omniheap(&[arguments, &["--json"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}");
    assert_eq!(err, "", "nothing but results with --json");
    out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// Asserts that the command refuses: this code, one line on standard error, nothing on standard output.
pub(crate) fn refuses(arguments: &[&str], code: i32, word: &str) {
    let output = omniheap(arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
    assert_eq!(out, "", "{arguments:?}: nothing half done");
    assert_eq!(err.lines().count(), 1, "{arguments:?}: one line, not {err:?}");
    assert!(err.contains(word), "{arguments:?}: {err:?} does not say {word:?}");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// Writes a file for the command to read, under a name that no other test uses: they run beside each other.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    static WRITERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let test = thread::current().name().unwrap_or_default().to_owned();
    let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = writers.entry(name.to_owned()).or_insert_with(|| test.clone()).clone();
    drop(writers);
    assert_eq!(writer, test, "both write {name}: give one of them another name");
    let path = folder().join(name);
    fs::write(&path, content).expect("the folder for tests can be written");
    path.to_str().expect("the folder has a plain name").to_owned()
}

/// A trace and the most bytes that are live in it at once.
pub(crate) struct Sample {
    pub(crate) csv: String,
    pub(crate) events: u64,
    pub(crate) peak_live: u64,
}

/// Churn on several streams: mixed sizes, frees in random order, all frees asked for before they complete.
pub(crate) fn churn(steps: u32, streams: u64, largest: u64) -> Sample {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut csv = String::from("op,id,size,stream,time_us\n");
    let (mut live, mut live_bytes, mut peak_live, mut events) = (Vec::new(), 0, 0, 0);
    for step in 0..steps {
        if live.len() < 40 || random(2) == 0 {
            let (size, stream) = (1 + random(largest), random(streams));
            csv += &format!("a,{step},{size},{stream},{step}\n");
            live.push((step, size, stream));
            live_bytes += size;
            peak_live = peak_live.max(live_bytes);
            events += 1;
        } else {
            let count = live.len() as u64;
            let at = usize::try_from(random(count)).expect("an index");
            let (id, size, stream) = live.swap_remove(at);
            csv += &format!("r,{id},,{stream},{step}\nf,{id},,{stream},{step}\n");
            live_bytes -= size;
            events += 2;
        }
    }
    Sample { csv, events, peak_live }
}
