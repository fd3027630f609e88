//! Finds, among items not yet placed, the best one that lives inside a span of sections.

use crate::model::id;
use alloc::vec::Vec;

const LEAF: usize = 8;

/// A balanced tree over points (first section, end section), each with a rank; larger ranks are better.
///
/// # Algorithm
/// A k-d tree in heap order. Each node keeps the bounding box of its points and the best rank that is left among them.
///
/// # Cost
/// `best` visits O(√n) nodes at worst and a few dozen in practice, because it goes to the better child first and drops
/// every node whose best rank cannot win. `remove` is O(log n). 20 bytes per node, one node for every four items.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Leaf index of each item.
    place: Vec<u32>,
    /// The points in leaf order.
    points: Vec<(u32, u32)>,
    /// The ranks in leaf order, from 1; 0 once removed.
    rank: Vec<u32>,
    depth: u32,
    stack: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    first: (u32, u32),
    end: (u32, u32),
    best: u32,
}

impl Tree {
    /// Makes the tree; `rank[i]` is the rank of item `i`, unique and from 1.
    pub(crate) fn new(points: &[(u32, u32)], rank: &[u32]) -> Self {
        let n = points.len();
        let mut depth = 0;
        while (n >> depth) > LEAF {
            depth += 1;
        }
        let empty = Node { first: (u32::MAX, 0), end: (u32::MAX, 0), best: 0 };
        let mut sorted: Vec<(u32, u32, u32)> =
            points.iter().enumerate().map(|(i, p)| (p.0, p.1, id(i))).collect();
        arrange(&mut sorted, depth, 0);
        let mut tree = Self {
            nodes: alloc::vec![empty; 2 << depth],
            place: alloc::vec![0; n],
            points: sorted.iter().map(|p| (p.0, p.1)).collect(),
            rank: sorted.iter().map(|p| rank[p.2 as usize]).collect(),
            depth,
            stack: Vec::new(),
        };
        for (at, &(_, _, item)) in sorted.iter().enumerate() {
            tree.place[item as usize] = id(at);
        }
        drop(sorted);
        tree.build(1, 0, n, 0);
        tree
    }

    fn build(&mut self, node: usize, from: usize, to: usize, level: u32) {
        if level < self.depth {
            let mid = middle(from, to);
            self.build(2 * node, from, mid, level + 1);
            self.build(2 * node + 1, mid, to, level + 1);
            self.nodes[node] = join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        } else {
            self.nodes[node] = self.leaf(from, to);
        }
    }

    fn leaf(&self, from: usize, to: usize) -> Node {
        let mut node = Node { first: (u32::MAX, 0), end: (u32::MAX, 0), best: 0 };
        for (&rank, p) in self.rank[from..to].iter().zip(&self.points[from..to]) {
            if rank > 0 {
                node.first = (node.first.0.min(p.0), node.first.1.max(p.0));
                node.end = (node.end.0.min(p.1), node.end.1.max(p.1));
                node.best = node.best.max(rank);
            }
        }
        node
    }

    /// Returns the best rank among the items whose first section and end lie in the two inclusive ranges.
    pub(crate) fn best(&mut self, first: (u32, u32), end: (u32, u32)) -> Option<u32> {
        let mut best = 0;
        self.stack.clear();
        self.stack.push(1);
        while let Some(at) = self.stack.pop() {
            let node = self.nodes[at as usize];
            if node.best <= best || !meets(node.first, first) || !meets(node.end, end) {
                continue;
            }
            if holds(first, node.first) && holds(end, node.end) {
                best = node.best;
            } else if at >> self.depth == 0 {
                let (l, r) = (2 * at, 2 * at + 1);
                let left_wins = self.nodes[l as usize].best > self.nodes[r as usize].best;
                self.stack.extend(if left_wins { [r, l] } else { [l, r] });
            } else {
                best = best.max(self.best_in_leaf(at as usize, first, end));
            }
        }
        (best > 0).then_some(best)
    }

