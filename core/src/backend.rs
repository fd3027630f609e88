//! What a vendor must provide, and nothing else.
#![expect(unsafe_code, reason = "declares the contract every vendor crate signs")]
mod place;
mod remap;

use crate::{Argument, Caps, Epoch, HeapId, Kernel, Point, ProgramId, Result, TimelineId};
use core::ptr::NonNull;

pub use place::{Move, Place};
pub use remap::{Page, Remap};

/// A source of raw device memory.
///
/// Four required verbs; everything else is a capability that a backend returns or does not. Callers check sizes,
/// ranges and liveness before they call; errors cover only what a caller cannot foresee, and a call that fails has
/// changed nothing.
///
/// # Safety
///
/// - A live block spans at least the requested bytes and shares none with another live block.
/// - Its base meets the heap's alignment, also as a device address.
/// - [`caps`](Self::caps) never changes.
/// - Every method may be called from any thread at any time.
pub unsafe trait Backend: Send + Sync {
    /// One driver allocation. Opaque to core; native to users of the backend.
    type Block: Send + Sync + 'static;

    /// The device, described.
    fn caps(&self) -> &Caps;

    /// Asks the driver for a block of at least `size` bytes. Slow, and limited in number.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `ZeroSize`, `ExceedsLimit` (never fits), `OutOfDeviceMemory` or `OutOfHostMemory` (not now),
    /// `DeviceLost`, `Driver`.
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Self::Block>;

    /// Returns a block to the driver. The block is gone whatever the result says.
    ///
    /// # Errors
    ///
    /// When the driver refused; the memory is then lost until the device is closed, and nobody tries again.
    ///
    /// # Safety
    ///
    /// - `block` came from `self`, by [`allocate`](Self::allocate), [`Remap::reserve`] or [`Export::import`].
    /// - No device work still uses it, and a reserved block has no page mapped.
    unsafe fn free(&self, block: Self::Block) -> Result<()>;

    /// Waits until the device has finished everything submitted so far.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    fn wait_idle(&self) -> Result<()>;

    /// The host's view of blocks, if this backend has it.
    fn as_map(&self) -> Option<&dyn Map<Block = Self::Block>> {
        None
    }
    /// Byte movement, if this backend has it.
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Self::Block>> {
        None
    }
    /// Device addresses, if this backend has them.
    fn as_address(&self) -> Option<&dyn Address<Block = Self::Block>> {
        None
    }
    /// Queues that run beside each other, if this backend has them.
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        None
    }
    /// Page mapping, if this backend has it.
    fn as_remap(&self) -> Option<&dyn Remap<Block = Self::Block>> {
        None
    }
    /// What the driver says is free, if it tells.
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        None
    }
    /// Hand-over to other APIs and processes, if this backend has it.
    fn as_export(&self) -> Option<&dyn Export<Block = Self::Block>> {
        None
    }
    /// Kernels, if this backend runs them.
    fn as_launch(&self) -> Option<&dyn Launch<Block = Self::Block>> {
        None
    }
}

/// Capability: the host can see a block's bytes.
pub trait Map: Backend {
    /// The block's first byte. Mapped once, stays valid and constant until the block is freed.
    ///
    /// # Errors
    ///
    /// `NotMappable` when the heap is not host-visible; otherwise what the driver says.
    fn map(&self, block: &Self::Block) -> Result<NonNull<u8>>;

    /// Makes host writes to `offset..offset + size` visible to the device. Multiples of [`Caps::atom`].
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Misaligned`, `DeviceLost`.
    fn flush(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()>;

    /// Makes device writes to `offset..offset + size` visible to the host. Multiples of [`Caps::atom`].
    ///
    /// # Errors
    ///
    /// As for [`flush`](Self::flush).
    fn invalidate(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()>;
}

/// Capability: bytes can be moved in, out and across, in the order of a timeline.
///
/// Offsets and sizes are multiples of [`CopyCaps::align`](crate::CopyCaps::align); a range that leaves its block is
/// refused. Zero bytes succeed without a driver call.
///
/// # Safety
///
/// Implementors touch no byte outside the ranges they are given.
pub unsafe trait Transfer: Backend {
    /// Host to device. Returns once `bytes` may be changed again; the device sees them in timeline order.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Misaligned`, `NoSuchTimeline`, `OutOfHostMemory` (staging), `DeviceLost`.
    fn write(&self, on: TimelineId, to: Place<'_, Self::Block>, bytes: &[u8]) -> Result<()>;

    /// Device to host. Returns once the bytes have arrived, after everything earlier on the timeline.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn read(&self, on: TimelineId, from: Place<'_, Self::Block>, bytes: &mut [u8]) -> Result<()>;

    /// Sets `size` bytes to `value`, in timeline order.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn fill(&self, on: TimelineId, to: Place<'_, Self::Block>, size: u64, value: u8) -> Result<()>;

    /// Device to device, all moves as one batch, in timeline order.
    ///
    /// No byte may be a destination twice, nor a source and a destination; moves inside one block need
    /// [`InsideBlock::Allowed`](crate::InsideBlock::Allowed).
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write); `Unsupported` for a move inside a block where that is forbidden.
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Self::Block>]) -> Result<()>;
}

