//! Buddy, slab, stack, ring and bump against a list of the spans that were placed.
use crate::{explore, replay};
use core::fmt::Debug;
use omniheap_exhaustive::{Key as Hash, World};
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};
use omniheap_strategy::{
    BlockId, Buddy, Bump, Key, Piece, PieceState, Ring, Slab, Stack, Strategy, Usage,
};

/// Rule by which freed bytes come back, and by which a request gets its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Buddy { unit: u64 },
    Slab { slot: u64, align: u64 },
    Bump,
    Stack,
    Ring,
}

/// A world of one strategy.
#[derive(Debug)]
struct Plain<S> {
    name: &'static str,
    make: fn() -> S,
    rule: Rule,
    granularity: u64,
    /// Sizes of blocks, in the order in which they can be added, as often as there is room.
    blocks: &'static [u64],
    most_blocks: usize,
    sizes: &'static [u64],
    aligns: &'static [u64],
    classes: &'static [Class],
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Add(u64),
    Remove(u32),
    Allocate {
        size: u64,
        align: u64,
        is_tiled: bool,
    },
    /// The live span with this number in the order of addresses.
    Free(usize),
    /// Calls that must be refused and change nothing, and every query.
    Ask,
}

/// A span that was placed; it stays until the rule gives its bytes back.
#[derive(Clone, Copy, Debug)]
struct Placed {
    block: u32,
    span: Span,
    class: Class,
    key: Key,
    is_live: bool,
}

#[derive(Clone, Debug)]
struct State<S> {
    strategy: S,
    blocks: Vec<Option<u64>>,
    /// In the order of allocation.
    placed: Vec<Placed>,
    dead: Vec<Key>,
}

fn broken<T>(is_broken: bool, why: impl FnOnce() -> T) -> Result<(), String>
where
    T: Into<String>,
{
    if is_broken { Err(why().into()) } else { Ok(()) }
}

impl<S> State<S> {
    fn blocks(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(&self.blocks).filter_map(|(id, size)| Some((id, (*size)?)))
    }

    fn in_block(&self, block: u32) -> impl Iterator<Item = &Placed> + '_ {
        self.placed.iter().filter(move |one| one.block == block)
    }

    /// The live spans in the order of addresses.
    fn live(&self) -> Vec<Placed> {
        let mut live: Vec<Placed> = self.placed.iter().filter(|one| one.is_live).copied().collect();
        live.sort_by_key(|one| (one.block, one.span.offset));
        live
    }
}

impl<S: Strategy + Clone + Debug> Plain<S> {
    /// The holes that a block must have.
    fn holes(&self, state: &State<S>, block: u32, size: u64) -> Vec<Span> {
        let hole = |offset: u64, end: u64| Span { offset, size: end.saturating_sub(offset) };
        let mut holes = match self.rule {
            Rule::Bump | Rule::Stack => {
                let cursor = state.in_block(block).map(|one| one.span.end()).max().unwrap_or(0);
                vec![hole(cursor, size)]
            }
            Rule::Ring => match (state.placed.first(), state.placed.last()) {
                (Some(oldest), Some(newest)) if newest.span.end() <= oldest.span.offset => {
                    vec![hole(newest.span.end(), oldest.span.offset)]
                }
                (Some(oldest), Some(newest)) => {
                    vec![hole(newest.span.end(), size), hole(0, oldest.span.offset)]
                }
                _ => vec![hole(0, size)],
            },
            Rule::Slab { slot, .. } => {
                let slots = (0..size / slot).map(|at| Span { offset: at * slot, size: slot });
                slots.filter(|slot| !state.in_block(block).any(|one| one.span == *slot)).collect()
            }
            Rule::Buddy { unit } => self.free_of_buddies(state, block, size / unit * unit),
        };
        holes.retain(|hole| hole.size > 0);
        holes
    }

    /// The largest powers of two that are free: twins that are both free are one.
    fn free_of_buddies(&self, state: &State<S>, block: u32, size: u64) -> Vec<Span> {
        let Rule::Buddy { unit } = self.rule else { return Vec::new() };
        let (mut free, mut todo, mut at) = (Vec::new(), Vec::new(), 0);
        while at < size {
            let power = 1 << (size - at).ilog2();
            todo.push(Span { offset: at, size: power });
            at += power;
        }
        while let Some(node) = todo.pop() {
            let inside = || state.in_block(block).filter(|one| one.span.overlaps(node));
            if inside().count() == 0 {
                free.push(node);
            } else if inside().all(|one| one.span != node) && node.size > unit {
                let half = node.size / 2;
                todo.push(Span { size: half, ..node });
                todo.push(Span { offset: node.offset + half, size: half });
            }
        }
        free
    }

