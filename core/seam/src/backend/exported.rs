//! Memory on its way to another API or process.
#![expect(unsafe_code, reason = "takes over descriptors that drivers open")]
use crate::{ErrorKind, Result};

/// Carrier of exported memory: an owned file descriptor, where the system has them.
#[cfg(all(feature = "std", unix))]
pub type Descriptor = std::os::fd::OwnedFd;
/// Carrier of exported memory: nothing on this system, so that no [`Exported`] can exist.
#[cfg(not(all(feature = "std", unix)))]
pub type Descriptor = core::convert::Infallible;

/// Memory on its way to another API or process. Closes its descriptor when it is dropped.
#[derive(Debug)]
pub struct Exported {
    /// Refers to the memory and keeps it alive.
    pub fd: Descriptor,
    /// Bytes of memory behind it.
    pub size: u64,
    /// The device it belongs to.
    pub uuid: Option<[u8; 16]>,
}

#[cfg(all(feature = "std", unix))]
impl Exported {
    /// Takes over a descriptor that a driver just opened.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system has no descriptors.
    ///
    /// # Safety
    ///
    /// `fd` is open, and nothing else closes it.
    pub unsafe fn own(fd: i32, size: u64, uuid: Option<[u8; 16]>) -> Result<Self> {
        // SAFETY: the caller's promise.
        let fd = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        Ok(Self { fd, size, uuid })
    }

    /// Returns the descriptor's number, for a driver that only looks at it.
    #[must_use]
    pub fn number(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.fd)
    }

    /// Calls a driver that takes ownership of the descriptor on success. It gets a copy.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory` when the process cannot open another descriptor; what `call` returns.
    pub fn give_copy<T>(&self, call: impl FnOnce(i32) -> Result<T>) -> Result<T> {
        let copy = self.fd.try_clone().map_err(|_| ErrorKind::OutOfHostMemory)?;
        let taken = call(std::os::fd::AsRawFd::as_raw_fd(&copy));
        // Some drivers close what they refuse. The number is then free, or another file's by now: it is not ours to close.
        if taken.is_ok() || !is_same_file(&copy, &self.fd) {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(copy);
        }
        taken
    }
}

/// Returns true if both descriptors are open and of one file.
#[cfg(all(feature = "std", unix))]
fn is_same_file(one: &Descriptor, other: &Descriptor) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = |fd: &Descriptor| {
        let about = std::fs::File::from(fd.try_clone()?).metadata()?;
        Ok::<_, std::io::Error>((about.dev(), about.ino()))
    };
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// The same where there are no descriptors: a value cannot exist, so there is nothing to do.
#[cfg(not(all(feature = "std", unix)))]
#[expect(clippy::missing_safety_doc, clippy::missing_errors_doc, reason = "said above")]
impl Exported {
    #[expect(missing_docs, reason = "said above")]
    pub const unsafe fn own(_: i32, _: u64, _: Option<[u8; 16]>) -> Result<Self> {
        Err(crate::Error::new(ErrorKind::Unsupported))
    }
    #[expect(missing_docs, reason = "said above")]
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self.fd {}
    }
    #[expect(missing_docs, reason = "said above")]
    pub fn give_copy<T>(&self, _: impl FnOnce(i32) -> Result<T>) -> Result<T> {
        match self.fd {}
    }
}

#[cfg(all(test, feature = "std", unix))]
mod tests {
    use super::*;
    use std::io::{ErrorKind::WouldBlock, Read};
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    /// One end of a connection, and the other, which shows whether anyone still has the first one open.
    fn exported() -> (Exported, UnixStream) {
        let (one, other) = UnixStream::pair().expect("two descriptors");
        other.set_nonblocking(true).expect("a socket");
        (Exported { fd: one.into(), size: 0, uuid: None }, other)
    }

    fn is_open(mut other: &UnixStream) -> bool {
        other.read(&mut [0]).is_err_and(|error| error.kind() == WouldBlock)
    }

    /// Closes a descriptor as a driver does that owns it.
    fn close(fd: i32) {
        // SAFETY: `give_copy` lent it, and believes that a driver may close it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    #[test]
    fn a_driver_that_succeeds_keeps_its_copy() {
        let (exported, other) = exported();
        let taken = exported.give_copy(Ok).expect("it takes it");
        assert_ne!(taken, exported.number());
        drop(exported);
        assert!(is_open(&other), "the driver has it");
        close(taken);
        assert!(!is_open(&other));
    }

    #[test]
    fn a_copy_that_a_driver_refused_is_closed() {
        let (exported, other) = exported();
        let refused = exported.give_copy(|_| Err::<(), _>(ErrorKind::Foreign.into()));
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Foreign));
        assert!(is_open(&other), "the descriptor itself stays open");
        drop(exported);
        assert!(!is_open(&other), "and its copy does not");
    }

    #[test]
    fn a_copy_that_a_driver_closed_is_not_closed_again() {
        let (exported, other) = exported();
        let mut file = None;
        let refused = exported.give_copy(|fd| {
            close(fd);
            // Most likely under the same number.
            file = std::fs::File::open("/dev/null").ok();
            Err::<(), _>(ErrorKind::Foreign.into())
        });
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Foreign));
        assert!(file.expect("opened").metadata().is_ok(), "somebody else's file stays open");
        assert!(is_open(&other));
    }
}
