//! `omniheap control`: orders to a program that `omniheap run` started.
use super::Failure;
use core::time::Duration;
use omniheap_cli::output;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The longest wait for an answer: a sleep moves all memory to the host first.
const PATIENCE: Duration = Duration::from_secs(600);

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
    let mut stream = connect(&sockets(&arguments.program)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{order}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().split_once(": ") {
        Some(("ok", said)) => output::print_line(said),
        Some(("error", why)) => Err(Failure::failed(why)),
        _ => Err(Failure::failed("the program gave no answer")),
    }
}

/// Connects to the first path at which a program listens.
fn connect(paths: &[PathBuf]) -> Result<UnixStream, Failure> {
    let mut refused = None;
    for path in paths {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = refused.or(Some((path, error))),
        }
    }
    let why = "it does not run on omniheap (start it with `omniheap run`), has not used its device yet, or has ended";
    Err(Failure::failed(match refused {
        Some((path, error)) => format!("{}: {error}: {why}", path.display()),
        None => why.into(),
    }))
}

/// Returns the paths at which a program's socket may be: the program takes the first folder that its own environment names.
fn sockets(program: &str) -> Result<Vec<PathBuf>, Failure> {
    let Ok(pid) = program.parse::<u32>() else { return Ok(vec![program.into()]) };
    let about = std::fs::metadata(format!("/proc/{pid}"));
    let user = about.map_err(|_| Failure::input(format!("{pid}: there is no such process")))?.uid();
    let own = env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty()).map(PathBuf::from);
    let usual = [PathBuf::from(format!("/run/user/{user}")), PathBuf::from("/tmp")];
    let folders = own.into_iter().chain(usual);
    Ok(folders.map(|folder| folder.join(format!("omniheap-{user}-{pid}.sock"))).collect())
}