    /// Returns true if a span shares a granule with one of the other class that was placed in the block.
    fn is_near(&self, state: &State<S>, block: u32, span: Span, class: Class) -> bool {
        let granules =
            |span: Span| (span.offset / self.granularity, (span.end() - 1) / self.granularity);
        let (first, last) = granules(span);
        state.in_block(block).any(|one| {
            let (low, high) = granules(one.span);
            one.class != class && low <= last && first <= high
        })
    }

    /// Returns the spans among which a request may choose, by the documentation of the strategy.
    fn places(&self, state: &State<S>, size: u64, align: u64, class: Class) -> Vec<(u32, Span)> {
        let mut places = Vec::new();
        for (block, whole) in state.blocks() {
            for hole in self.holes(state, block, whole) {
                let start = hole.offset.next_multiple_of(align);
                let found = match self.rule {
                    Rule::Buddy { unit } => {
                        let granule = if class == Class::Tiled { self.granularity } else { 1 };
                        let need = size.next_power_of_two().max(align).max(unit).max(granule);
                        (need <= hole.size).then_some(Span { offset: hole.offset, size: need })
                    }
                    Rule::Slab { slot, align: own } => {
                        let mixed = slot % self.granularity == 0;
                        let free = mixed || state.in_block(block).all(|one| one.class == class);
                        let stride = slot.next_multiple_of(own);
                        let fits = size <= stride && stride % align == 0;
                        (free && fits).then_some(hole)
                    }
                    _ => (start..hole.end())
                        .step_by(usize::try_from(align).unwrap_or(1))
                        .map(|offset| Span { offset, size })
                        .take_while(|span| span.end() <= hole.end())
                        .find(|span| !self.is_near(state, block, *span, class)),
                };
                places.extend(found.map(|span| (block, span)));
                if !places.is_empty() && !matches!(self.rule, Rule::Buddy { .. }) {
                    return places;
                }
            }
        }
        // A buddy takes the smallest hole that is large enough, of any block.
        let of = |place: &(u32, Span)| {
            let size = state.blocks[place.0 as usize].unwrap_or(0);
            let holes = self.holes(state, place.0, size);
            holes.iter().find(|hole| hole.offset == place.1.offset).map_or(0, |hole| hole.size)
        };
        let least = places.iter().map(of).min();
        places.retain(|place| Some(of(place)) == least);
        places
    }

    /// The refusal that the documentation of the trait asks for.
    fn refusal(&self, state: &State<S>, size: u64, align: u64, class: Class) -> ErrorKind {
        let holes = |(id, size): (u32, u64)| self.holes(state, id, size);
        let free: u64 = state.blocks().flat_map(holes).map(|hole| hole.size).sum();
        let largest = state.blocks().map(|(_, size)| size).max().unwrap_or(0);
        let (need, largest) = match self.rule {
            Rule::Buddy { unit } => {
                let granule = if class == Class::Tiled { self.granularity } else { 1 };
                let units = largest / unit * unit;
                let root = if units > 0 { 1 << units.ilog2() } else { 0 };
                (size.next_power_of_two().max(align).max(unit).max(granule), root)
            }
            Rule::Slab { slot, .. } if size > slot || slot % align != 0 => (1, 0),
            Rule::Slab { slot, .. } => (slot, if largest >= slot { slot } else { 0 }),
            _ => (size, largest),
        };
        match need {
            _ if need > largest => ErrorKind::ExceedsLimit,
            _ if need > free => ErrorKind::OutOfDeviceMemory,
            _ => ErrorKind::Fragmented,
        }
    }