/// Capability: a block has an address that kernels can dereference.
pub trait Address: Backend {
    /// The block's base address on the device.
    fn address(&self, block: &Self::Block) -> u64;
}

/// Capability: queues or streams that run beside each other.
///
/// [`TimelineId::MAIN`] exists always and is not opened or closed.
pub trait Timelines: Send + Sync {
    /// Opens a timeline.
    ///
    /// # Errors
    ///
    /// What the driver says; `ExceedsLimit` when the device has no more queues.
    fn open(&self) -> Result<TimelineId>;

    /// Closes a timeline after its work has finished. Its id is not used again.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`; `Unsupported` for [`TimelineId::MAIN`].
    fn close(&self, timeline: TimelineId) -> Result<()>;

    /// An epoch that is reached once everything submitted to `timeline` so far has finished.
    ///
    /// What [`order`](Self::order) made the timeline wait for counts as submitted to it. Marks on one timeline never decrease.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`.
    fn mark(&self, timeline: TimelineId) -> Result<Epoch>;

    /// The latest epoch that `timeline` has reached. Does not wait.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`.
    fn reached(&self, timeline: TimelineId) -> Result<Epoch>;

    /// Blocks the calling thread until the point is reached.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`.
    fn wait(&self, point: Point) -> Result<()>;

    /// Makes later work on `timeline` run only after `point`. Does not block the calling thread.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`.
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()>;
}

/// What the driver says about one heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapBudget {
    /// Bytes this process can expect to hold in total.
    pub budget: u64,
    /// Bytes this process, or the whole device where that is all the driver tells, holds now.
    pub used: u64,
}

/// Capability: the driver tells how much memory is left.
pub trait DriverBudget: Send + Sync {
    /// Asks the driver about one heap.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `DeviceLost`.
    fn budget(&self, heap: HeapId) -> Result<HeapBudget>;
}

/// A hand-over token: a file descriptor that owns a reference to the memory.
#[derive(Debug)]
pub struct Exported {
    /// The descriptor; whoever holds this value closes it.
    pub fd: i32,
    /// Bytes of memory behind it.
    pub size: u64,
    /// The device it belongs to.
    pub uuid: Option<[u8; 16]>,
}

/// Capability: a block can be shared with another API or process.
pub trait Export: Backend {
    /// Asks for a block that can be exported. Never sub-allocate it.
    ///
    /// # Errors
    ///
    /// As for [`Backend::allocate`].
    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Self::Block>;

    /// Makes a descriptor for a block from [`allocate_exportable`](Self::allocate_exportable).
    ///
    /// # Errors
    ///
    /// `Unsupported` for a block that was not made exportable, or what the driver says.
    fn export(&self, block: &Self::Block) -> Result<Exported>;

    /// Takes over memory that another API or process exported. Closes the descriptor on success only.
    ///
    /// # Errors
    ///
    /// `Foreign` when the device differs, `ExceedsLimit` when the sizes do, or what the driver says.
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Self::Block>;
}

/// Capability: the device runs kernels.
///
/// Not a compute framework: just what the manager's own kernels and the examples need.
pub trait Launch: Backend {
    /// Makes a kernel ready to run, each group with `shared` bytes of shared memory.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` for more shared memory or threads than a group may have, `Misaligned` when `shared` or the
    /// parameters are not whole words, `Unsupported` when the kernel has no text that this backend compiles or there is
    /// no compiler, `InvalidConfig` when it does not compile, or what the driver says.
    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId>;

    /// Lets a program go, and waits for its launches first. Its id is not used again.
    ///
    /// # Errors
    ///
    /// `Stale` when there is no such program; otherwise what the driver says.
    fn unload(&self, program: ProgramId) -> Result<()>;

    /// Runs `groups` groups, in timeline order. The kernel sees what earlier work on the timeline wrote, and later work
    /// sees what it wrote.
    ///
    /// # Errors
    ///
    /// `Stale` when there is no such program, `InvalidConfig` when arguments or parameters are not as the kernel
    /// declares, `ZeroSize` for no groups, `ExceedsLimit` for too many or for an argument that is too long to bind,
    /// `OutOfRange`, `Misaligned`, `Unsupported` (the heap's memory cannot be bound), `NoSuchTimeline`, `DeviceLost`.
    ///
    /// # Safety
    ///
    /// - With these parameters the kernel stays inside its arguments.
    /// - The arguments live until it has run, in an order that the timelines give.
    /// - What it writes overlaps no other argument.
    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Self::Block>],
        parameters: &[u8],
    ) -> Result<()>;
}
