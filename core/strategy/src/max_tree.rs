//! A max-tree over blocks, or over holes: finds the first with a value of at least `need` in *O*(log n).
use alloc::vec::Vec;
use omniheap_seam::ErrorKind;

/// A complete binary tree. Leaf `i` is the value of block `i`; every other node is the maximum of its children.
#[derive(Clone, Debug)]
pub(super) struct MaxTree {
    /// Node 1 is the root; node `i` has the children `2 * i` and `2 * i + 1`. The second half are the leaves.
    nodes: Vec<u64>,
}

impl MaxTree {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    const fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Grows the tree to at least `count` blocks, new ones with value 0. A failed call changes nothing.
    pub(super) fn grow(&mut self, count: usize) -> Result<(), ErrorKind> {
        if count <= self.leaves() {
            return Ok(());
        }
        let leaves = count.checked_next_power_of_two().ok_or(ErrorKind::ExceedsLimit)?;
        let len = leaves.checked_mul(2).ok_or(ErrorKind::ExceedsLimit)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(len).map_err(|_| ErrorKind::OutOfHostMemory)?;
        nodes.resize(len, 0);
        let mut grown = Self { nodes };
        for block in 0..self.leaves() {
            grown.set(block, self.get(block));
        }
        *self = grown;
        Ok(())
    }

    pub(super) fn get(&self, block: usize) -> u64 {
        self.nodes[self.leaves() + block]
    }

    #[inline]
    pub(super) fn set(&mut self, block: usize, value: u64) {
        let mut node = self.leaves() + block;
        self.nodes[node] = value;
        while node > 1 {
            let larger = self.nodes[node].max(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == larger {
                break;
            }
            self.nodes[node] = larger;
        }
    }

    /// Returns the largest value of all blocks, 0 without blocks.
    pub(super) fn max(&self) -> u64 {
        self.nodes.get(1).copied().unwrap_or(0)
    }

    /// Returns the first block at or after `from` with a value of at least `need`.
    pub(super) fn first(&self, from: usize, need: u64) -> Option<usize> {
        let leaves = self.leaves();
        if from >= leaves {
            return None;
        }
        let mut node = leaves + from;
        while self.nodes[node] < need {
            // The last node of a level has no right neighbour.
            if (node + 1).is_power_of_two() {
                return None;
            }
            // Climb while this is a right child, then step to the right neighbour: it covers the next leaves.
            while node % 2 == 1 {
                node /= 2;
            }
            node += 1;
        }
        while node < leaves {
            node *= 2;
            if self.nodes[node] < need {
                node += 1;
            }
        }
        Some(node - leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_with_enough_is_found_while_values_rise_and_fall() {
        let mut state = 3u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % end
        };
        for count in [1, 2, 3, 5, 8, 13, 19] {
            let (mut tree, mut list) = (MaxTree::new(), alloc::vec![0; count]);
            tree.grow(count).expect("host memory suffices");
            for _ in 0..300 {
                let (block, from) = (below(count), below(count));
                list[block] = below(50) as u64;
                tree.set(block, list[block]);
                let need = 1 + below(55) as u64;
                let expected = (from..count).find(|&block| list[block] >= need);
                assert_eq!(tree.first(from, need), expected, "{list:?} from {from} need {need}");
                assert_eq!(Some(tree.max()), list.iter().copied().max());
            }
            assert_eq!(tree.first(tree.leaves(), 0), None, "there is no such block");
        }
    }
}
