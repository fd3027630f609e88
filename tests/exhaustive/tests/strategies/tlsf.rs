//! The general strategy against lists of its spans and holes: users that free side by side, classes, and every edit.
use crate::{explore, replay};
use core::cell::RefCell;
use core::fmt::Debug;
use omniheap_exhaustive::{Key as Hash, World};
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};
use omniheap_strategy::pages::Pager;
use omniheap_strategy::{BlockId, Key, LastUse, Strategy, Tlsf, Usage};

/// A world of the general strategy.
#[derive(Debug)]
struct General {
    name: &'static str,
    granularity: u64,
    blocks: &'static [u64],
    most_blocks: usize,
    most_live: usize,
    sizes: &'static [u64],
    aligns: &'static [u64],
    classes: &'static [Class],
    /// Timelines, numbered from 1.
    users: u16,
    /// `All` if spans are carved, split, joined, widened, slid and exchanged.
    edits: Edits,
    /// Holes at the start, with a live byte behind each; the first is the last of its list.
    prepared: &'static [u64],
    /// They see the holes of each block in the order of the lists.
    viewers: Vec<Pager>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    None,
    All,
}

/// The holes that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Anyone,
    /// Holes that this user used last, and those whose use has passed: among a few holes.
    Few(u16),
    /// The same among all holes.
    All(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Add(u64),
    Remove(u32),
    Allocate {
        size: u64,
        align: u64,
        is_tiled: bool,
        who: Who,
    },
    /// The live span with this number; user 0 keeps the last use of its bytes.
    Free {
        at: usize,
        user: u16,
    },
    Around {
        at: usize,
        size: u64,
        align: u64,
        user: u16,
    },
    /// The time of this number among those that have not passed.
    Pass(usize),
    Merge,
    Carve {
        block: u32,
        offset: u64,
        size: u64,
    },
    CarveIn {
        hole: usize,
        offset: u64,
        size: u64,
    },
    CarveAll {
        block: u32,
    },
    Split {
        at: usize,
        size: u64,
    },
    Join {
        at: usize,
        next: usize,
    },
    Widen {
        at: usize,
    },
    Slide {
        at: usize,
        to: u64,
    },
    Exchange {
        at: usize,
        first: usize,
        last: usize,
    },
    Ask,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Live {
    block: u32,
    span: Span,
    class: Class,
    key: Key,
    last: LastUse,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Hole {
    block: u32,
    span: Span,
    key: Key,
    last: LastUse,
}

#[derive(Clone, Debug)]
struct State {
    tlsf: Tlsf,
    blocks: Vec<Option<u64>>,
    /// In the order of addresses.
    live: Vec<Live>,
    /// As the lists have them, from the largest sizes on.
    holes: Vec<Hole>,
    now: u64,
    passed: u64,
    dead: Vec<Key>,
    /// Keys of holes that are no more.
    gone: Vec<Key>,
}

fn broken(is_broken: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_broken { Err(why()) } else { Ok(()) }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("small")
}

impl State {
    fn unpassed(&self, last: LastUse) -> LastUse {
        if last.time() <= self.passed { LastUse::NONE } else { last }
    }

    fn blocks(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(&self.blocks).filter_map(|(id, size)| Some((id, (*size)?)))
    }

    fn hole_before(&self, one: &Live) -> Option<Hole> {
        let touches = |hole: &&Hole| hole.block == one.block && hole.span.end() == one.span.offset;
        self.holes.iter().find(touches).copied()
    }

    fn hole_after(&self, one: &Live) -> Option<Hole> {
        let touches = |hole: &&Hole| hole.block == one.block && one.span.end() == hole.span.offset;
        self.holes.iter().find(touches).copied()
    }

    fn may(&self, who: Who) -> impl Fn(LastUse) -> bool + use<> {
        let passed = self.passed;
        move |last| match who {
            Who::Anyone => true,
            Who::Few(user) | Who::All(user) => last.user() == Some(user) || last.time() <= passed,
        }
    }

    /// Times that have not passed, the lowest first.
    fn times(&self) -> Vec<u64> {
        let all = self.live.iter().map(|one| one.last).chain(self.holes.iter().map(|one| one.last));
        let mut times: Vec<u64> =
            all.map(LastUse::time).filter(|time| *time > self.passed).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// Expected outcome of a step: the live spans, and the last use of each byte that is free or about to be.
struct Expected {
    live: Vec<Live>,
    uses: Vec<Vec<LastUse>>,
    /// True if holes of several users may become one.
    joins_users: bool,
}

impl Expected {
    fn of(state: &State) -> Self {
        let sizes = state.blocks.iter().map(|size| index(size.unwrap_or(0)));
        let mut uses: Vec<Vec<LastUse>> = sizes.map(|size| vec![LastUse::NONE; size]).collect();
        let live = state.live.iter().map(|one| (one.block, one.span, one.last));
        for (block, span, last) in live.chain(state.holes.iter().map(|h| (h.block, h.span, h.last)))
        {
            uses[block as usize][index(span.offset)..index(span.end())].fill(last);
        }
        Self { live: state.live.clone(), uses, joins_users: false }
    }

    fn set(&mut self, block: u32, span: Span, last: LastUse) {
        self.uses[block as usize][index(span.offset)..index(span.end())].fill(last);
    }

    fn add(&mut self, one: Live) {
        let place = |one: &Live| (one.block, one.span.offset);
        let at = self.live.partition_point(|other| place(other) < place(&one));
        self.live.insert(at, one);
    }
}

/// Reads the strategy again, and checks it against what was expected.
impl General {
    fn see(&self, state: &mut State) -> Vec<Live> {
        let mut live = Vec::with_capacity(state.live.len() + 2);
        let before = core::mem::take(&mut state.holes);
        for (at, _) in state.blocks.iter().enumerate().filter(|(_, size)| size.is_some()) {
            let block = u32::try_from(at).expect("few");
            state.tlsf.for_each_in(BlockId(block), |key, span, class| {
                if let Some(class) = class {
                    let last = state.tlsf.last_use(key).unwrap_or(LastUse::SEVERAL);
                    live.push(Live { block, span, class, key, last });
                }
            });
            let uses = RefCell::new(Vec::new());
            let may = |last| {
                uses.borrow_mut().push(last);
                true
            };
            let holes = self.viewers[at].choose_pages(&state.tlsf, u64::MAX, None, may);
            let holes = holes.into_iter().zip(uses.into_inner());
            state.holes.extend(holes.map(|((key, span), last)| Hole { block, span, key, last }));
        }
        let is_gone = |key: &Key| !state.holes.iter().any(|hole| hole.key == *key);
        state.gone.extend(before.into_iter().map(|hole| hole.key).filter(is_gone));
        live
    }

    fn settle(&self, state: &mut State, expected: Expected) -> Result<(), String> {
        let found = self.see(state);
        let Expected { live, uses, joins_users } = expected;
        broken(found != live, || format!("live {found:?} where it is {live:?}"))?;
        state.live = live;
        Self::check_keys(state)?;
        Self::check_sums(state)?;
        for (block, size) in state.blocks() {
            let free: u64 =
                state.holes.iter().filter(|h| h.block == block).map(|h| h.span.size).sum();
            let used: u64 =
                state.live.iter().filter(|l| l.block == block).map(|l| l.span.size).sum();
            broken(free + used != size, || format!("{free} free and {used} used of {size}"))?;
        }
        for hole in &state.holes {
            let bytes = &uses[hole.block as usize][index(hole.span.offset)..index(hole.span.end())];
            let parts = || bytes.iter().map(|last| state.unpassed(*last));
            let joined = parts().fold(LastUse::NONE, LastUse::join);
            let last = state.unpassed(hole.last);
            broken(last != joined, || format!("{hole:?} was used by {joined:?} last"))?;
            let several = joined.user().is_none() && parts().all(|part| part.user().is_some());
            broken(several && !joins_users, || format!("{hole:?} waits for users of its parts"))?;
            let may_merge = |next: &Hole| {
                hole.last.same_user(next.last)
                    || state.unpassed(next.last) == LastUse::NONE
                    || last == LastUse::NONE
            };
            let next = state
                .holes
                .iter()
                .find(|next| next.block == hole.block && next.span.offset == hole.span.end());
            broken(next.is_some_and(may_merge), || format!("{hole:?} and {next:?} are one"))?;
        }
        Ok(())
    }

    fn check_keys(state: &mut State) -> Result<(), String> {
        for key in &state.dead {
            let tlsf = &state.tlsf;
            let asked = (tlsf.grant(*key), tlsf.last_use(*key).err(), tlsf.free_beside_only(*key));
            let right = (Err(ErrorKind::Stale), Some(ErrorKind::Stale), None);
            broken(asked != right, || format!("{key:?} is not stale: {asked:?}"))?;
        }
        for key in &state.gone {
            let carved = state.tlsf.carve_in(*key, Span { offset: 0, size: 0 }, Class::Linear);
            broken(carved != Err(ErrorKind::Stale), || format!("a hole that is gone: {carved:?}"))?;
        }
        Ok(())
    }

    fn check_sums(state: &State) -> Result<(), String> {
        let total = state.blocks().map(|(_, size)| size).sum();
        let mut usage = Usage { total, ..Usage::default() };
        for one in &state.live {
            (usage.used, usage.live) = (usage.used + one.span.size, usage.live + 1);
        }
        for hole in &state.holes {
            (usage.free, usage.holes) = (usage.free + hole.span.size, usage.holes + 1);
            usage.largest_hole = usage.largest_hole.max(hole.span.size);
        }
        let said = (state.tlsf.usage(), state.tlsf.total_bytes(), state.tlsf.free_bytes());
        let right = (usage, usage.total, usage.free);
        broken(said != right, || format!("{said:?} where it is {right:?}"))
    }

    /// Returns the start of a request in a hole, by a search of all places.
    fn start_in(
        &self,
        state: &State,
        hole: &Hole,
        size: u64,
        align: u64,
        class: Class,
    ) -> Option<u64> {
        let granules =
            |span: Span| (span.offset / self.granularity, (span.end() - 1) / self.granularity);
        let is_near = |span: Span| {
            let (first, last) = granules(span);
            state.live.iter().any(|one| {
                let (low, high) = granules(one.span);
                one.block == hole.block && one.class != class && low <= last && first <= high
            })
        };
        let starts =
            (hole.span.offset.next_multiple_of(align)..hole.span.end()).step_by(index(align));
        let mut spans = starts.map(|offset| Span { offset, size });
        let fits = |span: &Span| span.end() <= hole.span.end() && !is_near(*span);
        spans.find(fits).map(|span| span.offset)
    }

    fn allocate(
        &self,
        state: &mut State,
        (size, align, class): (u64, u64, Class),
        who: Who,
    ) -> Result<(), String> {
        let may = state.may(who);
        let fits: Vec<(Hole, u64)> = state
            .holes
            .iter()
            .filter(|hole| may(hole.last))
            .filter_map(|hole| Some((*hole, self.start_in(state, hole, size, align, class)?)))
            .collect();
        let layout = Layout::new(size).align(Align::of(align));
        let granted = match who {
            Who::Anyone => state.tlsf.allocate(layout, class),
            Who::Few(_) => state.tlsf.allocate_where(layout, class, may),
            Who::All(_) => state.tlsf.search_where(layout, class, may),
        };
        let mut expected = Expected::of(state);
        match granted {
            Ok(grant) => {
                let (block, span, key) = (grant.block.0, grant.span, grant.key);
                let found = fits.iter().find(|(hole, start)| {
                    hole.block == block && span == Span { offset: *start, size }
                });
                let (hole, _) = found.ok_or_else(|| format!("{grant:?} is none of {fits:?}"))?;
                // Below 32 bytes every size has a list of its own, and four holes are looked at.
                let least = fits.iter().map(|(hole, _)| hole.span.size).min().unwrap_or(0);
                let is_best = hole.span.size == least || hole.span.size >= 32 || align > 1;
                let is_small = state.holes.len() <= 4 && self.granularity == 1;
                broken(is_small && !is_best, || format!("{hole:?} is not the best of {fits:?}"))?;
                broken(state.dead.contains(&key), || format!("{key:?} lives again"))?;
                expected.add(Live { block, span, class, key, last: hole.last });
            }
            // A few holes of some lists are all that it promises to look at.
            Err(_) if matches!(who, Who::Few(_)) => {}
            Err(kind) => {
                broken(!fits.is_empty(), || format!("{kind:?}, but {fits:?} would do"))?;
                let expected = Self::refusal(state, size);
                broken(kind != expected, || format!("{kind:?} where it is {expected:?}"))?;
            }
        }
        self.settle(state, expected)
    }

    /// The refusal that the documentation of the trait asks for.
    fn refusal(state: &State, size: u64) -> ErrorKind {
        let free: u64 = state.holes.iter().map(|hole| hole.span.size).sum();
        let largest = state.blocks().map(|(_, size)| size).max().unwrap_or(0);
        match size {
            _ if size > largest => ErrorKind::ExceedsLimit,
            _ if size > free => ErrorKind::OutOfDeviceMemory,
            _ => ErrorKind::Fragmented,
        }
    }

    fn free(&self, state: &mut State, at: usize, user: u16) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live.remove(at);
        let last = LastUse::new(user, state.now);
        let freed = match user {
            0 => state.tlsf.free(one.key),
            _ => state.tlsf.free_used(one.key, last),
        };
        state.now += 1;
        let freed = freed.map(|grant| (grant.block.0, grant.span));
        broken(freed != Ok((one.block, one.span)), || format!("freed {freed:?}"))?;
        expected.set(one.block, one.span, if user == 0 { one.last } else { last });
        state.dead.push(one.key);
        self.settle(state, expected)
    }

    fn around(
        &self,
        state: &mut State,
        at: usize,
        (size, align, user): (u64, u64, u16),
    ) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live.remove(at);
        let may = state.may(Who::All(user));
        let beside = [state.hole_before(&one), state.hole_after(&one)];
        let used = beside.into_iter().flatten().filter(|hole| may(hole.last));
        let (mut whole, mut last) = (one.span, LastUse::NONE);
        for hole in used {
            last = last.join(state.unpassed(hole.last));
            whole.offset = whole.offset.min(hole.span.offset);
            whole.size += hole.span.size;
        }
        expected.set(one.block, whole, last);
        let without = State { live: expected.live.clone(), ..state.clone() };
        let hole = Hole { block: one.block, span: whole, key: one.key, last };
        let start = self.start_in(&without, &hole, size, align, one.class);
        let layout = Layout::new(size).align(Align::of(align));
        state.dead.push(one.key);
        let taken = state.tlsf.take_around(one.key, layout, one.class, may);
        match (taken, start) {
            (Ok(grant), Some(offset)) => {
                let span = Span { offset, size };
                broken(grant.span != span, || format!("{grant:?} where it is {span:?}"))?;
                let found = state.tlsf.last_use(grant.key).map(|last| state.unpassed(last));
                broken(found != Ok(last), || {
                    format!("{grant:?} was used by {found:?}, not {last:?}")
                })?;
                let last = state.tlsf.last_use(grant.key).unwrap_or(last);
                expected.add(Live { span, key: grant.key, last, ..one });
            }
            (Err(ErrorKind::Fragmented), None) => {}
            (taken, start) => return Err(format!("{taken:?} where it starts at {start:?}")),
        }
        self.settle(state, expected)
    }

    fn carve(&self, state: &mut State, block: u32, span: Span) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let size = state.blocks.get(block as usize).copied().flatten();
        let is_live = |one: &Live| one.block == block && one.span.overlaps(span);
        let refused = match size {
            None => Some(ErrorKind::Stale),
            Some(_) if span.size == 0 => Some(ErrorKind::ZeroSize),
            Some(size) if span.end() > size => Some(ErrorKind::OutOfRange),
            Some(_) if state.live.iter().any(is_live) => Some(ErrorKind::Busy),
            Some(_) => None,
        };
        let carved = state.tlsf.carve(BlockId(block), span, Class::Linear);
        match (carved, refused) {
            (Ok(grant), None) => {
                broken(grant.span != span, || format!("carved {grant:?}"))?;
                let covered =
                    state.holes.iter().filter(|h| h.block == block && h.span.overlaps(span));
                let last = covered.map(|hole| hole.last).fold(LastUse::NONE, LastUse::join);
                expected.add(Live { block, span, class: Class::Linear, key: grant.key, last });
            }
            (Err(kind), Some(expected)) if kind == expected => {}
            (carved, refused) => return Err(format!("{carved:?} where it is {refused:?}")),
        }
        self.settle(state, expected)
    }

    fn carve_in(
        &self,
        state: &mut State,
        hole: usize,
        offset: u64,
        size: u64,
    ) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let hole = state.holes[hole];
        let span = Span { offset: hole.span.offset + offset, size };
        let carved = state.tlsf.carve_in(hole.key, span, Class::Linear);
        let refused = match size {
            0 => Some(ErrorKind::ZeroSize),
            _ if span.end() > hole.span.end() => Some(ErrorKind::OutOfRange),
            _ => None,
        };
        match (carved, refused) {
            (Ok(grant), None) => {
                broken((grant.span, grant.block.0) != (span, hole.block), || format!("{grant:?}"))?;
                let (block, last) = (hole.block, hole.last);
                expected.add(Live { block, span, class: Class::Linear, key: grant.key, last });
            }
            (Err(kind), Some(expected)) if kind == expected => {}
            (carved, refused) => return Err(format!("{carved:?} where it is {refused:?}")),
        }
        self.settle(state, expected)
    }

    /// Takes all holes of a block, then with one that is gone among them: then none is taken.
    fn carve_all(&self, state: &mut State, block: u32) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let of_block = |state: &State| -> Vec<Hole> {
            state.holes.iter().filter(|hole| hole.block == block).copied().collect()
        };
        let holes = of_block(state);
        if let Some(gone) = state.live.first().map(|one| (one.key, one.span)) {
            let mut keys: Vec<_> = holes.iter().map(|hole| (hole.key, hole.span)).collect();
            keys.push(gone);
            let carved = state.tlsf.clone().carve_all(&mut keys);
            broken(carved != Err(ErrorKind::Stale), || format!("a live span: {carved:?}"))?;
            let mut other = State { tlsf: state.tlsf.clone(), ..state.clone() };
            keys.truncate(holes.len());
            keys = holes.iter().map(|hole| (hole.key, hole.span)).chain([gone]).collect();
            let _ = other.tlsf.carve_all(&mut keys);
            self.settle(&mut other, Expected::of(state))?;
        }
        let mut keys: Vec<_> = holes.iter().map(|hole| (hole.key, hole.span)).collect();
        let carved = state.tlsf.carve_all(&mut keys);
        broken(carved.is_err(), || format!("all holes: {carved:?}"))?;
        for (hole, (key, span)) in holes.iter().zip(keys) {
            let (class, last) = (Class::Linear, hole.last);
            expected.add(Live { block, span, class, key, last });
        }
        self.settle(state, expected)
    }

    fn split(&self, state: &mut State, at: usize, size: u64) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live[at];
        match state.tlsf.split(one.key, size) {
            Ok(rest) if size > 0 && size < one.span.size => {
                let span = Span { offset: one.span.offset + size, size: one.span.size - size };
                broken(rest.span != span, || format!("split {rest:?}"))?;
                expected.live[at].span.size = size;
                expected.add(Live { span, key: rest.key, ..one });
            }
            Err(ErrorKind::OutOfRange) if size == 0 || size >= one.span.size => {}
            other => return Err(format!("split {other:?}")),
        }
        self.settle(state, expected)
    }

    fn join(&self, state: &mut State, at: usize, next: usize) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let (one, other) = (expected.live[at], expected.live[next]);
        let touch = one.block == other.block && one.span.end() == other.span.offset;
        match state.tlsf.join(one.key, other.key) {
            Ok(_) if touch => {
                expected.live[at].span.size += other.span.size;
                expected.live[at].last = one.last.join(other.last);
                expected.live.remove(next);
                state.dead.push(other.key);
            }
            Err(ErrorKind::OutOfRange) if !touch => {}
            joined => return Err(format!("joined {joined:?}")),
        }
        self.settle(state, expected)
    }

    fn widen(&self, state: &mut State, at: usize) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live[at];
        let wide = state.tlsf.widen(one.key).map_err(|kind| format!("widened: {kind:?}"))?;
        let new = &mut expected.live[at];
        for hole in [state.hole_before(&one), state.hole_after(&one)].into_iter().flatten() {
            new.span.offset = new.span.offset.min(hole.span.offset);
            new.span.size += hole.span.size;
            new.last = new.last.join(state.unpassed(hole.last));
        }
        // Uses that have passed may still be named.
        let last = state.tlsf.last_use(one.key).unwrap_or(LastUse::SEVERAL);
        let is_known = state.unpassed(last) == state.unpassed(new.last);
        broken(!is_known, || format!("{wide:?} was used by {:?}, not {last:?}", new.last))?;
        new.last = last;
        self.settle(state, expected)
    }

    fn slide(&self, state: &mut State, at: usize, to: u64) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live[at];
        let before =
            state.hole_before(&one).filter(|hole| hole.span.offset <= to && to < one.span.offset);
        let slid = state.tlsf.slide_to(one.key, to);
        match (slid, before) {
            (Ok(_), Some(before)) => {
                let span = Span { offset: to, ..one.span };
                expected.live[at].span = span;
                // The use of the bytes goes with the hole.
                expected.set(one.block, span, one.last);
                let behind = Span { offset: span.end(), size: one.span.offset - to };
                expected.set(one.block, behind, before.last);
                expected.joins_users = true;
            }
            (Err(ErrorKind::OutOfRange), None) => {}
            (slid, before) => return Err(format!("slid {slid:?} over {before:?}")),
        }
        self.settle(state, expected)
    }

    fn exchange(
        &self,
        state: &mut State,
        at: usize,
        first: usize,
        last: usize,
    ) -> Result<(), String> {
        let mut expected = Expected::of(state);
        let one = expected.live[at];
        let (from, to) = (expected.live[first], expected.live[last]);
        let run = if first <= last { expected.live[first..=last].to_vec() } else { Vec::new() };
        let sum: u64 = run.iter().map(|one| one.span.size).sum();
        let is_run = !run.is_empty()
            && to.span.end().checked_sub(from.span.offset) == Some(sum)
            && from.block == to.block;
        let is_apart = !(first <= at && at <= last) && from.block == one.block;
        let fits = one.span.end() == from.span.offset || sum == one.span.size;
        let exchanged = state.tlsf.exchange(one.key, from.key, to.key);
        match exchanged {
            Ok(_) if is_run && is_apart && fits => {
                let follows = one.span.end() == from.span.offset;
                let (down, up) = (one.span.offset, from.span.offset);
                for live in &mut expected.live[first..=last] {
                    live.span.offset = live.span.offset - up + down;
                }
                expected.live[at].span.offset = if follows { down + sum } else { up };
                expected.live.sort_by_key(|one| (one.block, one.span.offset));
                for one in expected.live.clone() {
                    expected.set(one.block, one.span, one.last);
                }
            }
            Err(ErrorKind::OutOfRange) if !(is_run && is_apart && fits) => {}
            other => return Err(format!("exchanged {other:?}")),
        }
        self.settle(state, expected)
    }

    fn add(&self, state: &mut State, size: u64) -> Result<(), String> {
        let id = state.blocks.iter().position(Option::is_none).unwrap_or(state.blocks.len());
        let added = state.tlsf.add_block(size).map(|block| block.0 as usize);
        broken(added != Ok(id), || format!("{added:?} where {id} is the lowest unused id"))?;
        state.blocks.resize(state.blocks.len().max(id + 1), None);
        state.blocks[id] = Some(size);
        let expected = Expected::of(state);
        self.settle(state, expected)
    }

    fn remove(&self, state: &mut State, block: u32) -> Result<(), String> {
        let known = state.blocks.get(block as usize).is_some_and(Option::is_some);
        let right = match state.live.iter().any(|one| one.block == block) {
            true => Err(ErrorKind::Busy),
            false if known => Ok(()),
            false => Err(ErrorKind::Stale),
        };
        let removed = state.tlsf.remove_block(BlockId(block));
        broken(removed != right, || format!("{removed:?} where it is {right:?}"))?;
        if right.is_ok() {
            state.blocks[block as usize] = None;
            state.holes.retain(|hole| hole.block != block);
        }
        let expected = Expected::of(state);
        self.settle(state, expected)
    }

    fn pass(&self, state: &mut State, number: usize) -> Result<(), String> {
        let expected = Expected::of(state);
        state.passed = state.times()[number];
        state.tlsf.set_passed(state.passed);
        self.settle(state, expected)
    }

    fn merge(&self, state: &mut State) -> Result<(), String> {
        let expected = Expected { joins_users: true, ..Expected::of(state) };
        state.tlsf.merge_touching();
        self.settle(state, expected)?;
        let touch =
            |one: &Hole, next: &Hole| one.block == next.block && one.span.end() == next.span.offset;
        let touching =
            state.holes.iter().any(|one| state.holes.iter().any(|next| touch(one, next)));
        broken(touching, || format!("holes touch after all were merged: {:?}", state.holes))
    }

    /// Asks everything that changes nothing.
    fn ask(&self, state: &State) -> Result<(), String> {
        let tlsf = &state.tlsf;
        tlsf.validate()?;
        state.live.iter().try_for_each(|one| self.ask_of(state, one))?;
        for block in 0..3 {
            let known = state.blocks.get(block as usize).is_some_and(Option::is_some);
            let is_empty = known && !state.live.iter().any(|one| one.block == block);
            let holes = state.holes.iter().filter(|hole| hole.block == block);
            let last = holes.map(|hole| hole.last).fold(LastUse::NONE, LastUse::join);
            let listed = tlsf.empty_blocks().find(|(id, ..)| id.0 == block);
            let said = listed.map(|(.., last)| (last.user(), last.time()));
            let said = (tlsf.is_empty(BlockId(block)), said);
            let right = (is_empty, is_empty.then_some((last.user(), last.time())));
            broken(said != right, || format!("block {block}: {said:?} where it is {right:?}"))?;
        }
        for (size, align) in self.layouts() {
            for class in self.classes {
                let fits = |hole: &Hole| self.start_in(state, hole, size, align, *class).is_some();
                let would = tlsf.would_fit(Layout::new(size).align(Align::of(align)), *class);
                let right = state.holes.iter().any(fits);
                broken(would != right, || format!("{size} at {align} would fit: {would}"))?;
            }
        }
        Ok(())
    }

    fn ask_of(&self, state: &State, one: &Live) -> Result<(), String> {
        let granted =
            state.tlsf.granted(one.key).map(|(grant, class)| (grant.block.0, grant.span, class));
        broken(granted != Ok((one.block, one.span, one.class)), || {
            format!("{one:?}: {granted:?}")
        })?;
        let beside = [state.hole_before(one), state.hole_after(one)];
        let free: u64 = beside.into_iter().flatten().map(|hole| hole.span.size).sum();
        let size = state.blocks[one.block as usize];
        let right = (Some(free + one.span.size) == size).then_some(free);
        let said = state.tlsf.free_beside_only(one.key);
        broken(said != right, || format!("{said:?} beside {one:?}, where it is {right:?}"))?;
        if !state.tlsf.would_come_back(one.key)
            || !one.span.offset.is_multiple_of(4)
            || self.granularity > 1
        {
            return Ok(());
        }
        let mut other = state.clone();
        other.dead.push(one.key);
        let back = other.tlsf.free_used(one.key, LastUse::NONE).and_then(|_| {
            other.tlsf.allocate(Layout::new(one.span.size).align(Align::of(4)), one.class)
        });
        let is_same = back.is_ok_and(|grant| (grant.block.0, grant.span) == (one.block, one.span));
        self.see(&mut other);
        let order = |state: &State| -> Vec<(u32, Span)> {
            state.holes.iter().map(|hole| (hole.block, hole.span)).collect()
        };
        let is_same = is_same && order(&other) == order(state);
        broken(!is_same, || format!("{one:?} does not come back: {back:?}"))
    }

    fn layouts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.sizes.iter().flat_map(|size| self.aligns.iter().map(move |align| (*size, *align)))
    }

    fn edits(&self, state: &State, steps: &mut Vec<Step>) {
        let live = state.live.len();
        for (block, size) in state.blocks().chain([(7, 2)]) {
            let spans = (0..=size).flat_map(|offset| [0, 1, 2, 3, size].map(|size| (offset, size)));
            steps.extend(spans.map(|(offset, size)| Step::Carve { block, offset, size }));
        }
        steps.extend(state.blocks().map(|(block, _)| Step::CarveAll { block }));
        for (hole, Hole { span, .. }) in state.holes.iter().enumerate() {
            let spans =
                [(0, 0), (0, 1), (1, 1), (0, span.size), (1, span.size), (span.size - 1, 1)];
            steps.extend(spans.map(|(offset, size)| Step::CarveIn { hole, offset, size }));
        }
        for (at, one) in state.live.iter().enumerate() {
            steps.extend((0..=one.span.size).map(|size| Step::Split { at, size }));
            steps.extend((0..live).map(|next| Step::Join { at, next }));
            steps.push(Step::Widen { at });
            let lowest = state.hole_before(one).map_or(one.span.offset, |hole| hole.span.offset);
            let to = lowest.saturating_sub(1)..=one.span.offset;
            steps.extend(to.map(|to| Step::Slide { at, to }));
            let runs = (0..live)
                .flat_map(|first| (first..live.min(first + 3)).map(move |last| (first, last)));
            steps.extend(runs.map(|(first, last)| Step::Exchange { at, first, last }));
        }
    }
}

