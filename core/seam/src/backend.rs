//! The seam: what a vendor must provide, and nothing else.
#![expect(unsafe_code, reason = "declares the contract every vendor crate signs")]
mod batch;
mod exported;
mod pin;
mod regions;
mod remap;

use crate::{
    Argument, Caps, Epoch, ErrorKind, HeapId, Kernel, Point, ProgramId, Result, TimelineId,
};
use alloc::{string::String, vec::Vec};
use core::ptr::NonNull;

pub use exported::{Descriptor, Exported};
pub use pin::{HostPin, HostPinner};
pub use regions::{BlockOffset, Move};
pub use remap::{Page, Remap};

/// A source of raw device memory.
///
/// Four required methods; everything else is a capability that a backend returns or does not. A capability is a trait of its
/// own, so a backend may return one of its parts as well as itself.
///
/// # Who checks what
///
/// Blocks and ids may come from anywhere, because safe code can reach every safe method of the seam. So every safe method
/// checks its own arguments: a block of another device is `Foreign`, a range outside its block `OutOfRange`, an unaligned one
/// `Misaligned`, an unknown timeline `NoSuchTimeline`, a batch whose copies overlap `Overlap`, and a call that fails has changed
/// nothing. [`CopyCaps::check_range`](crate::CopyCaps::check_range) and [`CopyCaps::check_batch`](crate::CopyCaps::check_batch)
/// are these checks for transfers. An unsafe method may rely on its `# Safety` section; checking it all the same is good
/// practice, not an obligation. In return, core believes what a backend answers: every trait whose answers decide which memory
/// is touched, or when, is an `unsafe trait`, and its `# Safety` section lists what the implementer guarantees.
///
/// ```compile_fail,E0200
/// # use omniheap_seam::{Address, Result};
/// struct Mine;
/// impl Address for Mine { // `unsafe impl`: its author answers for the address.
///     type Block = ();
///     fn address(&self, _: &()) -> u64 { 0 }
/// }
/// ```
///
/// # Errors of every call
///
/// A call that reaches the driver may answer `OutOfHostMemory`; `DeviceLost`; `Driver`, which is anything else that the driver
/// said; and `Busy`, where the driver forbids the call for now, as it does while work is captured into a graph. Each method lists
/// the kinds that it may answer beside these four, and no other kind.
///
/// A wait that fails with anything but `DeviceLost` says nothing about the work that it was for: that may still run, for as long
/// as the driver refuses, and memory that it uses must stay where it is.
///
/// # Safety
///
/// The implementer guarantees:
///
/// - A live block has at least the requested bytes and shares none of them with another live block.
/// - Its base meets the heap's alignment, also as a device address.
/// - [`caps`](Self::caps) never changes.
/// - Every method may be called from any thread at any time.
/// - A successful [`wait_idle`](Self::wait_idle) means that all work submitted before it has finished.
/// - Once a call has answered `DeviceLost`, blocks may be freed as if the device were idle.
/// - A capability that was returned once is always returned.
pub unsafe trait Backend: Send + Sync {
    /// One driver allocation. Opaque to core; native to users of the backend.
    type Block: Send + Sync + 'static;

    /// Returns the device, described.
    fn caps(&self) -> &Caps;

    /// Allocates a block of at least `size` bytes from the driver. Slow, and limited in number.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `ZeroSize`, `ExceedsLimit` (never fits), `OutOfDeviceMemory` (not now), `Unsupported` (a heap that needs
    /// what this device was not opened with).
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Self::Block>;

    /// Returns a block to the driver. The block is gone whatever the result says.
    ///
    /// # Errors
    ///
    /// Those of every call. The memory is then lost until the device is closed; the call is not repeated.
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
    /// Those of every call: `Busy` for as long as a capture forbids the wait. Only success and `DeviceLost` say that nothing
    /// runs any more.
    fn wait_idle(&self) -> Result<()>;

    /// Returns the host's view of blocks, if this backend has it.
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
    /// Returns the driver's memory budget, if it reports one.
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
///
/// # Safety
///
/// The implementer guarantees, for every pointer that [`map`](Self::map) returns:
///
/// - The pointer is valid for reads and writes of the whole block until the block is freed; of a reserved block, where
///   pages are mapped.
/// - Every call with the same block returns the same pointer.
/// - No Rust reference to these bytes exists while safe code can reach the block. The exception is a running kernel, whose
///   launch promised that nobody else touches them.
/// - [`flush`](Self::flush) and [`invalidate`](Self::invalidate) change no byte outside their range.
pub unsafe trait Map: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Maps the whole block and returns a pointer to its first byte.
    ///
    /// # Errors
    ///
    /// `NotMappable` when the heap is not host-visible, `Foreign`.
    fn map(&self, block: &Self::Block) -> Result<NonNull<u8>>;

