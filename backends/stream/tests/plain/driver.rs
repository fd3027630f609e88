//! A driver over plain host memory: every call has run when it returns, and is noted. Work that waits is what a case says it is.
#![expect(unsafe_code, reason = "signs the contracts of the driver traits")]
use crate::streams::Streams;
use core::{
    alloc::Layout,
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use omniheap_core::{ErrorKind, Result};
use omniheap_stream::{
    BuildError, Capture, CodeDriver, CopyDriver, IpcDriver, MemoryDriver, MemoryInfo, Module,
    Progress, RowCopy, Shape, StreamDriver, lock,
};
use std::{
    alloc::{alloc_zeroed, dealloc},
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// A driver call that cases check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Copy { to: u64, size: usize, stream: u32 },
    Fill { size: usize },
    Order { stream: u32 },
    Launch { function: Function, stream: u32 },
    AllowShared(u32),
    CloseIpc,
    DestroyStream,
    Free,
}

/// Kernels that the driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// The one that carries batches.
    Compact,
    /// Any other: it does nothing.
    Other,
}

/// Bytes of the symbol that every module has for its first slot.
pub(crate) const SYMBOL: u64 = 64;

/// Something that a case does in the middle of a call.
type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Plain {
    calls: Mutex<Vec<Call>>,
    live: Mutex<HashMap<u64, Layout>>,
    /// Memory of others that is pinned.
    pub(crate) pinned: Mutex<HashMap<usize, usize>>,
    numbers: AtomicU32,
    symbol: Mutex<[u64; 8]>,
    /// Work that waits, streams that die, and captures.
    pub(crate) streams: Mutex<Streams>,
    /// True if fills do nothing.
    pub(crate) is_broken: AtomicBool,
    /// True if fills fail because the device is lost.
    pub(crate) is_lost: AtomicBool,
    /// True if other processes' memory is shorter than they say.
    pub(crate) is_short: AtomicBool,
    /// True if reads and writes of the host say that they failed, though the device has them.
    pub(crate) is_unsure: AtomicBool,
    /// Error of every wait for a stream.
    pub(crate) at_drain: Mutex<Option<ErrorKind>>,
    /// True if no event can be recorded.
    pub(crate) refuses_records: AtomicBool,
    /// Runs once, when the host begins to wait for an event.
    pub(crate) at_wait: Mutex<Option<Meanwhile>>,
    /// Events that were recorded.
    pub(crate) records: AtomicU32,
    /// Host address of the last write.
    pub(crate) written_from: AtomicU64,
}

impl core::fmt::Debug for Plain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Plain")
    }
}

impl Drop for Plain {
    /// Takes everything back, as a driver does when its device is closed.
    fn drop(&mut self) {
        for (address, layout) in lock(&self.live).drain() {
            // SAFETY: `take` gave it with this layout, and nobody freed it: it was still noted.
            unsafe { dealloc(pointer(address), layout) };
        }
    }
}

impl Plain {
    /// Returns the calls since the last time.
    pub(crate) fn calls(&self) -> Vec<Call> {
        core::mem::take(&mut *lock(&self.calls))
    }

    fn note(&self, call: Call) -> Result<()> {
        lock(&self.calls).push(call);
        Ok(())
    }

    /// Returns the result of a host transfer.
    fn verdict(&self) -> Result<()> {
        if self.is_unsure.load(Ordering::Relaxed) { Err(ErrorKind::Driver.into()) } else { Ok(()) }
    }

    /// Returns the address of every module's symbol.
    pub(crate) fn symbol(&self) -> u64 {
        lock(&self.symbol).as_mut_ptr().expose_provenance() as u64
    }

    pub(crate) fn take(&self, size: usize) -> Result<NonNull<u8>> {
        let layout = Layout::from_size_align(size, 4096).map_err(|_| ErrorKind::ExceedsLimit)?;
        // SAFETY: sizes are checked above this level, so none is zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.ok_or(ErrorKind::OutOfHostMemory)?;
        lock(&self.live).insert(memory.as_ptr().expose_provenance() as u64, layout);
        Ok(memory)
    }

    /// Returns the number of live allocations.
    pub(crate) fn live(&self) -> usize {
        lock(&self.live).len()
    }
}

fn pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(usize::try_from(address).expect("an address of this machine"))
}

// SAFETY: everything has run when its call returns; memory starts at a page.
unsafe impl StreamDriver for Plain {
    type Stream = u32;
    type Event = u32;
    type Graph = u64;
    type Current<'a> = ();

