//! `omniheap run`: starts a CUDA or HIP program on omniheap.
use super::Failure;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the library that is put before programs.
const LIBRARY: &str = "libomniheap_preload.so";
/// First bytes of programs for this machine: an ELF file, of 64 bits.
const ELF64: [u8; 5] = [0x7f, b'E', b'L', b'F', 2];
/// Permissions with which a program gets rights of its own.
const SETS_ID: u32 = 0o6000;

/// Run a CUDA or HIP program on omniheap, without recompiling
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The most memory that each context of the program may hold of its device, such as 20GiB
    #[arg(long, value_name = "BYTES", value_parser = size)]
    limit: Option<String>,
    /// Record every allocation in a file, for `omniheap report` and `omniheap replay`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page about the memory when the program ends
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Watch the bytes behind every allocation, and say which were written
    #[arg(long)]
    guards: bool,
    /// Let the memory sleep when `omniheap control` says so; takes it in groups of 32 MiB
    #[arg(long)]
    sleepable: bool,
    /// Let `cuIpcGetMemHandle` export all memory; what is smaller than 1 MiB is the driver's, and no limit counts it
    #[arg(long, conflicts_with = "sleepable")]
    ipc: bool,
    /// The library, where it is neither beside this command nor in ../lib
    #[arg(long, value_name = "PATH", env = "OMNIHEAP_PRELOAD_LIBRARY")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
The program and all that it starts use omniheap for device memory; programs without either run as ever. While it runs,
`omniheap control PID report` asks it.

Examples:
  omniheap run -- ./train
  omniheap run --limit 20GiB -- python train.py
  omniheap run --trace train.omt --report train.html -- python train.py
  omniheap run --guards -- ./kernel-test";

fn size(text: &str) -> Result<String, String> {
    let known = omniheap::limits::parse_size(text);
    known.map(|_| text.to_owned()).ok_or_else(|| "expected a size such as 20GiB".into())
}

/// Puts the program in the place of this process.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let library = library(arguments.library.as_deref())?;
    let program = &arguments.program[0];
    check(program)?;
    let mut command = Command::new(program);
    command.args(&arguments.program[1..]);
    command.env("LD_PRELOAD", before(library.as_os_str(), env::var_os("LD_PRELOAD")));
    for name in ["OMNIHEAP_SUMMARY", "OMNIHEAP_CONTROL"] {
        // Keeps a value that the user has set, such as a path or 0.
        if env::var_os(name).is_none() {
            command.env(name, "1");
        }
    }
    match this_run() {
        Some(run) => command.env("OMNIHEAP_RUN", run),
        None => command.env_remove("OMNIHEAP_RUN"),
    };
    if let Some(limit) = &arguments.limit {
        command.env("OMNIHEAP_LIMIT", limit);
    }
    for (name, wanted) in [
        ("OMNIHEAP_GUARDS", arguments.guards),
        ("OMNIHEAP_SLEEP", arguments.sleepable),
        ("OMNIHEAP_IPC", arguments.ipc),
    ] {
        if wanted {
            command.env(name, "1");
        }
    }
    let mut replaced = Vec::new();
    let failure = match name_files(arguments, &mut command, &mut replaced) {
        Ok(()) => not_started(program, &command.exec()),
        Err(failure) => failure,
    };
    for file in &replaced {
        // Nothing has started that would make another.
        let _ = fs::rename(aside(file), file);
    }
    Err(failure)
}

fn not_started(program: &OsStr, error: &std::io::Error) -> Failure {
    let shown = program.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => Failure::input(format!("{shown}: there is no such program")),
        _ => Failure::input(format!("{shown}: cannot be started: {error}")),
    }
}

/// Tells a command where the trace and the report go. Earlier ones make room, and are listed.
fn name_files(
    arguments: &Arguments,
    command: &mut Command,
    replaced: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    // A run inside another one writes to the files of that one, unless it names its own.
    let is_outer = env::var_os("OMNIHEAP_RUN").is_none();
    for (name, file) in
        [("OMNIHEAP_TRACE", &arguments.trace), ("OMNIHEAP_REPORT", &arguments.report)]
    {
        let from_outside = || env::var_os(name).filter(|it| is_outer && !it.is_empty());
        if let Some(file) = file.clone().or_else(|| from_outside().map(PathBuf::from)) {
            command.env(name, free(&file, replaced)?);
        }
    }
    Ok(())
}

/// Returns the number that the program's first process will have, and which file its standard error is: by these the library knows
/// the processes that it starts, and which of them may write there.
fn this_run() -> Option<String> {
    let errors = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
    let about = File::from(errors).metadata().ok()?;
    Some(format!("{}:{}:{}", std::process::id(), about.dev(), about.ino()))
}

/// Returns the whole path of a file that the first process which needs it will make. An older one gets the name of a backup, and is
/// listed.
fn free(file: &Path, replaced: &mut Vec<PathBuf>) -> Result<PathBuf, Failure> {
    let path = file.canonicalize().or_else(|_| std::path::absolute(file))?;
    if path.is_file() {
        let refuse =
            |error| Failure::input(format!("{}: cannot be replaced: {error}", path.display()));
        fs::rename(&path, aside(&path)).map_err(refuse)?;
        replaced.push(path.clone());
    }
    Ok(path)
}

/// Returns the name that a file has as a backup: its own with a tilde behind it.
fn aside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("~");
    name.into()
}

/// Returns a list for the loader with a library before all others.
fn before(library: &OsStr, others: Option<OsString>) -> OsString {
    let mut list = library.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Finds the library: where the caller says, beside this command, or in `../lib`.
fn library(told: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(told) = told {
        return found(told).ok_or_else(|| {
            Failure::input(format!("{}: there is no such library", told.display()))
        });
    }
    let own = env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    places.iter().find_map(|place| found(place)).ok_or_else(|| {
        let why =
            "build it with `cargo build --release -p omniheap-preload`, or name it with --library";
        Failure::failed(format!("{LIBRARY} is neither beside this command nor in ../lib; {why}"))
    })
}

/// Returns the whole path of a library; the loader splits lists at colons and spaces.
fn found(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let splits = |byte: &u8| matches!(byte, b':' | b' ');
    (path.is_file() && !path.as_os_str().as_encoded_bytes().iter().any(splits)).then_some(path)
}

/// Refuses programs that the loader would start without the library.
fn check(program: &OsStr) -> Result<(), Failure> {
    let Some(path) = locate(program) else { return Ok(()) };
    let Ok(mut file) = File::open(&path) else { return Ok(()) };
    let refuse = |why: &str| Err(Failure::input(format!("{}: {why}", path.display())));
    if file.metadata()?.permissions().mode() & SETS_ID != 0 {
        return refuse("a program with rights of its own (setuid) is started without the library");
    }
    let mut first = [0; ELF64.len()];
    let is_elf = file.read_exact(&mut first).is_ok() && first[..4] == ELF64[..4];
    if is_elf && first != ELF64 {
        return refuse("a 32-bit program cannot load the library, and CUDA runs none");
    }
    Ok(())
}

/// Finds a program as the system does.
fn locate(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}
