//! Files in memory, over a device that pins them: every call in turn fails, and the file is cut short.

use super::{Bad, EIO, bytes_of};
use crate::{Error, ErrorKind, Load, LoadWeights, WeightsFile};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    Backend, BlockOffset, Caps, ErrorKind as Device, HeapId, HeapKind, HostPin, Manager, Map, Move,
    Result as DeviceResult, TimelineId, Timelines, Transfer,
};
use omniheap_host::{Block, Host, heap};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Pages as a device has them that pinned them: by their address, whatever becomes of the file.
type Pages = Arc<Mutex<BTreeMap<usize, Vec<u8>>>>;

/// A device over host memory. It pins memory of others, and reads what it pinned without touching it.
struct Pinning {
    host: Host,
    pages: Pages,
    /// Pins and writes of pinned memory so far.
    calls: AtomicU64,
    /// The one that fails, from 1; 0 for none.
    fails: AtomicU64,
    /// Done after each pin.
    after_pin: Box<dyn Fn() + Send + Sync>,
}

struct Unpin(Pages, usize);

impl Drop for Unpin {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1).expect("pinned once, and unpinned once");
    }
}

impl Pinning {
    fn new(after_pin: impl Fn() + Send + Sync + 'static) -> Self {
        let host = Host::builder()
            .heap(heap(HeapKind::Device, 256 << 20))
            .heap(heap(HeapKind::Staging, 256 << 20));
        Self {
            host: host.open().unwrap(),
            pages: Pages::default(),
            calls: AtomicU64::new(0),
            fails: AtomicU64::new(0),
            after_pin: Box::new(after_pin),
        }
    }

    fn step(&self) -> DeviceResult<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == self.fails.load(Ordering::Relaxed) { Err(Device::Driver.into()) } else { Ok(()) }
    }

    fn transfer(&self) -> &dyn Transfer<Block = Block> {
        self.host.as_transfer().unwrap()
    }

    /// The bytes of a slice, where it lies in what was pinned.
    fn pinned(&self, slice: &[u8]) -> Option<Vec<u8>> {
        let start = slice.as_ptr().addr();
        let pages = self.pages.lock().unwrap();
        let (first, bytes) = pages.range(..=start).next_back()?;
        Some(bytes.get(start - first..start - first + slice.len())?.to_vec())
    }
}

// SAFETY: every call is the host's own.
unsafe impl Backend for Pinning {
    type Block = Block;
    fn caps(&self) -> &Caps {
        self.host.caps()
    }
    fn allocate(&self, heap: HeapId, size: u64) -> DeviceResult<Block> {
        self.host.allocate(heap, size)
    }
    unsafe fn free(&self, block: Block) -> DeviceResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.host.free(block) }
    }
    fn wait_idle(&self) -> DeviceResult<()> {
        self.host.wait_idle()
    }
    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        self.host.as_map()
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        self.host.as_timelines()
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
}

// SAFETY: as above; what was pinned is read where it was copied to.
unsafe impl Transfer for Pinning {
    type Block = Block;
    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> DeviceResult<()> {
        let Some(pinned) = self.pinned(bytes) else {
            return self.transfer().write(on, to, bytes);
        };
        self.step()?;
        self.transfer().write(on, to, &pinned)
    }
    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, Block>,
        bytes: &mut [u8],
    ) -> DeviceResult<()> {
        self.transfer().read(on, from, bytes)
    }
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Block>,
        size: u64,
        value: u8,
    ) -> DeviceResult<()> {
        self.transfer().fill(on, to, size, value)
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> DeviceResult<()> {
        self.transfer().copy(on, moves)
    }
    unsafe fn pin_host(&self, start: NonNull<u8>, size: usize) -> DeviceResult<Option<HostPin>> {
        self.step()?;
        let mut bytes = vec![0; size];
        let own = libc::pid_t::try_from(std::process::id()).unwrap();
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size };
        let there = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: size };
        // SAFETY: both have `size` bytes. The kernel copies, so that a page that is gone is an error, as it is for a driver.
        let copied =
            unsafe { libc::process_vm_readv(own, &raw const here, 1, &raw const there, 1, 0) };
        if usize::try_from(copied) != Ok(size) {
            return Err(Device::Driver.into());
        }
        let address = start.as_ptr().addr();
        self.pages.lock().unwrap().insert(address, bytes);
        (self.after_pin)();
        Ok(Some(HostPin::new(Unpin(Arc::clone(&self.pages), address))))
    }
}

/// A weights file without a name, in memory.
struct InMemory(File);

impl InMemory {
    fn new(shard: usize) -> Self {
        // SAFETY: a C string, and flags that the call documents.
        let made = unsafe { libc::memfd_create(c"weights".as_ptr(), libc::MFD_ALLOW_SEALING) };
        // SAFETY: just made, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(made) };
        file.write_all(&bytes_of(shard)).unwrap();
        Self(file)
    }

