//! Helpers of several cases.
#![expect(unsafe_code, reason = "frees blocks and launches kernels")]
use crate::own::{Argument, Block, Device, Kernel, Launch};
use core::sync::atomic::{AtomicU32, Ordering};
use omniheap_core::{
    Backend, BlockOffset, ErrorKind, HeapId, HeapKind, HostAccess, Map, Result, TimelineId,
    Timelines, Transfer,
};

pub(crate) const MAIN: TimelineId = TimelineId::MAIN;
pub(crate) const DEVICE: HeapId = HeapId(0);
pub(crate) const MIB: u64 = 1 << 20;
/// A gate opens by itself after this long.
const LONGEST_HOLD_NS: u64 = 120_000_000_000;
const DELAY: &str = include_str!("../../../../tests/conformance/kernels/delay.cu");

/// Requirement of a case beyond a device.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    Nothing,
    Pages,
    Export,
    Compiler,
}

impl Need {
    /// Returns the reason why the case cannot run here, with what the self-test found.
    pub(crate) fn missing(self, device: &Device) -> Option<String> {
        let reason = match self {
            Self::Nothing => None,
            Self::Pages => device.as_remap().is_none().then_some("no pages"),
            Self::Export => device.as_export().is_none().then_some("no export"),
            Self::Compiler => {
                let built = device.compile("extern \"C\" __global__ void nothing() {}");
                let is_absent = built.is_err_and(|error| error.kind() == ErrorKind::Unsupported);
                is_absent.then_some("no run-time compiler")
            }
        };
        let found =
            || device.findings().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        reason.map(|reason| format!("{reason} ({})", found()))
    }
}

/// Returns the first heap of a kind and host access.
pub(crate) fn heap(device: &Device, kind: HeapKind, host: HostAccess) -> Option<HeapId> {
    let mut heaps = device.caps().heap_ids();
    heaps.find(|(_, heap)| heap.kind == kind && heap.host == host).map(|(id, _)| id)
}

pub(crate) fn pinned(device: &Device) -> HeapId {
    heap(device, HeapKind::Staging, HostAccess::Cached).expect("every device has it")
}

pub(crate) fn constant(device: &Device) -> HeapId {
    heap(device, HeapKind::Constant, HostAccess::None).expect("every device has it")
}

pub(crate) fn allocate(device: &Device, heap: HeapId, size: u64) -> Block {
    device.allocate(heap, size).expect("a small block fits")
}

/// Frees a block once the device is idle.
pub(crate) fn free(device: &Device, block: Block) {
    device.wait_idle().expect("the device works");
    // SAFETY: the case made the block, and the device is idle.
    unsafe { device.free(block) }.expect("the driver takes it back");
}

/// Returns the bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn at(block: &Block, offset: u64) -> BlockOffset<'_, Block> {
    BlockOffset { block, offset }
}

pub(crate) fn write(device: &Device, block: &Block, offset: u64, bytes: &[u8]) {
    device.write(MAIN, at(block, offset), bytes).expect("in range");
}

pub(crate) fn read(device: &Device, block: &Block, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    device.read(MAIN, at(block, offset), &mut bytes).expect("in range");
    bytes
}

/// Equal, without printing megabytes when not.
pub(crate) fn assert_same(seen: &[u8], expected: &[u8], what: &str) {
    assert_eq!(seen.len(), expected.len(), "{what}: length");
    if seen != expected {
        let index = (0..seen.len()).find(|&index| seen[index] != expected[index]).expect("one");
        panic!("{what}: byte {index} is {:#x}, not {:#x}", seen[index], expected[index]);
    }
}

pub(crate) fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Does everything once. What a driver prepares at first use may wait for running kernels, also for a closed gate.
fn warm_up(device: &Device, on: TimelineId) {
    device.prepare_batches().expect("our own kernel loads");
    let block = allocate(device, DEVICE, 64);
    let mut bytes = [0; 64];
    for timeline in [MAIN, on] {
        device.fill(timeline, at(&block, 0), 64, 0).expect("in range");
        device.fill(timeline, at(&block, 0), 1, 0).expect("in range");
        device.write(timeline, at(&block, 0), &bytes).expect("in range");
        device.read(timeline, at(&block, 0), &mut bytes).expect("in range");
    }
    free(device, block);
}

/// A timeline that stands still until the gate opens.
pub(crate) struct Gate<'a> {
    device: &'a Device,
    block: Option<Block>,
    _kernel: Kernel,
}

impl<'a> Gate<'a> {
    /// Holds back everything that is submitted to `on` from now.
    pub(crate) fn close(device: &'a Device, on: TimelineId) -> Self {
        let module = device.compile(DELAY).expect("our own kernels compile");
        let kernel = module.kernel("omniheap_hold").expect("it is in the source");
        warm_up(device, on);
        let block = allocate(device, pinned(device), 4);
        let gate = Self { device, block: Some(block), _kernel: kernel.clone() };
        gate.flag().store(0, Ordering::SeqCst);
        let address = gate.block.as_ref().expect("until dropped").address();
        let arguments = [Argument::U64(address), Argument::U64(LONGEST_HOLD_NS)];
        // SAFETY: the kernel reads one word of the block, which lives until the gate is dropped and the device idle.
        unsafe { device.launch(on, &kernel, Launch::linear(1, 1), &arguments) }
            .expect("one thread");
        gate
    }

    fn flag(&self) -> &AtomicU32 {
        let block = self.block.as_ref().expect("until dropped");
        let host = self.device.map(block).expect("pinned memory is host-visible");
        // SAFETY: the block holds four aligned bytes for as long as `self` lives.
        unsafe { AtomicU32::from_ptr(host.cast().as_ptr()) }
    }

    /// Releases the timeline.
    pub(crate) fn open(&self) {
        self.flag().store(1, Ordering::SeqCst);
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.open();
        if let Some(block) = self.block.take() {
            free(self.device, block);
        }
    }
}

/// Returns a timeline for one case.
pub(crate) fn timeline(device: &Device) -> TimelineId {
    device.open().expect("one more stream")
}

/// Returns the kernels of `delay.cu`.
pub(crate) fn delay_kernel(device: &Device, name: &str) -> Kernel {
    device
        .compile(DELAY)
        .expect("our own kernels compile")
        .kernel(name)
        .expect("it is in the source")
}