    /// Makes host writes to `offset..offset + size` visible to the device. Multiples of [`Caps::atom`].
    ///
    /// # Errors
    ///
    /// `Foreign`, `NotMappable`, `OutOfRange`, `Misaligned`.
    fn flush(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()>;

    /// Makes device writes to `offset..offset + size` visible to the host. Multiples of [`Caps::atom`].
    ///
    /// # Errors
    ///
    /// As for [`flush`](Self::flush).
    fn invalidate(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()>;
}

/// Capability: copies to, from and between blocks, in timeline order.
///
/// Offsets and sizes are multiples of [`CopyCaps::align`](crate::CopyCaps::align). Zero bytes succeed without a driver call.
///
/// # Safety
///
/// The implementer guarantees:
///
/// - Only the bytes of the given ranges are read or written, and only ranges that passed the checks of
///   [`CopyCaps`](crate::CopyCaps).
/// - Work on one timeline runs in the order in which it was submitted.
/// - [`write`](Self::write) and [`read`](Self::read) do not use the slice after they have returned, whatever they return.
pub unsafe trait Transfer: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Copies from the host to a block. Returns once `bytes` may be changed again; the device sees them in timeline order.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`, `Misaligned`, `NoSuchTimeline`; `OutOfHostMemory` also where staging memory is short.
    fn write(&self, on: TimelineId, to: BlockOffset<'_, Self::Block>, bytes: &[u8]) -> Result<()>;

    /// Copies from a block to the host. Returns once the bytes have arrived, after everything earlier on the timeline.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, Self::Block>,
        bytes: &mut [u8],
    ) -> Result<()>;

    /// Sets `size` bytes to `value`, in timeline order.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Self::Block>,
        size: u64,
        value: u8,
    ) -> Result<()>;

    /// Copies between blocks, all moves as one batch, in timeline order.
    ///
    /// The moves of a batch run in any order: no byte may be written twice, nor read and written. Moves inside one block need
    /// [`InsideBlock::Allowed`](crate::InsideBlock::Allowed).
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write), and as [`CopyCaps::check_batch`](crate::CopyCaps::check_batch) says: `Overlap`, `Unsupported`.
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Self::Block>]) -> Result<()>;

    /// Pins host memory, so that [`write`](Self::write) and [`read`](Self::read) copy it at the speed of the link. It stays pinned until
    /// the returned value is dropped or the device is closed. Nothing is returned where it is pinned already.
    ///
    /// # Errors
    ///
    /// `Unsupported` where this backend pins no memory of others; otherwise the driver's error.
    ///
    /// # Safety
    ///
    /// The `size` bytes from `start` on stay mapped until the returned value is dropped.
    unsafe fn pin_host(&self, start: NonNull<u8>, size: usize) -> Result<Option<HostPin>> {
        let _ = (start, size);
        Err(ErrorKind::Unsupported.into())
    }
}

/// Capability: a block has an address that kernels can dereference.
///
/// # Safety
///
/// The implementer guarantees that from the returned address on, the device sees the block's own bytes, and that the address
/// stays the same until the block is freed.
pub unsafe trait Address: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Returns the block's base address on the device.
    fn address(&self, block: &Self::Block) -> u64;
}

/// Capability: queues or streams that run concurrently.
///
/// [`TimelineId::MAIN`] always exists and is neither opened nor closed.
///
/// # Safety
///
/// Core reuses and frees memory when a timeline has passed. The implementer guarantees:
///
/// - An epoch from [`mark`](Self::mark) counts as reached, by [`reached`](Self::reached) or a successful
///   [`wait`](Self::wait), only when everything submitted to the timeline before the mark has finished; a mark of
///   [`TimelineId::ALL`] covers the work of all timelines.
/// - Epochs of one timeline never decrease, and those that are reached stay reached.
/// - After a successful [`order`](Self::order), work submitted to the timeline starts only after the point.
/// - An id is never used twice. A timeline that was open and is now `NoSuchTimeline` has finished all its work.
pub unsafe trait Timelines: Send + Sync {
    /// Opens a timeline.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when the device has no more queues.
    fn open(&self) -> Result<TimelineId>;

    /// Closes a timeline after its work has finished. Its id is not used again.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`; `Unsupported` for [`TimelineId::MAIN`]. Where the work could not be waited for, the timeline stays open,
    /// unless the device is lost: close it again later.
    fn close(&self, timeline: TimelineId) -> Result<()>;

    /// Returns an epoch that is reached once everything submitted to `timeline` so far has finished.
    ///
    /// Waits that [`order`](Self::order) added count as submitted work. Marks on one timeline never decrease.
    /// [`TimelineId::ALL`] can be marked where the device can follow all of its work at once; elsewhere it is
    /// `NoSuchTimeline`. Such a mark may count later than it was made, never earlier.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    fn mark(&self, timeline: TimelineId) -> Result<Epoch>;

    /// Returns the latest epoch that `timeline` has reached. Does not wait.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    fn reached(&self, timeline: TimelineId) -> Result<Epoch>;

    /// Blocks the calling thread until the point is reached.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `OutOfRange` for an epoch that was never marked; `Busy` also for a mark of [`TimelineId::ALL`] that the
    /// device cannot follow now.
    fn wait(&self, point: Point) -> Result<()>;

    /// Makes later work on `timeline` run only after `point`. Does not block the calling thread.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()>;
}

/// Memory budget of one heap, as reported by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapBudget {
    /// Bytes this process can expect to hold in total.
    pub budget: u64,
    /// Bytes this process, or the whole device where that is all the driver tells, holds now.
    pub used: u64,
}

