//! Completions, manual pages, help at any width, standard input, and errors that programs read.
use crate::closed::{code, full, gone};
use crate::signals::{empty, shown};
use crate::support::{binary, churn, file, folder, omniheap, text};
use serde_json::Value;
use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

/// The subcommands, as help lists them.
fn subcommands() -> Vec<String> {
    let help = text(&omniheap(&["--help"]).stdout);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).map(String::from).collect();
    assert!(names.len() > 12 && names.contains(&"completions".into()), "{names:?}");
    names
}

/// The subcommands with help of their own. `omniheap-lab` has the help of the others.
fn own() -> impl Iterator<Item = String> {
    let lab = ["plan", "fit", "batch", "calibrate"];
    subcommands().into_iter().filter(move |name| !lab.contains(&&**name))
}

fn with(arguments: &[&str], set: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    let mut command = Command::new(binary());
    command.env("XDG_RUNTIME_DIR", folder()).env("OMNIHEAP_PROFILES", "off");
    command.args(arguments).current_dir(folder());
    set(&mut command).output().expect("the command starts")
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    for name in own() {
        let output = with(&[&name, "--help"], |command| command.env("COLUMNS", "60"));
        assert!(output.status.success(), "{name}");
        let help = text(&output.stdout);
        // Examples are lines to copy, and are never broken.
        let described = help.split("\nExamples:").next().unwrap_or(&help);
        let options = described.lines().take_while(|line| !line.starts_with("Exit codes"));
        let wide: Vec<_> = options.filter(|line| line.chars().count() > 66).collect();
        assert!(wide.is_empty(), "{name}: {wide:?}");
    }
}

#[test]
fn every_subcommand_survives_every_stream() {
    // The first word behind `run` that is no option of its own is the program.
    for name in own().filter(|name| name != "run") {
        let help = [&*name, "--help"];
        assert_eq!(code(&help, gone(), gone()), Some(0), "{name}: nobody reads");
        let unknown = [&*name, "--there-is-no-such-option"];
        assert_eq!(code(&unknown, gone(), gone()), Some(2), "{name}: nobody reads the error");
        assert_eq!(code(&unknown, full(), full()), Some(2), "{name}: the error has no room");
        let plain = with(&unknown, |command| command.env("NO_COLOR", "1"));
        assert_eq!(plain.status.code(), Some(2), "{name}");
        assert!(!plain.stderr.contains(&0x1b), "{name}: no colour was wanted");
    }
}

#[test]
fn errors_are_objects_where_json_is_wanted() {
    let cases: [(&[&str], i64, &str); 5] = [
        (&["replay", "missing.csv", "--json"], 2, "missing.csv"),
        (&["--json", "replay"], 2, "TRACE"),
        (&["--json"], 2, "subcommand"),
        (&["replay", "--json", "--capacity", "-5", "x.csv"], 2, "-5"),
        (&["weights", "missing.gguf", "--json"], 1, "missing.gguf"),
    ];
    for (arguments, code, word) in cases {
        let output = omniheap(arguments);
        let err = text(&output.stderr);
        let told: Value = serde_json::from_str(&err).expect("one object");
        assert_eq!(told["code"], code, "{err}");
        assert_eq!(output.status.code().map(i64::from), Some(code), "{err}");
        assert_eq!(told["reason"], if code == 2 { "bad_input" } else { "failed" });
        assert!(told["error"].as_str().is_some_and(|why| why.contains(word)), "{err}");
    }
}

#[test]
fn numbers_below_zero_are_values() {
    for arguments in [["replay", "--capacity", "-5"], ["explain", "--size", "-1"]] {
        let err = text(&omniheap(&arguments).stderr);
        assert!(err.contains(&format!("'{}' for '{}", arguments[2], arguments[1])), "{err}");
    }
}

#[test]
fn a_dash_is_standard_input() {
    let path = file("dash-in.csv", churn(400, 2, 1 << 16).csv);
    let piped = |arguments: &[&str], input: &str| {
        let output =
            with(arguments, |command| command.stdin(File::open(input).expect("it is there")));
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let figures = |told: &str| {
        let told: Value = serde_json::from_str(told.lines().next().unwrap_or("")).expect("JSON");
        (told["peak_live_bytes"].clone(), told["peak_reserved_bytes"].clone())
    };
    for arguments in [["replay", "-", "--json"], ["compare", "-", "--json"]] {
        let named = [arguments[0], &*path, "--json"];
        assert_eq!(figures(&piped(&arguments, &path)), figures(&text(&omniheap(&named).stdout)));
    }
    let page = piped(&["report", "-", "--out", "-"], &path);
    assert!(page.starts_with("<!doctype html>"), "{page:.60}");
    let report =
        file("dash-in.json", piped(&["report", "-", "-o", "-", "--format", "json"], &path));
    let again = piped(&["report", "-", "-o", "-", "--format", "json"], &report);
    assert!(again.starts_with("{\"schema\":"), "a report is read as one: {again:.60}");
    let requests = file("dash-requests.json", "[{\"size\": 4096}]");
    assert!(piped(&["explain", "-", "--backend", "host"], &requests).contains("4.00 KiB"));
}

#[test]
fn shells_and_manuals_know_every_subcommand() {
    let folder = empty("manual");
    let written = omniheap(&["man", "--out", shown(&folder)]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&omniheap(&["completions", shell]).stdout);
        let missing = subcommands().into_iter().find(|name| !script.contains(name));
        assert_eq!(missing, None, "{shell}");
    }
    for name in subcommands() {
        let page = fs::read_to_string(folder.join(format!("omniheap-{name}.1"))).expect("a page");
        assert!(page.contains(".SH NAME") && page.contains(&name), "{name}");
    }
    let one = text(&omniheap(&["man"]).stdout);
    assert_eq!(
        fs::read_to_string(folder.join("omniheap.1")).expect("a page").trim_end(),
        one.trim_end()
    );
    let read_only = with(&["man", "--out", "/dev/null/x"], |command| command.stdin(Stdio::null()));
    assert_eq!(read_only.status.code(), Some(1), "a folder that cannot be made");
}
