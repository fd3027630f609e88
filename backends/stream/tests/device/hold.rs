//! A device whose timelines can be held back.
#![expect(unsafe_code, reason = "launches the kernel that holds a timeline")]
use crate::own::{Argument, Block, Device, Kernel, Launch};
use core::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    time::Duration,
};
use omniheap_conformance::{Held, Rig};
use omniheap_core::{
    Backend, ErrorKind, Heap, HeapId, HeapKind, HostAccess, Map, Place, Point, Result, TimelineId,
    Timelines, Transfer,
};
use std::sync::{Arc, OnceLock};

/// Gates of one rig that are closed at a time; an opened one is closed again later.
const GATES: usize = 1024;
const DELAY: &str = include_str!("../../../../shaders/delay/delay.cu");

/// The words that held timelines look at. They stay with the process: freeing pinned memory may wait for the device.
struct Gates {
    device: Arc<Device>,
    kernel: Kernel,
    block: Block,
    next: AtomicUsize,
    longest: Duration,
}

/// A timeline that finishes nothing until this is dropped.
struct Gate {
    gates: Arc<Gates>,
    index: usize,
    launched: Point,
}

impl Gates {
    fn new(device: Arc<Device>, longest: Duration) -> Result<Self> {
        let kernel = device.compile(DELAY)?.kernel("omniheap_hold")?;
        let is_pinned = |heap: &Heap| heap.host == HostAccess::Cached;
        let found = device.caps().heap_ids().find(|(_, heap)| is_pinned(heap)).map(|(id, _)| id);
        let block = device.allocate(found.ok_or(ErrorKind::NoSuchHeap)?, 4 * GATES as u64)?;
        warm_up(&device)?;
        Ok(Self { device, kernel, block, next: AtomicUsize::new(0), longest })
    }

    fn word(&self, index: usize) -> Result<&AtomicU32> {
        let first = self.device.map(&self.block)?.cast::<u32>();
        // SAFETY: the block has `GATES` words, and lives as long as `self`.
        let word = unsafe { first.add(index) };
        // SAFETY: aligned and live as above; the device only reads it.
        Ok(unsafe { AtomicU32::from_ptr(word.as_ptr()) })
    }

    fn close(self: &Arc<Self>, timeline: TimelineId) -> Result<Gate> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % GATES;
        self.word(index)?.store(0, Ordering::SeqCst);
        let word = self.block.address() + 4 * index as u64;
        let longest = u64::try_from(self.longest.as_nanos()).expect("not for centuries");
        let arguments = [Argument::U64(word), Argument::U64(longest)];
        // SAFETY: one thread reads one word of a block that lives as long as the process.
        unsafe { self.device.launch(timeline, &self.kernel, Launch::linear(1, 1), &arguments) }?;
        let epoch = self.device.mark(timeline)?;
        Ok(Gate { gates: self.clone(), index, launched: Point { timeline, epoch } })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Ok(word) = self.gates.word(self.index) {
            word.store(1, Ordering::SeqCst);
        }
        // A timeline that was closed meanwhile has finished.
        let _ = self.gates.device.wait(self.launched);
    }
}

/// Does everything once: what a driver prepares at first use may wait for running kernels, also for a closed gate.
fn warm_up(device: &Device) -> Result<()> {
    device.prepare_batches()?;
    let block = device.allocate(HeapId(0), 64)?;
    let (place, mut bytes) = (Place { block: &block, offset: 0 }, [0; 64]);
    device.fill(TimelineId::MAIN, place, 64, 0)?;
    device.fill(TimelineId::MAIN, place, 1, 0)?;
    device.write(TimelineId::MAIN, place, &bytes)?;
    device.read(TimelineId::MAIN, place, &mut bytes)?;
    // SAFETY: `read` has waited for everything before it.
    unsafe { device.free(block) }?;
    let is_unified = |heap: &Heap| heap.kind == HeapKind::Unified;
    if let Some((heap, _)) = device.caps().heap_ids().find(|(_, heap)| is_unified(heap)) {
        let block = device.allocate(heap, 64)?;
        // SAFETY: nothing used it.
        unsafe { device.free(block) }?;
    }
    Ok(())
}

/// Returns a device, with a hold where the kernel can be compiled. A gate opens by itself after `longest`.
pub(crate) fn rig(longest: Duration) -> Result<Rig<Arc<Device>>> {
    static CAN_COMPILE: OnceLock<bool> = OnceLock::new();
    let device = Arc::new(Device::open(0)?);
    let rig = Rig::new(device.clone());
    if !*CAN_COMPILE.get_or_init(|| device.compile(DELAY).is_ok()) {
        return Ok(rig);
    }
    let gates: OnceLock<Arc<Gates>> = OnceLock::new();
    Ok(rig.with_hold(move |timeline| {
        let gates = match gates.get() {
            Some(gates) => gates.clone(),
            None => {
                let made = Arc::new(Gates::new(device.clone(), longest)?);
                gates.get_or_init(|| made).clone()
            }
        };
        Ok(Box::new(gates.close(timeline)?) as Held)
    }))
}
