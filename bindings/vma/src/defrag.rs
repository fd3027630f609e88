//! Defragmentation in passes: the library plans moves and holds the new places, the program copies, and the places are exchanged.
//!
//! The least used blocks are emptied first. The pool chooses a new place as for any request. If the place lies in the block to be
//! emptied, it plugs a hole there until the pass is planned, so that the next place lies elsewhere. Where no block gains from
//! another any more, the thorough algorithms close the holes inside each: nothing is moved inside a block that still empties.
#![expect(unsafe_code, reason = "lends the list of moves to the program")]
use crate::abi::{
    VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT, VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT,
    VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY, VMA_DEFRAGMENTATION_MOVE_OPERATION_DESTROY,
    VmaAllocator, VmaDefragmentationContext, VmaDefragmentationInfo, VmaDefragmentationMove,
    VmaDefragmentationPassMoveInfo, VmaDefragmentationStats,
};
use crate::allocator::{Allocator, on, with};
use crate::args::{array, put, put_if, read};
use crate::call::Refused;
use crate::info::shown;
use crate::memory::{About, Content, Managed, Memory, Seen};
use crate::pools::CustomPool;
use crate::slots::{Facts, Handle, NO_WEIGHT, Slot};
use crate::stats::BlockMap;
use ash::vk::{self, Handle as _};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most places in the emptied block to plug for one move.
const MOST_PLUGS: usize = 256;

/// A defragmentation that has begun.
pub(crate) struct Defragmentation {
    pool: Option<(Arc<CustomPool>, u32)>,
    info: VmaDefragmentationInfo,
    stats: VmaDefragmentationStats,
    /// Allocations that the program does not move.
    stays: BTreeSet<usize>,
    /// Moves of the present pass.
    moves: Vec<VmaDefragmentationMove>,
}

// SAFETY: its pointers are the program's user data, which it promised may be used from the thread that calls, and handles.
unsafe impl Send for Defragmentation {}

/// Remaining budget of a pass.
struct Budget<'a> {
    bytes: u64,
    moves: usize,
    info: &'a VmaDefragmentationInfo,
}

impl Budget<'_> {
    /// Returns true if the pass may go on, and subtracts the move from the budget.
    fn allows(&mut self, bytes: u64) -> bool {
        let is_ended = self.info.pfn_break_callback.is_some_and(|ends| {
            // SAFETY: the program's function, with its pointer.
            unsafe { ends(self.info.p_break_callback_user_data) != vk::FALSE }
        });
        if is_ended || self.moves == 0 {
            return false;
        }
        (self.bytes, self.moves) = (self.bytes - bytes, self.moves - 1);
        true
    }
}

/// A block that may be emptied, or filled.
struct Candidate<'a> {
    memory: u64,
    live_bytes: u64,
    live: Vec<&'a Slot<Memory>>,
}

impl<'a> Candidate<'a> {
    fn of(block: BlockMap<'a>) -> Option<Self> {
        let memory = block.live.first()?.facts.memory.load(Relaxed);
        let live_bytes = block.live.iter().map(|slot| slot.facts.size.load(Relaxed)).sum();
        (!block.is_alone).then_some(Self { memory, live_bytes, live: block.live })
    }
}

/// Start of the search for a lower hole in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Block,
    /// A copy of this pass: nothing fits before it.
    Behind(Handle),
    /// Nothing fits anywhere.
    Nowhere,
}

/// Results of the searches of one pass in one block, by what a place must suit and by size. Where one allocation did not fit, no larger
/// one fits, so no span is looked at again for each allocation of a size.
#[derive(Default)]
struct Searched(BTreeMap<(Content, u64), BTreeMap<u64, Start>>);

impl Searched {
    fn wish(of: &Facts) -> ((Content, u64), u64) {
        let kind = (About::of(of).content_kind(), of.align.load(Relaxed));
        (kind, of.size.load(Relaxed))
    }

