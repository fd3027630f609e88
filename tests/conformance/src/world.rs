//! World that a case works with: a fresh device under layers that count, limit and fail.
use crate::look::Look;
use crate::rig::{Account, Extras, Guards, Held, Rig};
use crate::rng::{Rng, difference, stamp};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, Caps, HeapId, HeapKind, Manager, ManagerConfig, PoolConfig, Request,
    TimelineId, Timelines, Use,
};
use omniheap_layers::{Fault, Layer, Limit, Live, Record};
use std::sync::{Arc, Mutex, PoisonError};

/// The device as managers see it: it can fail, it remembers, it is limited, and it can show stricter caps.
pub type Stack<B> = Arc<Fault<Record<Limit<Layer<Arc<B>, Look>>>>>;

/// Bytes of each heap that a case may use when it says nothing else: no case exhausts a real device.
pub const LIMIT: u64 = 256 << 20;

/// Way in which the default pools of a case are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From blocks.
    Plain,
    /// From pages, where the device has them.
    Paged,
}

/// World that a case works with. Everything it makes is checked by the gate when the case has ended.
pub struct World<B: Backend> {
    backend: Arc<B>,
    extras: Extras,
    mode: Mode,
    guards: Guards,
    seed: u64,
    stacks: Mutex<Vec<Stack<B>>>,
    managers: Mutex<Vec<Manager<Stack<B>>>>,
    baseline: Vec<u64>,
    forgiven: AtomicBool,
}

