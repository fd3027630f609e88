//! `omniheap serve`: divides a device's memory among processes.
use super::Failure;
use super::interrupt;
use super::output::{self, Format};
use omniheap::arbiter::{ArbiterError, Policy, PolicyError, Server};
use omniheap::limits::ProcessCount;
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
    /// Bytes to divide; overrides the policy file's `capacity`
    #[arg(long, value_name = "BYTES", value_parser = output::bytes_argument)]
    capacity: Option<u64>,
    /// The NVIDIA GPU whose memory is divided, by its number in `nvidia-smi`: its size is the capacity, and tenants that have more by the driver's count than
    /// they say are debtors
    #[arg(long, value_name = "NUMBER")]
    device: Option<u32>,
    /// Numeric group that may connect besides this user
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
}

const EXAMPLES: &str = "\
The arbiter opens no device and takes none of its memory. Ctrl-C ends it; tenants keep what they hold, and find the next one.

Examples:
  omniheap serve --socket /run/omniheap/0.sock --capacity 80G
  omniheap serve --socket /run/omniheap/0.sock --policy policy.toml
  omniheap serve --socket /run/omniheap/0.sock --device 0
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
    let count = arguments.device.map(count).transpose()?;
    let policy = policy(arguments, count)?;
    let capacity = policy.capacity;
    if capacity == 0 {
        return Err(Failure::input("a capacity of 0 bytes leaves nothing to divide; pass more"));
    }
    let mut server = Server::bind(&arguments.socket, policy, arguments.group).map_err(failure)?;
    if let Some(count) = count {
        server = server.compared_with(Box::new(move || count.read()));
    }
    interrupt::watch();
    let socket = arguments.socket.display().to_string();
    output::print(format, &Serving { socket, capacity }, |it| {
        format!("{}: {}", it.socket, output::bytes(it.capacity))
    })?;
    server.run(interrupt::is_wanted).map_err(failure)
}

/// Finds the driver's count of a GPU. The driver knows processes by the ids of the machine, so that the arbiter must see these.
fn count(device: u32) -> Result<ProcessCount, Failure> {
    let own = std::fs::read_link("/proc/self/ns/pid");
    if !own.is_ok_and(|name| name.as_os_str() == FIRST_NAMESPACE) {
        let why = "--device needs the machine's process ids; run the arbiter outside of containers, or with hostPID";
        return Err(Failure::input(why));
    }
    let found = ProcessCount::of(device, |name| std::env::var(name).ok());
    let missing = || {
        format!(
            "--device {device}: NVML knows no such GPU, or not what processes have there; pass --capacity"
        )
    };
    found.ok_or_else(|| Failure::input(missing()))
}

/// Every Linux gives its first process namespace this number.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

fn policy(arguments: &Arguments, count: Option<ProcessCount>) -> Result<Policy, Failure> {
    let whole = || count?.capacity();
    let Some(path) = &arguments.policy else {
        let missing = || Failure::input("pass --capacity, --device, or a --policy that says it");
        return arguments.capacity.or_else(whole).map(Policy::equal).ok_or_else(missing);
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("{shown}: cannot read: {error}")))?;
    let policy = match Policy::parse(&text, arguments.capacity) {
        Err(PolicyError::NoCapacity) => Policy::parse(&text, whole()),
        read => read,
    };
    policy.map_err(|error| Failure::input(format!("{shown}: {error}")))
}

/// Wrong paths are bad input; everything else failed.
pub(super) fn failure(error: ArbiterError) -> Failure {
    match error {
        ArbiterError::Occupied(_)
        | ArbiterError::Remote(_)
        | ArbiterError::Socket { .. }
        | ArbiterError::Refused(_) => Failure::input(error.to_string()),
        _ => Failure::failed(error.to_string()),
    }
}