impl World for General {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let mut state = State {
            tlsf: Tlsf::new(Align::of(self.granularity)),
            blocks: Vec::new(),
            live: Vec::new(),
            holes: Vec::new(),
            now: 1,
            passed: 0,
            dead: Vec::new(),
            gone: Vec::new(),
        };
        if !self.prepared.is_empty() {
            self.add(&mut state, self.blocks[0]).expect("a plain block");
        }
        for size in self.prepared.iter().flat_map(|size| [*size, 1]) {
            let layout = (size, 1, Class::Linear);
            self.allocate(&mut state, layout, Who::Anyone).expect("there is room");
        }
        for at in 0..self.prepared.len() {
            self.free(&mut state, at, 0).expect("it is live");
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = vec![Step::Ask];
        if state.blocks().count() < self.most_blocks {
            steps.extend(self.blocks.iter().map(|size| Step::Add(*size)));
        }
        steps.extend((0..u32::try_from(state.blocks.len()).expect("few") + 1).map(Step::Remove));
        let users = 1..=self.users;
        let who = users.clone().flat_map(|user| [Who::Few(user), Who::All(user)]);
        let who: Vec<Who> = core::iter::once(Who::Anyone).chain(who).collect();
        if state.live.len() < self.most_live {
            for ((size, align), class) in self
                .layouts()
                .flat_map(|layout| self.classes.iter().map(move |class| (layout, *class)))
            {
                let is_tiled = class == Class::Tiled;
                steps.extend(who.iter().map(|who| Step::Allocate {
                    size,
                    align,
                    is_tiled,
                    who: *who,
                }));
            }
            if self.edits == Edits::All {
                self.edits(state, &mut steps);
            }
        }
        for at in 0..state.live.len() {
            steps.extend((0..=self.users).map(|user| Step::Free { at, user }));
            for (size, align) in self.layouts() {
                steps.extend(users.clone().map(|user| Step::Around { at, size, align, user }));
            }
        }
        if self.users > 0 {
            steps.extend((0..state.times().len()).map(Step::Pass));
            steps.push(Step::Merge);
        }
        steps
    }

