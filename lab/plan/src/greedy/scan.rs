//! Finds the best item of a short span of sections by looking at all of them.

use crate::model::id;
use alloc::vec::Vec;

/// Spans in which more items start are left to the tree.
const MOST: u32 = 128;

/// The items in order of their first sections, each with a rank; larger ranks are better.
///
/// Most niches of a large problem are short, and a few neighbours in memory are looked at sooner than a path down a tree.
///
/// # Cost
/// 4 bytes for each item and each section.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    spans: &'a [(u32, u32)],
    /// From 1; 0 once removed.
    rank: Vec<u32>,
    /// Number of items that start before each section.
    starts: Vec<u32>,
}

impl<'a> Scan<'a> {
    /// Takes the items if they are in order.
    pub(crate) fn new(spans: &'a [(u32, u32)], rank: Vec<u32>, sections: usize) -> Option<Self> {
        if !spans.is_sorted_by_key(|s| s.0) {
            return None;
        }
        let mut starts = Vec::with_capacity(sections + 1);
        for (item, span) in spans.iter().enumerate() {
            let section = span.0 as usize;
            starts.resize(starts.len().max(section + 1), id(item));
        }
        starts.resize(sections + 1, id(spans.len()));
        Some(Self { spans, rank, starts })
    }

    /// Returns the best rank among the items whose first section and end lie in the two inclusive ranges, 0 when there is none;
    /// `None` when that takes too long.
    pub(crate) fn best(&self, first: (u32, u32), end: (u32, u32)) -> Option<u32> {
        let last = (first.1 as usize + 1).min(self.starts.len() - 1);
        let (from, to) = (self.starts[first.0 as usize], self.starts[last]);
        if to - from > MOST {
            return None;
        }
        let items = from as usize..to as usize;
        let inside = self.spans[items.clone()].iter().zip(&self.rank[items]);
        Some(
            inside
                .map(|(s, &r)| if end.0 <= s.1 && s.1 <= end.1 { r } else { 0 })
                .max()
                .unwrap_or(0),
        )
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, item: u32) {
        self.rank[item as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_span_gives_the_best_item_inside_it() {
        let spans = [(0, 4), (0, 2), (2, 3), (2, 6), (5, 6)];
        let mut scan = Scan::new(&spans, alloc::vec![1, 5, 3, 4, 2], 6).expect("they are in order");
        assert_eq!(scan.best((0, 6), (0, 6)), Some(5));
        assert_eq!(scan.best((2, 4), (2, 4)), Some(3));
        assert_eq!(scan.best((2, 5), (2, 5)), Some(3), "what ends behind the span is not inside");
        assert_eq!(scan.best((3, 4), (3, 4)), Some(0));
        scan.remove(1);
        assert_eq!(scan.best((0, 6), (0, 6)), Some(4));
        assert_eq!(scan.best((0, 2), (3, 4)), Some(3));
    }

    #[test]
    fn items_out_of_order_are_refused() {
        assert!(Scan::new(&[(2, 4), (0, 2)], alloc::vec![1, 2], 4).is_none());
    }
}
