//! Choice of the extents that are worth moving something: those to evacuate, those to compact, and pages to pack
//! together.
use super::Extent;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes that may be copied for each byte of a page that becomes free.
///
/// An allocation of many pages shares only its first and last with others: moving it for these is not worth it.
const MOST_PER_PAGE: u64 = 8;

/// A block is compacted when at least one part in this many of its free bytes is outside the largest hole.
///
/// Compacting then gains well above that, so a workload at the edge does not start it again and again.
const SCATTERED: u64 = 4;

/// The extents that can be evacuated, the cheapest first.
///
/// Every pass then continues where the one before it stopped, so passes end.
#[must_use]
pub fn sources<R>(extents: &[Extent<R>]) -> Vec<usize> {
    let may_be_evacuated = |extent: &Extent<R>| {
        let dear = extent.live > extent.size.saturating_mul(MOST_PER_PAGE);
        !extent.stays && extent.movable > 0 && !dear
    };
    in_order(extents, may_be_evacuated, |extent| price(extent.live, extent.size.max(1)))
}

/// The blocks whose holes are worth closing, the most scattered first.
#[must_use]
pub fn scattered<R>(extents: &[Extent<R>]) -> Vec<usize> {
    let outside = |extent: &Extent<R>| extent.free - extent.largest_hole;
    let is_worth_closing = |extent: &Extent<R>| {
        let bytes = outside(extent);
        bytes > 0 && bytes >= extent.free / SCATTERED && extent.movable > 0
    };
    in_order(extents, is_worth_closing, |extent| u64::MAX - outside(extent))
}

/// The wanted extents, the lowest rank first, then the lowest number.
fn in_order<R>(
    extents: &[Extent<R>],
    is_wanted: impl Fn(&Extent<R>) -> bool,
    rank: impl Fn(&Extent<R>) -> u64,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..extents.len()).filter(|at| is_wanted(&extents[*at])).collect();
    order.sort_by_key(|at| (rank(&extents[*at]), extents[*at].number));
    order
}

/// Bytes copied for each 1024 bytes gained.
fn price(copied: u64, gained: u64) -> u64 {
    u64::try_from(u128::from(copied) * 1024 / u128::from(gained)).unwrap_or(u64::MAX)
}

/// Bytes that may be copied for each byte gained. About one part in this many is left in holes.
const MOST_PER_BYTE: u64 = 64;

/// Adjacent extents, and the cost of packing them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    extents: Range<usize>,
    /// Bytes of the extents.
    size: u64,
    /// Bytes of everything that touches them.
    live: u64,
}

impl Stretch {
    /// As [`price`]; `None` where too little is gained.
    fn price(&self) -> Option<u64> {
        let gain = self.size.checked_sub(self.live).filter(|gain| *gain > 0)?;
        Some(price(self.live, gain)).filter(|price| *price <= MOST_PER_BYTE * 1024)
    }
}

/// The extents to pack together into fresh pages; none where less than one page would be gained.
///
/// `most` bounds the bytes that are copied, and so the memory that is needed meanwhile.
///
/// # Algorithm
///
/// An allocation touches a stretch if it begins before the stretch ends and ends behind its start. Two prefix sums over
/// the extents give the bytes to move for every stretch. For each first extent the cheapest stretch is kept; of these,
/// the cheapest that share no extent are taken.
///
/// # Cost
///
/// *O*(n m) for n extents, of which m have `most` bytes together.
#[must_use]
pub fn pack<R>(extents: &[Extent<R>], page: u64, most: u64) -> Vec<Range<usize>> {
    let sums = Sums::new(extents);
    let mut stretches: Vec<(u64, Stretch)> = (0..extents.len())
        .filter_map(|first| cheapest_from(extents, &sums, page, first, most))
        .collect();
    stretches.sort_by_key(|(price, stretch)| (*price, stretch.extents.start));
    let (mut taken, mut size, mut live) = (Vec::<Range<usize>>::new(), 0, 0u64);
    let mut used = alloc::vec![false; extents.len()];
    for (_, stretch) in stretches {
        if live + stretch.live > most || used[stretch.extents.clone()].contains(&true) {
            continue;
        }
        used[stretch.extents.clone()].fill(true);
        (size, live) = (size + stretch.size, live + stretch.live);
        taken.push(stretch.extents);
    }
    if size < live.next_multiple_of(page) + page {
        taken.clear();
    }
    taken
}

/// The cheapest stretch that starts with an extent.
fn cheapest_from<R>(
    extents: &[Extent<R>],
    sums: &Sums,
    page: u64,
    first: usize,
    most: u64,
) -> Option<(u64, Stretch)> {
    let (mut best, mut size) = (None::<(u64, Stretch)>, 0);
    let mut expected = extents[first].number;
    for (at, extent) in extents.iter().enumerate().skip(first) {
        if extent.stays || extent.number != expected {
            break;
        }
        (size, expected) = (size + extent.size, extent.number + extent.size / page);
        let live = sums.begun[at + 1] - sums.ended[first];
        if live > most {
            break;
        }
        let stretch = Stretch { extents: first..at + 1, size, live };
        if let Some(price) = stretch.price()
            && best.as_ref().is_none_or(|(least, _)| price < *least)
        {
            best = Some((price, stretch));
        }
    }
    best
}

/// Prefix sums of the bytes that begin, and that end, before each extent.
struct Sums {
    begun: Vec<u64>,
    ended: Vec<u64>,
}

impl Sums {
    fn new<R>(extents: &[Extent<R>]) -> Self {
        let sum = |of: fn(&Extent<R>) -> u64| {
            let sums = extents.iter().scan(0, |sum, extent| {
                *sum += of(extent);
                Some(*sum)
            });
            core::iter::once(0).chain(sums).collect()
        };
        Self { begun: sum(|extent| extent.begins), ended: sum(|extent| extent.ends) }
    }
}