/// Effect of a limit: refuses memory, or only asks for thrift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Memory above the limit is refused.
    Hard,
    /// Empty memory above the limit is returned early.
    Soft,
}

/// Value of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitValue {
    /// Bytes that this process may hold of the device.
    Bytes(u64),
    /// The source is there and sets no limit.
    Unlimited,
    /// The source is there and cannot be read, for this reason.
    Unreadable(String),
}

/// A limit that was set from outside of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemLimit {
    /// Name of the source: a variable, or a file and its entry.
    pub source: String,
    /// Hard or soft.
    pub kind: LimitKind,
    /// Its value.
    pub value: LimitValue,
}

/// Capability: how much memory is left, by what the driver tells and by limits from outside.
pub trait DriverBudget: Send + Sync {
    /// Queries the driver's budget of one heap.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `Unsupported` for every heap where the driver does not tell.
    fn budget(&self, heap: HeapId) -> Result<HeapBudget>;

    /// Reads the limits that are set for this process from outside, such as by a variable or a cgroup. Asks no driver.
    fn limits(&self, heap: HeapId) -> Vec<SystemLimit> {
        let _ = heap;
        Vec::new()
    }
}

/// Capability: a block can be shared with another API or process.
///
/// # Safety
///
/// The implementer guarantees:
///
/// - A block from [`allocate_exportable`](Self::allocate_exportable) is one as from [`Backend::allocate`].
/// - A block from [`import`](Self::import) has [`Exported::size`] bytes that stay usable until it is freed, whatever the
///   exporter does meanwhile. Others may change these bytes at any time.
pub unsafe trait Export: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Allocates a block that can be exported. Never suballocate it.
    ///
    /// # Errors
    ///
    /// As for [`Backend::allocate`].
    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Self::Block>;

    /// Makes a descriptor for a block from [`allocate_exportable`](Self::allocate_exportable).
    ///
    /// # Errors
    ///
    /// `Foreign`; `Unsupported` for a block that was not made exportable.
    fn export(&self, block: &Self::Block) -> Result<Exported>;

    /// Makes a block of memory that another API or process exported. The block has a reference of its own: `exported` may be
    /// dropped, or imported again.
    ///
    /// # Errors
    ///
    /// `Foreign` when the device differs, or the descriptor is no exported memory; `ExceedsLimit` when the sizes differ;
    /// `NoSuchHeap`, `Unsupported`, `OutOfDeviceMemory`.
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Self::Block>;
}

/// Capability: the device runs kernels.
///
/// Not a compute framework: just what the manager's own kernels and the examples need.
///
/// # Safety
///
/// The implementer guarantees:
///
/// - A launch runs the kernel that [`load`](Self::load) was given, with these arguments in this order and these parameters,
///   and as many bytes of shared memory as were asked for.
/// - The kernel touches no memory but its arguments, provided that its text does not.
/// - The launch runs in timeline order, and the arguments were checked as [`launch`](Self::launch) says before it was
///   submitted.
pub unsafe trait Launch: Send + Sync {
    /// The backend's blocks.
    type Block;

    /// Makes a kernel ready to run, each group with `shared` bytes of shared memory.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` for more shared memory or threads than a group may have, or more slots than the device binds,
    /// `Misaligned` when `shared` or the parameters are not whole words, `Unsupported` when the kernel has no text that
    /// this backend compiles or there is no compiler, `InvalidConfig` when it does not compile or [`Kernel::check`] finds a
    /// slip.
    fn load(&self, kernel: &Kernel, shared: u64) -> Result<ProgramId>;

    /// Unloads a program after its launches. Its id is not used again.
    ///
    /// # Errors
    ///
    /// `Stale` when there is no such program.
    fn unload(&self, program: ProgramId) -> Result<()>;

    /// Runs `groups` groups, in timeline order. The kernel sees what earlier work on the timeline wrote, and later work
    /// sees what it wrote.
    ///
    /// # Errors
    ///
    /// `Stale` when there is no such program, `InvalidConfig` when arguments or parameters are not as the kernel
    /// declares, `ZeroSize` for no groups, `ExceedsLimit` for too many or for an argument that is too long to bind,
    /// `Foreign`, `OutOfRange`, `Misaligned`, `Unsupported` (the heap's memory cannot be bound), `NoSuchTimeline`.
    ///
    /// # Safety
    ///
    /// - With these parameters the kernel stays inside its arguments.
    /// - The arguments live until it has run.
    /// - Written arguments overlap no other argument.
    /// - Until it has run, nothing else writes its arguments or reads what it writes: timelines order it with other device
    ///   work, and the host keeps its [mapped](Map::map) views of these bytes still.
    unsafe fn launch(
        &self,
        on: TimelineId,
        program: ProgramId,
        groups: [u32; 3],
        arguments: &[Argument<'_, Self::Block>],
        parameters: &[u8],
    ) -> Result<()>;
}