    fn enter(&self) -> Result<()> {
        Ok(())
    }
    fn create_stream(&self) -> Result<u32> {
        Ok(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
    unsafe fn destroy_stream(&self, stream: u32) -> Result<()> {
        lock(&self.streams).destroy(stream);
        self.note(Call::DestroyStream)
    }
    unsafe fn synchronize_stream(&self, stream: u32) -> Result<()> {
        if let Some(kind) = *lock(&self.at_drain) {
            return Err(kind.into());
        }
        lock(&self.streams).synchronize_stream(stream);
        Ok(())
    }
    fn synchronize(&self) -> Result<()> {
        lock(&self.streams).synchronize();
        Ok(())
    }
    fn create_event(&self) -> Result<u32> {
        self.create_stream()
    }
    unsafe fn destroy_event(&self, _: u32) -> Result<()> {
        Ok(())
    }
    unsafe fn record(&self, event: u32, stream: u32) -> Result<()> {
        if self.refuses_records.load(Ordering::Relaxed) {
            return Err(ErrorKind::Driver.into());
        }
        self.records.fetch_add(1, Ordering::Relaxed);
        lock(&self.streams).record(event, stream);
        Ok(())
    }
    unsafe fn record_all(&self, event: u32) -> Result<()> {
        let mut streams = lock(&self.streams);
        if !streams.follows_all {
            return Err(ErrorKind::Unsupported.into());
        }
        streams.record_all(event);
        Ok(())
    }
    unsafe fn capture(&self, stream: u32) -> Result<Option<Capture<u64>>> {
        let id = lock(&self.streams).capture(stream);
        Ok(id.map(|id| Capture { id, graph: Some(id) }))
    }
    unsafe fn stream_number(&self, stream: u32) -> Result<Option<u64>> {
        assert!(lock(&self.streams).capture(stream).is_none(), "a capture was spoiled");
        Ok(Some(stream.into()))
    }
    unsafe fn watch(&self, _: u64, _: Arc<AtomicBool>) -> Result<()> {
        Ok(())
    }
    unsafe fn progress(&self, event: u32) -> Result<Progress> {
        let is_finished = lock(&self.streams).is_finished(event);
        Ok(if is_finished { Progress::Finished } else { Progress::Pending })
    }
    unsafe fn wait_event(&self, event: u32) -> Result<()> {
        let meanwhile = lock(&self.at_wait).take();
        meanwhile.into_iter().for_each(|run| run());
        lock(&self.streams).wait(event);
        Ok(())
    }
    unsafe fn order(&self, stream: u32, event: u32) -> Result<()> {
        lock(&self.streams).order(stream, event);
        self.note(Call::Order { stream })
    }
    fn allocate_bounce(&self, size: usize) -> Result<NonNull<u8>> {
        self.take(size)
    }
    fn host_address(&self, host: NonNull<u8>) -> Result<u64> {
        Ok(host.as_ptr().expose_provenance() as u64)
    }
    unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        let layout = lock(&self.live).remove(&(host.expose_provenance() as u64));
        // SAFETY: `take` gave it with this layout, and it is freed once: it was just taken out.
        unsafe { dealloc(host, layout.ok_or(ErrorKind::Driver)?) };
        Ok(())
    }
    unsafe fn pin(&self, start: NonNull<u8>, size: usize) -> Result<()> {
        self.verdict()?;
        let before = lock(&self.pinned).insert(start.as_ptr().expose_provenance(), size);
        assert!(before.is_none(), "pinned twice");
        Ok(())
    }
    unsafe fn unpin(&self, start: NonNull<u8>) -> Result<()> {
        let size = lock(&self.pinned).remove(&start.as_ptr().expose_provenance());
        assert!(size.is_some(), "it was not pinned");
        Ok(())
    }
    unsafe fn write(&self, to: u64, from: *const u8, size: usize, _: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy(from, pointer(to), size) };
        self.written_from.store(from.expose_provenance() as u64, Ordering::Relaxed);
        self.verdict()
    }
    unsafe fn read(&self, to: *mut u8, from: u64, size: usize, _: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy(pointer(from), to, size) };
        self.verdict()
    }
}