    fn allocate(
        &self,
        state: &mut State<S>,
        size: u64,
        align: u64,
        class: Class,
    ) -> Result<(), String> {
        let places = self.places(state, size, align, class);
        let layout = Layout::new(size).align(Align::of(align));
        match state.strategy.allocate(layout, class) {
            Ok(grant) => {
                let place = (grant.block.0, grant.span);
                broken(!places.contains(&place), || format!("{place:?} is none of {places:?}"))?;
                broken(state.dead.contains(&grant.key), || "a dead key lives again")?;
                let (block, span, key) = (place.0, place.1, grant.key);
                state.placed.push(Placed { block, span, class, key, is_live: true });
                Ok(())
            }
            Err(kind) => {
                broken(!places.is_empty(), || format!("{kind:?}, but {places:?} would do"))?;
                let expected = self.refusal(state, size, align, class);
                broken(kind != expected, || format!("{kind:?} where it is {expected:?}"))
            }
        }
    }

    fn free(&self, state: &mut State<S>, number: usize) -> Result<(), String> {
        let one = state.live()[number];
        let freed = state.strategy.free(one.key).map(|grant| (grant.block.0, grant.span));
        broken(freed != Ok((one.block, one.span)), || format!("freed {freed:?}"))?;
        let at = state.placed.iter().position(|other| other.key == one.key);
        state.placed[at.ok_or("a live span is listed")?].is_live = false;
        state.dead.push(one.key);
        let lives = |state: &State<S>| state.in_block(one.block).any(|one| one.is_live);
        match self.rule {
            Rule::Buddy { .. } | Rule::Slab { .. } => state.placed.retain(|one| one.is_live),
            Rule::Bump if lives(state) => {}
            Rule::Bump => state.placed.retain(|other| other.block != one.block),
            Rule::Stack => {
                let top = state.in_block(one.block).filter(|one| one.is_live);
                let top = top.map(|one| one.span.end()).max().unwrap_or(0);
                state.placed.retain(|it| it.block != one.block || it.span.end() <= top);
            }
            Rule::Ring => {
                let freed = state.placed.iter().take_while(|one| !one.is_live).count();
                state.placed.drain(..freed);
            }
        }
        Ok(())
    }

    fn add(&self, state: &mut State<S>, size: u64) -> Result<(), String> {
        let id = state.blocks.iter().position(Option::is_none).unwrap_or(state.blocks.len());
        let added = state.strategy.add_block(size).map(|block| block.0 as usize);
        if self.rule == Rule::Ring && state.blocks().count() > 0 {
            return broken(added != Err(ErrorKind::ExceedsLimit), || "a ring has one block");
        }
        broken(added != Ok(id), || format!("{added:?} where {id} is the lowest unused id"))?;
        state.blocks.resize(state.blocks.len().max(id + 1), None);
        state.blocks[id] = Some(size);
        Ok(())
    }

    fn remove(&self, state: &mut State<S>, block: u32) -> Result<(), String> {
        let known = state.blocks.get(block as usize).is_some_and(Option::is_some);
        let expected = match state.in_block(block).any(|one| one.is_live) {
            true => Err(ErrorKind::Busy),
            false if known => Ok(()),
            false => Err(ErrorKind::Stale),
        };
        let removed = state.strategy.remove_block(BlockId(block));
        broken(removed != expected, || format!("{removed:?} where it is {expected:?}"))?;
        if expected.is_ok() {
            state.blocks[block as usize] = None;
            state.placed.retain(|one| one.block != block);
        }
        Ok(())
    }

    /// Asks everything that changes nothing, and calls what must be refused.
    fn ask(&self, state: &mut State<S>) -> Result<(), String> {
        let before = pieces(&state.strategy);
        let nothing = state.strategy.allocate(Layout::new(0), Class::Linear).map(|_| ());
        broken(nothing != Err(ErrorKind::ZeroSize), || format!("no bytes: {nothing:?}"))?;
        let nothing = state.strategy.add_block(0).map(|_| ());
        broken(nothing != Err(ErrorKind::ZeroSize), || format!("no block: {nothing:?}"))?;
        let live = state.live();
        let old = live.iter().map(|one| Key::new(one.key.index(), one.key.stamp().wrapping_add(1)));
        for key in state.dead.iter().copied().chain(old).chain([Key::new(u32::MAX, u32::MAX)]) {
            let (found, freed) = (state.strategy.grant(key), state.strategy.free(key));
            let is_stale = (found, freed) == (Err(ErrorKind::Stale), Err(ErrorKind::Stale));
            broken(!is_stale, || format!("{key:?} is not stale"))?;
        }
        for one in &live {
            let found = state.strategy.grant(one.key).map(|grant| (grant.block.0, grant.span));
            broken(found != Ok((one.block, one.span)), || format!("{one:?} is {found:?}"))?;
        }
        for block in 0..3 {
            let known = state.blocks.get(block as usize).is_some_and(Option::is_some);
            let is_empty = known && !live.iter().any(|one| one.block == block);
            let said = state.strategy.is_empty(BlockId(block));
            broken(said != is_empty, || format!("block {block} is empty: {said}"))?;
        }
        broken(pieces(&state.strategy) != before, || "a refused call changed something")
    }