    fn best_in_leaf(&self, node: usize, first: (u32, u32), end: (u32, u32)) -> u32 {
        let (from, to) = self.leaf_span(node);
        let inside =
            |p: &(u32, u32)| first.0 <= p.0 && p.0 <= first.1 && end.0 <= p.1 && p.1 <= end.1;
        let leaf = self.rank[from..to].iter().zip(&self.points[from..to]);
        leaf.filter(|(_, p)| inside(p)).map(|(&rank, _)| rank).max().unwrap_or(0)
    }

    fn leaf_span(&self, node: usize) -> (usize, usize) {
        let (mut from, mut to) = (0, self.points.len());
        for level in (0..self.depth).rev() {
            let mid = middle(from, to);
            if node >> level & 1 == 0 { to = mid } else { from = mid }
        }
        (from, to)
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, item: u32) {
        let at = self.place[item as usize] as usize;
        self.rank[at] = 0;
        let (mut node, mut from, mut to) = (1, 0, self.points.len());
        for _ in 0..self.depth {
            let mid = middle(from, to);
            node *= 2;
            if at < mid {
                to = mid;
            } else {
                from = mid;
                node += 1;
            }
        }
        self.nodes[node] = self.leaf(from, to);
        while node > 1 {
            node /= 2;
            let joined = join(self.nodes[2 * node], self.nodes[2 * node + 1]);
            if joined == self.nodes[node] {
                break;
            }
            self.nodes[node] = joined;
        }
    }
}

/// Orders points, each with its item, so that every subtree is a span: halves by start and by end in turns.
fn arrange(points: &mut [(u32, u32, u32)], depth: u32, level: u32) {
    if level == depth {
        return;
    }
    let mid = middle(0, points.len());
    if level.is_multiple_of(2) {
        points.select_nth_unstable(mid);
    } else {
        points.select_nth_unstable_by_key(mid, |p| (p.1, p.0, p.2));
    }
    let (left, right) = points.split_at_mut(mid);
    arrange(left, depth, level + 1);
    arrange(right, depth, level + 1);
}

const fn meets(a: (u32, u32), b: (u32, u32)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

const fn holds(outer: (u32, u32), inner: (u32, u32)) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

const fn middle(from: usize, to: usize) -> usize {
    from + (to - from) / 2
}

fn join(a: Node, b: Node) -> Node {
    Node {
        first: (a.first.0.min(b.first.0), a.first.1.max(b.first.1)),
        end: (a.end.0.min(b.end.0), a.end.1.max(b.end.1)),
        best: a.best.max(b.best),
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    #[test]
    fn the_best_of_a_span_is_what_a_search_of_all_finds() {
        let mut rng = Rng::new(5);
        for count in [1, 8, 9, 40, 300] {
            let mut below = |limit| u32::try_from(rng.index(limit)).expect("small");
            let mut point = || (below(30), below(30));
            let points: Vec<(u32, u32)> = (0..count).map(|_| point()).collect();
            let mut ranks: Vec<u32> = (1..=u32::try_from(count).expect("few")).collect();
            ranks.sort_by_key(|rank| rank.wrapping_mul(0x9e37_79b9));
            let mut tree = Tree::new(&points, &ranks);
            for item in 0..count {
                for _ in 0..20 {
                    let (low, high) = (point(), point());
                    let inside = |at: &usize| {
                        let (first, end) = points[*at];
                        (low.0..=low.1).contains(&first) && (high.0..=high.1).contains(&end)
                    };
                    let best = (item..count).filter(inside).map(|at| ranks[at]).max();
                    assert_eq!(tree.best(low, high), best, "{low:?} {high:?} of {count}");
                }
                tree.remove(u32::try_from(item).expect("few"));
            }
            assert_eq!(tree.best((0, 30), (0, 30)), None);
        }
    }
}
