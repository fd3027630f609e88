//! Commands of the laboratory: `omniheap-lab` runs them, and is started as cargo starts its subcommands.
use super::Failure;
use std::env::{self, consts::EXE_SUFFIX};
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "omniheap-lab";

// `omniheap-lab` reads them; `--help` is among them.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<OsString>,
}

/// Starts `omniheap-lab` with this process's arguments: the one beside this command, else the one on `PATH`.
pub(super) fn run() -> Result<(), Failure> {
    let own = env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name(format!("{PROGRAM}{EXE_SUFFIX}")));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = start(Command::new(&program).args(env::args_os().skip(1)));
    // Not 1, which says of some of these commands that what was asked about does not fit.
    Err(Failure::input(match error.kind() {
        ErrorKind::NotFound => format!(
            "this command is part of {PROGRAM}, which is neither beside omniheap nor on PATH; install it with `cargo install --path lab/cli`"
        ),
        _ => format!("{}: cannot be started: {error}", program.display()),
    }))
}

/// Puts the program in the place of this process, so that it gets its signals; returns why that failed.
#[cfg(unix)]
fn start(command: &mut Command) -> Error {
    std::os::unix::process::CommandExt::exec(command)
}

/// Runs the program, and ends with its exit code; returns why it was not started.
#[cfg(not(unix))]
fn start(command: &mut Command) -> Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}