impl<B: Backend + 'static> core::fmt::Debug for World<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("World")
            .field("mode", &self.mode)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<B: Backend + 'static> World<B> {
    /// A world around an opened device.
    #[must_use]
    pub fn new(rig: Rig<B>, mode: Mode, seed: u64) -> Self {
        let baseline = used(&rig.backend);
        Self {
            backend: Arc::new(rig.backend),
            extras: rig.extras,
            mode,
            guards: Guards::Off,
            seed,
            stacks: Mutex::default(),
            managers: Mutex::default(),
            baseline,
            forgiven: AtomicBool::new(false),
        }
    }

    /// The same world with, or without, guards behind the allocations of its managers.
    #[must_use]
    pub const fn with_guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// Returns the guards that the managers of this world lay.
    #[must_use]
    pub const fn guards(&self) -> Guards {
        self.guards
    }

    /// The bare device.
    #[must_use]
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    pub(crate) const fn extras(&self) -> &Extras {
        &self.extras
    }

    /// Returns the way in which default pools are built.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns true if default pools of the device heap are really made of pages here.
    #[must_use]
    pub fn is_paged(&self) -> bool {
        let page = self.backend.caps().heap(self.device_heap()).and_then(|heap| heap.page);
        self.mode == Mode::Paged && page.is_some() && self.backend.as_remap().is_some()
    }

    /// Numbers for this case: the same seed, the same numbers.
    #[must_use]
    pub const fn rng(&self) -> Rng {
        Rng::new(self.seed)
    }

    /// A fresh stack of layers in which every heap has at most [`LIMIT`] bytes.
    #[must_use]
    pub fn stack(&self) -> Stack<B> {
        self.limited(LIMIT, u64::MAX)
    }

    /// A fresh stack in which every heap has at most so many bytes, and all together so many blocks.
    #[must_use]
    pub fn limited(&self, bytes: u64, blocks: u64) -> Stack<B> {
        self.stack_with(bytes, blocks, |_| {})
    }

    /// A fresh stack whose caps were made stricter.
    #[must_use]
    pub fn stack_with(&self, bytes: u64, blocks: u64, change: impl FnOnce(&mut Caps)) -> Stack<B> {
        let mut caps = self.backend.caps().clone();
        change(&mut caps);
        let limits = vec![bytes; caps.heaps.len()];
        let look = Layer::wrap(Arc::clone(&self.backend), Look::new(caps));
        let fault = Fault::new(Record::new(Limit::new(look, &limits, blocks)));
        // A device whose timelines cannot be held works on while it seems lost.
        let stack = Arc::new(if self.extras.hold.is_none() { fault.patient() } else { fault });
        lock(&self.stacks).push(Arc::clone(&stack));
        stack
    }

    /// The usual settings of a case: one lane, so that results do not depend on the thread.
    #[must_use]
    pub fn config(&self) -> ManagerConfig {
        let mut config = ManagerConfig::default();
        config.pool.lanes = Some(1);
        let config = if self.mode == Mode::Plain { config.plain() } else { config };
        if self.guards == Guards::On { config.guarded() } else { config }
    }

    /// A manager with the usual settings over a fresh stack.
    #[must_use]
    pub fn manager(&self) -> Manager<Stack<B>> {
        self.manager_over(&self.stack())
    }

    /// A manager over a stack.
    #[must_use]
    pub fn manager_over(&self, stack: &Stack<B>) -> Manager<Stack<B>> {
        self.manager_with(stack, self.config())
    }

    /// A manager with settings, which the gate will check.
    #[must_use]
    pub fn manager_with(&self, stack: &Stack<B>, config: ManagerConfig) -> Manager<Stack<B>> {
        let manager = Manager::with_config(Arc::clone(stack), config);
        lock(&self.managers).push(manager.clone());
        manager
    }

    /// A manager that the case itself sees to its end.
    #[must_use]
    pub fn loose_manager(&self, stack: &Stack<B>) -> Manager<Stack<B>> {
        Manager::with_config(Arc::clone(stack), self.config())
    }

    /// The heap that requests without wishes go to.
    #[must_use]
    pub fn device_heap(&self) -> HeapId {
        let normal = |kind: HeapKind| {
            let mut heaps = self.backend.caps().heap_ids();
            heaps.find(|(_, heap)| heap.kind == kind && heap.use_when == Use::Normal)
        };
        let found = normal(HeapKind::Device).or_else(|| normal(HeapKind::Unified));
        found.map_or(HeapId(0), |(id, _)| id)
    }

    /// A heap that the host sees.
    #[must_use]
    pub fn visible_heap(&self) -> Option<HeapId> {
        let mut heaps = self.backend.caps().heap_ids();
        heaps
            .find(|(_, heap)| heap.host.is_visible() && heap.use_when == Use::Normal)
            .map(|(id, _)| id)
    }

    /// A heap that the host does not see.
    #[must_use]
    pub fn hidden_heap(&self) -> Option<HeapId> {
        let mut heaps = self.backend.caps().heap_ids();
        heaps.find(|(_, heap)| !heap.host.is_visible()).map(|(id, _)| id)
    }

    /// Host memory that may have what the device heap is too full for.
    #[must_use]
    pub fn spill_heap(&self) -> Option<HeapId> {
        let near = self.device_heap();
        let mut heaps = self.backend.caps().heap_ids();
        heaps
            .find(|(id, heap)| {
                *id != near && heap.kind == HeapKind::Staging && heap.use_when == Use::Normal
            })
            .map(|(id, _)| id)
    }

    /// `size` rounded up to what the device can copy.
    ///
    /// # Panics
    ///
    /// Panics when the sum overflows; cases use small sizes.
    #[must_use]
    pub fn whole(&self, size: u64) -> u64 {
        self.backend.caps().copy.align.up(size).expect("cases use small sizes")
    }

    /// Holds a timeline until the result is dropped.
    ///
    /// # Panics
    ///
    /// Panics when the rig cannot; the case said that it needs it.
    #[must_use]
    pub fn hold(&self, timeline: TimelineId) -> Held {
        let hold = self.extras.hold.as_ref().expect("the case needs a hold");
        hold(timeline).expect("an open timeline can be held")
    }

    /// Takes a stack out of the gate: its ledger holds what a layer kept from the driver on purpose.
    pub(crate) fn forgive(&self, stack: &Stack<B>) {
        lock(&self.stacks).retain(|known| !Arc::ptr_eq(known, stack));
        self.forgiven.store(true, Relaxed);
    }

    /// Checks that a case left nothing behind.
    ///
    /// # Errors
    ///
    /// A sentence that says what is left.
    pub fn gate(self) -> Result<(), String> {
        let managers = core::mem::take(&mut *lock(&self.managers));
        managers.iter().try_for_each(settled)?;
        let lost: u64 = managers.iter().map(|manager| manager.report().quarantined_bytes).sum();
        if lost > 0 && !self.forgiven.load(Relaxed) {
            return Err(format!("{lost} bytes are quarantined"));
        }
        drop(managers);
        for stack in lock(&self.stacks).drain(..) {
            listed(&stack)?;
            let live = stack.inner().live();
            if live != Live::default() {
                return Err(format!("the driver's ledger is not empty: {live:?}"));
            }
            if Arc::strong_count(&stack) > 1 {
                return Err("something still holds the device".into());
            }
        }
        let now = used(&self.backend);
        let exact = self.extras.account == Account::Exact && !self.forgiven.load(Relaxed);
        if exact && now != self.baseline {
            return Err(format!("the driver counts {now:?} bytes, {:?} before", self.baseline));
        }
        let said = self.extras.messages.as_ref().map(|messages| messages()).unwrap_or_default();
        if said.is_empty() { Ok(()) } else { Err(format!("validation says: {}", said.join("; "))) }
    }
}

