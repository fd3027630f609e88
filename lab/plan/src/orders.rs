//! The orders in which ranges of bytes may lie at one moment, as a tree.

use alloc::vec::Vec;

/// Orders of numbered ranges: some are known to be contiguous, and nothing else is decided.
///
/// This is the tree that Booth and Lueker call a PQ-tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    One(u32),
    /// Parts in any order.
    Any(Vec<Self>),
    /// Three parts or more in this order, or all of them in reverse.
    Row(Vec<Self>),
}

/// Number of ranges of a part that are marked: none, some, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    None,
    Some,
    All,
}

impl Orders {
    /// Makes orders of parts in any order.
    fn any(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 { parts.swap_remove(0) } else { Self::Any(parts) }
    }

    fn parts(&self) -> &[Self] {
        match self {
            Self::One(_) => &[],
            Self::Any(parts) | Self::Row(parts) => parts,
        }
    }

    /// Returns how many parts are inside each other.
    pub(crate) fn depth(&self) -> usize {
        self.parts().iter().map(|part| part.depth() + 1).max().unwrap_or(0)
    }

    fn mark(&self, marked: &impl Fn(u32) -> bool) -> Mark {
        if let Self::One(range) = *self {
            return if marked(range) { Mark::All } else { Mark::None };
        }
        let mut marks = self.parts().iter().map(|part| part.mark(marked));
        let first = marks.next().unwrap_or(Mark::None);
        if marks.all(|mark| mark == first) { first } else { Mark::Some }
    }

    /// Makes the marked ranges contiguous; `None` where no order has them so.
    pub(crate) fn gather(self, marked: &impl Fn(u32) -> bool) -> Option<Self> {
        match self {
            _ if self.mark(marked) != Mark::Some => Some(self),
            Self::One(_) => Some(self),
            Self::Any(parts) => gather_any(parts, marked),
            Self::Row(parts) => gather_row(parts, marked),
        }
    }

    /// Returns the parts with what is marked behind the rest; `None` where no order has it so.
    fn split(self, marked: &impl Fn(u32) -> bool) -> Option<Vec<Self>> {
        let mut parts = match self {
            _ if self.mark(marked) != Mark::Some => return Some(alloc::vec![self]),
            Self::One(_) => return None,
            Self::Any(parts) => {
                let [none, some, all] = by_mark(parts, marked);
                let whole = |parts: Vec<Self>| (!parts.is_empty()).then(|| Self::any(parts));
                whole(none).into_iter().chain(some).chain(whole(all)).collect()
            }
            Self::Row(parts) => parts,
        };
        let marks = |parts: &[Self]| parts.iter().map(|p| p.mark(marked)).collect::<Vec<_>>();
        if parts.first().map(|p| p.mark(marked)) > parts.last().map(|p| p.mark(marked)) {
            parts.reverse();
        }
        let marks = marks(&parts);
        let some = marks.iter().filter(|&&mark| mark == Mark::Some).count();
        if some > 1 || !marks.is_sorted() {
            return None;
        }
        let split: Option<Vec<_>> = parts.into_iter().map(|part| part.split(marked)).collect();
        Some(split?.into_iter().flatten().collect())
    }

    /// Puts ranges, in any order, in place of marked ones that are contiguous.
    pub(crate) fn replace(&mut self, marked: &impl Fn(u32) -> bool, by: &[u32]) {
        if self.mark(marked) == Mark::All {
            *self = Self::any(by.iter().copied().map(Self::One).collect());
            return;
        }
        let (Self::Any(parts) | Self::Row(parts)) = self else { return };
        let all = |part: &Self| part.mark(marked) == Mark::All;
        let first = parts.iter().position(|part| part.mark(marked) != Mark::None).unwrap_or(0);
        let run = parts[first..].iter().take_while(|part| all(part)).count();
        if run > 1 {
            parts.drain(first + 1..first + run);
        }
        parts[first].replace(marked, by);
        if parts.len() == 1 {
            *self = parts.swap_remove(0);
        } else if let Self::Row(pair) = self
            && pair.len() == 2
        {
            *self = Self::Any(core::mem::take(pair));
        }
    }