    fn take(&self, state: &mut State, step: &Step) -> Result<(), String> {
        match *step {
            Step::Add(size) => self.add(state, size),
            Step::Remove(block) => self.remove(state, block),
            Step::Allocate { size, align, is_tiled, who } => {
                let class = if is_tiled { Class::Tiled } else { Class::Linear };
                self.allocate(state, (size, align, class), who)
            }
            Step::Free { at, user } => self.free(state, at, user),
            Step::Around { at, size, align, user } => self.around(state, at, (size, align, user)),
            Step::Pass(number) => self.pass(state, number),
            Step::Merge => self.merge(state),
            Step::Carve { block, offset, size } => self.carve(state, block, Span { offset, size }),
            Step::CarveIn { hole, offset, size } => self.carve_in(state, hole, offset, size),
            Step::CarveAll { block } => self.carve_all(state, block),
            Step::Split { at, size } => self.split(state, at, size),
            Step::Join { at, next } => self.join(state, at, next),
            Step::Widen { at } => self.widen(state, at),
            Step::Slide { at, to } => self.slide(state, at, to),
            Step::Exchange { at, first, last } => self.exchange(state, at, first, last),
            Step::Ask => self.ask(state),
        }
    }

    fn key(&self, state: &State) -> u128 {
        let times = state.times();
        let rank = |last: LastUse| {
            let rank = times.partition_point(|time| *time <= last.time());
            (last.user(), if last.time() > state.passed { rank } else { 0 })
        };
        let mut hash = Hash::new().with(&state.blocks);
        for one in &state.live {
            let place = (one.block, one.span.offset, one.span.size);
            hash = hash.with((place, one.class == Class::Tiled, rank(one.last)));
        }
        for hole in &state.holes {
            hash = hash.with(((hole.block, hole.span.offset, hole.span.size), rank(hole.last)));
        }
        hash.get()
    }

