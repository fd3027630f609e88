//! Standard output and standard error that nobody reads, or that are full: the exit code says what it always says.
use crate::closed::{code, full, gone};
use crate::support::file;
use std::process::Stdio;

#[test]
fn codes_do_not_depend_on_who_reads_errors() {
    let trace = file("streams.csv", "op,id,size,stream,time_us\na,1,1048576,0,0\nf,1,,0,1\n");
    for (arguments, expected) in [
        (&["batch", "missing.csv", "--capacity", "1G"][..], 2),
        (&["fit", &trace, "--capacity", "1G"], 0),
        (&["fit", &trace, "--capacity", "4K"], 3),
    ] {
        assert_eq!(code(arguments, Stdio::null(), full()), Some(expected), "{arguments:?}, full");
        assert_eq!(code(arguments, Stdio::null(), gone()), Some(expected), "{arguments:?}, closed");
        assert_eq!(code(arguments, gone(), gone()), Some(expected), "{arguments:?}, all closed");
    }
    let fit = ["fit", &trace, "--capacity", "1G"];
    assert_eq!(code(&fit, full(), full()), Some(1), "the answer was not written");
}