    fn start(&self, of: &Facts) -> Start {
        let (kind, size) = Self::wish(of);
        let smaller = self.0.get(&kind).and_then(|sizes| sizes.range(..=size).next_back());
        smaller.map_or(Start::Block, |(_, start)| *start)
    }

    fn note(&mut self, of: &Facts, start: Start) {
        let (kind, size) = Self::wish(of);
        let sizes = self.0.entry(kind).or_default();
        if matches!(start, Start::Nowhere) {
            sizes.split_off(&size);
        }
        sizes.insert(size, start);
    }
}

/// Returns the facts that a copy must share with its source: size, kind and pool.
fn facts(of: &Slot<Memory>) -> (u64, About) {
    (of.facts.size.load(Relaxed), About::of(&of.facts))
}

/// Enters the place of a copy into the table. `None` if another thread freed the source since its facts were `first`: a later
/// allocation may have its slot now.
fn enter(
    of: &Allocator,
    slot: &Slot<Memory>,
    (from, first): (Handle, (u64, About)),
    place: (Memory, Seen),
) -> Option<Handle> {
    let to = of.keep_beside(slot, place)?;
    if of.slots.get(to).map(facts) != Some(first) || of.slots.get(from).is_none() {
        of.forget(to);
        return None;
    }
    Some(to)
}

/// Exchanges an allocation and its copy, and maps the new place where the program sees the old one.
fn exchange(of: &Allocator, source: &Slot<Memory>, target: &Slot<Memory>) {
    source.swap(target);
    source.facts.swap_place(&target.facts);
    // The engine's reports know the new place by the same name.
    if let Some(name) = source.name_text() {
        source.with(|memory| memory.set_name(&name));
    }
    // The allocation may have been mapped for the first time since the pass was planned.
    if target.facts.host.load(Relaxed) != 0 || source.facts.maps.load(Relaxed) > 0 {
        // The calls that map report what fails.
        let _ = of.mapping(source);
    }
}

impl Defragmentation {
    fn new(of: &Allocator, info: VmaDefragmentationInfo) -> Result<Self, Refused> {
        let pool = if info.pool.is_null() { None } else { Some(of.pool(info.pool)?) };
        if pool.as_ref().is_some_and(|(pool, _)| pool.is_linear()) {
            let why = "a linear pool is not defragmented";
            return Err(Refused::quietly(vk::Result::ERROR_FEATURE_NOT_PRESENT, why));
        }
        let (stats, stays) = (VmaDefragmentationStats::default(), BTreeSet::new());
        Ok(Self { pool, info, stats, stays, moves: Vec::new() })
    }

    fn is_thorough(&self) -> bool {
        let thorough = VMA_DEFRAGMENTATION_FLAG_ALGORITHM_FULL_BIT
            | VMA_DEFRAGMENTATION_FLAG_ALGORITHM_EXTENSIVE_BIT;
        self.info.flags & thorough != 0
    }

    /// Plans the moves of a pass.
    fn plan(&mut self, of: &Allocator) {
        let unbound = |most: u64| if most == 0 { u64::MAX } else { most };
        let most = usize::try_from(self.info.max_allocations_per_pass).unwrap_or(0);
        let info = self.info;
        let moves = if most == 0 { usize::MAX } else { most };
        let mut budget = Budget { bytes: unbound(info.max_bytes_per_pass), moves, info: &info };
        let own = self.pool.as_ref().map(|(pool, number)| (pool.memory_type, *number));
        let blocks = of.live_blocks(|home| own.map_or(home.1 == 0, |own| own == home));
        for ((memory_type, _), blocks) in blocks {
            let mut blocks: Vec<_> = blocks.into_iter().filter_map(Candidate::of).collect();
            blocks.sort_by_key(|block| (block.live_bytes, block.memory));
            let planned = self.moves.len();
            let may_go_on = self.empty_blocks(of, memory_type, &blocks, &mut budget);
            if may_go_on.is_some() && self.is_thorough() && self.moves.len() == planned {
                let _ = self.close_holes(of, memory_type, &blocks, &mut budget);
            }
        }
    }

