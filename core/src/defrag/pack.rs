//! Which pages to pack anew: stretches whose allocations fit into fewer pages than they lie in now. Pure.
//!
//! When no page can be emptied into the holes of others, because each hole is smaller than what would have to go there,
//! the holes still add up. Packed side by side into fresh pages, the same allocations leave none.
#![forbid(unsafe_code)]
use super::plan::Region;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes that may be copied for each byte gained: about one part in so many is left in holes.
const MOST_PER_BYTE: u64 = 64;

/// Regions side by side, and what packing them anew takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    regions: Range<usize>,
    /// Bytes of the regions.
    size: u64,
    /// Bytes of everything that touches them.
    live: u64,
}

impl Stretch {
    /// Copies for each byte gained, in thousandths; `None` where nothing is gained, or too little.
    fn price(&self) -> Option<u64> {
        let gain = self.size.checked_sub(self.live).filter(|gain| *gain > 0)?;
        let price = u64::try_from(u128::from(self.live) * 1024 / u128::from(gain)).ok()?;
        (price <= MOST_PER_BYTE * 1024).then_some(price)
    }
}

/// The regions to pack into fresh pages, all of them together; none where fewer than one page would be gained.
///
/// `most` bounds the bytes that are copied, and so the memory that is needed meanwhile.
///
/// # Algorithm
///
/// What begins before the end of a stretch and ends behind its start touches it: two sums over the regions tell for
/// every stretch what would have to move. From each region on, the cheapest stretch is kept; of these, the cheapest are
/// taken that do not share a region.
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

/// Bytes that have begun, and that have ended, before each region.
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 100;

    /// Pages from a position on, each with what begins and what ends in it.
    fn pages(first: u64, sums: &[(u64, u64)]) -> Vec<Region> {
        let page = |(number, (begins, ends)): (u64, &(u64, u64))| Region {
            number,
            size: PAGE,
            begins: *begins,
            ends: *ends,
            ..Region::default()
        };
        (first..).zip(sums).map(page).collect()
    }

    #[test]
    fn holes_that_add_up_to_a_page_are_gained() {
        // Three pages of which each has 40 free: 180 bytes fit into two.
        let regions = pages(0, &[(60, 60), (60, 60), (60, 60)]);
        assert_eq!(pack(&regions, PAGE, 1000).len(), 3);
        // 240 bytes do not.
        let regions = pages(0, &[(80, 80), (80, 80), (80, 80)]);
        assert!(pack(&regions, PAGE, 1000).is_empty());
    }

    #[test]
    fn what_lies_across_the_ends_is_paid_for() {
        // 50 bytes begin in the first page and end in the second: both or none.
        let both = pages(0, &[(70, 20), (20, 70)]);
        assert!(pack(&both, PAGE, 1000) == [Range { start: 0, end: 2 }]);
        let mut one = both.clone();
        one[1].stays = true;
        assert!(pack(&one, PAGE, 1000).is_empty());
    }

    #[test]
    fn nothing_goes_over_a_gap_over_what_stays_or_over_the_limit() {
        let mut regions = pages(0, &[(30, 30)]);
        regions.extend(pages(5, &[(30, 30), (90, 90), (30, 30)]));
        assert_eq!(pack(&regions, PAGE, 1000), [0..1, 1..2, 3..4]);
        regions[0].stays = true;
        assert_eq!(pack(&regions, PAGE, 1000), [1..2, 3..4]);
        assert!(pack(&regions, PAGE, 50).is_empty());
    }

    #[test]
    fn little_gain_for_many_copies_is_left() {
        let full = alloc::vec![(99, 99); 200];
        assert!(pack(&pages(0, &full), PAGE, u64::MAX).is_empty());
        let less = alloc::vec![(98, 98); 200];
        assert!(!pack(&pages(0, &less), PAGE, u64::MAX).is_empty());
    }
}
