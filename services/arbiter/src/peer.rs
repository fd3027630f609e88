//! The process at the other end of a socket.
#![expect(
    unsafe_code,
    reason = "asks the kernel with getsockopt; rustix cannot represent a process that is not visible"
)]

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Identity of a peer when it connected, as the kernel tells it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// 0 where the process is in a process namespace that is not visible here.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Becomes readable when the process is gone. A process id that is used again does not fool it.
    /// `None` where it is not visible.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Asks the kernel.
    pub(crate) fn of(socket: &OwnedFd) -> io::Result<Self> {
        let mut about = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        // SAFETY: `ucred` is three plain integers, which the kernel may fill with any values.
        unsafe { option(socket, libc::SO_PEERCRED, &mut about) }?;
        let pid = u32::try_from(about.pid).map_err(io::Error::other)?;
        let pidfd = if pid == 0 { None } else { Some(Self::pidfd(socket, about.pid)?) };
        Ok(Self { pid, uid: about.uid, pidfd })
    }

    fn pidfd(socket: &OwnedFd, pid: i32) -> io::Result<OwnedFd> {
        let mut fd: libc::c_int = -1;
        // SAFETY: an integer, which the kernel may fill with any value.
        if unsafe { option(socket, libc::SO_PEERPIDFD, &mut fd) }.is_ok() {
            // SAFETY: the kernel has just opened this descriptor for us alone.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        // Kernels before 6.5 have no such option. The peer was alive when it connected; if its number was used again since, the new
        // process counts for the old one, whose socket then hangs up.
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }
}

/// Reads a socket option.
///
/// # Safety
///
/// Any bytes are a valid `T`.
unsafe fn option<T>(socket: &OwnedFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let size = size_of::<T>();
    let mut length = libc::socklen_t::try_from(size).map_err(io::Error::other)?;
    let to = core::ptr::from_mut(value).cast();
    // SAFETY: `to` is valid for `length` bytes, and the caller promises that any bytes are a valid value.
    let code = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut length)
    };
    match code {
        0 if length as usize == size => Ok(()),
        0 => Err(io::Error::other("the kernel answered with another size")),
        _ => Err(io::Error::last_os_error()),
    }
}