    /// Plans moves out of the least used blocks of a home into the others. `None` if the pass ends.
    fn empty_blocks(
        &mut self,
        of: &Allocator,
        memory_type: u32,
        blocks: &[Candidate<'_>],
        budget: &mut Budget<'_>,
    ) -> Option<()> {
        let mut plugs = Vec::new();
        // Empty blocks are left out: they go back to the driver.
        let mut targets: BTreeSet<_> = blocks.iter().map(|block| block.memory).collect();
        for block in blocks {
            targets.remove(&block.memory);
            for slot in block.live.iter().rev() {
                let Some((from, first)) = self.may_move(of, slot, budget) else { continue };
                let place = self.find_place(of, memory_type, slot, &targets, &mut plugs);
                let Some(place) = place else { break };
                budget.allows(first.0).then_some(())?;
                self.plan_move(of, slot, (from, first), place);
            }
        }
        Some(())
    }

    /// Plans moves inside each block, of the highest allocations to the lowest holes. `None` if the pass ends.
    fn close_holes(
        &mut self,
        of: &Allocator,
        memory_type: u32,
        blocks: &[Candidate<'_>],
        budget: &mut Budget<'_>,
    ) -> Option<()> {
        for block in blocks {
            let mut searched = Searched::default();
            for slot in block.live.iter().rev() {
                let Some((from, first)) = self.may_move(of, slot, budget) else { continue };
                let after = match searched.start(&slot.facts) {
                    Start::Block => None,
                    Start::Behind(copy) => Some(copy),
                    Start::Nowhere => continue,
                };
                let lowest = of.take_below(memory_type, (slot, from), after, self.pool());
                let Some((managed, seen)) = lowest else {
                    searched.note(&slot.facts, Start::Nowhere);
                    continue;
                };
                budget.allows(first.0).then_some(())?;
                let place = (self.owner(managed), seen);
                if let Some(copy) = self.plan_move(of, slot, (from, first), place) {
                    searched.note(&slot.facts, Start::Behind(copy));
                }
            }
        }
        Some(())
    }

    /// Returns the handle and the facts of an allocation that may be moved now. One too large for the rest of the budget is passed
    /// over, and smaller ones may fit.
    fn may_move(
        &self,
        of: &Allocator,
        slot: &Slot<Memory>,
        budget: &Budget<'_>,
    ) -> Option<(Handle, (u64, About))> {
        let from = slot.handle();
        let first = of.slots.get(from).map(facts)?;
        (!self.stays.contains(&from.address()) && first.0 <= budget.bytes).then_some((from, first))
    }

    /// Plans the move of an allocation to a place. Returns the copy, if the allocation was not freed meanwhile.
    fn plan_move(
        &mut self,
        of: &Allocator,
        slot: &Slot<Memory>,
        (from, first): (Handle, (u64, About)),
        place: (Memory, Seen),
    ) -> Option<Handle> {
        let to = enter(of, slot, (from, first), place)?;
        self.moves.push(VmaDefragmentationMove {
            operation: VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY,
            src_allocation: shown(from),
            dst_tmp_allocation: shown(to),
        });
        Some(to)
    }

    fn pool(&self) -> Option<&Arc<CustomPool>> {
        self.pool.as_ref().map(|(pool, _)| pool)
    }

    /// Returns the owner of bytes for a copy.
    fn owner(&self, managed: Managed) -> Memory {
        match self.pool() {
            Some(pool) => Memory::Pooled(managed, Arc::clone(pool)),
            None => Memory::Default(managed),
        }
    }

    /// Finds a place in a block that is not to be emptied.
    fn find_place(
        &self,
        of: &Allocator,
        memory_type: u32,
        slot: &Slot<Memory>,
        targets: &BTreeSet<u64>,
        plugs: &mut Vec<Managed>,
    ) -> Option<(Memory, Seen)> {
        for _ in 0..MOST_PLUGS {
            let (managed, seen) = of.take_beside(memory_type, slot, self.pool())?;
            if targets.contains(&seen.memory.as_raw()) {
                return Some((self.owner(managed), seen));
            }
            plugs.push(managed);
        }
        None
    }

    /// Carries out the program's decisions and trims empty blocks. Returns true if another pass may find moves.
    fn end_pass(&mut self, of: &Allocator, decided: &[VmaDefragmentationMove]) -> bool {
        let mut moved = false;
        let (blocks, bytes) = (of.counts.blocks(), of.counts.block_bytes());
        for (planned, decided) in core::mem::take(&mut self.moves).into_iter().zip(decided) {
            let from = Handle::from_address(planned.src_allocation.0.addr());
            let to = Handle::from_address(planned.dst_tmp_allocation.0.addr());
            match decided.operation {
                VMA_DEFRAGMENTATION_MOVE_OPERATION_COPY => {
                    if let (Some(source), Some(target)) = (of.slots.get(from), of.slots.get(to)) {
                        exchange(of, source, target);
                        self.stats.bytes_moved += source.facts.size.load(Relaxed);
                        self.stats.allocations_moved += 1;
                        moved = true;
                    }
                }
                VMA_DEFRAGMENTATION_MOVE_OPERATION_DESTROY => moved |= of.forget(from),
                _ => drop(self.stays.insert(from.address())),
            }
            // After a copy, this is the old place.
            of.forget(to);
        }
        match self.pool.as_ref().and_then(|(pool, _)| pool.general()) {
            // A lost device has nothing to give back; the calls that allocate report it.
            Some(pool) => drop(pool.trim()),
            None => drop(of.trim(u64::MAX)),
        }
        let fewer = blocks.saturating_sub(of.counts.blocks());
        self.stats.device_memory_blocks_freed += u32::try_from(fewer).unwrap_or(u32::MAX);
        self.stats.bytes_freed += bytes.saturating_sub(of.counts.block_bytes());
        moved
    }
}

/// Runs `work` on a defragmentation.
fn on_context(
    of: &Allocator,
    context: VmaDefragmentationContext,
    work: impl FnOnce(&mut Defragmentation) -> Result<bool, Refused>,
) -> Result<bool, Refused> {
    let found = of.defragmentations.get(Handle::from_address(context.0.addr()));
    found
        .and_then(|slot| slot.with(work))
        .unwrap_or_else(|| Err(Refused::invalid("the defragmentation has ended, or never began")))
}

/// Begins a defragmentation. Nothing moves yet.
///
/// # Safety
///
/// Pointers are null, or what C says; no other thread destroys the allocator. The same holds for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaBeginDefragmentation(
    allocator: VmaAllocator,
    info: *const VmaDefragmentationInfo,
    context: *mut VmaDefragmentationContext,
) -> vk::Result {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        unsafe { put(context, VmaDefragmentationContext::NULL, "pContext") }?;
        // SAFETY: as above.
        let info = unsafe { read(info, "pInfo") }?;
        let made =
            of.defragmentations.keep(NO_WEIGHT, Defragmentation::new(of, info)?, |_| ()).handle();
        let made = VmaDefragmentationContext(ptr::without_provenance_mut(made.address()));
        // SAFETY: as above.
        unsafe { put(context, made, "pContext") }
    };
    // SAFETY: as above.
    unsafe { with("vmaBeginDefragmentation", allocator, work) }
}

