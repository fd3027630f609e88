//! Memory that a process publishes and others attach: one copy of a model's weights for all processes of a user.
//!
//! The arbiter keeps descriptors of the memory, so that it outlives the process that published it. Its bytes are booked as published from
//! then on, once, however many have it attached.
#![expect(unsafe_code, reason = "frees blocks that it made")]

use crate::frame::{Ask, Contents, Name, PIECES, Tell};
use crate::tenant::{Asked, Tenant};
use crate::{ArbiterError, Arbitrated, Order, order, socket};
use core::ops::Deref;
use omniheap_seam::{
    Backend, BlockOffset, Error, ErrorKind, Export, Exported, HeapId, TimelineId, Transfer,
};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Bytes that are copied at once.
const CHUNK: u64 = 4 << 20;
/// Bytes of a piece, unless there would be too many pieces.
const PIECE: u64 = 256 << 20;

/// Reason why nothing was published or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The name is none.
    #[error("{0:?} is no name; use 1 to 64 letters, digits, dots, dashes and underscores")]
    Name(String),
    /// The device has no arbiter.
    #[error("the device is under no arbiter; set OMNIHEAP_ARBITER")]
    NoArbiter,
    /// The arbiter refused, or does not answer.
    #[error(transparent)]
    Arbiter(#[from] ArbiterError),
    /// The device refused.
    #[error("{0}; memory is published from a heap whose blocks can be exported")]
    Device(#[from] Error),
    /// The bytes cannot be read.
    #[error("the bytes to publish cannot be read: {0}")]
    Source(io::Error),
}

fn named(name: &str) -> Result<Name, ShareError> {
    Name::new(name).ok_or_else(|| ShareError::Name(name.to_owned()))
}

fn tenant_of<B>(device: &Arbitrated<B>) -> Result<&Arc<Tenant>, ShareError> {
    let tenant = device.hooks().as_ref().map(|tenancy| tenancy.tenant());
    let tenant = tenant.ok_or(ShareError::NoArbiter)?;
    // In a forked child neither the memory nor the connection is its own.
    if tenant.is_own() { Ok(tenant) } else { Err(Error::from(ErrorKind::DeviceLost).into()) }
}

/// The calls of a device that sharing needs.
struct Calls<'a, T> {
    export: &'a dyn Export<Block = T>,
    transfer: &'a dyn Transfer<Block = T>,
}

fn calls<B: Backend>(backend: &B) -> Result<Calls<'_, B::Block>, Error> {
    let export = backend.as_export().ok_or(ErrorKind::Unsupported)?;
    let transfer = backend.as_transfer().ok_or(ErrorKind::Unsupported)?;
    Ok(Calls { export, transfer })
}

/// Publishes `length` bytes of a source under a name, as memory of the device. Attach it to read it here, too.
///
/// The memory stays until it is withdrawn ([`withdraw`]) and nobody has it attached any more. To others it is there when this returns.
///
/// # Errors
/// [`ShareError`]; nothing stays published or booked then.
pub fn publish<B: Backend>(
    device: &Arbitrated<B>,
    heap: HeapId,
    name: &str,
    length: u64,
    source: &mut dyn Read,
) -> Result<(), ShareError> {
    publish_in(device, heap, name, divide(device.inner(), heap, length, PIECE)?, source)
}

/// As [`publish`], in one block, so that the bytes lie one after the other at the address that those who attach them get.
///
/// # Errors
/// As for [`publish`]; `ExceedsLimit` for more bytes than the heap's largest block has.
pub fn publish_whole<B: Backend>(
    device: &Arbitrated<B>,
    heap: HeapId,
    name: &str,
    length: u64,
    source: &mut dyn Read,
) -> Result<(), ShareError> {
    let contents = divide(device.inner(), heap, length, length)?;
    if contents.pieces().count() > 1 {
        return Err(Error::from(ErrorKind::ExceedsLimit).into());
    }
    publish_in(device, heap, name, contents, source)
}

/// Ends a publication of this user; its memory is free once no process has it attached.
///
/// # Errors
/// [`ShareError`]: refused with `NotPublished` where there is none of this user.
pub fn withdraw<B>(device: &Arbitrated<B>, name: &str) -> Result<(), ShareError> {
    let (name, tenant) = (named(name)?, tenant_of(device)?);
    Ok(order(tenant.path(), Order::Withdraw { name })?)
}