    fn copy(&self, state: &State) -> Option<State> {
        Some(state.clone())
    }

    fn test(&self, path: &[Step]) -> String {
        format!("#[test]\nfn a_path() {{\n    replay(&{}(), &{path:?});\n}}", self.name)
    }
}

fn world() -> General {
    let viewers = (0..2).map(|id| {
        let mut tlsf = Tlsf::new(Align::ONE);
        (0..=id).try_for_each(|_| tlsf.add_block(1).map(|_| ())).expect("a block");
        Pager::new(&mut tlsf, BlockId(id), 1, 1).expect("a block of one page")
    });
    General {
        name: "",
        granularity: 1,
        blocks: &[],
        most_blocks: 1,
        most_live: usize::MAX,
        sizes: &[],
        aligns: &[1],
        classes: &[Class::Linear],
        users: 0,
        edits: Edits::None,
        prepared: &[],
        viewers: viewers.collect(),
    }
}

/// Sizes, alignments and blocks.
fn general() -> General {
    General {
        name: "general",
        blocks: &[12, 5],
        most_blocks: 2,
        sizes: &[1, 2, 3, 5, 12, 18],
        aligns: &[1, 2, 4],
        ..world()
    }
}

/// Two classes that keep a granule apart, with users whose holes touch.
fn classes() -> General {
    let classes = &[Class::Linear, Class::Tiled];
    General {
        name: "classes",
        granularity: 4,
        blocks: &[9],
        sizes: &[1, 4],
        classes,
        users: 2,
        most_live: 3,
        ..world()
    }
}

