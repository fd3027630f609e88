//! Packing pages: allocations that nothing else can clear out of their pages go side by side into fresh pages.
//!
//! If no page can be evacuated into the holes of others, because each hole is smaller than what would have to go there,
//! the holes still add up. Packed into fresh pages, the same allocations leave none.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{MoveList, Started, TOGETHER};
use super::planner::LanePlanner;
use crate::lane::Resident;
use crate::{Backend, Class};
use alloc::vec::Vec;
use omniheap_strategy::{Grant, moves::pack};

/// Limit of the pages packed in one pass: this many are needed beside those that become free.
const MOST_PAGES: u64 = 128;
/// The fewest pages worth packing, where the driver has no memory for more.
const LEAST_PAGES: u64 = 2;

impl<B: Backend> LanePlanner<B> {
    /// Plans moves out of pages whose holes add up, into fresh pages. Packs fewer where the driver has no memory for all.
    pub(super) fn pack_pages(&mut self, meter: &mut BudgetMeter, moves: &mut MoveList<B>) {
        let Some(page) = self.lane.shared.page() else { return };
        let mut pages = MOST_PAGES;
        while pages >= LEAST_PAGES && !meter.is_late() {
            let residents = self.to_pack(page, pages * page);
            if residents.is_empty() {
                return;
            }
            let bytes: u64 = residents.iter().map(Resident::packed_bytes).sum();
            let before = self.lane.shared.reserved();
            match self.lane.take_fresh_pages(bytes.next_multiple_of(page)) {
                Ok(fresh) => {
                    moves.add_taken(self.lane.shared.reserved().saturating_sub(before));
                    return self.move_into(fresh, &residents, meter, moves);
                }
                Err(error) if error.kind().is_out_of_memory() => pages /= 2,
                Err(_) => return,
            }
        }
    }

    /// The allocations to pack, the strictest alignment first: then no bytes are lost between two of them.
    fn to_pack(&self, page: u64, most: u64) -> Vec<Resident> {
        let extents = &self.snapshot.extents;
        let chosen = pack(extents, page, most).into_iter().flat_map(|range| &extents[range]);
        let linear = |one: &&Resident| one.class == Class::Linear;
        let mut residents: Vec<Resident> =
            chosen.flat_map(|extent| &extent.residents).filter(linear).copied().collect();
        residents.sort_unstable_by_key(|one| (u64::MAX - one.align.get(), one.span.offset));
        // An allocation in two pages was recorded with both.
        residents.dedup_by_key(|one| one.span.offset);
        residents
    }

    /// Plans moves into reserved pages, and frees the rest of the pages.
    fn move_into(
        &self,
        fresh: Grant,
        residents: &[Resident],
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) {
        let mut fresh = Some(fresh);
        for few in residents.chunks(TOGETHER) {
            let Some(mut guard) = self.lock(&self.lane) else { break };
            for resident in few {
                let started = moves.try_start(&mut guard, resident, meter, |guard| {
                    guard.reserve_from(&mut fresh, resident)
                });
                if started == Started::OverBudget {
                    break;
                }
            }
        }
        if let Some(rest) = fresh {
            self.lane.free_held(rest);
        }
    }
}
