//! Ctrl-C in long work: what is done is shown, it is said to be partial, and no file is left behind.
#[cfg(feature = "conformance")]
use crate::support::json;
use crate::support::{binary, churn, file, folder, text};
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

/// How often a command is run until a signal comes in time.
const ATTEMPTS: u32 = 10;

/// Runs the command, and interrupts it in its work. On a busy machine that may be over when the signal comes: then once more.
fn interrupted(arguments: &[&str]) -> (String, String) {
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
fn empty(name: &str) -> PathBuf {
    let path = folder().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the folder for tests can be written");
    path
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("the folder has a plain name")
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("it is there").next().is_none()
}

#[test]
fn an_interrupted_plan_tells_its_best_and_writes_nothing() {
    let out = empty("interrupted-plan");
    // Thousands of buffers that nothing proves in a day.
    let trace = file("hard.csv", churn(6000, 1, 1 << 20).csv);
    let [plan, table] = ["plan.json", "table.csv"].map(|name| out.join(name));
    let (told, why) = interrupted(&[
        "plan",
        &trace,
        "--align",
        "1",
        "--time-limit",
        "86400",
        "--plan",
        shown(&plan),
        "--out",
        shown(&table),
        "--json",
    ]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert!(told["status"] == "feasible" || told["status"] == "undecided", "{told}");
    assert!(why.contains("no file is written"), "{why}");
    assert!(is_empty(&out), "neither a result nor a part of one");
}

#[test]
fn an_interrupted_fit_keeps_the_answers_that_it_gave() {
    let long = file("long-fit.csv", churn(60_000, 4, 1 << 20).csv);
    let (_, why) = interrupted(&["fit", &long, &long, &long, "--capacity", "1T", "--json"]);
    assert!(why.contains("of 3 traces were answered"), "{why}");
    let out = empty("interrupted-fit");
    let page = out.join("page.html");
    let arguments = ["fit", &long, "--capacity", "1T", "--allocator", "omniheap", "--report"];
    let (told, why) = interrupted(&[&arguments[..], &[shown(&page)]].concat());
    assert!(told.is_empty() && why.contains("0 of 1 traces were answered"), "{told}{why}");
    assert!(is_empty(&out), "neither a page nor a part of one");
}

#[test]
fn an_interrupted_comparison_shows_who_has_ended() {
    let long = file("long-compare.csv", churn(100_000, 4, 1 << 20).csv);
    let (told, why) = interrupted(&["compare", &long, "--json"]);
    assert!(told.lines().count() < 4, "{told}");
    assert!(why.contains("of 4 allocators have replayed"), "{why}");
}

#[test]
fn an_interrupted_batch_says_what_is_known() {
    let traces = [2, 4, 8, 4096].map(|batch: u64| {
        let mut csv = String::from("op,id,size,stream,time_us\n");
        for id in 0..60_000_u64 {
            csv += &format!("a,{id},{},0,{id}\n", batch * 512 * (1 + id % 7));
            if let Some(old) = id.checked_sub(64) {
                csv += &format!("r,{old},,0,{id}\nf,{old},,0,{id}\n");
            }
        }
        format!("--trace={batch}:{}", file(&format!("long-batch-{batch}.csv"), csv))
    });
    let [a, b, c, large] = &traces;
    // One alone is replayed, and nothing is searched on lines.
    for asked in [&[a, b, c][..], &[large]] {
        let asked: Vec<_> = asked.iter().map(|trace| trace.as_str()).collect();
        let asked = [&["batch", "--capacity", "1T", "--json"], &asked[..]].concat();
        let (told, why) = interrupted(&asked);
        assert_eq!(told, "", "there is no answer");
        assert!(why.contains("batch"), "{why}");
    }
}

#[test]
fn interrupted_ranks_are_counted_and_have_no_page() {
    let (ranks, out) = (empty("interrupted-ranks"), empty("interrupted-ranks-page"));
    let first = ranks.join("rank0.csv");
    fs::write(&first, churn(20_000, 2, 1 << 20).csv).expect("it may be written");
    for rank in 1..300 {
        fs::hard_link(&first, ranks.join(format!("rank{rank}.csv"))).expect("one file system");
    }
    let page = out.join("job.html");
    let (told, why) = interrupted(&["ranks", shown(&ranks), "--report", shown(&page), "--json"]);
    assert!(why.contains("of 300 files were read; no page is written"), "{why}");
    let told: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert!(told["ranks"].as_u64().is_some_and(|ranks| (1..300).contains(&ranks)), "{told}");
    assert!(told["report"].is_null() && is_empty(&out), "{told}");
}

#[test]
fn an_interrupted_check_of_weights_lists_them_all_the_same() {
    // Zeros that take no room on the disk.
    const BYTES: u64 = 4 << 30;
    let header =
        format!(r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{BYTES}]}}}}"#, BYTES / 4);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    let path = file("interrupted.safetensors", &bytes);
    let sparse = fs::File::options().write(true).open(&path).expect("it is there");
    sparse.set_len(bytes.len() as u64 + BYTES).expect("sparse");
    let (told, why) = interrupted(&["weights", &path, "--check", "--json"]);
    fs::remove_file(&path).expect("it is there");
    let told: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert_eq!((&told["tensor_count"], &told["check"]), (&1.into(), &serde_json::Value::Null));
    assert!(why.contains("of 4.00 GiB were loaded"), "{why}");
}