fn publish_in<B: Backend>(
    device: &Arbitrated<B>,
    heap: HeapId,
    name: &str,
    mut contents: Contents,
    source: &mut dyn Read,
) -> Result<(), ShareError> {
    let (name, tenant) = (named(name)?, tenant_of(device)?);
    tenant.take(contents.size)?;
    let made = write(device.inner(), heap, &mut contents, source).and_then(|pieces| {
        tenant.hand_over(contents.size, || hand_over(tenant, name, contents, &pieces))
    });
    if made.is_err() {
        tenant.give(contents.size);
    }
    made
}

/// Decides how memory for so many bytes is divided, into pieces of `least` bytes or more where blocks can be as large.
fn divide<B: Backend>(
    backend: &B,
    heap: HeapId,
    length: u64,
    least: u64,
) -> Result<Contents, Error> {
    let about = backend.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
    if length == 0 {
        return Err(ErrorKind::ZeroSize.into());
    }
    let unit = CHUNK.max(about.granule.get());
    let most = about.max_block - about.max_block % unit;
    let piece = length.div_ceil(PIECES).max(least).checked_next_multiple_of(unit);
    let piece = piece.ok_or(ErrorKind::ExceedsLimit)?.min(most);
    let size = about.granule.up(length).ok_or(ErrorKind::ExceedsLimit)?;
    if piece == 0 || size.div_ceil(piece) > PIECES {
        return Err(ErrorKind::ExceedsLimit.into());
    }
    let uuid = backend.caps().device.uuid.map_or([0; 2], |uuid| {
        let (words, _) = uuid.as_chunks::<8>();
        [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
    });
    Ok(Contents { digest: [0; 4], device: uuid, length, size, piece })
}

/// Makes the memory, fills it, and sets the digest. Only descriptors keep the memory afterwards.
fn write<B: Backend>(
    backend: &B,
    heap: HeapId,
    contents: &mut Contents,
    source: &mut dyn Read,
) -> Result<Vec<Exported>, ShareError> {
    let calls = calls(backend)?;
    let (mut digest, mut exported) = (Digest::new(), Vec::new());
    let mut left = contents.length;
    for size in contents.pieces() {
        let block = calls.export.allocate_exportable(heap, size)?;
        let bytes = size.min(left);
        left -= bytes;
        let filled = fill(calls.transfer, &block, bytes, source, &mut digest)
            .and_then(|()| Ok(backend.wait_idle()?))
            .and_then(|()| Ok(calls.export.export(&block)?));
        if filled.is_err() {
            // Copies to it may be under way. A lost device writes nothing any more.
            let _ = backend.wait_idle();
        }
        // SAFETY: made above by this backend, which has finished all work.
        unsafe { backend.free(block) }?;
        exported.push(filled.and_then(|made| match made.size == size {
            true => Ok(made),
            false => Err(Error::from(ErrorKind::Unsupported).into()),
        })?);
    }
    contents.digest = digest.finish(contents.length);
    Ok(exported)
}

fn fill<T>(
    transfer: &dyn Transfer<Block = T>,
    block: &T,
    bytes: u64,
    source: &mut dyn Read,
    digest: &mut Digest,
) -> Result<(), ShareError> {
    let mut buffer = vec![0; index(bytes.min(CHUNK))];
    for offset in (0..bytes).step_by(index(CHUNK)) {
        let part = &mut buffer[..index((bytes - offset).min(CHUNK))];
        source.read_exact(part).map_err(ShareError::Source)?;
        digest.add(part);
        transfer.write(TimelineId::MAIN, BlockOffset { block, offset }, part)?;
    }
    Ok(())
}

fn hand_over(
    tenant: &Tenant,
    name: Name,
    contents: Contents,
    pieces: &[Exported],
) -> Result<(), ShareError> {
    let descriptors: Vec<_> = pieces.iter().map(|piece| piece.fd.as_fd()).collect();
    let ask = Ask::Publish { name, contents };
    Ok(Asked::new(tenant.path(), &ask, &descriptors)?.done()?)
}

/// A reference to a device, or an [`Arc`] of it, which lead to the same device every time.
pub trait DeviceRef<B>: Deref<Target = Arbitrated<B>> + sealed::Sealed {}

impl<B> DeviceRef<B> for &Arbitrated<B> {}
impl<B> DeviceRef<B> for Arc<Arbitrated<B>> {}

mod sealed {
    use crate::Arbitrated;
    use std::sync::Arc;

    pub trait Sealed {}
    impl<B> Sealed for &Arbitrated<B> {}
    impl<B> Sealed for Arc<Arbitrated<B>> {}
}

/// Attaches memory that was published under a name, by a process of this user or of one whose names the policy lets this user attach.
///
/// The bytes are not copied, and count for nobody a second time. `device` is a reference, or an `Arc` for what is to live on its own.
///
/// # Errors
/// [`ShareError`]: refused with `NotPublished` where there is none; `Foreign` for another device, or descriptors that are no memory.
///
/// A pointer of another type, which might point to another device each time, is not taken:
///
/// ```compile_fail,E0277
/// use omniheap_arbiter::{Arbitrated, attach};
/// use omniheap_host::Host;
/// use omniheap_seam::HeapId;
///
/// struct Either(Arbitrated<Host>, Arbitrated<Host>);
///
/// impl core::ops::Deref for Either {
///     type Target = Arbitrated<Host>;
///
///     fn deref(&self) -> &Arbitrated<Host> {
///         if std::process::id() % 2 == 0 { &self.0 } else { &self.1 }
///     }
/// }
///
/// fn wrong(devices: Either) {
///     let _ = attach(devices, HeapId(0), "model");
/// }
/// ```
pub fn attach<B: Backend, D: DeviceRef<B>>(
    device: D,
    heap: HeapId,
    name: &str,
) -> Result<Attached<B, D>, ShareError> {
    let (name, tenant) = (named(name)?, Arc::clone(tenant_of(&device)?));
    let asked = Asked::new(tenant.path(), &Ask::Attach { name }, &[])?;
    let (publication, contents, descriptors) = match asked.hear()? {
        (Tell::Attached { publication, contents }, sent) => (publication, contents, sent),
        (other, _) => return Err(asked.unexpected(&other).into()),
    };
    drop(asked);
    // From here on it is given up whatever happens.
    let mut attached = Attached { device, tenant, publication, contents, blocks: Vec::new() };
    if contents.pieces().count() != descriptors.len() {
        return Err(ArbiterError::Lost(attached.tenant.path().to_owned()).into());
    }
    let uuid = (contents.device != [0; 2]).then(|| {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&contents.device[0].to_le_bytes());
        uuid[8..].copy_from_slice(&contents.device[1].to_le_bytes());
        uuid
    });
    for (size, fd) in contents.pieces().zip(descriptors) {
        let export = calls(attached.device.inner())?.export;
        let block = export.import(heap, &Exported { fd, size, uuid })?;
        attached.blocks.push(block);
    }
    Ok(attached)
}