/// Checks that a manager is sound, empty, and gives everything back.
fn settled<B: Backend>(manager: &Manager<B>) -> Result<(), String> {
    manager.validate().map_err(|broken| format!("the manager is unsound: {broken}"))?;
    // A mark on an idle timeline may need a moment of its own to be reached.
    for _ in 0..3 {
        manager.backend().wait_idle().map_err(|error| format!("after the case: {error}"))?;
        manager.trim().map_err(|error| format!("the last trim: {error}"))?;
    }
    if let Some(found) = manager.overwrites().ok().and_then(|found| found.into_iter().next()) {
        return Err(format!("somebody wrote behind the end of an allocation: {found:?}"));
    }
    let totals = manager.totals();
    if totals.live > 0 {
        return Err(format!("{} allocations were left", totals.live));
    }
    for (heap, _) in manager.caps().heap_ids() {
        let held = manager.heap_use(heap).map_err(|error| error.to_string())?;
        if held.reserved > 0 {
            return Err(format!("{} bytes of heap {} stay after trim", held.reserved, heap.0));
        }
    }
    manager.validate().map_err(|broken| format!("unsound after trim: {broken}"))
}

/// Checks that the device gave no answer that the seam does not list for its call.
pub(crate) fn listed<B: Backend>(stack: &Stack<B>) -> Result<(), String> {
    let look = stack.inner().inner().inner().hooks();
    look.unlisted().map_or(Ok(()), |(call, kind)| {
        Err(format!("{call:?} answered {kind:?}, which the seam does not list for it"))
    })
}

/// Returns the bytes that the driver counts, heap by heap.
fn used<B: Backend>(backend: &B) -> Vec<u64> {
    let Some(budget) = backend.as_budget() else { return Vec::new() };
    let ids = backend.caps().heap_ids().map(|(id, _)| id);
    ids.map(|id| budget.budget(id).map_or(0, |budget| budget.used)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the stamp of `id` to a whole allocation.
///
/// # Panics
///
/// Panics when the device refuses.
pub(crate) fn write_stamp<B: Backend>(allocation: &Allocation<B>, id: u64) {
    let mut bytes = vec![0; usize::try_from(allocation.size()).expect("cases use small sizes")];
    stamp(id, 0, &mut bytes);
    allocation.write(0, &bytes).expect("an allocation can be written");
}

/// Checks that a whole allocation has the stamp of `id`.
///
/// # Panics
///
/// Panics when it has not.
pub(crate) fn check_stamp<B: Backend>(allocation: &Allocation<B>, id: u64) {
    let mut found = vec![0; usize::try_from(allocation.size()).expect("cases use small sizes")];
    let mut wanted = found.clone();
    stamp(id, 0, &mut wanted);
    allocation.read(0, &mut found).expect("an allocation can be read");
    if let Some(at) = difference(&found, &wanted) {
        panic!("byte {at} of {} is {} and should be {}", found.len(), found[at], wanted[at]);
    }
}

/// The timelines of a backend.
///
/// # Panics
///
/// Panics when there are none; the case said that it needs them.
pub(crate) fn timelines<B: Backend>(backend: &B) -> &dyn Timelines {
    backend.as_timelines().expect("the case needs timelines")
}

/// A request for exactly this heap.
#[must_use]
pub(crate) const fn in_heap(heap: HeapId, size: u64) -> Request<'static> {
    Request::new(size).heap(heap)
}

/// A plain pool with one lane and blocks of one size.
#[must_use]
pub(crate) fn pool_of(block: u64) -> PoolConfig {
    PoolConfig::new().block(block).lanes(1)
}
