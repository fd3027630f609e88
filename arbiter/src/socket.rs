//! Packets over Unix sockets.
#![forbid(unsafe_code)]

use crate::frame::MAX_FRAME;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Whether calls wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Waiting,
    Polling,
}

/// Makes a socket for packets.
pub(crate) fn make(mode: Mode) -> io::Result<OwnedFd> {
    let flags = match mode {
        Mode::Waiting => SocketFlags::CLOEXEC,
        Mode::Polling => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
    };
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Connects to a socket file.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let socket = make(Mode::Waiting)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Receives one packet; an empty one is the end. Descriptors that come with it are closed by the kernel: no frame has any.
pub(crate) fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    debug_assert!(buffer.len() > MAX_FRAME, "a packet that is too long must be seen to be");
    let (_, length) = recv(socket, &mut *buffer, RecvFlags::empty())?;
    Ok(&buffer[..length.min(buffer.len())])
}

/// Sends one packet, whole or not at all.
pub(crate) fn post(socket: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    send(socket, packet, SendFlags::NOSIGNAL)?;
    Ok(())
}