/// Ends a defragmentation, and says what it did; `stats` may be null.
///
/// # Safety
///
/// As for [`vmaBeginDefragmentation`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaEndDefragmentation(
    allocator: VmaAllocator,
    context: VmaDefragmentationContext,
    stats: *mut VmaDefragmentationStats,
) {
    let work = |of: &Allocator| {
        on_context(of, context, |found| {
            let pending: Vec<_> = found.moves.drain(..).collect();
            for one in pending {
                of.forget(Handle::from_address(one.dst_tmp_allocation.0.addr()));
            }
            // SAFETY: the caller's promise.
            unsafe { put_if(stats, || found.stats) };
            Ok(true)
        })?;
        of.defragmentations.release(Handle::from_address(context.0.addr()), |_| NO_WEIGHT);
        Ok(())
    };
    // SAFETY: as above.
    unsafe { on("vmaEndDefragmentation", allocator, work) };
}

/// Plans a pass: `VK_INCOMPLETE` where the program has moves to make, `VK_SUCCESS` where there is nothing to gain.
///
/// # Safety
///
/// As for [`vmaBeginDefragmentation`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaBeginDefragmentationPass(
    allocator: VmaAllocator,
    context: VmaDefragmentationContext,
    pass: *mut VmaDefragmentationPassMoveInfo,
) -> vk::Result {
    let mut has_moves = false;
    let work = |of: &Allocator| {
        has_moves = on_context(of, context, |found| {
            if !found.moves.is_empty() {
                return Err(Refused::invalid("a pass is under way; end it first"));
            }
            found.plan(of);
            let move_count = u32::try_from(found.moves.len()).unwrap_or(u32::MAX);
            let p_moves = if move_count == 0 { ptr::null_mut() } else { found.moves.as_mut_ptr() };
            let lent = VmaDefragmentationPassMoveInfo { move_count, p_moves };
            // SAFETY: the caller's promise.
            unsafe { put(pass, lent, "pPassInfo") }?;
            Ok(move_count > 0)
        })?;
        Ok(())
    };
    // SAFETY: as above.
    let result = unsafe { with("vmaBeginDefragmentationPass", allocator, work) };
    if has_moves { vk::Result::INCOMPLETE } else { result }
}