    /// Adds ranges beside one that is among parts in any order; false if it is not.
    pub(crate) fn add_beside(&mut self, range: u32, more: &[u32]) -> bool {
        match self {
            Self::One(_) => false,
            Self::Any(parts) if parts.contains(&Self::One(range)) => {
                parts.extend(more.iter().copied().map(Self::One));
                true
            }
            Self::Any(parts) | Self::Row(parts) => {
                parts.iter_mut().any(|part| part.add_beside(range, more))
            }
        }
    }

    /// Lists the ranges in one of the orders.
    pub(crate) fn list(&self) -> Vec<u32> {
        match self {
            Self::One(range) => alloc::vec![*range],
            _ => self.parts().iter().flat_map(Self::list).collect(),
        }
    }

    /// Lists several marked ranges that are contiguous in every order.
    pub(crate) fn run(&self, marked: &impl Fn(u32) -> bool) -> Option<Vec<u32>> {
        if self.parts().is_empty() {
            return None;
        }
        if self.mark(marked) == Mark::All {
            return Some(self.list());
        }
        let whole = |part: &Self| part.mark(marked) == Mark::All;
        let pair = |parts: &&[Self]| parts.iter().all(whole);
        let row = if let Self::Row(parts) = self { &parts[..] } else { &[] };
        let found = row.windows(2).find(pair).map(|w| w.iter().flat_map(Self::list).collect());
        found.or_else(|| self.parts().iter().find_map(|part| part.run(marked)))
    }

    /// Puts the parts in the order in which they are known to lie; returns where the first one does.
    pub(crate) fn arrange(&mut self, place: &impl Fn(u32) -> u64) -> u64 {
        let sorted = match self {
            Self::One(range) => return place(*range),
            Self::Any(parts) | Self::Row(parts) => {
                parts.iter_mut().map(|part| part.arrange(place)).collect::<Vec<u64>>()
            }
        };
        match self {
            Self::Any(parts) => parts.sort_by_cached_key(|part| part.clone().arrange(place)),
            Self::Row(parts) if sorted.first() > sorted.last() => parts.reverse(),
            _ => {}
        }
        sorted.into_iter().min().unwrap_or(0)
    }
}

fn by_mark(parts: Vec<Orders>, marked: &impl Fn(u32) -> bool) -> [Vec<Orders>; 3] {
    let mut sorted: [Vec<Orders>; 3] = Default::default();
    for part in parts {
        sorted[part.mark(marked) as usize].push(part);
    }
    sorted
}

fn gather_any(parts: Vec<Orders>, marked: &impl Fn(u32) -> bool) -> Option<Orders> {
    let [mut none, mut some, all] = by_mark(parts, marked);
    if some.len() == 1 && all.is_empty() {
        none.push(some.swap_remove(0).gather(marked)?);
        return Some(Orders::Any(none));
    }
    if some.len() > 2 {
        return None;
    }
    let last = if some.len() == 2 { some.pop() } else { None };
    let mut row = Vec::new();
    for part in some {
        row.extend(part.split(marked)?);
    }
    row.extend((!all.is_empty()).then(|| Orders::any(all)));
    if let Some(part) = last {
        row.extend(part.split(marked)?.into_iter().rev());
    }
    none.push(if row.len() > 2 { Orders::Row(row) } else { Orders::any(row) });
    Some(Orders::any(none))
}

fn gather_row(parts: Vec<Orders>, marked: &impl Fn(u32) -> bool) -> Option<Orders> {
    let marks: Vec<Mark> = parts.iter().map(|part| part.mark(marked)).collect();
    let first = marks.iter().position(|&mark| mark != Mark::None)?;
    let last = marks.iter().rposition(|&mark| mark != Mark::None)?;
    if first < last && marks[first + 1..last].iter().any(|&mark| mark != Mark::All) {
        return None;
    }
    let mut row = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        if first == last {
            row.push(part.gather(marked)?);
        } else if at == last {
            row.extend(part.split(marked)?.into_iter().rev());
        } else {
            row.extend(part.split(marked)?);
        }
    }
    Some(Orders::Row(row))
}

#[cfg(test)]
mod tests;
