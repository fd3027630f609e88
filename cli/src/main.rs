//! The command `omniheap`: one memory manager for every GPU, from the shell.
mod command;
mod replay;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let line = command::Line::parse();
    match command::run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("omniheap: {failure}");
            failure.code()
        }
    }
}