    /// Checks every piece against the list of what was placed.
    fn check(&self, state: &State<S>) -> Result<(), String> {
        let mut expected = Vec::new();
        for (block, size) in state.blocks() {
            let id = BlockId(block);
            let mut known: Vec<Piece> = self
                .holes(state, block, size)
                .into_iter()
                .map(|span| Piece { block: id, span, state: PieceState::Hole })
                .collect();
            known.extend(state.in_block(block).filter(|one| one.is_live).map(|one| Piece {
                block: id,
                span: one.span,
                state: PieceState::Live(one.key),
            }));
            known.sort_by_key(|piece| piece.span.offset);
            expected.extend(known);
        }
        let found = pieces(&state.strategy);
        let mut ends = vec![0; state.blocks.len()];
        for Piece { block, span, .. } in &found {
            let end = &mut ends[block.0 as usize];
            broken(*end != span.offset || span.size == 0, || format!("no tiles: {found:?}"))?;
            *end = span.end();
        }
        let sizes: Vec<u64> = state.blocks.iter().map(|size| size.unwrap_or(0)).collect();
        broken(ends != sizes, || format!("no tiles: {found:?}"))?;
        let is_kept = |piece: &&Piece| piece.state != PieceState::Padding;
        let is_equal = found.iter().filter(is_kept).eq(&expected);
        broken(!is_equal, || format!("{found:?} where it is {expected:?}"))?;
        let mut usage = Usage::default();
        found.iter().for_each(|piece| usage.add(*piece));
        let said = state.strategy.usage();
        broken(said != usage, || format!("{said:?}, counted {usage:?}"))?;
        let lives = state.dead.iter().find(|key| state.strategy.grant(**key).is_ok());
        broken(lives.is_some(), || format!("{lives:?} is live again"))?;
        state.strategy.validate().map_err(str::to_owned)
    }
}

fn pieces(strategy: &dyn Strategy) -> Vec<Piece> {
    let mut pieces = Vec::new();
    strategy.for_each(&mut |piece| pieces.push(piece));
    pieces
}

const fn class(is_tiled: bool) -> Class {
    if is_tiled { Class::Tiled } else { Class::Linear }
}

impl<S: Strategy + Clone + Debug> World for Plain<S> {
    type State = State<S>;
    type Step = Step;

    fn start(&self) -> State<S> {
        let (blocks, placed, dead) = (Vec::new(), Vec::new(), Vec::new());
        State { strategy: (self.make)(), blocks, placed, dead }
    }

    fn steps(&self, state: &State<S>) -> Vec<Step> {
        let mut steps = vec![Step::Ask];
        if state.blocks().count() < self.most_blocks {
            steps.extend(self.blocks.iter().map(|size| Step::Add(*size)));
        }
        let ids = u32::try_from(state.blocks.len()).unwrap_or(0);
        steps.extend((0..=ids).map(Step::Remove));
        for (&size, &align) in
            self.sizes.iter().flat_map(|size| self.aligns.iter().map(move |align| (size, align)))
        {
            steps.extend(self.classes.iter().map(|class| {
                let is_tiled = *class == Class::Tiled;
                Step::Allocate { size, align, is_tiled }
            }));
        }
        let live = state.placed.iter().filter(|one| one.is_live).count();
        steps.extend((0..live).map(Step::Free));
        steps
    }

    fn take(&self, state: &mut State<S>, step: &Step) -> Result<(), String> {
        self.retake(state, step)?;
        self.check(state)
    }

    fn retake(&self, state: &mut State<S>, step: &Step) -> Result<(), String> {
        match *step {
            Step::Add(size) => self.add(state, size),
            Step::Remove(block) => self.remove(state, block),
            Step::Allocate { size, align, is_tiled } => {
                self.allocate(state, size, align, class(is_tiled))
            }
            Step::Free(number) => self.free(state, number),
            Step::Ask => self.ask(state),
        }
    }