// SAFETY: each call touches exactly the ranges that it is given.
unsafe impl CopyDriver for Plain {
    fn allocation_at(&self, address: u64) -> Option<(u64, u64)> {
        if self.is_short.load(Ordering::Relaxed) {
            return Some((address, 1));
        }
        let live = lock(&self.live);
        let around = live.iter().map(|(start, layout)| (*start, layout.size() as u64));
        let mut around = around.filter(|(start, size)| (*start..*start + size).contains(&address));
        // Whatever else the host has counts as pinned.
        around.next().or(Some((address, 1 << 30)))
    }
    unsafe fn copy(&self, to: u64, from: u64, size: usize, stream: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy(pointer(from), pointer(to), size) };
        self.note(Call::Copy { to, size, stream })
    }
    unsafe fn copy_unified(&self, to: u64, from: u64, size: usize, stream: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(to, from, size, stream) }
    }
    unsafe fn copy_rows(&self, rows: &RowCopy, stream: u32) -> Result<()> {
        for row in 0..rows.height as u64 {
            let to = rows.to + row * rows.to_pitch as u64;
            let from = rows.from + row * rows.from_pitch as u64;
            // SAFETY: the caller's promise.
            unsafe { self.copy(to, from, rows.width, stream) }?;
        }
        Ok(())
    }
    unsafe fn fill(&self, to: u64, value: u8, size: usize, _: u32) -> Result<()> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(ErrorKind::DeviceLost.into());
        }
        if !self.is_broken.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise.
            unsafe { pointer(to).write_bytes(value, size) };
        }
        self.note(Call::Fill { size })
    }
}

// SAFETY: the host's allocator gives disjoint ranges.
unsafe impl MemoryDriver for Plain {
    fn memory_info(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: 3 << 20, total: 4 << 20 })
    }
    fn allocate(&self, size: usize) -> Result<u64> {
        Ok(self.take(size)?.as_ptr().expose_provenance() as u64)
    }
    fn allocate_managed(&self, size: usize) -> Result<u64> {
        self.allocate(size)
    }
    unsafe fn free(&self, base: u64) -> Result<()> {
        self.note(Call::Free)?;
        // SAFETY: the caller's promise.
        unsafe { self.free_host(pointer(base)) }
    }
}

// SAFETY: opened memory is the handle's own.
unsafe impl IpcDriver for Plain {
    unsafe fn ipc_handle(&self, base: u64) -> Result<[u8; 64]> {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&base.to_le_bytes());
        Ok(bytes)
    }
    fn open_ipc(&self, handle: [u8; 64]) -> Result<u64> {
        Ok(u64::from_le_bytes(handle[..8].try_into().expect("eight bytes")))
    }
    unsafe fn close_ipc(&self, _: u64) -> Result<()> {
        self.note(Call::CloseIpc)
    }
}

// SAFETY: a module is only a number, and the symbol lives as long as the driver.
unsafe impl CodeDriver for Plain {
    type Module = u32;
    type Function = Function;

    fn runs_code_of(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
    fn compile(driver: &Arc<Self>, _: &str) -> Result<Module<Self>, BuildError> {
        // SAFETY: there is nothing to unload.
        Ok(unsafe { Module::new(driver, 0) })
    }
    fn compaction(driver: &Arc<Self>) -> Result<Module<Self>, BuildError> {
        Self::compile(driver, "")
    }
    unsafe fn unload_module(&self, _: u32) -> Result<()> {
        Ok(())
    }
    unsafe fn function(&self, _: u32, name: &CStr) -> Result<Function> {
        Ok(if name == c"omniheap_compact" { Function::Compact } else { Function::Other })
    }
    unsafe fn global(&self, _: u32, name: &CStr) -> Result<(u64, u64)> {
        let is_first = name == c"omniheap_constant_0";
        if is_first { Ok((self.symbol(), SYMBOL)) } else { Err(ErrorKind::Driver.into()) }
    }
    unsafe fn max_threads(&self, _: Function) -> Result<u32> {
        Ok(256)
    }
    unsafe fn static_shared(&self, _: Function) -> Result<u32> {
        Ok(100)
    }
    unsafe fn allow_shared(&self, _: Function, size: u32) -> Result<()> {
        self.note(Call::AllowShared(size))
    }
    unsafe fn launch(
        &self,
        function: Function,
        _: Shape,
        stream: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        if function == Function::Compact {
            // SAFETY: the kernel's first argument is the address of its table.
            let table = unsafe { arguments[0].cast::<u64>().read() };
            // SAFETY: its second is the number of entries.
            let entries = unsafe { arguments[1].cast::<u32>().read() };
            for index in 0..entries as usize {
                let entry = pointer(table).cast::<[u64; 3]>().wrapping_add(index);
                // SAFETY: the table has as many entries, of three numbers each.
                let [to, from, size] = unsafe { entry.read() };
                let size = usize::try_from(size).expect("a piece is small");
                // SAFETY: the table names live bytes.
                unsafe { ptr::copy(pointer(from), pointer(to), size) };
            }
        }
        self.note(Call::Launch { function, stream })
    }
}
