//! Bad input: one clear line, exit code 2, nothing half done.
use crate::support::{binary, churn, file, folder, json, omniheap, refuses, text};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn files_that_are_no_traces_are_refused() {
    let header = "op,id,size,stream,time_us\n";
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "too early"),
        ("words.txt", b"hello, world\n".into(), "not a trace"),
        ("gzip.gz", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3], ""),
        ("operation.csv", format!("{header}x,1,1,0,0\n").into(), "line 2"),
        ("missing.csv", format!("{header}a,1\n").into(), "missing"),
        ("number.csv", format!("{header}a,1,ten,0,0\n").into(), "size"),
        ("zero.csv", format!("{header}a,1,0,0,0\n").into(), "size is 0"),
        ("twice.csv", format!("{header}a,1,1,0,0\nf,1,,0,1\nf,1,,0,2\n").into(), "line 4"),
        ("huge.csv", format!("{header}a,1,99999999999999999999,0,0\n").into(), "large"),
    ];
    for (name, content, word) in cases {
        let path = file(name, content);
        refuses(&["replay", &path], 2, word);
        refuses(&["replay", &path, "--json"], 2, name);
        refuses(&["compare", &path], 2, name);
        refuses(&["report", &path, "-o", "never.html"], 2, name);
    }
    refuses(&["replay", "there-is-no-such-file.csv"], 2, "file.csv: cannot read");
    refuses(&["replay", "."], 2, "cannot read");
}

