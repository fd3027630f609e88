#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod books;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
pub mod frame;
#[cfg(target_os = "linux")]
mod peer;
mod policy;
#[cfg(target_os = "linux")]
mod publications;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod share;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod tenancy;
#[cfg(target_os = "linux")]
mod tenant;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Attending, Server, Tenancy, Tenant, arbitrated, order, publications, tenants};
pub use policy::{Policy, PolicyError};
#[cfg(target_os = "linux")]
pub use server::Server;
#[cfg(target_os = "linux")]
pub use share::{
    AnyAttached, Attached, DeviceRef, ShareError, attach, publish, publish_whole, withdraw,
};
#[cfg(target_os = "linux")]
pub use tenancy::{Tenancy, arbitrated};
#[cfg(target_os = "linux")]
pub use tenant::{Attending, Tenant, order, publications, tenants};

use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

/// Returns memory to the driver when the arbiter asks for bytes.
pub type OnPress = Arc<dyn Fn(u64) + Send + Sync>;

/// Asks the driver how many bytes of the device each process has; `None` where it does not say. Process ids are those that the arbiter sees.
pub type DriverCount = Box<dyn Fn() -> Option<Vec<(u32, u64)>> + Send>;

/// The variable that names the arbiter's socket. `%d` in it stands for the number of the device.
pub const VARIABLE: &str = "OMNIHEAP_ARBITER";

/// A backend whose device memory an arbiter divides among processes, where there is an arbiter.
pub type Arbitrated<B> = omniheap_layers::Layer<B, Option<Tenancy>>;

/// An order to an arbiter, from its administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Sets the quota of a process. Processes may set their own, up to what the policy or an administrator gave them.
    SetQuota {
        /// Process id.
        pid: u32,
        /// Bytes.
        quota: u64,
    },
    /// Asks a process to return everything that it can.
    Sleep {
        /// Process id.
        pid: u32,
    },
    /// Ends a publication; its user may, too.
    Withdraw {
        /// Its name.
        name: frame::Name,
    },
}

/// Failure between a process and the arbiter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArbiterError {
    /// The arbiter needs Linux.
    #[error("the arbiter runs on Linux only")]
    NotHere,
    /// Another arbiter has the socket.
    #[error("{0}: another arbiter serves this socket; stop it, or choose another path")]
    Served(PathBuf),
    /// The path is there and no socket.
    #[error("{0}: is there and is no socket; remove it, or choose another path")]
    Occupied(PathBuf),
    /// Other machines see the socket.
    #[error("{0}: is on a network file system; choose a folder of this machine, such as /run")]
    Remote(PathBuf),
    /// The system refused something.
    #[error("{path}: {error}; is `omniheap serve` running, and may this user use the socket?")]
    System {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The system refused the arbiter its socket.
    #[error("{path}: {error}; choose a folder that exists and that this user may write to")]
    Socket {
        /// The socket, or the lock beside it.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The arbiter refused a request.
    #[error("the arbiter refused: {0}")]
    Refused(frame::Refusal),
    /// This process was forked from the one that connected.
    #[error(
        "a forked child has neither its parent's memory nor its arbiter: start a new process instead"
    )]
    Forked,
    /// The connection ended before an answer came.
    #[error("{0}: the arbiter hung up; start `omniheap serve` again")]
    Lost(PathBuf),
    /// The arbiter speaks another version of the protocol.
    #[error("{0}: {1}")]
    Version(PathBuf, frame::FrameError),
    /// The arbiter did not answer in time. It has not carried out the call, and will not do so later.
    #[error(
        "{0}: the arbiter did not answer for {seconds} s, and nothing was changed; if it was stopped, let it go on, else start `omniheap serve` again",
        seconds = PATIENCE.as_secs()
    )]
    Silent(PathBuf),
}

/// Longest wait for the arbiter, which usually answers within milliseconds; a stopped process never does.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

#[cfg(target_os = "linux")]
fn failed(path: &std::path::Path, error: &std::io::Error) -> ArbiterError {
    if error.kind() == std::io::ErrorKind::WouldBlock {
        return ArbiterError::Silent(path.to_owned());
    }
    let error = match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::other(error.to_string()),
    };
    ArbiterError::System { path: path.to_owned(), error }
}
