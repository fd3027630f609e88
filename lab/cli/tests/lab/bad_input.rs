//! Bad input: one clear line, exit code 2, nothing half done.
use crate::support::{file, folder, omniheap, refuses};
use std::fs;

#[test]
fn a_file_that_is_not_there_is_named() {
    refuses(&["plan", "there-is-no-such-file.csv"], 2, "file.csv: cannot read");
}

#[test]
fn a_file_that_is_no_text_is_no_table() {
    let garbage = file("garbage.bin", b"\0\xff\xfe\x80");
    refuses(&["plan", &garbage], 2, "neither a table nor a trace");
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let text = "id,lower,upper,size\n0,0,3,10\n";
    let graph = file("graph-kept.csv", text);
    refuses(&["plan", &graph, "--svg", &graph], 2, "written over");
    refuses(&["plan", &graph, "--plan", &graph], 2, "written over");
    refuses(&["plan", &graph, "--plan", "twice.x", "--svg", "twice.x"], 2, "written over");
    assert_eq!(fs::read_to_string(graph).expect("still there"), text);
}

#[test]
fn options_that_would_be_ignored_are_refused() {
    assert_eq!(omniheap(&["calibrate", "--device", "0"]).status.code(), Some(2));
    refuses(
        &["calibrate", "--regret", "--backend", "host", "--filter", "no-such"],
        2,
        "automaton, ",
    );
    refuses(&["calibrate", "--regret", "--backend", "host", "--profile", "p.no"], 2, "p.no");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_work() {
    let graph = file("for-nowhere-graph.csv", "id,lower,upper,size\n0,0,3,10\n");
    let nowhere = "no-such-folder/file";
    refuses(&["plan", &graph, "--json", "--plan", nowhere], 1, "cannot write");
    refuses(&["plan", &graph, "--json", "--svg", nowhere], 1, "cannot write");
    refuses(&["calibrate", "--backend", "host", "--out", "/dev/null/profile"], 1, "cannot write");
}

#[test]
fn a_dash_is_no_file() {
    refuses(&["calibrate", "--backend", "host", "--out", "-"], 2, "standard output");
    assert!(!folder().join("-").exists());
}

#[test]
fn help_has_examples_for_every_command() {
    for command in ["plan", "fit", "batch", "calibrate"] {
        let output = omniheap(&[command, "--help"]);
        assert!(output.status.success());
        assert!(crate::support::text(&output.stdout).contains("Examples:"), "{command}");
    }
}
