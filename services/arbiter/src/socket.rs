//! Packets over Unix sockets. A signal that the program handles interrupts no call: nobody would know whether the arbiter heard.
//! Nor does a stopped arbiter: no call waits for it longer than [`PATIENCE`].
#![forbid(unsafe_code)]

use crate::PATIENCE;
use crate::frame::{MAX_FRAME, PIECES};
use core::mem::MaybeUninit;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    recvmsg, send, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Bytes for the descriptors of a packet.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const ROOM: usize = rustix::cmsg_space!(ScmRights(PIECES as usize));

/// Behaviour of calls: they wait, or they poll.
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

/// Connects to a socket file, with limits on connecting and sending: the queues of a stopped process fill up, and both would block.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let socket = make(Mode::Waiting)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new(path)?;
    patiently(|| connect(&socket, &address))?;
    Ok(socket)
}

/// Lets [`receive_with`] wait no longer than [`PATIENCE`].
pub(crate) fn limit(socket: &OwnedFd) -> io::Result<()> {
    Ok(set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE))?)
}

/// Repeats a call that a signal interrupted, until the time limit.
fn patiently<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(Errno::INTR) if start.elapsed() < PATIENCE => {}
            Err(Errno::INTR) => return Err(io::ErrorKind::WouldBlock.into()),
            done => return Ok(done?),
        }
    }
}

/// Receives one packet with its descriptors; an empty one is the end. Descriptors beyond those of a publication are closed by the kernel.
pub(crate) fn receive_with<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<&'a [u8]> {
    debug_assert!(buffer.len() > MAX_FRAME, "a packet that is too long must be seen to be");
    let mut space = [MaybeUninit::uninit(); ROOM];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut *buffer)];
    let got = patiently(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    Ok(&buffer[..got.bytes.min(buffer.len())])
}

/// Sends one packet with descriptors, whole or not at all.
pub(crate) fn post_with(
    socket: &OwnedFd,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); ROOM];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(packet)];
    patiently(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives one packet, without a time limit; an empty packet is the end of the connection. The kernel closes descriptors sent with it.
pub(crate) fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    debug_assert!(buffer.len() > MAX_FRAME, "a packet that is too long must be seen to be");
    let (_, length) = retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(&buffer[..length.min(buffer.len())])
}

/// Sends one packet, whole or not at all.
pub(crate) fn post(socket: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    patiently(|| send(socket, packet, SendFlags::NOSIGNAL)).map(drop)
}
