//! How much room each block has, as a tournament: the first block with enough is found in O(log blocks).
use crate::ErrorKind;
use alloc::vec::Vec;

/// A complete binary tree; leaf `i` is the room of block `i`, and a node is the larger of its children.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    /// Node 1 is the root and node `i` has the children `2 * i` and `2 * i + 1`; half of them are leaves.
    nodes: Vec<u64>,
}

impl Rooms {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    const fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Makes room for `count` blocks. Fails before anything changes.
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

    pub(super) fn set(&mut self, block: usize, room: u64) {
        let mut node = self.leaves() + block;
        self.nodes[node] = room;
        while node > 1 {
            let larger = self.nodes[node].max(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == larger {
                break;
            }
            self.nodes[node] = larger;
        }
    }

    /// The largest room of all blocks.
    pub(super) fn largest(&self) -> u64 {
        self.nodes.get(1).copied().unwrap_or(0)
    }

    /// The first block from `from` on with at least `need` bytes of room.
    pub(super) fn first(&self, from: usize, need: u64) -> Option<usize> {
        let leaves = self.leaves();
        if from >= leaves {
            return None;
        }
        let mut node = leaves + from;
        while self.nodes[node] < need {
            // The last node of a level has nothing to its right.
            if (node + 1).is_power_of_two() {
                return None;
            }
            // Up past right children, then over to the right neighbour, which covers the leaves that follow.
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
    fn the_first_block_with_enough_room_is_found() {
        for count in 1..20 {
            let mut rooms = Rooms::new();
            rooms.grow(count).expect("host memory suffices");
            let list: Vec<u64> = (0..count as u64).map(|block| block * 7 % 5).collect();
            for (block, &room) in list.iter().enumerate() {
                rooms.set(block, room);
            }
            for from in 0..count {
                for need in 1..6 {
                    let expected = (from..count).find(|&block| list[block] >= need);
                    assert_eq!(
                        rooms.first(from, need),
                        expected,
                        "{list:?} from {from} need {need}"
                    );
                }
            }
            assert_eq!(Some(rooms.largest()), list.iter().copied().max());
        }
    }
}
