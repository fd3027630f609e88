//! The depth-first search itself.

use super::frame::Frame;
use super::memo::Memo;
use super::sweep::Sweep;
use super::tactic::Tactic;
use crate::model::align_up;
use crate::rng::{Rng, mix};
use crate::stop::Stop;
use alloc::vec::Vec;

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything is placed.
    Found,
    /// There is no way.
    Fail,
    /// The node limit or the caller stopped it.
    Limit,
}

/// A span of `Search::lists`: the items of one independent part, by first section.
type Part = (usize, usize);

/// Searches for a placement below a capacity by placing items from the bottom up.
///
/// # Algorithm
/// Every placement can be pushed down until each item rests on the floor or on another item, so it is enough to look
/// for such placements. Each unplaced item has a floor: the top of the highest item placed below it. A step takes a
/// section and the items that could be lowest in it, all at one height `h`, such that nothing unplaced fits under any
/// of them. Either one of them lies at `h` (one branch each), or none does; then they wait until an item placed later
/// lifts their floor (one branch for all).
///
/// A state fails when the items of some section, each started no earlier than its floor, reach above the capacity;
/// a waiting item's floor is the least top among the items that may lift it. States that failed are remembered by the
/// floors of their unplaced items, over restarts too. Parts of time that no unplaced item connects are solved one by
/// one, so that a failure in one does not redo another.
///
/// A fixed item has its offset from the start; the floors of its neighbours skip its bytes. It is placed like any other,
/// when nothing unplaced fits under it, and has no other branch.
///
/// # Cost
/// Exponential at worst. A node costs O(w + k log k) for k unplaced items that meet w sections together.
pub(crate) struct Search<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) sweep: Sweep,
    pub(crate) floor: Vec<u64>,
    pub(crate) waits: Vec<bool>,
    pub(crate) placed: Vec<bool>,
    pub(crate) offset: Vec<u64>,
    pub(crate) score: Vec<f64>,
    pub(crate) capacity: u64,
    tactic: Tactic,
    seal: Vec<u64>,
    memo: Memo,
    /// Nodes visited in this run, and how many are allowed.
    nodes: u64,
    limit: u64,
    stop: &'a Stop<'a>,
    changes: Vec<(u32, u64, bool)>,
    pub(crate) trail: Vec<u32>,
    lists: Vec<u32>,
    choices: Vec<u32>,
    prints: Vec<u64>,
    /// The fixed neighbours of each item that is not fixed, where there are any.
    obstacles: Vec<Vec<Obstacle>>,
}

/// A fixed item as one of its neighbours meets it.
#[derive(Clone, Copy, Debug)]
struct Obstacle {
    from: u64,
    to: u64,
    /// Bytes of the neighbour that must not overlap it.
    bytes: u64,
}

impl<'a> Search<'a> {
    pub(crate) fn new(frame: &'a Frame, capacity: u64, stop: &'a Stop<'a>) -> Self {
        let n = frame.len();
        let mut rng = Rng::new(0x0DD5_EA15);
        let mut search = Self {
            frame,
            sweep: Sweep::new(n, frame.sections()),
            floor: alloc::vec![0; n],
            waits: alloc::vec![false; n],
            placed: alloc::vec![false; n],
            offset: alloc::vec![0; n],
            score: alloc::vec![0.0; n],
            capacity,
            tactic: Tactic::nth(0),
            seal: (0..n).map(|_| rng.next()).collect(),
            memo: Memo::new(),
            nodes: 0,
            limit: 0,
            stop,
            changes: Vec::new(),
            trail: Vec::new(),
            lists: Vec::new(),
            choices: Vec::new(),
            prints: Vec::new(),
            obstacles: obstacles(frame),
        };
        for item in 0..n {
            search.floor[item] = frame.fixed[item].unwrap_or_else(|| search.lift(item, 0));
        }
        search
    }

    /// Returns the least offset from `at` on that is aligned and clear of fixed items.
    fn lift(&self, item: usize, at: u64) -> u64 {
        let align = self.frame.align[item];
        let mut at = align_up(at, align);
        let hit = |at: u64| {
            let mut fixed = self.obstacles.get(item)?.iter();
            fixed.find(|o| at < o.to && o.from < at + o.bytes).map(|o| o.to)
        };
        while let Some(to) = hit(at) {
            at = align_up(to, align);
        }
        at
    }

