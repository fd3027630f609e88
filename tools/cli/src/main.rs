//! The command `omniheap`: one memory manager for every GPU, from the shell.
mod command;

use omniheap_cli::{replay, shell};
use std::process::ExitCode;

fn main() -> ExitCode {
    shell::run(command::run)
}