    fn seal(&self) {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: sets flags of an open file.
        assert_eq!(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Loads by one thread, so that every read that can be mapped is, and compares every tensor with its file.
fn load(manager: &Manager<Pinning>, file: &WeightsFile, disk: &Bad) -> Result<(), Error> {
    let loaded = manager.load_weights(file, &Load::new().threads(1).disk(disk))?;
    let wholes = [bytes_of(0), bytes_of(1)];
    for one in &loaded {
        let tensor = one.tensor();
        let range = usize::try_from(tensor.offset).unwrap()..usize::try_from(tensor.end()).unwrap();
        let mut got = vec![0; range.len()];
        if let Some(allocation) = one.allocation() {
            allocation.read(one.span().offset, &mut got).unwrap();
        }
        assert!(got == wholes[tensor.file][range], "{} differs", tensor.name);
    }
    Ok(())
}

#[test]
fn a_device_reads_sealed_files_in_memory_where_they_are() {
    let sealed = [InMemory::new(0), InMemory::new(1)];
    sealed.iter().for_each(InMemory::seal);
    let file = WeightsFile::open(&sealed.each_ref().map(InMemory::path)).unwrap();
    let manager = Manager::new(Pinning::new(|| ()));
    load(&manager, &file, &Bad::default()).unwrap();
    assert!(manager.backend().calls.load(Ordering::Relaxed) > 4, "pinned, and copied from there");
    assert!(manager.backend().pages.lock().unwrap().is_empty(), "nothing stays pinned");
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn every_call_of_a_mapped_load_that_fails_is_named_or_gone_round() {
    let in_memory = InMemory::new(0);
    let file = WeightsFile::open(&[in_memory.path()]).unwrap();
    let manager = Manager::new(Pinning::new(|| ()));
    let dry = Bad::default();
    load(&manager, &file, &dry).unwrap();
    let (disk_calls, device_calls) =
        (dry.calls.load(Ordering::Relaxed), manager.backend().calls.load(Ordering::Relaxed));
    assert!(disk_calls >= 6 && device_calls >= 3, "{disk_calls} and {device_calls} calls");
    let mut failed = [0, 0];
    for (of, calls) in [disk_calls, device_calls].into_iter().enumerate() {
        for at in 1..=calls {
            let backend = manager.backend();
            backend.calls.store(0, Ordering::Relaxed);
            backend.fails.store(if of == 1 { at } else { 0 }, Ordering::Relaxed);
            let disk = Bad { fails: if of == 0 { at } else { 0 }, ..Bad::default() };
            if let Err(error) = load(&manager, &file, &disk) {
                failed[of] += 1;
                let is_known = match error.kind() {
                    ErrorKind::Io(cause) => of == 0 && cause.raw_os_error() == Some(EIO),
                    ErrorKind::Device(_) => of == 1 && error.offset().is_some(),
                    _ => false,
                };
                assert!(is_known && error.path() == in_memory.path(), "{error:?}");
            }
            assert!(backend.pages.lock().unwrap().is_empty(), "call {at} left a pin");
            assert_eq!(manager.report().totals.live, 0, "call {at} left something");
        }
    }
    assert!(failed.iter().all(|count| *count > 0), "no call that failed was noticed: {failed:?}");
}

#[test]
fn a_file_in_memory_that_is_cut_short_is_an_error() {
    for after in 0..2 {
        let in_memory = InMemory::new(0);
        let file = WeightsFile::open(&[in_memory.path()]).unwrap();
        let (shrinks, pins) = (in_memory.0.try_clone().unwrap(), AtomicU64::new(0));
        let manager = Manager::new(Pinning::new(move || {
            if pins.fetch_add(1, Ordering::Relaxed) == after {
                shrinks.set_len(5000).unwrap();
            }
        }));
        let error = load(&manager, &file, &Bad::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed), "{error:?}");
        assert_eq!(manager.report().totals.live, 0);
    }
}

#[test]
fn a_device_that_pins_nothing_gets_the_bytes_by_way_of_the_ring() {
    let in_memory = InMemory::new(1);
    let file = WeightsFile::open(&[in_memory.path()]).unwrap();
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 256 << 20))
        .heap(heap(HeapKind::Staging, 256 << 20));
    let manager = Manager::new(host.open().unwrap());
    let loaded = manager.load_weights(&file, &Load::new()).unwrap();
    let last = &loaded["1.5"];
    let mut got = vec![0; 8 << 20];
    last.allocation().unwrap().read(last.span().offset, &mut got).unwrap();
    let whole = bytes_of(1);
    assert!(got == whole[whole.len() - got.len()..]);
}
