//! Gates: kernels that keep the timelines of a real device from finishing.
#![expect(unsafe_code, reason = "launches the kernel that holds a timeline")]
use crate::rig::{Held, Rig};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use omniheap_core::{
    Argument, Backend, BlockOffset, ErrorKind, Heap, HeapId, HeapKind, HostAccess, Kernel,
    KernelText, Launch, Move, Point, ProgramId, Result, Slot, TimelineId, Timelines,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Longer than any case holds a timeline.
pub const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// Gates of one rig that are closed at a time; an opened one is closed again later.
const GATES: usize = 1024;

/// Runs until the word that it reads is not zero, or until the nanoseconds of its parameter have passed.
const HOLD: Kernel = {
    let text = KernelText {
        name: "omniheap_hold",
        group: [1; 3],
        slots: &[Slot::Read],
        parameters: 8,
        wgsl: "",
        spirv: &[],
        cpp: include_str!("../kernels/delay.cu"),
        host: |_| {},
    };
    // SAFETY: the kernel of `delay.cu` takes a pointer and eight bytes, and any group size.
    unsafe { Kernel::new(text) }
};

/// The words that held timelines look at. They stay with the process: freeing pinned memory may wait for the device.
struct Gates<B: Backend> {
    device: B,
    program: ProgramId,
    block: B::Block,
    next: AtomicUsize,
    longest: Duration,
}

/// A timeline that finishes nothing until this is dropped.
struct Gate<B: Backend> {
    gates: Arc<Gates<B>>,
    index: usize,
    launched: Point,
}

impl<B: Backend> Gates<B> {
    fn new(device: B, longest: Duration) -> Result<Self> {
        let program = launch(&device)?.load(&HOLD, 0)?;
        let is_pinned = |heap: &Heap| heap.host == HostAccess::Cached;
        let block = device.allocate(find(&device, is_pinned)?, 4 * GATES as u64)?;
        warm_up(&device)?;
        Ok(Self { device, program, block, next: AtomicUsize::new(0), longest })
    }

    fn word(&self, index: usize) -> Result<&AtomicU32> {
        let map = self.device.as_map().ok_or(ErrorKind::NotMappable)?;
        let first = map.map(&self.block)?.cast::<u32>();
        // SAFETY: the block has `GATES` words, and lives as long as `self`.
        let word = unsafe { first.add(index) };
        // SAFETY: aligned and live as above; the device only reads it.
        Ok(unsafe { AtomicU32::from_ptr(word.as_ptr()) })
    }

    fn close(self: &Arc<Self>, timeline: TimelineId) -> Result<Gate<B>> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % GATES;
        self.word(index)?.store(0, Ordering::SeqCst);
        let place = BlockOffset { block: &self.block, offset: 4 * index as u64 };
        let longest = u64::try_from(self.longest.as_nanos()).expect("not for centuries");
        let (word, longest) = ([Argument { place, size: 4 }], longest.to_ne_bytes());
        let kernels = launch(&self.device)?;
        // SAFETY: one thread reads one word of a block that is never freed. The host changes the word meanwhile, by one
        // atomic store, which is what the kernel's volatile read waits for.
        unsafe { kernels.launch(timeline, self.program, [1; 3], &word, &longest) }?;
        let epoch = timelines(&self.device)?.mark(timeline)?;
        Ok(Gate { gates: Arc::clone(self), index, launched: Point { timeline, epoch } })
    }
}

impl<B: Backend> Drop for Gate<B> {
    fn drop(&mut self) {
        if let Ok(word) = self.gates.word(self.index) {
            word.store(1, Ordering::SeqCst);
        }
        // A timeline that was closed meanwhile has finished.
        let _ = timelines(&self.gates.device).and_then(|lines| lines.wait(self.launched));
    }
}

fn launch<B: Backend>(device: &B) -> Result<&dyn Launch<Block = B::Block>> {
    device.as_launch().ok_or(ErrorKind::Unsupported.into())
}

fn timelines<B: Backend>(device: &B) -> Result<&dyn Timelines> {
    device.as_timelines().ok_or(ErrorKind::Unsupported.into())
}

fn find<B: Backend>(device: &B, is_it: impl Fn(&Heap) -> bool) -> Result<HeapId> {
    let found = device.caps().heap_ids().find(|(_, heap)| is_it(heap));
    found.map(|(id, _)| id).ok_or(ErrorKind::NoSuchHeap.into())
}

/// Does everything once: what a driver prepares at first use may wait for running kernels, also for a closed gate.
fn warm_up<B: Backend>(device: &B) -> Result<()> {
    let bytes = device.as_transfer().ok_or(ErrorKind::Unsupported)?;
    let block = device.allocate(HeapId(0), 512)?;
    let (at, mut read) = (|offset| BlockOffset { block: &block, offset }, [0; 64]);
    bytes.fill(TimelineId::MAIN, at(0), 512, 0)?;
    bytes.fill(TimelineId::MAIN, at(0), 1, 0)?;
    bytes.write(TimelineId::MAIN, at(0), &read)?;
    let one = |from| Move { from: at(from), to: at(from + 256), size: 64 };
    bytes.copy(TimelineId::MAIN, &[one(0), one(64), one(128)])?;
    bytes.read(TimelineId::MAIN, at(0), &mut read)?;
    // SAFETY: `read` has waited for everything before it.
    unsafe { device.free(block) }?;
    if let Ok(unified) = find(device, |heap| heap.kind == HeapKind::Unified) {
        let block = device.allocate(unified, 64)?;
        // SAFETY: nothing used it.
        unsafe { device.free(block) }?;
    }
    Ok(())
}

/// Returns true if the kernel can be compiled here. Asked once for each backend: a compiler takes its time.
fn can_hold<B: Backend>(device: &B) -> bool {
    static KNOWN: Mutex<BTreeMap<&'static str, bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let try_it = || launch(device).and_then(|kernels| kernels.unload(kernels.load(&HOLD, 0)?));
    *known.entry(device.caps().device.backend).or_insert_with(|| try_it().is_ok())
}

impl<B: Backend + Clone + 'static> Rig<B> {
    /// Adds a hold by a kernel, where the device can compile it, for backends whose kernels are C++. A gate that nobody opens
    /// opens itself after `longest`.
    ///
    /// The cases of such a rig run one at a time in a process: a driver call of one may wait for the whole device, and so
    /// for what another one holds.
    #[must_use]
    pub fn with_gates(self, longest: Duration) -> Self {
        let device = self.backend.clone();
        if !can_hold(&device) {
            return self;
        }
        let gates: OnceLock<Arc<Gates<B>>> = OnceLock::new();
        let rig = self.with_hold(move |timeline| {
            let gates = match gates.get() {
                Some(gates) => gates.clone(),
                None => {
                    let made = Arc::new(Gates::new(device.clone(), longest)?);
                    gates.get_or_init(|| made).clone()
                }
            };
            Ok(Box::new(gates.close(timeline)?) as Held)
        });
        rig.one_at_a_time()
    }
}
