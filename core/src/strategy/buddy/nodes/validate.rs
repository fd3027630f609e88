//! Checks of the trees and lists, by a full walk.
use super::{Nodes, State};
use crate::Span;
use crate::strategy::BlockId;
use crate::strategy::slab::keys::NONE;

/// What a walk over the trees found.
#[derive(Default)]
pub(in crate::strategy::buddy) struct Sums {
    pub(in crate::strategy::buddy) live: u64,
    pub(in crate::strategy::buddy) used: u64,
    free: u64,
    holes: u64,
}

impl Nodes {
    /// Checks one tree and adds up what it holds; `home` is the parent and block that the node must name.
    pub(in crate::strategy::buddy) fn validate_tree(
        &self,
        index: u32,
        home: (u32, BlockId),
        sums: &mut Sums,
    ) -> Result<(), &'static str> {
        let node = self.get(index);
        if (node.parent, node.block) != home || !node.offset.is_multiple_of(node.span().size) {
            return Err("a node is in the wrong place");
        }
        match node.state {
            State::Vacant { .. } => return Err("a tree holds a vacant node"),
            State::Live => {
                sums.live += 1;
                sums.used += node.span().size;
            }
            State::Free { .. } => {
                sums.holes += 1;
                sums.free += node.span().size;
            }
            State::Split { pair } => return self.validate_halves(index, pair, sums),
        }
        Ok(())
    }

    fn validate_halves(&self, index: u32, pair: u32, sums: &mut Sums) -> Result<(), &'static str> {
        let (node, lower, upper) = (self.get(index), self.get(pair), self.get(pair + 1));
        let half = node.span().size / 2;
        let expected = [node.offset, node.offset + half].map(|offset| Span { offset, size: half });
        if [lower.span(), upper.span()] != expected {
            return Err("two halves do not make the whole");
        }
        if [lower, upper].iter().all(|node| matches!(node.state, State::Free { .. })) {
            return Err("two free twins were not merged");
        }
        self.validate_tree(pair, (index, node.block), sums)?;
        self.validate_tree(pair + 1, (index, node.block), sums)
    }

    /// Checks the lists against what the trees hold.
    pub(in crate::strategy::buddy) fn validate_lists(
        &self,
        sums: &Sums,
    ) -> Result<(), &'static str> {
        let mut holes = 0;
        for (order, &first) in (0..).zip(&self.lists) {
            if (self.filled >> order & 1 == 1) != (first != NONE) {
                return Err("a list's bit disagrees with the list");
            }
            let (mut expected, mut index) = (NONE, first);
            while index != NONE {
                let node = self.get(index);
                let State::Free { before, after } = node.state else {
                    return Err("a list holds a node that is not free");
                };
                if before != expected || node.order != order {
                    return Err("a list is linked wrongly");
                }
                holes += 1;
                (expected, index) = (index, after);
            }
        }
        if (sums.free, sums.holes) != (self.free, self.holes) || holes != self.holes {
            return Err("the free lists disagree with the trees");
        }
        Ok(())
    }
}
