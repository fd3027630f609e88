//! What the shared device does for every backend over streams, under this backend's name.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    Argument, Block, BuildError, Cuda, Finding, IpcHandle, Kernel, Launch, Rows, block::Kind,
};
use core::ptr::NonNull;
use omniheap_core::{
    Address, Argument as Bound, DriverBudget, Epoch, HeapBudget, HeapId, Kernel as Declared,
    Launch as Programs, Map, Move, Place, Point, ProgramId, Result, TimelineId, Timelines,
    Transfer,
};

impl Cuda {
    /// What the self-test found when the device was opened.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.device.findings()
    }

    /// Events that are kept for later marks; it stays small however many marks are made.
    #[must_use]
    pub fn spare_events(&self) -> usize {
        self.device.timelines().spare_events()
    }

    /// Whether the kernel that carries batches of copies is loaded, which opening the device has tried.
    ///
    /// # Errors
    ///
    /// Why it cannot be; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.device.prepare_batches()
    }

    /// Runs a kernel, in timeline order.
    ///
    /// # Errors
    ///
    /// `ZeroSize` for an empty grid or group, `ExceedsLimit` for more threads or shared memory than the device has,
    /// `Foreign` for another context's kernel, `NoSuchTimeline`, `DeviceLost`.
    ///
    /// # Safety
    ///
    /// - `arguments` are as many, and of the types, as the kernel declares.
    /// - What the kernel does with them touches only memory that is live until it has run, in an order that the
    ///   timelines give.
    pub unsafe fn launch(
        &self,
        on: TimelineId,
        kernel: &Kernel,
        launch: Launch,
        arguments: &[Argument],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.device.launch(on, kernel, launch, arguments) }
    }

    /// Copies rows, in timeline order. The rectangles must not overlap.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Foreign`, `NoSuchTimeline`, `ExceedsLimit` (pitch), `DeviceLost`.
    pub fn copy_rows(&self, on: TimelineId, rows: Rows<'_>) -> Result<()> {
        self.device.copy_rows(on, rows)
    }

    /// Copies bytes to a block of another opened device, on a timeline of this one.
    ///
    /// Nothing orders it against the other device's timelines: wait for a mark of `on` before the bytes are used there.
    ///
    /// # Errors
    ///
    /// As for [`Transfer::copy`].
    pub fn copy_to_peer(
        &self,
        on: TimelineId,
        from: Place<'_, Block>,
        peer: &Self,
        to: Place<'_, Block>,
        size: u64,
    ) -> Result<()> {
        self.device.copy_to_peer(on, from, &peer.device, to, size)
    }

    /// Makes a handle that another process opens with [`open_ipc`](Self::open_ipc).
    ///
    /// # Errors
    ///
    /// `Foreign` for another backend's block, `Unsupported` for one that is no plain device memory: allocate such a block
    /// with [`Export`](omniheap_core::Export) instead. Otherwise what the driver says.
    pub fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        self.device.ipc_handle(block)
    }

    /// Opens memory of another process. Freed as any block, which leaves the memory to its owner.
    ///
    /// # Errors
    ///
    /// `Foreign` when the device differs, `Unsupported` for a heap that is not device memory, `ExceedsLimit` when the
    /// memory has fewer bytes than the handle says, or what the driver says: a process cannot open its own handle.
    pub fn open_ipc(&self, heap: HeapId, handle: &IpcHandle) -> Result<Block> {
        self.device.open_ipc(heap, handle, Kind::Opened)
    }
}

// SAFETY: the device keeps every access inside the place's own block.
unsafe impl Transfer for Cuda {
    fn write(&self, on: TimelineId, to: Place<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.device.write(on, to, bytes)
    }

    fn read(&self, on: TimelineId, from: Place<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        self.device.read(on, from, bytes)
    }

    fn fill(&self, on: TimelineId, to: Place<'_, Block>, size: u64, value: u8) -> Result<()> {
        self.device.fill(on, to, size, value)
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.device.copy(on, moves)
    }
}

impl Map for Cuda {
    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        self.device.map(block)
    }

    fn flush(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        self.device.flush(block, offset, size)
    }

    fn invalidate(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        self.device.flush(block, offset, size)
    }
}

impl Address for Cuda {
    fn address(&self, block: &Block) -> u64 {
        block.address()
    }
}

impl DriverBudget for Cuda {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        self.device.budget(heap)
    }
}

impl Timelines for Cuda {
    fn open(&self) -> Result<TimelineId> {
        self.device.timelines().open()
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.device.timelines().close(timeline)
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.device.timelines().mark(timeline)
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.device.timelines().reached(timeline)
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.device.timelines().wait(point)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.device.order(timeline, point)
    }
}

impl Programs for Cuda {
    fn load(&self, kernel: &Declared, shared: u64) -> Result<ProgramId> {
        self.device.load(kernel, shared)
    }

    fn unload(&self, program: ProgramId) -> Result<()> {
        self.device.unload(program)
    }

    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Bound<'_, Block>],
        parameters: &[u8],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.device.launch_program(on, program, groups, arguments, parameters) }
    }
}
