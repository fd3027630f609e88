//! Packets over Unix sockets. A signal that the program handles interrupts no call: nobody would know whether the arbiter heard.
#![forbid(unsafe_code)]

use crate::frame::{MAX_FRAME, PIECES};
use core::mem::MaybeUninit;
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    recvmsg, send, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes for the descriptors of a packet.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const ROOM: usize = rustix::cmsg_space!(ScmRights(PIECES as usize));

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
    let address = SocketAddrUnix::new(path)?;
    retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
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
    let got = retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
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
    retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet; an empty one is the end. Descriptors that come with it are closed by the kernel: the frame has none.
pub(crate) fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    debug_assert!(buffer.len() > MAX_FRAME, "a packet that is too long must be seen to be");
    let (_, length) = retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(&buffer[..length.min(buffer.len())])
}

/// Sends one packet, whole or not at all.
pub(crate) fn post(socket: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    retry_on_intr(|| send(socket, packet, SendFlags::NOSIGNAL))?;
    Ok(())
}