    /// Runs once from the start; what failed in earlier runs stays known.
    pub(crate) fn run(&mut self, tactic: Tactic, limit: u64, rng: &mut Rng) -> Verdict {
        self.undo(0, 0);
        self.tactic = tactic;
        self.score = tactic.scores(self.frame, rng);
        self.nodes = 0;
        self.limit = limit;
        self.lists.clear();
        self.choices.clear();
        self.prints.clear();
        self.lists.extend(0..crate::model::id(self.frame.len()));
        self.parts((0, self.frame.len()))
    }

    /// Nodes that the last run visited.
    pub(crate) const fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Solves each independent part of a list, small ones first.
    fn parts(&mut self, list: Part) -> Verdict {
        let (changes, placed) = (self.changes.len(), self.trail.len());
        let mut first = list.0;
        let mut smaller: Option<Part> = None;
        while first < list.1 {
            let end = self.part_end(first, list.1);
            // The largest part goes last: the small ones fail sooner.
            let part = (first, end);
            first = end;
            let next = match smaller.replace(part) {
                None => continue,
                Some(held) if held.1 - held.0 > part.1 - part.0 => {
                    smaller = Some(held);
                    part
                }
                Some(held) => held,
            };
            let verdict = self.node(next);
            if verdict != Verdict::Found {
                self.undo(changes, placed);
                return verdict;
            }
        }
        let verdict = smaller.map_or(Verdict::Found, |part| self.node(part));
        if verdict != Verdict::Found {
            self.undo(changes, placed);
        }
        verdict
    }

    fn part_end(&self, first: usize, end: usize) -> usize {
        let mut reach = self.frame.hull[self.lists[first] as usize].1;
        let mut at = first + 1;
        while at < end && self.frame.hull[self.lists[at] as usize].0 < reach {
            reach = reach.max(self.frame.hull[self.lists[at] as usize].1);
            at += 1;
        }
        at
    }

    /// Solves one part: branches, lets the candidates wait, and branches again until something is placed or fails.
    fn node(&mut self, part: Part) -> Verdict {
        let (changes, placed) = (self.changes.len(), self.trail.len());
        let (prints, choices) = (self.prints.len(), self.choices.len());
        let verdict = loop {
            self.nodes += 1;
            if self.nodes > self.limit || (self.nodes.is_multiple_of(32) && self.stop.now()) {
                break Verdict::Limit;
            }
            let print = self.print(part);
            if self.memo.contains(print) {
                break Verdict::Fail;
            }
            self.prints.push(print);
            if !self.bound(part) {
                break Verdict::Fail;
            }
            let Some(height) = self.choose(part) else {
                break Verdict::Fail;
            };
            let verdict = self.branch(part, choices, height);
            let fixed = |&i: &u32| self.frame.fixed[i as usize].is_some();
            if verdict != Verdict::Fail || self.choices[choices..].iter().any(fixed) {
                break verdict;
            }
            self.wait(choices);
            self.choices.truncate(choices);
        };
        self.choices.truncate(choices);
        match verdict {
            Verdict::Found => {}
            Verdict::Fail => {
                self.undo(changes, placed);
                for at in prints..self.prints.len() {
                    self.memo.insert(self.prints[at]);
                }
            }
            Verdict::Limit => self.undo(changes, placed),
        }
        self.prints.truncate(prints);
        verdict
    }

    /// Tries each candidate from `choices` on at `height`.
    fn branch(&mut self, part: Part, choices: usize, height: u64) -> Verdict {
        let (changes, placed) = (self.changes.len(), self.trail.len());
        let sorted = self.rank(part, choices, height);
        for at in choices..sorted {
            let item = self.choices[at];
            if self.choices[choices..at].iter().any(|&other| self.frame.twins(other, item)) {
                continue;
            }
            if !self.place(item, height) {
                self.undo(changes, placed);
                continue;
            }
            let from = self.lists.len();
            for i in part.0..part.1 {
                let other = self.lists[i];
                if other != item {
                    self.lists.push(other);
                }
            }
            let verdict = self.parts((from, self.lists.len()));
            self.lists.truncate(from);
            if verdict == Verdict::Found {
                return verdict;
            }
            self.undo(changes, placed);
            if verdict == Verdict::Limit {
                return verdict;
            }
        }
        Verdict::Fail
    }

