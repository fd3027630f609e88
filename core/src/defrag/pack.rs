//! Packing pages: allocations that nothing else can clear out of their pages go side by side into fresh pages.
//!
//! When no page can be evacuated into the holes of others, because each hole is smaller than what would have to go there,
//! the holes still add up. Packed into fresh pages, the same allocations leave none.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{MoveList, Started, TOGETHER};
use super::planner::LanePlanner;
use crate::lane::{Region, Resident};
use crate::{Backend, Class};
use alloc::vec::Vec;
use core::ops::Range;
use omniheap_strategy::Grant;

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
            let bytes: u64 = residents.iter().map(|one| one.span.size).sum();
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
        let regions = &self.snapshot.regions;
        let chosen = pack(regions, page, most).into_iter().flat_map(|range| &regions[range]);
        let linear = |one: &&Resident| one.class == Class::Linear;
        let mut residents: Vec<Resident> =
            chosen.flat_map(|region| &region.residents).filter(linear).copied().collect();
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

/// Bytes that may be copied for each byte gained. About one part in this many is left in holes.
const MOST_PER_BYTE: u64 = 64;

/// Adjacent regions, and the cost of packing them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    regions: Range<usize>,
    /// Bytes of the regions.
    size: u64,
    /// Bytes of everything that touches them.
    live: u64,
}

impl Stretch {
    /// Bytes copied for each 1024 bytes gained; `None` where too little is gained.
    fn price(&self) -> Option<u64> {
        let gain = self.size.checked_sub(self.live).filter(|gain| *gain > 0)?;
        let price = u64::try_from(u128::from(self.live) * 1024 / u128::from(gain)).ok()?;
        (price <= MOST_PER_BYTE * 1024).then_some(price)
    }
}

/// The regions to pack together into fresh pages; none where less than one page would be gained.
///
/// `most` bounds the bytes that are copied, and so the memory that is needed meanwhile.
///
/// # Algorithm
///
/// An allocation touches a stretch if it begins before the stretch ends and ends behind its start. Two prefix sums over
/// the regions give the bytes to move for every stretch. For each first region the cheapest stretch is kept; of these,
/// the cheapest that share no region are taken.
///
/// # Cost
///
/// *O*(n m) for n regions, of which m have `most` bytes together.
pub(super) fn pack(regions: &[Region], page: u64, most: u64) -> Vec<Range<usize>> {
    let sums = Sums::new(regions);
    let mut stretches: Vec<(u64, Stretch)> = (0..regions.len())
        .filter_map(|first| cheapest_from(regions, &sums, page, first, most))
        .collect();
    stretches.sort_by_key(|(price, stretch)| (*price, stretch.regions.start));
    let (mut taken, mut size, mut live) = (Vec::<Range<usize>>::new(), 0, 0u64);
    let mut used = alloc::vec![false; regions.len()];
    for (_, stretch) in stretches {
        if live + stretch.live > most || used[stretch.regions.clone()].contains(&true) {
            continue;
        }
        used[stretch.regions.clone()].fill(true);
        (size, live) = (size + stretch.size, live + stretch.live);
        taken.push(stretch.regions);
    }
    if size < live.next_multiple_of(page) + page {
        taken.clear();
    }
    taken
}

/// The cheapest stretch that starts with a region.
fn cheapest_from(
    regions: &[Region],
    sums: &Sums,
    page: u64,
    first: usize,
    most: u64,
) -> Option<(u64, Stretch)> {
    let (mut best, mut size) = (None::<(u64, Stretch)>, 0);
    let mut expected = regions[first].number;
    for (at, region) in regions.iter().enumerate().skip(first) {
        if region.stays || region.number != expected {
            break;
        }
        (size, expected) = (size + region.size, region.number + region.size / page);
        let live = sums.begun[at + 1] - sums.ended[first];
        if live > most {
            break;
        }
        let stretch = Stretch { regions: first..at + 1, size, live };
        if let Some(price) = stretch.price()
            && best.as_ref().is_none_or(|(least, _)| price < *least)
        {
            best = Some((price, stretch));
        }
    }
    best
}

/// Prefix sums of the bytes that begin, and that end, before each region.
struct Sums {
    begun: Vec<u64>,
    ended: Vec<u64>,
}

impl Sums {
    fn new(regions: &[Region]) -> Self {
        let sum = |of: fn(&Region) -> u64| {
            let sums = regions.iter().scan(0, |sum, region| {
                *sum += of(region);
                Some(*sum)
            });
            core::iter::once(0).chain(sums).collect()
        };
        Self { begun: sum(|region| region.begins), ended: sum(|region| region.ends) }
    }
}
