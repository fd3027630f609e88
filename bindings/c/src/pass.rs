//! Passes of the caller's own: begun, decided move by move, started, and committed or aborted. No function of the caller is called.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::defrag::{
    Handles, OMNIHEAP_MOVE_COPY, OMNIHEAP_MOVE_DESTROY, OMNIHEAP_MOVE_IGNORE,
    OMNIHEAP_MOVE_OWNER_COPIES, OmniheapBudget, OmniheapMove, OmniheapMoved, became, limits,
    omniheap_budget_default,
};
use crate::handle::{ALLOCATIONS, OmniheapManager, Owner, holder};
use crate::sized::{fill, fillable, read_sized};
use crate::status::{Failure, OmniheapStatus, call, check, check_many, put};
use crate::table::{Kind, Table};
use omniheap::defrag::{Budget, Decision, Pass};
use omniheap::seam::lock;
use omniheap::{AnyBackend, ErrorKind, Manager};
use std::sync::Mutex;

/// A pass that was begun. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapPass {
    /// Opaque.
    pub id: u64,
}

/// A pass with a handle, until it ends. The owner goes last.
struct Begun {
    /// None once it was committed.
    work: Mutex<Option<Work>>,
    _owner: Owner,
}

/// A pass, with what only C says of it.
struct Work {
    pass: Pass<AnyBackend>,
    /// Every move in its order, and whether its allocation was destroyed.
    moves: Vec<(OmniheapMove, bool)>,
    is_started: bool,
}

static PASSES: Table<Begun> = Table::new(Kind::Pass);

/// Plans a pass within a budget, and holds the places that its moves need. Copies nothing yet.
///
/// Then: look at the moves (`omniheap_pass_count`, `omniheap_pass_move`), decide about them (`omniheap_pass_decide`), start the copies
/// (`omniheap_pass_start`), and commit once `omniheap_pass_ready` says so; each step but the commit may be left out. Until the commit every
/// allocation stays usable where it is: a call that needs its place, or frees it, cancels its move. A pass that is aborted instead changes
/// nothing, but for what was destroyed. No call waits for a thread that does nothing with its pass.
///
/// A pass without moves says that there is nothing to gain within the budget; it ends as others do. `omniheap_close` is `BUSY` until the pass has
/// ended.
///
/// # Safety
///
/// `budget` is null or a budget; `pass` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_begin_defragment(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    pass: *mut OmniheapPass,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { begin(manager, budget, pass, Manager::begin_defragment) }
}

/// Plans a pass that brings back what lies in a farther heap than its request preferred, because that was full; the only one that leaves a heap.
/// Otherwise as `omniheap_begin_defragment`.
///
/// A mapped allocation stays where it can be mapped. `UNSUPPORTED` where the device has one heap only.
///
/// # Safety
///
/// As for `omniheap_begin_defragment`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_begin_recall(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    pass: *mut OmniheapPass,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { begin(manager, budget, pass, Manager::begin_recall) }
}

/// Gives the pass that `plan` makes a handle.
///
/// # Safety
///
/// As for `omniheap_begin_defragment`.
unsafe fn begin(
    manager: OmniheapManager,
    budget: *const OmniheapBudget,
    to: *mut OmniheapPass,
    plan: fn(&Manager<AnyBackend>, &Budget) -> omniheap::seam::Result<Pass<AnyBackend>>,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let budget = unsafe { read_sized(budget, omniheap_budget_default()) }?;
        check(to, "pass")?;
        let pass = plan(&holder.manager, &limits(&budget))?;
        let moves = if pass.is_empty() {
            Vec::new()
        } else {
            let handles = Handles::of(&holder);
            pass.moves().map(|planned| (handles.show(&planned), false)).collect()
        };
        let work = Mutex::new(Some(Work { pass, moves, is_started: false }));
        let id = PASSES.insert(Begun { work, _owner: Owner::new(&holder) })?;
        // SAFETY: as above.
        unsafe { put(to, OmniheapPass { id }, "pass") }
    })
}

/// Runs `with` on a pass; calls of one pass run one after the other.
fn with<R>(
    pass: OmniheapPass,
    with: impl FnOnce(&mut Work) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let begun = PASSES.get(pass.id)?;
    let mut work = lock(&begun.work);
    with(work.as_mut().ok_or(ErrorKind::Stale)?)
}

impl Work {
    fn at(&mut self, which: usize) -> Result<&mut (OmniheapMove, bool), Failure> {
        let count = self.moves.len();
        self.moves.get_mut(which).ok_or_else(|| {
            let message = format!("the pass has {count} moves, numbered from 0; {which} is none");
            Failure::new(OmniheapStatus::OutOfRange, message)
        })
    }