/// Ends a pass: the allocations that were copied lie at their new places now. `VK_SUCCESS` where there is nothing more to gain.
///
/// # Safety
///
/// As for [`vmaBeginDefragmentation`]; the moves are those of the pass.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaEndDefragmentationPass(
    allocator: VmaAllocator,
    context: VmaDefragmentationContext,
    pass: *mut VmaDefragmentationPassMoveInfo,
) -> vk::Result {
    let mut may_go_on = false;
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        let pass_info = unsafe { read(pass.cast_const(), "pPassInfo") }?;
        may_go_on = on_context(of, context, |found| {
            let count = usize::try_from(pass_info.move_count).unwrap_or(0);
            if count != found.moves.len() {
                return Err(Refused::invalid("moveCount is not that of the pass"));
            }
            // SAFETY: as above.
            let decided =
                unsafe { array(pass_info.p_moves.cast_const(), count, "pMoves") }?.to_vec();
            Ok(found.end_pass(of, &decided))
        })?;
        let none = VmaDefragmentationPassMoveInfo { move_count: 0, p_moves: ptr::null_mut() };
        // SAFETY: as above.
        unsafe { put(pass, none, "pPassInfo") }
    };
    // SAFETY: as above.
    let result = unsafe { with("vmaEndDefragmentationPass", allocator, work) };
    if may_go_on { vk::Result::INCOMPLETE } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;

    #[test]
    fn nothing_is_searched_where_less_found_nothing() {
        let slots = Slots::new(6);
        let slot = |size: u64, align: u64| {
            slots.keep(NO_WEIGHT, (), |slot| {
                slot.facts.size.store(size, Relaxed);
                slot.facts.align.store(align, Relaxed);
            })
        };
        let mut searched = Searched::default();
        let behind =
            |size: u64| Start::Behind(Handle::from_address(usize::try_from(size).unwrap_or(0)));
        for size in [100, 300, 200] {
            searched.note(&slot(size, 1).facts, behind(size));
        }
        let starts = |searched: &Searched, align: u64| {
            [99, 100, 250, 900].map(|size| searched.start(&slot(size, align).facts))
        };
        assert_eq!(starts(&searched, 1), [Start::Block, behind(100), behind(200), behind(300)]);
        assert_eq!(starts(&searched, 2), [Start::Block; 4], "another alignment");
        searched.note(&slot(150, 1).facts, Start::Nowhere);
        let nowhere = Start::Nowhere;
        assert_eq!(starts(&searched, 1), [Start::Block, behind(100), nowhere, nowhere]);
    }
}