#[test]
fn a_variable_that_makes_no_sense_is_named_and_hides_no_device() {
    for arguments in [&["devices"][..], &["demo", "--backend", "host", "--out", "never.html"]] {
        let mut command = Command::new(binary());
        let output =
            command.args(arguments).env("OMNIHEAP_LIMIT", "abc").output().expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("OMNIHEAP_LIMIT is no size"), "{arguments:?}: {said}");
        assert!(!said.contains("is not here"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_bad_file_after_a_good_one_stops_both() {
    let good = file("good.csv", churn(100, 1, 4096).csv);
    let bad = file("bad.csv", "op,id,size,stream,time_us\na,1,-5,0,0\n");
    refuses(&["replay", &good, &bad], 2, "bad.csv");
    refuses(&["replay", &good, &bad, "--json"], 2, "bad.csv");
}

#[test]
fn a_file_name_cannot_forge_a_second_line() {
    let path = file("two\nlines", "hello");
    refuses(&["replay", &path], 2, "two");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let good = file("options.csv", churn(100, 1, 4096).csv);
    for wrong in [
        &["--nonsense"][..],
        &["--backend", "abacus"],
        &["--capacity", "0"],
        &["--capacity", "much"],
        &["--capacity", "99999999999T"],
        &["--paged", "maybe"],
        &["--repeat", "0"],
    ] {
        let output = omniheap(&[&["replay", &good], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty(), "{wrong:?}");
    }
    for wrong in
        [&["replay"][..], &["nothing"], &[], &["explain", "--size", "x"], &["report", &good]]
    {
        assert_eq!(omniheap(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_device_that_is_not_here_is_one_line() {
    let good = file("device.csv", churn(100, 1, 4096).csv);
    refuses(&["replay", &good, "--device", "7"], 1, "device 7 of backend host");
    refuses(&["demo", "--backend", "host", "--device", "7"], 1, "omniheap devices");
    for absent in json(&["devices"]).iter().filter(|device| device["present"] == false) {
        let name = absent["backend"].as_str().expect("a name");
        refuses(&["explain", "--size", "4K", "--backend", name], 1, &format!("backend {name}"));
    }
}

#[cfg(not(feature = "conformance"))]
#[test]
fn a_suite_that_is_not_built_in_says_how_to_build_it() {
    refuses(&["conformance", "--backend", "host"], 1, "--features conformance");
    let help = omniheap(&["conformance", "--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("--faults <N>"));
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let trace = churn(100, 1, 4096).csv;
    let path = file("precious.csv", &trace);
    refuses(&["report", &path, "-o", &path], 2, "written over");
    let other_name = folder().join(".").join("precious.csv");
    refuses(&["report", "precious.csv", "-o", other_name.to_str().expect("plain")], 2, "over");
    refuses(&["demo", "--backend", "host", "--out", "one.x", "--record", "one.x"], 2, "over");
    assert_eq!(fs::read_to_string(path).expect("still there"), trace);
}

#[test]
fn options_that_would_be_ignored_are_refused() {
    let requests = file("one-request.json", r#"[{"size": 1}]"#);
    for wrong in
        [&["explain", &requests, "--pattern", "tiled"][..], &["explain", &requests, "--align", "1"]]
    {
        assert_eq!(omniheap(wrong).status.code(), Some(2), "{wrong:?}");
    }
    refuses(&["explain", "/dev/zero"], 2, "at most 1048576");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_work() {
    let trace = file("for-nowhere.csv", churn(100, 1, 4096).csv);
    let nowhere = "no-such-folder/file";
    refuses(&["report", &trace, "-o", nowhere], 1, "cannot write");
    refuses(&["demo", "--backend", "host", "--out", nowhere], 1, "cannot write");
    refuses(&["demo", "--backend", "host", "--record", nowhere], 1, "cannot write");
}

#[test]
fn a_dash_is_no_file() {
    refuses(&["demo", "--backend", "host", "--record", "-"], 2, "standard output");
    assert!(!folder().join("-").exists());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let trace = file("piped.csv", churn(20_000, 1, 4096).csv);
    for arguments in [
        &["devices"][..],
        &["devices", "--json"],
        &["report", &trace, "--format", "perfetto", "-o", "-"],
    ] {
        let mut child = Command::new(binary())
            .args(arguments)
            // Drivers complain where it is not set.
            .env("XDG_RUNTIME_DIR", folder())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_with_their_place() {
    let garbage = file("garbage.bin", b"\0\xff\xfe\x80");
    refuses(&["explain", &garbage], 2, "a list of requests is expected");
    let bad = |name: &str, text: &str| file(name, text);
    let zero = bad("zero.json", r#"[{"size": 1}, {"size": 0}]"#);
    refuses(&["explain", &zero], 2, "request 1: size is 0");
    let unknown = bad("unknown.json", r#"[{"size": 1, "colour": "red"}]"#);
    refuses(&["explain", &unknown], 2, "unknown field `colour`");
    let nan = bad("nan.json", r#"[{"size": NaN}]"#);
    refuses(&["explain", &nan], 2, "line 1, column");
    let negative = bad("negative.json", r#"[{"size": -1}]"#);
    refuses(&["explain", &negative], 2, "invalid value");
    let align = bad("align.json", r#"[{"size": 1, "align": 3}]"#);
    refuses(&["explain", &align], 2, "not a power of two");
    let overflow = bad("overflow.json", r#"[{"size": 18446744073709551615, "align": 4096}]"#);
    refuses(&["explain", &overflow], 2, "above the limit of 18446744073709551615");
    let word = bad("word.json", r#"[{"size": 1, "spill": "maybe"}]"#);
    refuses(&["explain", &word], 2, "\"maybe\" is none of forbidden, allowed");
    let large = ["explain", "--backend", "host", "--size", "1M", "--writes", "host-once"];
    let forbidden = ["--pattern", "broadcast", "--reuse", "2", "--substitute", "forbidden"];
    let told = &json(&[&large[..], &forbidden].concat())[0]["reason"];
    let told = told.as_str().expect("words");
    assert!(told.contains("constant memory suits it best"), "{told}");
    assert!(told.contains("1048576") && told.contains("65536"), "the value and the limit: {told}");
    refuses(&["explain"], 2, "--size");
    refuses(&["explain", "no-such-file.json"], 2, "no-such-file.json");
}