    fn decide(&mut self, which: usize, decision: u32) -> Result<(), Failure> {
        let is_started = self.is_started;
        let (shown, is_destroyed) = self.at(which)?;
        if is_started {
            let message = "the pass has started; decide before omniheap_pass_start, or abort it";
            return Err(Failure::new(OmniheapStatus::Busy, message));
        }
        let decision = match decision {
            OMNIHEAP_MOVE_COPY => Decision::Copy,
            OMNIHEAP_MOVE_IGNORE => Decision::Ignore,
            OMNIHEAP_MOVE_OWNER_COPIES => Decision::OwnerCopies,
            OMNIHEAP_MOVE_DESTROY => {
                // The pass itself counts with the manager while it has the bytes.
                let (allocation, _) = ALLOCATIONS.take(shown.allocation.id)?.into_parts();
                *is_destroyed = true;
                Decision::Destroy(allocation)
            }
            other => {
                let message = format!("decision is {other}; pass one of OMNIHEAP_MOVE_…");
                return Err(Failure::invalid(message));
            }
        };
        Ok(self.pass.decide(which, decision)?)
    }

    /// Commits, and says what became of each move.
    fn commit(self) -> (Vec<u32>, Result<OmniheapMoved, Failure>) {
        let outcome = self.pass.commit();
        let known = outcome.as_ref().ok();
        let each = self.moves.iter().enumerate();
        let outcomes = each.map(|(at, (_, is_freed))| became(known, at, *is_freed)).collect();
        (outcomes, outcome.map(|outcome| outcome.moved.into()).map_err(Failure::from))
    }
}

/// Writes the number of a pass's moves; they are numbered from 0.
///
/// # Safety
///
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pass_count(
    pass: OmniheapPass,
    count: *mut usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(count, with(pass, |work| Ok(work.moves.len()))?, "count") })
}

/// Says what a move is, as it was planned: which allocation, from where and to where. `OUT_OF_RANGE` where the pass has no such move.
///
/// # Safety
///
/// `one` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pass_move(
    pass: OmniheapPass,
    which: usize,
    one: *mut OmniheapMove,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { fill(one, &with(pass, |work| Ok(work.at(which)?.0))?) })
}

/// Decides about a move, with one of `OMNIHEAP_MOVE_…`; the last decision counts. A move without one is copied, or left where it is if it needs
/// consent.
///
/// After `OMNIHEAP_MOVE_OWNER_COPIES` nothing on the device uses the new place any more, which may wait for its earlier users: the owner copies
/// now, and commits when its copy has finished. `OMNIHEAP_MOVE_DESTROY` frees the allocation at once, also where the pass is aborted later;
/// `BUSY` while another call uses it. `BUSY` as well once the pass has started, and `OUT_OF_RANGE` where it has no such move. A call that is
/// refused changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pass_decide(
    pass: OmniheapPass,
    which: usize,
    decision: u32,
) -> OmniheapStatus {
    call(|| with(pass, |work| work.decide(which, decision)))
}

/// Submits the copies behind all work that uses the allocations, and returns. Does nothing for a pass that has started.
///
/// If the driver refuses, later calls of the pass are refused too: abort it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pass_start(pass: OmniheapPass) -> OmniheapStatus {
    call(|| {
        with(pass, |work| {
            work.is_started = true;
            Ok(work.pass.start()?)
        })
    })
}

/// Sets `ready` to 1 once the copies have finished, so that a commit does not wait, and to 0 before that. Does not wait.
///
/// # Safety
///
/// `ready` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pass_ready(
    pass: OmniheapPass,
    ready: *mut u32,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(ready, with(pass, |work| Ok(work.pass.is_ready()?))?.into(), "ready") })
}

/// Starts a pass if that was not done, waits for its copies, shows the new places, and ends the pass.
///
/// `outcomes` gets one of `OMNIHEAP_OUTCOME_…` for each move, in their order. Memory that became empty goes back to the driver. Where the driver
/// refuses, the pass has ended as well, and every allocation is at its old place. A call that is refused for its arguments changes nothing.
///
/// # Safety
///
/// `outcomes` is null for none, or has room for `count`, at least as many as the pass has moves; `moved` is null, or starts with its size and may
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pass_commit(
    pass: OmniheapPass,
    outcomes: *mut u32,
    count: usize,
    moved: *mut OmniheapMoved,
) -> OmniheapStatus {
    call(|| {
        let begun = PASSES.get(pass.id)?;
        let mut held = lock(&begun.work);
        let moves = held.as_ref().ok_or(ErrorKind::Stale)?.moves.len();
        if !outcomes.is_null() {
            check_many(outcomes, count, "outcomes")?;
            if count < moves {
                let message = format!("the pass has {moves} moves; pass room for as many outcomes");
                return Err(Failure::new(OmniheapStatus::ShortBuffer, message));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { fillable(moved) }?;
        let work = held.take().ok_or(ErrorKind::Stale)?;
        drop(held);
        // Another thread may have aborted it in the meantime: this call was first. The owner lives until its end.
        drop(PASSES.remove(pass.id));
        let (told, sums) = work.commit();
        if !outcomes.is_null() {
            // SAFETY: the caller promises `count` places, and `told` has no more: a pass never gets moves.
            unsafe { outcomes.copy_from_nonoverlapping(told.as_ptr(), told.len()) };
        }
        // SAFETY: as above.
        unsafe { fill(moved, &sums?) }
    })
}

/// Ends a pass without its moves: waits for copies that were started, and leaves every allocation where it was.
///
/// The handle is stale at once. Where another thread is in a call with it, the pass ends when that call does.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pass_abort(pass: OmniheapPass) -> OmniheapStatus {
    call(|| PASSES.remove(pass.id).map(drop))
}
