//! Address ranges that are held, cut and joined as a history says.

use std::collections::BTreeMap;

/// Disjoint ranges by their start. Ranges that touch stay apart: each is a block of its own.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range, after cutting away whatever overlaps it; returns its end, or `None` when it is empty or past
    /// 64 bits.
    pub(super) fn add(&mut self, start: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(size).filter(|&end| end > start)?;
        self.cut(start, end, &mut |_| {});
        self.ends.insert(start, end);
        Some(end)
    }

    /// Takes `start..end` away. Tells `changed` of each range touched: it is gone, or became up to two others.
    pub(super) fn cut(&mut self, start: u64, end: u64, changed: &mut impl FnMut(Cut)) {
        while let Some((&from, &to)) = self.ends.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.ends.remove(&from);
            changed(Cut::Gone(from));
            if from < start {
                self.ends.insert(from, start);
                changed(Cut::Left(from, start - from));
            }
            if to > end {
                self.ends.insert(end, to);
                changed(Cut::Left(end, to - end));
            }
            if from <= start {
                break;
            }
        }
    }

    /// Returns the start of the range that holds all of `start..start + size`.
    pub(super) fn holder(&self, start: u64, size: u64) -> Option<u64> {
        let (&from, &to) = self.ends.range(..=start).next_back()?;
        (start.checked_add(size)? <= to).then_some(from)
    }

    /// Returns every range as start and size, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(&start, &end)| (start, end - start))
    }
}

/// Change of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The range that began here is gone.
    Gone(u64),
    /// A range of this start and size is left of it.
    Left(u64, u64),
}

#[cfg(test)]
mod tests {
    use super::{Cut, Ranges};

    fn held(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.iter().collect()
    }

    #[test]
    fn cutting_the_middle_leaves_both_ends() {
        let mut ranges = Ranges::default();
        ranges.add(100, 100);
        let mut seen = Vec::new();
        ranges.cut(120, 150, &mut |cut| seen.push(cut));
        assert_eq!(held(&ranges), [(100, 20), (150, 50)]);
        assert_eq!(seen, [Cut::Gone(100), Cut::Left(100, 20), Cut::Left(150, 50)]);
    }

    #[test]
    fn one_cut_takes_many() {
        let mut ranges = Ranges::default();
        for start in [0, 10, 20, 30] {
            ranges.add(start, 10);
        }
        ranges.cut(5, 35, &mut |_| {});
        assert_eq!(held(&ranges), [(0, 5), (35, 5)]);
        ranges.cut(5, 35, &mut |cut| panic!("nothing is there: {cut:?}"));
    }

    #[test]
    fn holders_hold_the_whole_span() {
        let mut ranges = Ranges::default();
        ranges.add(10, 10);
        assert_eq!(ranges.holder(10, 10), Some(10));
        assert_eq!(ranges.holder(19, 1), Some(10));
        assert_eq!(ranges.holder(19, 2), None);
        assert_eq!(ranges.holder(9, 1), None);
        assert_eq!(ranges.add(u64::MAX, 2), None);
    }
}