    fn key(&self, state: &State<S>) -> u128 {
        let mut hash = Hash::new().with(&state.blocks);
        let is_ordered = self.rule == Rule::Ring;
        let mut placed = state.placed.clone();
        if !is_ordered {
            placed.sort_by_key(|one| (one.block, one.span.offset));
        }
        for one in &placed {
            let place = (one.block, one.span.offset, one.span.size);
            hash = hash.with((place, one.class == Class::Tiled, one.is_live));
        }
        if let Rule::Buddy { unit } = self.rule {
            // The order of the lists, by what requests of one unit would get.
            let mut probe = state.strategy.clone();
            while let Ok(grant) = probe.allocate(Layout::new(unit), Class::Linear) {
                hash = hash.with((grant.block.0, grant.span.offset));
            }
        }
        hash.get()
    }

    fn copy(&self, state: &State<S>) -> Option<State<S>> {
        Some(state.clone())
    }

    fn test(&self, path: &[Step]) -> String {
        format!("#[test]\nfn a_path() {{\n    replay(&{}(), &{path:?});\n}}", self.name)
    }
}

const BOTH: &[Class] = &[Class::Linear, Class::Tiled];
const ONE: &[Class] = &[Class::Linear];

fn buddy() -> Plain<Buddy> {
    Plain {
        name: "buddy",
        make: || Buddy::new(Align::ONE, Align::ONE),
        rule: Rule::Buddy { unit: 1 },
        granularity: 1,
        blocks: &[16, 7],
        most_blocks: 1,
        sizes: &[1, 2, 3, 4, 7, 8, 16, 17],
        aligns: &[1, 2, 4],
        classes: ONE,
    }
}

fn buddy_of_two_blocks() -> Plain<Buddy> {
    Plain {
        name: "buddy_of_two_blocks",
        make: || Buddy::new(Align::of(2), Align::of(4)),
        rule: Rule::Buddy { unit: 2 },
        granularity: 4,
        blocks: &[8, 7, 13],
        most_blocks: 2,
        sizes: &[1, 2, 3, 5, 8],
        aligns: &[1, 4],
        classes: BOTH,
    }
}

fn slab() -> Plain<Slab> {
    Plain {
        name: "slab",
        make: || Slab::new(Layout::new(2), Align::of(4)).expect("a slot of two bytes"),
        rule: Rule::Slab { slot: 2, align: 1 },
        granularity: 4,
        blocks: &[16, 9, 2],
        most_blocks: 2,
        sizes: &[1, 2, 3],
        aligns: &[1, 2, 4],
        classes: BOTH,
    }
}

fn bump() -> Plain<Bump> {
    Plain {
        name: "bump",
        make: || Bump::new(Align::of(4)),
        rule: Rule::Bump,
        granularity: 4,
        blocks: &[8, 5],
        most_blocks: 2,
        sizes: &[1, 2, 3, 5, 8, 9],
        aligns: &[1, 2, 4],
        classes: BOTH,
    }
}

fn stack() -> Plain<Stack> {
    Plain {
        name: "stack",
        make: || Stack::new(Align::of(4)),
        rule: Rule::Stack,
        granularity: 4,
        blocks: &[8, 5],
        most_blocks: 2,
        sizes: &[1, 2, 3, 5, 8, 9],
        aligns: &[1, 2, 4],
        classes: BOTH,
    }
}

fn ring() -> Plain<Ring> {
    Plain {
        name: "ring",
        make: || Ring::new(Align::of(4)),
        rule: Rule::Ring,
        granularity: 4,
        blocks: &[16, 9],
        most_blocks: 2,
        sizes: &[1, 2, 3, 5, 9, 16, 17],
        aligns: &[1, 2, 4],
        classes: BOTH,
    }
}

#[test]
fn buddies() {
    explore("buddy", &buddy(), 10);
    explore("buddy of two blocks", &buddy_of_two_blocks(), 8);
}

#[test]
fn slabs() {
    explore("slab", &slab(), 12);
}

#[test]
fn bumps_and_stacks() {
    explore("bump", &bump(), 7);
    explore("stack", &stack(), 7);
}

#[test]
fn rings() {
    explore("ring", &ring(), 6);
}

#[test]
fn a_path_is_replayed() {
    replay(
        &ring(),
        &[Step::Add(9), Step::Allocate { size: 3, align: 2, is_tiled: true }, Step::Free(0)],
    );
}
