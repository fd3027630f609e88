//! Choice of the requests that get into a small constant bank. Pure.
use alloc::vec::Vec;
use omniheap_seam::Align;

/// Table cells that an exact answer may cost.
const CELLS: u64 = 1 << 24;

/// One request for the constant bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Bytes.
    pub size: u64,
    /// Gain of having it in the bank, in any unit that all candidates share.
    pub benefit: u64,
}

/// Candidates chosen for the bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstantChoice {
    /// The candidates that do, by index, in order.
    pub chosen: Vec<usize>,
    /// Sum of the benefits of the chosen candidates.
    pub benefit: u64,
    /// Upper bound on the benefit of any choice. Equal to `benefit` where the answer is exact.
    pub bound: u64,
}

/// Chooses the candidates that are worth most together and fit into `room` bytes, each rounded up to `granule`.
///
/// Exact where the bank is small, as banks are; otherwise at least half of the best, and [`ConstantChoice::bound`] says
/// how much could be missing. Candidates that are worth nothing stay out. Pure: the same question has the same answer,
/// and the benefit does not depend on the order of the candidates.
///
/// # Cost
///
/// O(candidates × bank / granule) where exact, O(candidates × log candidates) otherwise.
///
/// ```
/// use omniheap_placement::{Candidate, choose_constants};
/// use omniheap_seam::Align;
/// let wanted = [(600, 10), (500, 9), (500, 9)].map(|(size, benefit)| Candidate { size, benefit });
/// let choice = choose_constants(&wanted, 1024, Align::of(4));
/// assert_eq!(choice.chosen, [1, 2], "two small ones are worth more than the large one");
/// assert_eq!(choice.benefit, choice.bound);
/// ```
#[must_use]
pub fn choose_constants(candidates: &[Candidate], room: u64, granule: Align) -> ConstantChoice {
    let units = room / granule.get();
    let mut items: Vec<Item> = candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| candidate.benefit > 0)
        .filter_map(|(index, candidate)| {
            let units = granule.up(candidate.size.max(1))? / granule.get();
            Some(Item { index, units, benefit: candidate.benefit })
        })
        .filter(|item| item.units <= units)
        .collect();
    // Densest first; an order of the values alone, so that equal questions in another order get an equal benefit.
    items.sort_by(|a, b| {
        let (left, right) = (
            u128::from(a.benefit) * u128::from(b.units),
            u128::from(b.benefit) * u128::from(a.units),
        );
        right.cmp(&left).then(a.units.cmp(&b.units)).then(a.index.cmp(&b.index))
    });
    let total: u64 = items.iter().fold(0, |sum, item| sum.saturating_add(item.units));
    if total <= units {
        return finish(&items, None);
    }
    let cells = (units + 1).saturating_mul(items.len() as u64 + 1);
    if cells <= CELLS { finish(&exact(&items, units), None) } else { greedy(&items, units) }
}

#[derive(Clone, Copy)]
struct Item {
    index: usize,
    units: u64,
    benefit: u64,
}

fn finish(items: &[Item], bound: Option<u64>) -> ConstantChoice {
    let mut chosen: Vec<_> = items.iter().map(|item| item.index).collect();
    chosen.sort_unstable();
    let benefit = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.benefit));
    ConstantChoice { chosen, benefit, bound: bound.unwrap_or(benefit).max(benefit) }
}

/// Returns the best set, by a table of the best benefit for every room and every prefix of the items.
fn exact(items: &[Item], units: u64) -> Vec<Item> {
    let width = usize::try_from(units).expect("few cells, so few units") + 1;
    let mut best = alloc::vec![0u64; width];
    let mut taken = alloc::vec![false; width * items.len()];
    for (row, item) in items.iter().enumerate() {
        let size = usize::try_from(item.units).expect("no item is larger than the room");
        for room in (size..width).rev() {
            let with = best[room - size].saturating_add(item.benefit);
            if with > best[room] {
                best[room] = with;
                taken[row * width + room] = true;
            }
        }
    }
    let mut room = width - 1;
    let mut chosen = Vec::new();
    for (row, item) in items.iter().enumerate().rev() {
        if taken[row * width + room] {
            chosen.push(*item);
            room -= usize::try_from(item.units).expect("as above");
        }
    }
    chosen
}

/// Returns the densest that fit, or the single best one where that is worth more: at least half of the best set. The bound is what
/// the densest items are worth when the first that does not fit may be cut.
fn greedy(items: &[Item], units: u64) -> ConstantChoice {
    let (mut left, mut bound, mut chosen) = (units, None, Vec::new());
    let mut worth = 0u64;
    for item in items {
        if item.units <= left {
            left -= item.units;
            worth = worth.saturating_add(item.benefit);
            chosen.push(*item);
        } else if bound.is_none() {
            let part = u128::from(item.benefit) * u128::from(left) / u128::from(item.units);
            bound = Some(
                worth.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)).saturating_add(1),
            );
        }
    }
    let single = items.iter().max_by_key(|item| item.benefit);
    match single {
        Some(single) if single.benefit > worth => finish(&[*single], bound),
        _ => finish(&chosen, bound),
    }
}