/// Published memory that this process has attached. It can only be read.
pub struct Attached<B: Backend, D: DeviceRef<B>> {
    device: D,
    tenant: Arc<Tenant>,
    publication: u64,
    contents: Contents,
    blocks: Vec<B::Block>,
}

impl<B: Backend, D: DeviceRef<B>> core::fmt::Debug for Attached<B, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Attached").field("contents", &self.contents).finish_non_exhaustive()
    }
}

impl<B: Backend, D: DeviceRef<B>> Attached<B, D> {
    /// Returns how many bytes were published.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.contents.length
    }

    /// Returns the digest of the bytes when they were published.
    #[must_use]
    pub const fn digest(&self) -> [u64; 4] {
        self.contents.digest
    }

    /// Returns the blocks that hold the bytes one after the other, for kernels and copies that read them. Others read them as well: they
    /// must not be written.
    #[must_use]
    pub fn blocks(&self) -> &[B::Block] {
        &self.blocks
    }

    /// Returns the address of the first byte, where the others follow it ([`publish_whole`]) and the backend has addresses.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        let [block] = self.blocks() else { return None };
        Some(self.device.inner().as_address()?.address(block))
    }

    /// Reads bytes from an offset on.
    ///
    /// # Errors
    /// `OutOfRange` behind the end; what the device says.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.contents.length) {
            return Err(ErrorKind::OutOfRange.into());
        }
        let (calls, piece) = (calls(self.device.inner())?, self.contents.piece);
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let inside = at % piece;
            let (part, more) = rest.split_at_mut(rest.len().min(index(piece - inside)));
            let block = self.blocks.get(index(at / piece)).ok_or(ErrorKind::OutOfRange)?;
            calls.transfer.read(TimelineId::MAIN, BlockOffset { block, offset: inside }, part)?;
            (at, rest) = (at + part.len() as u64, more);
        }
        Ok(())
    }

    /// Reads all bytes and returns whether they are still what was published: whoever has a descriptor can write.
    ///
    /// # Errors
    /// Those of the device.
    pub fn is_unchanged(&self) -> Result<bool, Error> {
        let (length, mut digest) = (self.contents.length, Digest::new());
        let mut buffer = vec![0; index(length.min(CHUNK))];
        for offset in (0..length).step_by(index(CHUNK)) {
            let part = &mut buffer[..index((length - offset).min(CHUNK))];
            self.read(offset, part)?;
            digest.add(part);
        }
        Ok(digest.finish(length) == self.contents.digest)
    }
}