#[cfg(feature = "conformance")]
#[test]
fn an_interrupted_soak_tells_how_much_it_did() {
    let soak = ["conformance", "--backend", "host", "--soak", "100000000000", "--threads", "2"];
    let (told, why) = interrupted(&[&soak[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).expect("only the first half");
    assert_eq!((&told["name"], &told["pools"]), (&"soak".into(), &"blocks".into()));
    assert!(why.contains("of 50000000000 operations over blocks"), "{why}");
}

#[cfg(feature = "conformance")]
#[test]
fn interrupted_faults_are_told_as_a_part() {
    let sweep = |every| ["conformance", "--backend", "host", "--faults", every];
    let (told, why) = interrupted(&[&sweep("1")[..], &["--json"]].concat());
    let object = |line| serde_json::from_str(line).expect("an object");
    let made: Vec<serde_json::Value> = told.lines().map(object).collect();
    let last = made.last().expect("what was made is shown");
    assert_eq!((&last["name"], &last["wrong"]), (&"faults".into(), &serde_json::json!([])));
    let whole = made.len() - 1;
    assert!(why.contains(&format!("{whole} of 4 sweeps are whole")), "{told}{why}");
    // Hardly a call fails, and all scenarios are counted.
    let all = &json(&sweep("4000000000"))[whole];
    assert!(last["scenarios"].as_u64() < all["scenarios"].as_u64(), "{last} of {all}");
}

/// Shells start work in the background so, and `nohup` does.
#[cfg(target_os = "linux")]
#[test]
fn an_ignored_ctrl_c_stays_ignored() {
    use std::io::{BufRead as _, BufReader};
    let short = file("ignored-short.csv", "op,id,size,stream,time_us\na,1,1,0,0\nf,1,,0,1\n");
    // Ten thousand replays of this one take hours.
    let long = file("ignored-long.csv", churn(200_000, 4, 1 << 20).csv);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).arg(binary());
    command.args(["replay", &short, &long, "--repeat", "10000", "--backend", "none", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut first = String::new();
    let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first);
    assert!(read.is_ok_and(|bytes| bytes > 0), "the first trace is through");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a mask");
        u64::from_str_radix(line.trim(), 16).expect("a mask") >> (libc::SIGINT - 1) & 1
    };
    let masks = (mask("SigIgn:"), mask("SigCgt:"));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(masks, (1, 0), "{status}");
}
