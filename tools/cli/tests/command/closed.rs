//! Streams that nobody reads, or that are full, and what the command answers with them; `omniheap-lab` is tested with the same.
use crate::support::{binary, folder};
use std::fs::File;
use std::process::{Command, Stdio};

/// A stream that takes nothing more.
pub(crate) fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("Linux has it").into()
}

/// A pipe whose reader is gone.
pub(crate) fn gone() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Returns the exit code of the command with these streams.
pub(crate) fn code(arguments: &[&str], out: Stdio, err: Stdio) -> Option<i32> {
    let mut command = Command::new(binary());
    command.env("OMNIHEAP_PROFILES", "off").env("XDG_RUNTIME_DIR", folder());
    command.args(arguments).current_dir(folder()).stdout(out).stderr(err);
    command.status().expect("the command starts").code()
}
