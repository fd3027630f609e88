//! Programs that start with the library before them, and orders to them. The library has its own tests.
use crate::support::{binary, file, folder, refuses, text};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

/// Runs `omniheap run`, with a file in the place of the library, which the loader ignores.
fn run(library: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command.args(["run", "--library", library]).args(arguments);
    let output = command.env("LD_PRELOAD", "").current_dir(folder()).output().expect("it starts");
    (output.status.code(), text(&output.stdout))
}

#[test]
fn a_program_gets_the_library_its_settings_and_its_own_arguments() {
    let library = file("run-a.so", "no library");
    let earlier = file("a.omt", "an earlier trace");
    let (code, printed) = run(
        &library,
        &[
            "--limit",
            "20GiB",
            "--trace",
            "a.omt",
            "--guards",
            "--",
            "sh",
            "-c",
            "env; echo $0 $1; exit 7",
            "--limit",
            "x",
        ],
    );
    assert_eq!(code, Some(7), "the code is the program's");
    let has = |line: &str| printed.lines().any(|printed| printed == line);
    assert!(
        printed.lines().any(|line| line.starts_with("LD_PRELOAD=") && line.ends_with("run-a.so"))
    );
    let trace = format!("OMNIHEAP_TRACE={}", folder().join("a.omt").display());
    for line in [
        "OMNIHEAP_LIMIT=20GiB",
        "OMNIHEAP_GUARDS=1",
        "OMNIHEAP_CONTROL=1",
        "OMNIHEAP_SUMMARY=1",
        "--limit x",
        &trace,
    ] {
        assert!(has(line), "{line:?} is not in {printed}");
    }
    assert!(!Path::new(&earlier).exists(), "the first process makes it anew");
    assert_eq!(fs::read_to_string(format!("{earlier}~")).ok().as_deref(), Some("an earlier trace"));
    let run = printed.lines().find_map(|line| line.strip_prefix("OMNIHEAP_RUN="));
    assert_eq!(run.map(|run| run.split(':').count()), Some(3), "{run:?}");
    assert!(!printed.contains("OMNIHEAP_REPORT") && !printed.contains("OMNIHEAP_IPC"));
}

#[test]
fn programs_that_cannot_have_the_library_are_refused_in_one_line() {
    let library = file("run-b.so", "no library");
    let program = |name: &str, content: &[u8], mode: u32| {
        let path = file(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is our own");
        path
    };
    let own_rights = program("run-setuid", b"#!/bin/sh\n", 0o4755);
    let narrow = program("run-32-bit", b"\x7fELF\x01\x01\x01", 0o755);
    let begin = ["run", "--library", &library];
    let refused = |rest: &[&str], word: &str| refuses(&[&begin[..], rest].concat(), 2, word);
    refused(&["--", &own_rights], "setuid");
    refused(&["--", &narrow], "32-bit");
    refused(&["--", "/no/such/program"], "no such program");
    refused(&["--trace", "/proc/version", "--", "true"], "cannot be replaced");
    refuses(&["run", "--library", "/no/such.so", "--", "true"], 2, "no such library");
}

#[test]
fn a_program_that_does_not_start_leaves_earlier_recordings_as_they_are() {
    let library = file("run-d.so", "no library");
    let earlier = [file("d.omt", "a trace"), file("d.html", "a report")];
    let plain = file("run-plain", "no program");
    for program in ["no-such-program-anywhere", &plain] {
        let (code, _) =
            run(&library, &["--trace", &earlier[0], "--report", &earlier[1], "--", program]);
        assert_eq!(code, Some(2), "{program}");
        let left = earlier.each_ref().map(|it| fs::read_to_string(it).expect("it is there"));
        assert_eq!(left, ["a trace", "a report"], "{program}");
    }
}

#[test]
fn files_that_the_environment_names_are_made_anew_as_well() {
    let library = file("run-e.so", "no library");
    let earlier = file("e.omt", "a trace");
    for (outer, stays) in [(None, false), (Some("7:26:9"), true)] {
        fs::write(&earlier, "a trace").expect("our own");
        let mut command = Command::new(binary());
        command.args(["run", "--library", &library, "--", "true"]).env("LD_PRELOAD", "");
        command.env("OMNIHEAP_TRACE", &earlier).envs(outer.map(|run| ("OMNIHEAP_RUN", run)));
        assert!(command.status().expect("it starts").success());
        assert_eq!(Path::new(&earlier).exists(), stays, "{outer:?}");
    }
}

#[test]
fn orders_to_programs_that_do_not_listen_fail_in_one_line() {
    refuses(&["control", "4294967294", "report"], 2, "no such process");
    refuses(&["control", &std::process::id().to_string(), "sleep"], 1, "does not run on omniheap");
    refuses(&["control", "/no/such.sock", "limit", "8GiB"], 1, "does not run on omniheap");
}

#[test]
fn settings_that_stand_in_the_environment_stay() {
    let library = file("run-c.so", "no library");
    let mut command = Command::new(binary());
    command.args(["run", "--library", &library, "--", "env"]).env("LD_PRELOAD", "");
    command.env("OMNIHEAP_SUMMARY", "0").env("OMNIHEAP_CONTROL", "/run/own.sock");
    let printed = text(&command.output().expect("it starts").stdout);
    for line in ["OMNIHEAP_SUMMARY=0", "OMNIHEAP_CONTROL=/run/own.sock"] {
        assert!(printed.lines().any(|printed| printed == line), "{line:?} is not in {printed}");
    }
}

#[test]
fn an_order_finds_a_program_that_has_another_runtime_folder() {
    let mut program = Command::new("sleep").arg("60").spawn().expect("it starts");
    let about = fs::metadata(format!("/proc/{}", program.id())).expect("it runs");
    let socket = format!("/tmp/omniheap-{}-{}.sock", about.uid(), program.id());
    let listener = UnixListener::bind(&socket).expect("nobody has it");
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        BufReader::new(&stream).read_line(&mut String::new()).expect("an order");
        writeln!(stream, "ok: here").expect("somebody reads");
    });
    let mut command = Command::new(binary());
    command.args(["control", &program.id().to_string(), "report"]);
    let output = command.env("XDG_RUNTIME_DIR", folder()).output().expect("it starts");
    program.kill().and_then(|()| program.wait()).expect("it is ours");
    fs::remove_file(&socket).expect("it is ours");
    assert_eq!(text(&output.stdout), "here\n", "{}", text(&output.stderr));
    answering.join().expect("it was asked");
}
