//! Standard output and standard error that nobody reads, or that are full: the exit code says what it always says.
use crate::closed::{code, full, gone};
use crate::support::{binary, file, text};
use std::process::{Command, Stdio};

#[test]
fn codes_do_not_depend_on_who_reads_errors() {
    let trace = file("streams.csv", "op,id,size,stream,time_us\na,1,1048576,0,0\nf,1,,0,1\n");
    for (arguments, expected) in [
        (&["replay", "missing.csv"][..], 2),
        (&["weights", "missing.safetensors"], 1),
        (&["compare", &trace], 0),
        (&["replay", &trace, "--capacity", "4K", "--paged", "no"], 1),
    ] {
        assert_eq!(code(arguments, Stdio::null(), full()), Some(expected), "{arguments:?}, full");
        assert_eq!(code(arguments, Stdio::null(), gone()), Some(expected), "{arguments:?}, closed");
        assert_eq!(code(arguments, gone(), gone()), Some(expected), "{arguments:?}, all closed");
    }
    assert_eq!(code(&["compare", &trace], full(), full()), Some(1), "the answer was not written");
    for arguments in [&["compare", &trace][..], &["report", &trace, "-o", "-"]] {
        let output = Command::new(binary()).args(arguments).stdout(full()).output();
        let said = text(&output.expect("the command starts").stderr);
        assert!(said.starts_with("omniheap: standard output: cannot write: "), "{said}");
    }
}
