//! Defragmentation that asks the owner about every move.
#![expect(unsafe_code, reason = "calls the caller's functions")]
use crate::handle::{ALLOCATIONS, Holder, OmniheapAllocation, OmniheapManager, Owner, holder};
use crate::sized::{empty, fill, fillable, grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use ash::vk::Handle as _;
use core::ffi::c_void;
use core::time::Duration;
use omniheap::layers::Wrapped;
use omniheap::vulkan::Block;
use omniheap::{
    AnyBackend, Backend as _,
    defrag::{BlockRange, Budget, Decision, MoveOutcome, Moved, Outcome, Pass, PlannedMove, Step},
    report::AllocationId,
    seam::AnyBlock,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Copy the bytes, and show the new place afterwards.
pub const OMNIHEAP_MOVE_COPY: u32 = 0;
/// Leave the allocation where it is.
pub const OMNIHEAP_MOVE_IGNORE: u32 = 1;
/// The owner copies the bytes itself. A callback that answers so has copied, and its copy has finished; after `omniheap_pass_decide` nothing on
/// the device uses the new place, and the copy has finished before `omniheap_pass_commit`.
pub const OMNIHEAP_MOVE_OWNER_COPIES: u32 = 2;
/// Free the allocation instead; its handle is stale afterwards.
pub const OMNIHEAP_MOVE_DESTROY: u32 = 3;

/// The allocation is at its new place.
pub const OMNIHEAP_OUTCOME_MOVED: u32 = 0;
/// The allocation is at its old place: `OMNIHEAP_MOVE_IGNORE`, or its place was asked for during the pass, or the pass failed.
pub const OMNIHEAP_OUTCOME_STAYED: u32 = 1;
/// The allocation was freed during the pass.
pub const OMNIHEAP_OUTCOME_FREED: u32 = 2;

/// Limits on the work of a pass. Start from `omniheap_budget_default`, which has no limit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapBudget {
    /// Bytes of this struct, which `omniheap_budget_default` sets.
    pub struct_size: usize,
    /// Bytes that are copied.
    pub bytes: u64,
    /// Allocations that are moved.
    pub moves: u64,
    /// Time that the copies may take on the device.
    pub microseconds: u64,
}

/// One move, before it is made. Start from `omniheap_move_default` to have one filled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapMove {
    /// Bytes of this struct, which `omniheap_move_default` sets; callbacks get the library's.
    pub struct_size: usize,
    /// The allocation; zero where it has no handle.
    pub allocation: OmniheapAllocation,
    /// The owner's pointer: `user` of its request, or what `omniheap_set_user` set.
    pub user: *mut c_void,
    /// Its bytes.
    pub size: u64,
    /// Its present memory: for Vulkan the `VkDeviceMemory`, elsewhere zero, and the bytes from its start.
    pub from_memory: u64,
    /// Bytes from the start of that memory or block.
    pub from_offset: u64,
    /// Its new memory, in the same words.
    pub to_memory: u64,
    /// Bytes from the start of that memory or block.
    pub to_offset: u64,
    /// Its present address on the device; zero where the backend has none.
    pub from_address: u64,
    /// Its new address on the device; zero where the backend has none.
    pub to_address: u64,
    /// Its present heap.
    pub from_heap: u32,
    /// Its new heap: the same, unless the pass is a recall.
    pub to_heap: u32,
    /// Non-zero: it moves only when its owner says so.
    pub needs_consent: u32,
}

grows!(filled OmniheapMove to needs_consent: "move" from "omniheap_move_default");

// SAFETY: the pointer is the caller's, which is handed back and never followed.
unsafe impl Send for OmniheapMove {}

/// Work of one pass, or of all passes of a manager together. Start from `omniheap_moved_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapMoved {
    /// Bytes of this struct, which `omniheap_moved_default` sets.
    pub struct_size: usize,
    /// Allocations moved.
    pub moves: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes given back to the driver.
    pub returned_bytes: u64,
    /// Bytes taken from the driver for it: fresh pages to pack into. What was gained is `returned_bytes` without these.
    pub taken_bytes: u64,
}