/// Two timelines that free side by side.
fn users() -> General {
    General {
        name: "users",
        blocks: &[8],
        sizes: &[1, 2, 3, 8],
        aligns: &[1, 2],
        users: 2,
        most_live: 5,
        ..world()
    }
}

/// A timeline between the holes of two others.
fn three_users() -> General {
    General {
        name: "three_users",
        blocks: &[6],
        sizes: &[1, 2, 6],
        users: 3,
        most_live: 4,
        ..world()
    }
}

/// Blocks that come and go while their holes wait for timelines.
fn blocks_of_users() -> General {
    General {
        name: "blocks_of_users",
        blocks: &[4, 3],
        most_blocks: 2,
        sizes: &[1, 3],
        users: 2,
        most_live: 4,
        ..world()
    }
}

/// Alignments that meet the granules of another class.
fn aligned_classes() -> General {
    General {
        name: "aligned_classes",
        granularity: 4,
        blocks: &[13],
        sizes: &[1, 3, 5],
        aligns: &[1, 2, 4],
        classes: &[Class::Linear, Class::Tiled],
        most_live: 5,
        ..world()
    }
}

/// Everything that defragmentation and pools call.
fn edits() -> General {
    General {
        name: "edits",
        blocks: &[7, 4],
        most_blocks: 2,
        sizes: &[1, 2, 3],
        classes: &[Class::Linear, Class::Tiled],
        users: 2,
        most_live: 4,
        edits: Edits::All,
        ..world()
    }
}