impl<B: Backend, D: DeviceRef<B>> Drop for Attached<B, D> {
    fn drop(&mut self) {
        let backend = self.device.inner();
        // A lost device reads nothing any more.
        let _ = backend.wait_idle();
        for block in self.blocks.drain(..) {
            // SAFETY: imported by this backend, which has finished all work. A refused block is gone with the device.
            let _ = unsafe { backend.free(block) };
        }
        // The arbiter learns of the end of the process in any case.
        let detach = Ask::Detach { publication: self.publication }.encode();
        let _ = socket::open(self.tenant.path()).and_then(|it| socket::post(&it, &detach));
    }
}

/// Attached memory of any backend, for what passes it on without its type.
pub trait AnyAttached: Send + Sync {
    /// As [`Attached::length`].
    fn length(&self) -> u64;

    /// As [`Attached::address`].
    fn address(&self) -> Option<u64>;

    /// As [`Attached::read`].
    ///
    /// # Errors
    /// As there.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error>;

    /// As [`Attached::is_unchanged`].
    ///
    /// # Errors
    /// As there.
    fn is_unchanged(&self) -> Result<bool, Error>;
}

impl<B, D> AnyAttached for Attached<B, D>
where
    B: Backend,
    D: DeviceRef<B> + Send + Sync,
{
    fn length(&self) -> u64 {
        self.length()
    }

    fn address(&self) -> Option<u64> {
        self.address()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.read(offset, bytes)
    }

    fn is_unchanged(&self) -> Result<bool, Error> {
        self.is_unchanged()
    }
}

/// Sizes of memory that is there fit.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A digest that finds changes by mistake. It is no defence against deceit.
struct Digest([u64; 4]);

impl Digest {
    const fn new() -> Self {
        Self([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f])
    }

    /// Adds bytes; all calls but the last add a multiple of 32.
    fn add(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<32>();
        whole.iter().for_each(|block| self.block(block));
        if !rest.is_empty() {
            let mut block = [0; 32];
            block[..rest.len()].copy_from_slice(rest);
            self.block(&block);
        }
    }

    fn block(&mut self, block: &[u8; 32]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in self.0.iter_mut().zip(words) {
            let mixed = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(0x9fb2_1c65_1e98_df25);
            *lane = mixed.rotate_left(29).wrapping_add(0x1656_67b1);
        }
    }