grows!(filled OmniheapMoved to taken_bytes: "moved" from "omniheap_moved_default");

impl From<Moved> for OmniheapMoved {
    fn from(sums: Moved) -> Self {
        let Moved { moves, bytes, returned_bytes, taken_bytes, .. } = sums;
        Self { moves, bytes, returned_bytes, taken_bytes, ..empty() }
    }
}

/// Asked about every move, before it is made: one of `OMNIHEAP_MOVE_…`.
///
/// To copy the bytes itself, it may call `omniheap_vulkan_with_queue`, `omniheap_timeline_mark` and `omniheap_timeline_wait`: it submits a copy
/// from the old place to the new one, and waits for a mark behind it. Nothing on the device uses the new place when the callback is called.
/// The callback calls nothing else of omniheap; a call that needs the place of the allocation cancels its move.
pub type OmniheapMover =
    Option<unsafe extern "C" fn(one: *const OmniheapMove, user: *mut c_void) -> u32>;

/// Told after a pass what became of a move that the mover was asked about: one of `OMNIHEAP_OUTCOME_…`. An owner that copied keeps its new
/// resource after `OMNIHEAP_OUTCOME_MOVED`, and its old one otherwise. It may call omniheap.
pub type OmniheapMoveDone =
    Option<unsafe extern "C" fn(one: *const OmniheapMove, outcome: u32, user: *mut c_void)>;

/// No limit; C has it as an inline function.
#[must_use]
pub fn omniheap_budget_default() -> OmniheapBudget {
    let (struct_size, most) = (size_of::<OmniheapBudget>(), u64::MAX);
    OmniheapBudget { struct_size, bytes: most, moves: most, microseconds: most }
}

grows!(OmniheapBudget to microseconds: "budget" from "omniheap_budget_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_budget_default` is the short way.
///
/// # Safety
///
/// `budget` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_budget_init(
    budget: *mut OmniheapBudget,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(budget, struct_size, &omniheap_budget_default()) }
}

/// One guarded pass: plans moves within a budget, asks `mover` about each, copies, waits and commits.
///
/// On failure every allocation is at one place with its bytes. Allocations that are pinned or mapped stay where they are. `done` is told
/// what became of each move that `mover` was asked about, in the same order, also where the pass fails.
///
/// # Safety
///
/// `budget` is null or a budget; `mover` is null (everything is copied that needs no consent) or is called on this thread with
/// `user`, and so is `done`; `moved` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_defragment_pass(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    mover: OmniheapMover,
    done: OmniheapMoveDone,
    user: *mut c_void,
    moved: *mut OmniheapMoved,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    let run = |holder: &Arc<Holder>, budget: &Budget| unsafe {
        run(holder.manager.begin_defragment(budget)?, holder, (mover, done), user)
    };
    // SAFETY: the caller's promise.
    unsafe { one_pass(manager, budget, moved, run) }
}

/// One guarded pass that brings back what lies in a farther heap than its request preferred, because that was full; the only
/// one that leaves a heap. Otherwise as `omniheap_defragment_pass`.
///
/// A mapped allocation stays where it can be mapped. `OMNIHEAP_STATUS_UNSUPPORTED` where the device has one heap only.
///
/// # Safety
///
/// As for `omniheap_defragment_pass`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_recall_pass(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    mover: OmniheapMover,
    done: OmniheapMoveDone,
    user: *mut c_void,
    moved: *mut OmniheapMoved,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    let run = |holder: &Arc<Holder>, budget: &Budget| unsafe {
        run(holder.manager.begin_recall(budget)?, holder, (mover, done), user)
    };
    // SAFETY: the caller's promise.
    unsafe { one_pass(manager, budget, moved, run) }
}

/// Runs a pass of a manager within a budget, and says what it moved.
///
/// # Safety
///
/// `budget` is null or a budget; `moved` is null, or starts with its size and may be written.
unsafe fn one_pass(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    moved: *mut OmniheapMoved,
    run: impl FnOnce(&Arc<Holder>, &Budget) -> Result<OmniheapMoved, Failure>,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let budget = unsafe { read_sized(budget, omniheap_budget_default()) }?;
        let budget = limits(&budget);
        // SAFETY: as above.
        unsafe { fillable(moved) }?;
        let sums = run(&holder, &budget)?;
        // SAFETY: as above.
        unsafe { fill(moved, &sums) }
    })
}

