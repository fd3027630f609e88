//! The command `omniheap`: one memory manager for every GPU, from the shell.
mod command;
mod replay;

use clap::Parser as _;
use std::io::{Write as _, stderr};
use std::process::ExitCode;

fn main() -> ExitCode {
    let line = command::Line::parse();
    match command::run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The code says it too where nobody reads standard error, or it is full.
            let _ = writeln!(stderr(), "omniheap: {failure}");
            failure.code()
        }
    }
}
