//! Commands of the laboratory start `omniheap-lab`: the one beside the command, else the one on `PATH`.
use crate::support::{binary, folder, text};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder of its own with the command in it, and nothing else.
fn place(name: &str) -> PathBuf {
    let place = folder().join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("the folder for tests can be written");
    let command = place.join("omniheap");
    fs::hard_link(binary(), &command)
        .or_else(|_| fs::copy(binary(), &command).map(drop))
        .expect("the command can be copied");
    place
}

/// Puts a script in the place of `omniheap-lab`.
fn lab(folder: &Path, script: &str) {
    fs::create_dir_all(folder).expect("the folder for tests can be written");
    let lab = folder.join("omniheap-lab");
    // A file that this process has open for writing cannot be run, and children of other tests may keep it so for a moment: `cp` writes it.
    let draft = folder.join("draft");
    fs::write(&draft, format!("#!/bin/sh\n{script}\n")).expect("it may be written");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("it is our own");
    assert!(Command::new("cp").arg(&draft).arg(&lab).status().expect("cp is there").success());
}

/// The command in a folder, which finds programs in another.
fn omniheap(place: &Path, path: &Path) -> Command {
    let mut command = Command::new(place.join("omniheap"));
    command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    command
}

#[test]
fn the_one_beside_the_command_comes_first_and_its_code_is_passed_on() {
    let (place, other) = (place("lab-beside"), folder().join("lab-beside-path"));
    lab(&place, "echo beside \"$@\"; exit 7");
    lab(&other, "echo on PATH \"$@\"; exit 3");
    for arguments in [
        &["plan", "a b.csv", "--capacity", "1M"][..],
        &["--json", "fit", "--capacity=4G", "--", "-x.omt"],
        &["batch", "--help"],
        &["calibrate"],
    ] {
        let ran = omniheap(&place, &other).args(arguments).output().expect("it starts");
        assert_eq!(text(&ran.stdout), format!("beside {}\n", arguments.join(" ")));
        assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(7), String::new()));
    }
    fs::remove_file(place.join("omniheap-lab")).expect("made above");
    let ran = omniheap(&place, &other).arg("plan").output().expect("it starts");
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(3), "on PATH plan\n".to_owned()));
}

#[test]
fn without_it_one_line_says_how_to_install_it() {
    let place = place("lab-missing");
    for command in ["plan", "fit", "batch", "calibrate"] {
        let ran = omniheap(&place, &place.join("nowhere")).args([command, "--help"]).output();
        let ran = ran.expect("it starts");
        let said = text(&ran.stderr);
        assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(2), String::new()), "{said}");
        assert!(said.contains("cargo install --path lab/cli"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let help = omniheap(&place, &place).arg("--help").output().expect("it starts");
    assert!(text(&help.stdout).contains("`omniheap-lab plan`"), "{}", text(&help.stdout));
}

#[test]
fn it_takes_the_place_of_the_process_and_gets_its_signals() {
    let place = place("lab-signals");
    lab(&place, "trap 'exit 130' INT; echo $$; while :; do sleep 0.01; done");
    let mut command = omniheap(&place, &place);
    let mut child = command.arg("plan").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut number = String::new();
    let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut number);
    assert!(read.is_ok_and(|bytes| bytes > 0));
    assert_eq!(number.trim(), child.id().to_string(), "one process");
    let sent = Command::new("kill").args(["-INT", number.trim()]).status();
    assert!(sent.expect("kill is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}