pub(crate) fn limits(budget: &OmniheapBudget) -> Budget {
    let time = Duration::from_micros(budget.microseconds);
    Budget::new().bytes(budget.bytes).moves(budget.moves).time(time)
}

/// Asks `mover`, where there is one, about every move of a pass, commits it, and tells `done` what became of each.
///
/// # Safety
///
/// `mover` and `done` may be called on this thread with `user`.
unsafe fn run(
    pass: Pass<AnyBackend>,
    holder: &Arc<Holder>,
    (mover, done): (OmniheapMover, OmniheapMoveDone),
    user: *mut c_void,
) -> Result<OmniheapMoved, Failure> {
    let Some(mover) = mover else { return Ok(pass.commit()?.moved.into()) };
    let mut asker = Asker { asked: vec![], failure: None, freed: vec![] };
    let handles = Handles::of(holder);
    let outcome = pass.run(|planned| {
        let shown = handles.show(planned);
        // SAFETY: the caller's promise; the description outlives the call.
        let answer = unsafe { mover(&raw const shown, user) };
        asker.decide(answer, shown)
    });
    for (at, (one, is_freed)) in asker.asked.iter().enumerate() {
        let became = became(outcome.as_ref().ok(), at, *is_freed);
        if let Some(done) = done {
            // SAFETY: the caller's promise; the description outlives the call.
            unsafe { done(one, became, user) };
        }
    }
    asker.failure.map_or(Ok(outcome?.moved.into()), Err)
}

/// Outcome of the move at a position. In a pass that failed, nothing moved.
pub(crate) fn became(outcome: Option<&Outcome>, at: usize, is_freed: bool) -> u32 {
    match outcome.and_then(|outcome| outcome.moves.get(at)) {
        Some((_, MoveOutcome::Moved)) => OMNIHEAP_OUTCOME_MOVED,
        Some((_, MoveOutcome::Freed)) => OMNIHEAP_OUTCOME_FREED,
        _ if is_freed => OMNIHEAP_OUTCOME_FREED,
        _ => OMNIHEAP_OUTCOME_STAYED,
    }
}

/// Says what all defragmentation of a manager has done until now, whoever asked for it.
///
/// # Safety
///
/// `moved` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_defragmented(
    manager: OmniheapManager,
    moved: *mut OmniheapMoved,
) -> OmniheapStatus {
    call(|| {
        let sums = holder(manager)?.manager.report().defragmentation;
        // SAFETY: the caller's promise.
        unsafe { fill(moved, &sums.into()) }
    })
}

/// There is nothing to gain, or the manager does not work in the background.
pub const OMNIHEAP_STEP_IDLE: u32 = 0;
/// Copies run on the device, or the budget was spent on planning; a later step goes on.
pub const OMNIHEAP_STEP_UNDER_WAY: u32 = 1;
/// Moves were committed, or memory that they emptied was given back. More may follow.
pub const OMNIHEAP_STEP_COMMITTED: u32 = 2;

/// Does a bounded amount of defragmentation, for managers that were opened with `OMNIHEAP_DEFRAGMENTATION_BACKGROUND`: call it once a frame, or
/// from a thread of your own. Never waits for the device.
///
/// `step` gets one of `OMNIHEAP_STEP_…`, and `moved` what was committed, which is zeros unless it is `OMNIHEAP_STEP_COMMITTED`.
///
/// # Safety
///
/// `step` is null or may be written; `moved` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_step(
    manager: OmniheapManager,
    step: *mut u32,
    moved: *mut OmniheapMoved,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        check(step, "step")?;
        // SAFETY: the caller's promise.
        unsafe { fillable(moved) }?;
        let (done, sums) = match holder.manager.step()? {
            Step::Committed(outcome) => (OMNIHEAP_STEP_COMMITTED, outcome.moved),
            Step::UnderWay => (OMNIHEAP_STEP_UNDER_WAY, Moved::default()),
            _ => (OMNIHEAP_STEP_IDLE, Moved::default()),
        };
        // SAFETY: as above.
        unsafe { fill(moved, &sums.into()) }?;
        // SAFETY: as above.
        unsafe { put(step, done, "step") }
    })
}