    /// Mixes the lanes with each other and with the number of bytes.
    fn finish(mut self, length: u64) -> [u64; 4] {
        for _ in 0..4 {
            self.block(&[length.to_le_bytes(); 4].concat().try_into().unwrap_or([0; 32]));
            self.0.rotate_left(1);
            let sum = self.0.iter().fold(0, |sum: u64, lane| sum.wrapping_add(*lane));
            self.0[0] ^= sum;
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PublicationInfo;
    use crate::{Policy, Server, publications, tenants};
    use core::sync::atomic::{AtomicBool, Ordering};
    use core::time::Duration;
    use omniheap_host::Host;
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::thread::{self, JoinHandle};

    const MIB: u64 = 1 << 20;

    /// An arbiter that can be stopped, as by a signal: its socket is there, and no thread reads it.
    struct Stoppable {
        path: PathBuf,
        stop: Arc<AtomicBool>,
        thread: Option<JoinHandle<Server>>,
    }

    impl Stoppable {
        fn start(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("omniheap-{name}-{}", std::process::id()));
            let mut policy = Policy::equal(64 * MIB);
            policy.patience = Duration::from_millis(1);
            let server = Server::bind(&path, policy, None).expect("a socket");
            let mut made = Self { path, stop: Arc::default(), thread: None };
            made.serve(server);
            made
        }

        fn serve(&mut self, mut server: Server) {
            self.stop.store(false, Ordering::Relaxed);
            let stop = Arc::clone(&self.stop);
            self.thread = Some(thread::spawn(move || {
                server.run(|| stop.load(Ordering::Relaxed)).expect("it serves");
                server
            }));
        }

        fn stop(&mut self) -> Server {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.take().expect("it serves").join().expect("no panic")
        }

        fn device(&self) -> (Arc<Arbitrated<Host>>, Arc<Tenant>) {
            let tenant = Tenant::shared(&self.path).expect("a tenant");
            (Arc::new(crate::arbitrated(Host::new(), Arc::clone(&tenant))), tenant)
        }

        /// Returns the arbiter's entries for this process, and all publications.
        fn books(&self) -> (u64, u64, u64, Vec<PublicationInfo>) {
            let all = tenants(&self.path).expect("it answers");
            let published = publications(&self.path).expect("it answers");
            (all[0].held, all[0].quota, all[0].owed, published)
        }
    }

    impl Drop for Stoppable {
        fn drop(&mut self) {
            if self.thread.is_some() {
                drop(self.stop());
            }
            let _ = std::fs::remove_file(self.path.with_added_extension("lock"));
        }
    }

    /// Makes calls beside each other that must come to an end, and returns what each says.
    fn all_end<T: Send + 'static>(calls: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
        let (done, ended) = channel();
        for call in calls {
            let done = done.clone();
            thread::spawn(move || done.send(call()));
        }
        drop(done);
        let heard = core::iter::from_fn(|| match ended.recv_timeout(Duration::from_secs(100)) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a call waits for ever"),
            heard => heard.ok(),
        });
        heard.collect()
    }

    /// Bytes in whose middle the arbiter stops.
    struct StopsIt(Stoppable, Option<Server>);

    impl Read for StopsIt {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.1.is_none() {
                self.1 = Some(self.0.stop());
            }
            bytes.fill(7);
            Ok(bytes.len())
        }
    }

    #[test]
    fn publishing_while_the_arbiter_stops_fails_and_nothing_is_published_later() {
        let arbiter = Stoppable::start("stops");
        let (device, tenant) = arbiter.device();
        tenant.take(20 * MIB).expect("it is free");
        let (mut source, publisher) = (StopsIt(arbiter, None), Arc::clone(&device));
        let mut ended = all_end(vec![Box::new(move || {
            (publish(&publisher, HeapId(0), "late", 10 * MIB, &mut source), source)
        })]);
        let (silent, StopsIt(mut arbiter, server)) = ended.pop().expect("one call");
        assert!(matches!(silent, Err(ShareError::Arbiter(ArbiterError::Silent(_)))), "{silent:?}");
        assert_eq!(tenant.held(), 20 * MIB);
        arbiter.serve(server.expect("it was stopped"));
        assert_eq!(arbiter.books(), (20 * MIB, 64 * MIB, 0, Vec::new()));
        publish(&device, HeapId(0), "late", 10 * MIB, &mut io::repeat(7))
            .expect("the name is free");
    }

    #[test]
    fn orders_to_a_stopped_arbiter_fail_and_are_not_carried_out_later() {
        let mut arbiter = Stoppable::start("stopped");
        let (device, tenant) = arbiter.device();
        tenant.take(20 * MIB).expect("it is free");
        publish(&device, HeapId(0), "kept", MIB, &mut io::repeat(7)).expect("it fits");
        let before = arbiter.books();
        let server = arbiter.stop();
        let (pid, name) = (std::process::id(), Name::new("kept").expect("a name"));
        let mut calls: Vec<Box<dyn FnOnce() -> Result<(), ShareError> + Send>> = Vec::new();
        for asked in [
            Order::SetQuota { pid, quota: 30 * MIB },
            Order::Sleep { pid },
            Order::Withdraw { name },
        ] {
            let path = arbiter.path.clone();
            calls.push(Box::new(move || Ok(order(&path, asked)?)));
        }
        let [first, second] = [(); 2].map(|()| arbiter.path.clone());
        calls.push(Box::new(move || Ok(tenants(&first).map(drop)?)));
        calls.push(Box::new(move || Ok(publications(&second).map(drop)?)));
        calls.push(Box::new(move || attach(device, HeapId(0), "kept").map(drop)));
        for silent in all_end(calls) {
            let is_silent = matches!(silent, Err(ShareError::Arbiter(ArbiterError::Silent(_))));
            assert!(is_silent, "{silent:?}");
        }
        arbiter.serve(server);
        assert_eq!(arbiter.books(), before);
        // A press that was begun would be overdue by now.
        thread::sleep(Duration::from_millis(20));
        assert_eq!(arbiter.books(), before);
        assert_eq!(tenant.held(), 20 * MIB);
    }

    #[test]
    fn what_a_stopped_arbiter_was_asked_for_is_not_granted_later() {
        let mut arbiter = Stoppable::start("granted-late");
        let (_device, tenant) = arbiter.device();
        tenant.take(20 * MIB).expect("it is free");
        let server = arbiter.stop();
        let asks = Arc::clone(&tenant);
        let silent = all_end(vec![Box::new(move || asks.take(10 * MIB))]);
        assert!(matches!(silent[..], [Err(ArbiterError::Silent(_))]), "{silent:?}");
        arbiter.serve(server);
        assert_eq!(arbiter.books().0, 20 * MIB, "it could not be told, so it has not got it");
        tenant.take(44 * MIB).expect("the rest is free");
        assert_eq!((tenant.held(), arbiter.books().0), (64 * MIB, 64 * MIB));
    }

    #[test]
    fn giving_back_to_a_stopped_arbiter_comes_to_an_end_and_counts() {
        let mut arbiter = Stoppable::start("given-back");
        let (_device, tenant) = arbiter.device();
        tenant.take(20 * MIB).expect("it is free");
        let server = arbiter.stop();
        let gives = Arc::clone(&tenant);
        // More than fit into the queue of a socket.
        let give = move || (0..10_000).for_each(|_| gives.give(1 << 10));
        all_end(vec![Box::new(give)]);
        arbiter.serve(server);
        tenant.take(MIB).expect("connected again");
        let held = 21 * MIB - (10_000 << 10);
        assert_eq!((tenant.held(), arbiter.books().0), (held, held));
    }

    #[test]
    fn a_stopped_arbiter_whose_queue_is_full_is_silent_too() {
        let mut arbiter = Stoppable::start("queue");
        let server = arbiter.stop();
        // As many as are let in without being accepted, and some more.
        let path = arbiter.path.clone();
        let connect = move || {
            let open = || socket::open(&path);
            core::iter::repeat_with(open)
                .take(1_000)
                .find_map(Result::err)
                .map(|error| error.kind())
        };
        assert_eq!(all_end(vec![Box::new(connect)]), [Some(io::ErrorKind::WouldBlock)]);
        drop(server);
    }

    fn digest(bytes: &[u8]) -> [u64; 4] {
        let mut digest = Digest::new();
        digest.add(bytes);
        digest.finish(bytes.len() as u64)
    }

    #[test]
    fn every_bit_and_every_length_counts() {
        let mut bytes = vec![7_u8; 97];
        let whole = digest(&bytes);
        let mut parts = Digest::new();
        parts.add(&bytes[..64]);
        parts.add(&bytes[64..]);
        assert_eq!(parts.finish(97), whole, "in parts it is the same");
        for bit in 0..97 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&bytes), whole, "{bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_ne!(digest(&[0; 31]), digest(&[0; 32]));
        bytes.swap(3, 40);
        bytes[3] = 9;
        assert_ne!(digest(&bytes), whole);
    }
}
