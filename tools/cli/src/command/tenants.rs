//! `omniheap tenants`: what an arbiter's tenants hold, and orders about them.
use super::Failure;
use super::output::{self, Format};
use super::serve::failure;
use omniheap::arbiter::frame::{Name, PublicationInfo, TenantInfo};
use omniheap::arbiter::{self, Order};
use serde::Serialize;
use std::path::PathBuf;

/// The tenants of an arbiter: what each holds and may hold
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The arbiter's socket
    #[arg(long, value_name = "PATH", env = "OMNIHEAP_ARBITER", global = true)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    order: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap tenants --socket /run/omniheap/0.sock
  omniheap tenants set 4711 quota=8GiB
  omniheap tenants sleep 4711
  omniheap tenants published
  omniheap tenants withdraw llama-70b";

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Set a tenant's quota until it ends
    Set {
        /// Process id
        pid: u32,
        /// Such as quota=8GiB
        #[arg(value_name = "quota=BYTES", value_parser = quota)]
        quota: u64,
    },
    /// Ask a tenant to return all memory that it can
    Sleep {
        /// Process id
        pid: u32,
    },
    /// List what is published, for other processes to attach
    Published,
    /// End a publication: its memory is free once no process has it attached
    Withdraw {
        /// Its name
        #[arg(value_parser = name)]
        name: Name,
    },
}

fn name(text: &str) -> Result<Name, String> {
    let why = "expected 1 to 64 letters, digits, dots, dashes and underscores";
    Name::new(text).ok_or_else(|| why.into())
}

fn quota(text: &str) -> Result<u64, String> {
    let bytes = text.strip_prefix("quota=").ok_or("expected quota=BYTES, such as quota=8GiB")?;
    output::bytes_argument(bytes)
}

#[derive(Serialize)]
struct Row {
    pid: u64,
    uid: u64,
    held_bytes: u64,
    share_bytes: u64,
    quota_bytes: u64,
    reserve_bytes: u64,
    owed_bytes: u64,
    weight: u64,
    priority: u64,
    is_connected: bool,
}

impl From<&TenantInfo> for Row {
    fn from(it: &TenantInfo) -> Self {
        Self {
            pid: it.pid,
            uid: it.uid,
            held_bytes: it.held,
            share_bytes: it.share,
            quota_bytes: it.quota,
            reserve_bytes: it.reserve,
            owed_bytes: it.owed,
            weight: it.weight,
            priority: it.priority,
            is_connected: it.connected == 1,
        }
    }
}

#[derive(Serialize)]
struct Published<'a> {
    name: &'a str,
    uid: u64,
    bytes: u64,
    attached: u64,
    is_withdrawn: bool,
}

fn list_published(all: &[PublicationInfo], format: Format) -> Result<(), Failure> {
    let rows = all.iter().map(|it| Published {
        name: it.name.as_str(),
        uid: it.uid,
        bytes: it.size,
        attached: it.attached,
        is_withdrawn: it.withdrawn == 1,
    });
    let rows: Vec<_> = rows.collect();
    output::print_rows(format, &rows, &["name", "uid", "bytes", "attached by", ""], |it| {
        let state = if it.is_withdrawn { "withdrawn" } else { "" };
        let (uid, attached) = (it.uid.to_string(), it.attached.to_string());
        vec![it.name.into(), uid, output::bytes(it.bytes), attached, state.into()]
    })
}

/// Lists the tenants, or gives an order.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let missing = || Failure::input("pass --socket, or set OMNIHEAP_ARBITER");
    let socket = arguments.socket.as_deref().ok_or_else(missing)?;
    let order = match arguments.order {
        Some(Command::Set { pid, quota }) => Order::SetQuota { pid, quota },
        Some(Command::Sleep { pid }) => Order::Sleep { pid },
        Some(Command::Withdraw { name }) => Order::Withdraw { name },
        Some(Command::Published) => {
            return list_published(&arbiter::publications(socket).map_err(failure)?, format);
        }
        None => return list(&arbiter::tenants(socket).map_err(failure)?, format),
    };
    arbiter::order(socket, order).map_err(failure)
}

fn list(tenants: &[TenantInfo], format: Format) -> Result<(), Failure> {
    let header =
        ["pid", "uid", "held", "share", "quota", "reserve", "owed", "weight", "priority", ""];
    let rows: Vec<_> = tenants.iter().map(Row::from).collect();
    output::print_rows(format, &rows, &header, |it| {
        let sizes =
            [it.held_bytes, it.share_bytes, it.quota_bytes, it.reserve_bytes, it.owed_bytes];
        let numbers = [it.weight, it.priority].map(|number| number.to_string());
        let state = if it.is_connected { "connected" } else { "away" };
        let ids = [it.pid, it.uid].map(|number| number.to_string());
        let sizes = sizes.map(output::bytes).into_iter();
        ids.into_iter().chain(sizes).chain(numbers).chain([state.to_owned()]).collect()
    })
}