    /// Sorts the candidates, best first; with looking ahead, those that surely fail go behind the returned end.
    fn rank(&mut self, part: Part, choices: usize, height: u64) -> usize {
        let look = self.tactic.look > 0.0 && self.choices.len() - choices > 1;
        let span = part_span(self.frame, &self.lists[part.0..part.1]);
        let mut keyed: Vec<(f64, u32)> = Vec::new();
        let mut failing: Vec<u32> = Vec::new();
        for &item in &self.choices[choices..] {
            let spot = (item, height);
            let ahead = look.then(|| self.sweep.waste(self.frame, self.capacity, spot, span));
            if let Some(waste) = ahead.unwrap_or(Some(0.0)) {
                keyed.push((waste * self.tactic.look - self.score[item as usize], item));
            } else {
                failing.push(item);
            }
        }
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.choices.truncate(choices);
        self.choices.extend(keyed.iter().map(|k| k.1));
        let end = self.choices.len();
        self.choices.extend(failing);
        end
    }

    /// Places an item at a height and its neighbours above it; false if that hits a fixed one.
    fn place(&mut self, item: u32, height: u64) -> bool {
        let frame = self.frame;
        self.placed[item as usize] = true;
        self.offset[item as usize] = height;
        self.trail.push(item);
        for &other in frame.near(item) {
            let o = other as usize;
            let top = height + frame.in_way(item, other);
            if !self.placed[o] && self.floor[o] < top {
                if frame.fixed[o].is_some() {
                    return false;
                }
                self.changes.push((other, self.floor[o], self.waits[o]));
                self.floor[o] = self.lift(o, top);
                self.waits[o] = false;
            }
        }
        true
    }

    /// Makes all candidates wait until their floor rises.
    fn wait(&mut self, choices: usize) {
        for at in choices..self.choices.len() {
            let item = self.choices[at] as usize;
            self.changes.push((self.choices[at], self.floor[item], self.waits[item]));
            self.waits[item] = true;
        }
    }

    fn undo(&mut self, changes: usize, placed: usize) {
        while self.changes.len() > changes {
            if let Some((item, floor, waits)) = self.changes.pop() {
                self.floor[item as usize] = floor;
                self.waits[item as usize] = waits;
            }
        }
        while self.trail.len() > placed {
            if let Some(item) = self.trail.pop() {
                self.placed[item as usize] = false;
            }
        }
    }

    /// Returns the fingerprint of a part: its items, their floors, and who waits. Never 0, which marks an empty slot.
    fn print(&self, part: Part) -> u64 {
        let sum = self.lists[part.0..part.1].iter().fold(0u64, |sum, &i| {
            let state = self.floor[i as usize] * 2 + u64::from(self.waits[i as usize]);
            sum.wrapping_add(mix(self.seal[i as usize] ^ state))
        });
        sum | 1
    }

    fn bound(&mut self, part: Part) -> bool {
        let items = &self.lists[part.0..part.1];
        self.sweep.load(self.frame, items, &self.floor, &self.waits, &self.placed)
            && self.sweep.stack(self.frame, self.capacity, part_span(self.frame, items))
    }

    /// Pushes the candidates of the chosen section; returns their height.
    fn choose(&mut self, part: Part) -> Option<u64> {
        let span = part_span(self.frame, &self.lists[part.0..part.1]);
        let last = self.trail.last().map(|&i| self.frame.hull[i as usize]);
        self.sweep.candidates(self.frame, &self.waits, span);
        let section = self.sweep.pick(self.frame, self.tactic.pick, self.capacity, span, last)?;
        let height = self.sweep.lowest(section);
        self.sweep.covering(self.frame, &self.waits, section, &mut self.choices);
        Some(height)
    }
}

/// Returns the fixed neighbours of each item, by offset; nothing at all when no item is fixed.
fn obstacles(frame: &Frame) -> Vec<Vec<Obstacle>> {
    if frame.fixed.iter().all(Option::is_none) {
        return Vec::new();
    }
    let of = |item: u32| {
        let fixed = |&o: &u32| frame.fixed[o as usize].map(|from| (o, from));
        let obstacle = |(o, from): (u32, u64)| Obstacle {
            from,
            to: from + frame.in_way(o, item),
            bytes: frame.in_way(item, o),
        };
        let mut all: Vec<_> = frame.near(item).iter().filter_map(fixed).map(obstacle).collect();
        all.sort_unstable_by_key(|o| o.from);
        all
    };
    (0..crate::model::id(frame.len())).map(of).collect()
}

/// From the first section of a part to behind its last.
fn part_span(frame: &Frame, items: &[u32]) -> (usize, usize) {
    let first = items.first().map_or(0, |&i| frame.hull[i as usize].0);
    let end = items.iter().map(|&i| frame.hull[i as usize].1).max().unwrap_or(first);
    (first as usize, end as usize)
}

#[cfg(test)]
mod tests;