/// Turns the callback's answers into decisions.
struct Asker {
    /// Every move in its order, and whether the answer freed its allocation.
    asked: Vec<(OmniheapMove, bool)>,
    /// The last answer that could not be followed.
    failure: Option<Failure>,
    /// Owners whose handles were given up; they count until the pass ends.
    freed: Vec<Owner>,
}

impl Asker {
    fn decide(&mut self, answer: u32, one: OmniheapMove) -> Decision<AnyBackend> {
        let decision = self.understand(answer, one.allocation).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            Decision::Ignore
        });
        self.asked.push((one, matches!(decision, Decision::Destroy(_))));
        decision
    }

    fn understand(
        &mut self,
        answer: u32,
        which: OmniheapAllocation,
    ) -> Result<Decision<AnyBackend>, Failure> {
        match answer {
            OMNIHEAP_MOVE_COPY => Ok(Decision::Copy),
            OMNIHEAP_MOVE_OWNER_COPIES => Ok(Decision::OwnerCopies),
            OMNIHEAP_MOVE_IGNORE => Ok(Decision::Ignore),
            OMNIHEAP_MOVE_DESTROY => {
                let (allocation, owner) = ALLOCATIONS.take(which.id)?.into_parts();
                self.freed.push(owner);
                Ok(Decision::Destroy(allocation))
            }
            other => Err(Failure::invalid(format!(
                "the callback answered {other}, which is no OMNIHEAP_MOVE_…; such moves were left out"
            ))),
        }
    }
}

/// The handles of a manager's allocations, and the pointers of their owners.
pub(crate) struct Handles<'a> {
    holder: &'a Holder,
    known: HashMap<AllocationId, (OmniheapAllocation, *mut c_void)>,
}

impl<'a> Handles<'a> {
    pub(crate) fn of(holder: &'a Arc<Holder>) -> Self {
        let mut known = HashMap::new();
        ALLOCATIONS.for_each(|id, bytes| {
            if Arc::ptr_eq(bytes.owner.holder(), holder) {
                let named = (OmniheapAllocation { id }, bytes.user());
                known.insert(bytes.allocation().id(), named);
            }
        });
        Self { holder, known }
    }

    /// The handle of an allocation; zero where it has none.
    pub(crate) fn of_id(&self, id: AllocationId) -> OmniheapAllocation {
        self.known.get(&id).map_or(OmniheapAllocation { id: 0 }, |(handle, _)| *handle)
    }

    /// Describes a move.
    pub(crate) fn show(&self, planned: &PlannedMove<'_, AnyBackend>) -> OmniheapMove {
        let address = self.holder.manager.backend().as_address();
        let place = |spot: BlockRange<'_, AnyBlock>| {
            let block = spot.block.downcast_ref::<Wrapped<Block>>().map(Wrapped::inner);
            let memory = block.and_then(Block::memory).map_or(0, |memory| memory.as_raw());
            let base = address.map_or(0, |backend| backend.address(spot.block));
            let address = if base == 0 { 0 } else { base.saturating_add(spot.span.offset) };
            (memory, spot.span.offset, address)
        };
        let (from_memory, from_offset, from_address) = place(planned.from());
        let (to_memory, to_offset, to_address) = place(planned.to());
        let user = self.known.get(&planned.allocation()).map(|(_, user)| *user);
        OmniheapMove {
            allocation: self.of_id(planned.allocation()),
            user: user.unwrap_or(core::ptr::null_mut()),
            size: planned.size(),
            from_memory,
            from_offset,
            to_memory,
            to_offset,
            from_address,
            to_address,
            from_heap: planned.heap().0.into(),
            to_heap: planned.to_heap().0.into(),
            needs_consent: u32::from(planned.needs_consent()),
            ..empty()
        }
    }
}
