//! Ctrl-C in long work: what is done is shown, it is said to be partial, and no file is left behind.
use crate::signals::{empty, interrupted, is_empty, shown};
#[cfg(feature = "conformance")]
use crate::support::json;
use crate::support::{binary, churn, file};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn an_interrupted_comparison_shows_who_has_ended() {
    let long = file("long-compare.csv", churn(100_000, 4, 1 << 20).csv);
    let (told, why) = interrupted(&["compare", &long, "--json"]);
    assert!(told.lines().count() < 4, "{told}");
    assert!(why.contains("of 4 allocators have replayed"), "{why}");
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
    let (told, why) = interrupted(&["ranks", shown(&ranks), "--out", shown(&page), "--json"]);
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
