//! `omniheap control`: orders to a program that `omniheap run` started.
use super::Failure;
use omniheap_cli::output;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Ask a program that runs on omniheap, or give it an order
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Process id of the program, or the path of its socket
    #[arg(value_name = "PID")]
    program: String,
    #[command(subcommand)]
    order: Order,
}

const EXAMPLES: &str = "\
A program that sleeps must use no device memory until it is awake: order it only while the program waits for something else.

Examples:
  omniheap control 4711 report
  omniheap control 4711 limit 8GiB
  omniheap control 4711 sleep
  omniheap control 4711 wake";

#[derive(clap::Subcommand, Debug)]
enum Order {
    /// Say what it holds
    Report,
    /// Set the most memory that it may hold of each device
    Limit {
        /// Such as 8GiB
        size: String,
    },
    /// Move its memory to the host
    Sleep,
    /// Bring its memory back
    Wake,
}

/// Sends the order and prints the answer.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let order = match &arguments.order {
        Order::Report => "report".to_owned(),
        Order::Limit { size } => format!("limit {size}"),
        Order::Sleep => "sleep".to_owned(),
        Order::Wake => "wake".to_owned(),
    };
    let path = socket(&arguments.program)?;
    let mut stream = UnixStream::connect(&path).map_err(|error| {
        let why = "it does not run on omniheap, has not used its device yet, or has ended";
        Failure::failed(format!("{}: {error}: {why}", path.display()))
    })?;
    writeln!(stream, "{order}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().split_once(": ") {
        Some(("ok", said)) => output::print_line(said),
        Some(("error", why)) => Err(Failure::failed(why)),
        _ => Err(Failure::failed("the program gave no answer")),
    }
}

/// Returns the path of a program's socket, which the program derives from the same.
fn socket(program: &str) -> Result<PathBuf, Failure> {
    let Ok(pid) = program.parse::<u32>() else { return Ok(program.into()) };
    let about = std::fs::metadata(format!("/proc/{pid}"));
    let user = about.map_err(|_| Failure::input(format!("{pid}: there is no such process")))?.uid();
    let folder = env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    Ok(folder.join(format!("omniheap-{user}-{pid}.sock")))
}
