//! Standard output and standard error that nobody reads, or that are full: the exit code says what it always says.
#![cfg(target_os = "linux")]
use crate::support::{binary, file, folder};
use std::fs::File;
use std::process::{Command, Stdio};

/// A stream that takes nothing more.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("Linux has it").into()
}

/// A pipe whose reader is gone.
fn gone() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Returns the exit code of the command with these streams.
fn code(arguments: &[&str], out: Stdio, err: Stdio) -> Option<i32> {
    let mut command = Command::new(binary());
    command.env("OMNIHEAP_PROFILES", "off").env("XDG_RUNTIME_DIR", folder());
    command.args(arguments).current_dir(folder()).stdout(out).stderr(err);
    command.status().expect("the command starts").code()
}

#[test]
fn codes_do_not_depend_on_who_reads_errors() {
    let trace = file("streams.csv", "op,id,size,stream,time_us\na,1,1048576,0,0\nf,1,,0,1\n");
    for (arguments, expected) in [
        (&["replay", "missing.csv"][..], 2),
        (&["batch", "missing.csv", "--capacity", "1G"], 2),
        (&["weights", "missing.safetensors"], 1),
        (&["fit", &trace, "--capacity", "1G"], 0),
        (&["fit", &trace, "--capacity", "4K"], 3),
        (&["replay", &trace, "--capacity", "4K", "--paged", "no"], 1),
    ] {
        assert_eq!(code(arguments, Stdio::null(), full()), Some(expected), "{arguments:?}, full");
        assert_eq!(code(arguments, Stdio::null(), gone()), Some(expected), "{arguments:?}, closed");
        assert_eq!(code(arguments, gone(), gone()), Some(expected), "{arguments:?}, all closed");
    }
    let fit = ["fit", &trace, "--capacity", "1G"];
    assert_eq!(code(&fit, full(), full()), Some(1), "the answer was not written");
}