/// Sizes that share lists.
fn coarse() -> General {
    General {
        name: "coarse",
        blocks: &[600],
        sizes: &[64, 65, 130, 133, 200],
        aligns: &[1, 64],
        users: 1,
        ..world()
    }
}

/// More holes in one list than a request looks at first.
fn long_list() -> General {
    let prepared = &[65, 64, 64, 64, 64, 64];
    General {
        name: "long_list",
        blocks: &[391],
        sizes: &[1, 64, 65],
        users: 1,
        prepared,
        ..world()
    }
}

#[test]
fn sizes_and_alignments() {
    explore("general", &general(), 9);
}

#[test]
fn two_classes() {
    explore("classes", &classes(), 9);
    explore("aligned classes", &aligned_classes(), 8);
}

#[test]
fn two_timelines() {
    explore("users", &users(), 8);
    explore("three users", &three_users(), 8);
    explore("blocks of users", &blocks_of_users(), 8);
}

#[test]
fn every_edit() {
    explore("edits", &edits(), 6);
}

#[test]
fn sizes_that_share_lists() {
    explore("coarse", &coarse(), 6);
    explore("long list", &long_list(), 3);
}

#[test]
fn what_has_passed_adds_no_user_to_a_span_that_is_taken_around() {
    let allocate = Step::Allocate { size: 1, align: 1, is_tiled: false, who: Who::Anyone };
    let [one, two, three] = [(); 3].map(|()| allocate.clone());
    let [first, second] = [Step::Free { at: 0, user: 1 }, Step::Free { at: 1, user: 2 }];
    let around = Step::Around { at: 0, size: 1, align: 1, user: 2 };
    replay(&users(), &[Step::Add(8), one, two, three, first, second, Step::Pass(0), around]);
}

#[test]
fn a_span_that_slides_leaves_a_hole_that_waits_for_both_holes() {
    let allocate = Step::Allocate { size: 1, align: 1, is_tiled: false, who: Who::Anyone };
    let carve = Step::Carve { block: 0, offset: 3, size: 3 };
    let (free, slide) = (Step::Free { at: 0, user: 1 }, Step::Slide { at: 0, to: 1 });
    replay(&edits(), &[Step::Add(7), allocate, carve, free, slide]);
}
