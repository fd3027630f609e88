//! `omniheap serve`: divides a device's memory among processes.
use super::Failure;
use super::output::{self, Format};
use crate::interrupt;
use omniheap::arbiter::{ArbiterError, Policy, Server};
use serde::Serialize;
use std::path::PathBuf;

/// The arbiter: divides one GPU's memory among processes
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The socket to listen on; tenants name it in `OMNIHEAP_ARBITER`
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The policy file
    #[arg(long, value_name = "POLICY.toml")]
    policy: Option<PathBuf>,
    /// Bytes to divide; stands above the policy file's `capacity`
    #[arg(long, value_name = "BYTES", value_parser = output::bytes_argument)]
    capacity: Option<u64>,
    /// Numeric group that may connect besides this user
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
}

const EXAMPLES: &str = "\
The arbiter opens no device and takes none of its memory. Ctrl-C ends it; tenants keep what they hold, and find the next one.

Examples:
  omniheap serve --socket /run/omniheap/0.sock --capacity 80G
  omniheap serve --socket /run/omniheap/0.sock --policy policy.toml
  OMNIHEAP_ARBITER=/run/omniheap/0.sock ./program

policy.toml:
  capacity = \"80GiB\"
  [tenant.\"uid:1001\"]
  quota = \"60GiB\"
  reserve = \"20GiB\"
  weight = 2
  priority = 1";

#[derive(Serialize)]
struct Serving {
    socket: String,
    capacity: u64,
}

/// Serves until Ctrl-C.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let policy = policy(arguments)?;
    let capacity = policy.capacity;
    let mut server = Server::bind(&arguments.socket, policy, arguments.group).map_err(failure)?;
    interrupt::watch();
    let socket = arguments.socket.display().to_string();
    match format {
        Format::Json => output::print_json(&Serving { socket, capacity })?,
        Format::Text => output::print_line(&format!("{socket}: {}", output::bytes(capacity)))?,
    }
    server.run(interrupt::is_wanted).map_err(failure)
}

fn policy(arguments: &Arguments) -> Result<Policy, Failure> {
    let Some(path) = &arguments.policy else {
        let missing = || Failure::input("pass --capacity, or a --policy that says it");
        return arguments.capacity.map(Policy::equal).ok_or_else(missing);
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("{shown}: cannot read: {error}")))?;
    Policy::parse(&text, arguments.capacity)
        .map_err(|error| Failure::input(format!("{shown}: {error}")))
}

/// Wrong paths are bad input; everything else failed.
pub(super) fn failure(error: ArbiterError) -> Failure {
    match error {
        ArbiterError::Occupied(_) | ArbiterError::Refused(_) => Failure::input(error.to_string()),
        _ => Failure::failed(error.to_string()),
    }
}
