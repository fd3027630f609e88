//! The command `omniheap`: one memory manager for every GPU, from the shell.
mod command;

use clap::Parser as _;
use omniheap_cli::replay;
use std::process::ExitCode;

fn main() -> ExitCode {
    omniheap_cli::end("omniheap", command::run(command::Line::parse()))
}
