//! The pages of a reserved block against what a driver would have mapped, byte by byte.
use crate::explore;
use core::fmt::Debug;
use omniheap_exhaustive::{Key as Hash, World};
use omniheap_seam::{Align, Class, ErrorKind, Layout, Page, Span};
use omniheap_strategy::pages::{Leftover, Pager, Shift, Shifted, Stretch};
use omniheap_strategy::{BlockId, Grant, Key, Strategy, Tlsf};
use std::collections::BTreeSet;

const PAGE: u64 = 2;
const BLOCK: BlockId = BlockId(0);

/// A reserved block of a few pages.
#[derive(Debug)]
struct Pages {
    name: &'static str,
    positions: u64,
    /// Pages that have memory at the start, with a live span of a page in each.
    prepared: u64,
    most_live: usize,
    sizes: &'static [u64],
    /// Sees the holes in the order of the lists.
    viewer: Pager,
}

/// Call at which the driver stops in a shift; `At` counts its calls for one stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Never,
    At { stretch: usize, call: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Allocate {
        size: u64,
        align: u64,
    },
    Free(usize),
    SetApart(u64),
    /// The driver maps what was set apart: pages of their own, or one group.
    Map {
        is_group: bool,
    },
    /// The driver maps it, and cannot clear it.
    Strand,
    Abandon,
    Take(u64),
    /// The driver unmaps what was taken.
    Unmap,
    Restore,
    /// Pages move down; meanwhile a span that does not move is freed.
    Shift {
        stop: Stop,
        freed: Option<usize>,
    },
    /// All memory goes and comes back where something lives.
    Sleep,
    Ask,
}

/// A byte of memory: the page group, the page in it, and the byte.
type Byte = (u64, u64, u64);

#[derive(Clone, Debug)]
struct Live {
    key: Key,
    span: Span,
    bytes: Vec<Byte>,
}

#[derive(Clone, Debug)]
struct State {
    tlsf: Tlsf,
    pager: Pager,
    /// Mapping of the driver at each position: the page group, and the page in it.
    mapped: Vec<Option<(u64, u64)>>,
    /// Positions that nobody may use any more.
    stuck: BTreeSet<u64>,
    next_page: u64,
    live: Vec<Live>,
    apart: Option<Grant>,
    taken: Vec<Grant>,
    dead: Vec<Key>,
}

fn broken(is_broken: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_broken { Err(why()) } else { Ok(()) }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("small")
}

const fn positions(span: Span) -> core::ops::Range<u64> {
    span.offset / PAGE..span.end() / PAGE
}

fn spans(state: &State) -> Vec<(Key, Span, Option<Class>)> {
    let mut spans = Vec::new();
    state.tlsf.for_each_in(BLOCK, |key, span, class| spans.push((key, span, class)));
    spans
}

impl State {
    fn bytes(&self, span: Span) -> Option<Vec<Byte>> {
        (span.offset..span.end())
            .map(|at| {
                let (group, page) = self.mapped[index(at / PAGE)]?;
                Some((group, page, at % PAGE))
            })
            .collect()
    }

    fn map(&mut self, span: Span, pages: &[(u64, u64)]) {
        for (position, page) in positions(span).zip(pages) {
            self.mapped[index(position)] = Some(*page);
        }
    }

    /// Maps pages where the driver has none: no driver maps pages over pages.
    fn map_free(&mut self, span: Span, pages: &[(u64, u64)]) -> Result<(), String> {
        let is_free = positions(span).all(|at| self.mapped[index(at)].is_none());
        broken(!is_free, || format!("pages are mapped over pages at {span:?}"))?;
        self.map(span, pages);
        Ok(())
    }

    fn unmap(&mut self, span: Span) {
        positions(span).for_each(|position| self.mapped[index(position)] = None);
    }

    /// New pages for a span.
    fn pages(&mut self, span: Span, is_group: bool) -> Vec<(u64, u64)> {
        let count = span.size / PAGE;
        let first = self.next_page;
        self.next_page += if is_group { 1 } else { count };
        (0..count).map(|at| if is_group { (first, at) } else { (first + at, 0) }).collect()
    }

    /// Makes the bytes of a span that was mapped anew those that live there.
    fn renew(&mut self) {
        for at in 0..self.live.len() {
            if let Some(bytes) = self.bytes(self.live[at].span) {
                self.live[at].bytes = bytes;
            }
        }
    }

    fn free(&mut self, at: usize) -> Result<(), String> {
        let one = self.live.remove(at);
        let freed = self.tlsf.free(one.key).map(|grant| grant.span);
        self.dead.push(one.key);
        broken(freed != Ok(one.span), || format!("freed {freed:?}, not {one:?}"))
    }

    /// Returns true if the group of a position does not begin before it. A page that the driver did not unmap belongs
    /// to nobody.
    fn group_starts(&self, position: u64) -> bool {
        let group = |at: u64| {
            let page = self.mapped.get(index(at)).copied().flatten();
            page.filter(|_| !self.stuck.contains(&at)).map(|page| page.0)
        };
        position == 0 || group(position).is_none() || group(position - 1) != group(position)
    }
}

fn plain(pages: &[(u64, u64)]) -> Vec<Page> {
    pages.iter().map(|(group, _)| Page(*group)).collect()
}

impl Pages {
    fn allocate(&self, state: &mut State, size: u64, align: u64) -> Result<(), String> {
        let fits = |(_, span, class): &(Key, Span, Option<Class>)| {
            class.is_none() && span.offset.next_multiple_of(align) + size <= span.end()
        };
        let would = spans(state).iter().any(fits);
        let layout = Layout::new(size).align(Align::of(align));
        match state.tlsf.allocate(layout, Class::Linear) {
            Ok(grant) => {
                let bytes = state.bytes(grant.span);
                let bytes = bytes.ok_or_else(|| format!("{grant:?} has no memory"))?;
                state.live.push(Live { key: grant.key, span: grant.span, bytes });
                state.live.sort_by_key(|one| one.span.offset);
                Ok(())
            }
            Err(kind) => broken(would, || format!("{kind:?}, but a hole fits")),
        }
    }

    /// The fewest new bytes that make a hole of a size.
    fn fewest(&self, state: &State, size: u64) -> Option<u64> {
        let spans = spans(state);
        let hole = |at: Option<usize>| match at.and_then(|at| spans.get(at)) {
            Some((_, span, None)) => span.size,
            _ => 0,
        };
        let ranges =
            (0..spans.len()).filter(|at| state.pager.is_unmapped(spans[*at].0, spans[*at].1));
        let fewest = ranges.filter_map(|at| {
            let (before, after, range) =
                (hole(at.checked_sub(1)), hole(Some(at + 1)), spans[at].1.size);
            (1..=range / PAGE).map(|count| count * PAGE).find(|new| {
                let edge = before.max(after) + new >= size;
                edge || (*new == range && before + new + after >= size)
            })
        });
        fewest.min()
    }

    fn set_apart(&self, state: &mut State, size: u64) -> Result<(), String> {
        let fewest = self.fewest(state, size);
        let apart = state.pager.set_apart(&mut state.tlsf, size, |_| true);
        match (apart, fewest) {
            (Ok(piece), Some(fewest)) => {
                broken(piece.span.size != fewest, || format!("{piece:?}, not {fewest} bytes"))?;
                let reserved = state.pager.reserve_table(piece.span);
                state.apart = Some(piece);
                broken(reserved.is_err(), || format!("{reserved:?}"))
            }
            (Err(ErrorKind::OutOfDeviceMemory), None) => Ok(()),
            (apart, fewest) => Err(format!("{apart:?} where {fewest:?} bytes are enough")),
        }
    }

    fn map(&self, state: &mut State, is_group: bool) -> Result<(), String> {
        let Some(piece) = state.apart.take() else { return Ok(()) };
        let pages = state.pages(piece.span, is_group);
        state.map(piece.span, &pages);
        state.pager.hand_over(piece, &plain(&pages));
        let freed = state.tlsf.free(piece.key);
        state.dead.push(piece.key);
        broken(freed.is_err(), || format!("{piece:?} is {freed:?}"))
    }

    fn strand(&self, state: &mut State) {
        let Some(piece) = state.apart.take() else { return };
        let pages = state.pages(piece.span, false);
        state.map(piece.span, &pages);
        state.pager.strand(piece, &plain(&pages));
        state.stuck.extend(positions(piece.span));
    }

    fn take_pages(&self, state: &mut State, wanted: u64) -> Result<(), String> {
        let holes: Vec<Span> =
            spans(state).iter().filter(|one| one.2.is_none()).map(|one| one.1).collect();
        let whole = |hole: &Span| {
            let first = hole.offset.div_ceil(PAGE);
            (hole.end() / PAGE).saturating_sub(first) * PAGE
        };
        let all: u64 = holes.iter().map(whole).sum();
        let is_grouped = state.mapped.iter().flatten().any(|(_, page)| *page > 0);
        let pieces = state.pager.take_pages(&mut state.tlsf, wanted, None, |_| true);
        let sum: u64 = pieces.iter().map(|piece| piece.span.size).sum();
        broken(sum > wanted, || format!("{pieces:?} are more than {wanted}"))?;
        let right = all.min(wanted);
        broken(!is_grouped && sum != right, || format!("{pieces:?}, not {right} bytes"))?;
        for piece in &pieces {
            let inside =
                |hole: &Span| hole.offset <= piece.span.offset && piece.span.end() <= hole.end();
            broken(!holes.iter().any(inside), || format!("{piece:?} is in no hole"))?;
            let ends = [piece.span.offset, piece.span.end()];
            let is_whole = ends.iter().all(|at| at % PAGE == 0 && state.group_starts(at / PAGE));
            broken(!is_whole, || format!("{piece:?} splits a group"))?;
        }
        state.taken = pieces;
        Ok(())
    }

    fn unmap(&self, state: &mut State) -> Result<(), String> {
        for piece in core::mem::take(&mut state.taken) {
            let pages: Option<Vec<Page>> =
                positions(piece.span).map(|at| Some(Page(state.mapped[index(at)]?.0))).collect();
            state.unmap(piece.span);
            let noted = state.pager.note_unmapped(&mut state.tlsf, piece);
            broken(Some(&noted) != pages.as_ref(), || format!("{noted:?}, not {pages:?}"))?;
        }
        Ok(())
    }

    fn restore(&self, state: &mut State) -> Result<(), String> {
        for piece in core::mem::take(&mut state.taken) {
            let restored = state.pager.restore(&mut state.tlsf, piece);
            broken(restored.is_err(), || format!("{piece:?} is {restored:?}"))?;
        }
        Ok(())
    }

    /// The stretches that can move, as a lane finds them.
    fn stretches(&self, state: &State) -> Vec<Stretch<Key>> {
        let (mut found, mut open, mut is_first) = (Vec::new(), None::<Stretch<Key>>, true);
        for (key, span, class) in spans(state) {
            if state.pager.is_unmapped(key, span) {
                found.extend(open.take());
                open = (!is_first).then(|| Stretch::behind(key, span));
                continue;
            }
            is_first = false;
            let Some(stretch) = open.as_mut() else { continue };
            match class {
                None => stretch.add_hole(key, span),
                Some(_) if state.live.iter().any(|one| one.key == key) => {
                    stretch.add_live(key, span, key);
                }
                Some(_) => open = None,
            }
        }
        found.extend(open);
        found.retain(|stretch| !stretch.is_empty());
        found
    }

    fn shift(&self, state: &mut State, stop: Stop, freed: Option<usize>) -> Result<(), String> {
        let stretches = self.stretches(state);
        let shifts = state.pager.begin_shifts(&mut state.tlsf, stretches);
        let moving: Vec<Key> = shifts.iter().flat_map(Shift::slots).copied().collect();
        if let Some(at) = freed.filter(|at| !moving.contains(&state.live[*at].key)) {
            state.free(at)?;
        }
        let mut shifted = Shifted::default();
        let mut moves: Vec<(Key, Span, Span)> = Vec::new();
        for (number, one) in shifts.iter().enumerate() {
            let stop = match stop {
                Stop::At { stretch, call } if stretch == number => Some(call),
                _ => None,
            };
            let to = Self::drive(state, one, stop, &mut shifted)?;
            let by = |to: Span| to.offset.wrapping_sub(one.places()[0].offset);
            moves.extend(to.into_iter().flat_map(|to| {
                one.slots()
                    .iter()
                    .map(move |key| (*key, one.places()[0], Span { size: by(to), ..to }))
            }));
            if stop.is_some() {
                break;
            }
        }
        for (key, _, Span { size: by, .. }) in moves {
            if let Some(one) = state.live.iter_mut().find(|one| one.key == key) {
                one.span.offset = one.span.offset.wrapping_add(by);
            }
        }
        let moved: BTreeSet<Key> = shifted.moved(&shifts).copied().collect();
        state.pager.end_shifts(&mut state.tlsf, &shifts, shifted);
        state.live.sort_by_key(|one| one.span.offset);
        broken(moved.len() > moving.len(), || "more moved than could".to_owned())
    }

    /// Plays the driver for one stretch; returns where the stretch is in the end if not where it was.
    fn drive(
        state: &mut State,
        one: &Shift<Key>,
        stop: Option<usize>,
        shifted: &mut Shifted,
    ) -> Result<Option<Span>, String> {
        let [old, new] = one.places();
        let pages: Vec<(u64, u64)> =
            positions(old).filter_map(|at| state.mapped[index(at)]).collect();
        broken(plain(&pages) != one.pages(), || format!("{:?} are not {pages:?}", one.pages()))?;
        if let Some(aside) = one.aside() {
            return Self::drive_aside(state, one, (aside, &pages), stop, shifted);
        }
        if stop == Some(0) {
            return Ok(None);
        }
        state.map_free(new, &pages)?;
        shifted.made += 1;
        if stop.is_some() {
            shifted.leftover = Some(Leftover::Old);
            state.stuck.extend(positions(old));
            return Ok(Some(new));
        }
        state.unmap(old);
        Ok(Some(new))
    }

    /// The same where the pages are mapped aside in between.
    fn drive_aside(
        state: &mut State,
        one: &Shift<Key>,
        (aside, pages): (Grant, &[(u64, u64)]),
        stop: Option<usize>,
        shifted: &mut Shifted,
    ) -> Result<Option<Span>, String> {
        let [old, new] = one.places();
        if stop == Some(0) {
            return Ok(None);
        }
        state.map_free(aside.span, pages)?;
        if stop == Some(1) {
            shifted.leftover = Some(Leftover::Aside(aside.key));
            state.stuck.extend(positions(aside.span));
            return Ok(None);
        }
        state.unmap(old);
        if stop == Some(2) {
            shifted.is_aside = true;
            return Ok(Some(aside.span));
        }
        state.map_free(new, pages)?;
        shifted.made += 1;
        if stop.is_some() {
            shifted.leftover = Some(Leftover::Aside(aside.key));
            state.stuck.extend(positions(aside.span));
            return Ok(Some(new));
        }
        state.unmap(aside.span);
        Ok(Some(new))
    }

    fn sleep(&self, state: &mut State) -> Result<(), String> {
        let had: Vec<Span> = state.pager.mapped_spans().into_iter().map(|(span, _)| span).collect();
        for span in &had {
            state.pager.clear_pages(*span);
            state.unmap(*span);
        }
        state.tlsf.merge_touching();
        let live: Vec<Span> = state.live.iter().map(|one| one.span).collect();
        let spans = state.pager.keep_around(&mut state.tlsf, &had, live.iter().copied());
        for gap in spans.iter().flat_map(|span| state.pager.gaps(*span)).collect::<Vec<_>>() {
            let pages = state.pages(gap, false);
            state.map(gap, &pages);
            state.pager.set_pages(gap, &plain(&pages));
        }
        state.renew();
        let needed = |position: u64| {
            let page = Span { offset: position * PAGE, size: PAGE };
            live.iter().any(|one| one.overlaps(page))
        };
        for position in 0..self.positions {
            let is_mapped = state.mapped[index(position)].is_some();
            broken(is_mapped != needed(position), || {
                format!("page {position} is mapped: {is_mapped}")
            })?;
        }
        Ok(())
    }

    fn ask(&self, state: &State) -> Result<(), String> {
        state.tlsf.validate()?;
        for position in 0..self.positions {
            let said = state.pager.group_at(position);
            let group = |at: u64| Some(state.mapped.get(index(at))?.as_ref()?.0);
            let is_known = group(position).is_some() && !state.stuck.contains(&position);
            broken(said.is_some() != is_known && !state.stuck.contains(&position), || {
                format!("the group at {position} is {said:?}")
            })?;
            let Some(said) = said.filter(|_| is_known) else { continue };
            let same = |at: &u64| group(*at) == group(position) && !state.stuck.contains(at);
            let right = (0..self.positions).filter(same).collect::<Vec<_>>();
            broken(!said.clone().eq(right.iter().copied()), || {
                format!("{said:?} is not {right:?}")
            })?;
        }
        Ok(())
    }

    /// Checks every piece and every page.
    fn check(&self, state: &State) -> Result<(), String> {
        let lives = state.dead.iter().find(|key| state.tlsf.grant(**key).is_ok());
        broken(lives.is_some(), || format!("{lives:?} lives again"))?;
        let (mut unmapped, mut last_was_unmapped) = (0, false);
        let own = |key: Key| {
            let apart = state.apart.iter().chain(&state.taken).map(|piece| piece.key);
            state.live.iter().map(|one| one.key).chain(apart).any(|own| own == key)
        };
        let mut other = 0;
        for (key, span, class) in spans(state) {
            let is_unmapped = state.pager.is_unmapped(key, span);
            broken(is_unmapped && last_was_unmapped, || format!("ranges touch at {span:?}"))?;
            last_was_unmapped = is_unmapped;
            let has_memory = state.bytes(span).is_some();
            let is_stuck =
                (span.offset / PAGE..span.end().div_ceil(PAGE)).any(|at| state.stuck.contains(&at));
            if is_unmapped {
                unmapped += span.size;
                let is_bare = positions(span).all(|at| state.mapped[index(at)].is_none());
                broken(!is_bare, || format!("{span:?} has memory and is unmapped"))?;
            } else if class.is_none() || state.live.iter().any(|one| one.key == key) {
                broken(!has_memory || is_stuck, || format!("{span:?} has no memory of its own"))?;
            } else if !own(key) {
                other += span.size;
                broken(!is_stuck, || format!("{span:?} is lost"))?;
            }
        }
        let said = state.pager.unmapped_bytes(&state.tlsf);
        broken(said != unmapped, || format!("{said} bytes unmapped, not {unmapped}"))?;
        let apart: u64 = state.apart.iter().chain(&state.taken).map(|piece| piece.span.size).sum();
        let said = (
            state.pager.in_flight_bytes(),
            state.pager.stranded_bytes(),
            state.pager.is_in_transit(),
        );
        let right = (apart + other, other, apart > 0);
        broken(said != right, || format!("{said:?} in flight, not {right:?}"))?;
        self.check_pages(state)
    }

    /// Checks the bytes of every live span, and the page table.
    fn check_pages(&self, state: &State) -> Result<(), String> {
        for one in &state.live {
            let granted = state.tlsf.grant(one.key).map(|grant| grant.span);
            broken(granted != Ok(one.span), || format!("{one:?} is at {granted:?}"))?;
            let bytes = state.bytes(one.span);
            broken(bytes.as_ref() != Some(&one.bytes), || {
                format!("{one:?} has the bytes {bytes:?}")
            })?;
        }
        let mut table = vec![None; index(self.positions)];
        for (span, pages) in state.pager.mapped_spans() {
            positions(span).zip(pages).for_each(|(at, page)| table[index(at)] = Some(page.0));
        }
        for position in (0..self.positions).filter(|at| !state.stuck.contains(at)) {
            let (said, right) = (table[index(position)], state.mapped[index(position)]);
            broken(said != right.map(|page| page.0), || {
                format!("page {position} is {right:?}, not {said:?}")
            })?;
        }
        Ok(())
    }
}

impl World for Pages {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let mut tlsf = Tlsf::new(Align::ONE);
        let size = self.positions * PAGE;
        let block = tlsf.add_block(size).expect("a plain block");
        let pager = Pager::new(&mut tlsf, block, size, PAGE).expect("a new block");
        let mapped = vec![None; index(self.positions)];
        let (live, taken, dead) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = State {
            tlsf,
            pager,
            mapped,
            stuck: BTreeSet::new(),
            next_page: 0,
            live,
            apart: None,
            taken,
            dead,
        };
        if self.prepared > 0 {
            self.set_apart(&mut state, self.prepared * PAGE).expect("there are addresses");
            self.map(&mut state, false).expect("it was set apart");
        }
        for _ in 0..self.prepared {
            self.allocate(&mut state, PAGE, 1).expect("there is memory");
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = vec![Step::Ask];
        if state.live.len() < self.most_live {
            let layouts = self.sizes.iter().flat_map(|size| [(*size, 1), (*size, 2)]);
            steps.extend(layouts.map(|(size, align)| Step::Allocate { size, align }));
        }
        steps.extend((0..state.live.len()).map(Step::Free));
        if state.apart.is_some() {
            steps.extend([Step::Map { is_group: true }, Step::Map { is_group: false }]);
            steps.push(Step::Abandon);
            if state.stuck.is_empty() {
                steps.push(Step::Strand);
            }
        } else {
            steps.extend(self.sizes.iter().map(|size| Step::SetApart(*size)));
        }
        if state.taken.is_empty() {
            steps.extend([1, 2, 3, self.positions].map(|pages| Step::Take(pages * PAGE)));
        } else {
            steps.extend([Step::Unmap, Step::Restore]);
        }
        let calls = if state.stuck.is_empty() { 4 } else { 1 };
        let stops =
            (0..2).flat_map(|stretch| (0..calls).map(move |call| Stop::At { stretch, call }));
        for stop in core::iter::once(Stop::Never).chain(stops) {
            let freed = core::iter::once(None).chain((0..state.live.len()).map(Some));
            steps.extend(freed.map(|freed| Step::Shift { stop, freed }));
        }
        if state.apart.is_none() && state.taken.is_empty() && state.stuck.is_empty() {
            steps.push(Step::Sleep);
        }
        steps
    }

    fn take(&self, state: &mut State, step: &Step) -> Result<(), String> {
        self.retake(state, step)?;
        self.check(state)
    }

    fn retake(&self, state: &mut State, step: &Step) -> Result<(), String> {
        match *step {
            Step::Allocate { size, align } => self.allocate(state, size, align)?,
            Step::Free(at) => state.free(at)?,
            Step::SetApart(size) => self.set_apart(state, size)?,
            Step::Map { is_group } => self.map(state, is_group)?,
            Step::Strand => self.strand(state),
            Step::Abandon => {
                if let Some(piece) = state.apart.take() {
                    state.pager.abandon(&mut state.tlsf, piece);
                }
            }
            Step::Take(wanted) => self.take_pages(state, wanted)?,
            Step::Unmap => self.unmap(state)?,
            Step::Restore => self.restore(state)?,
            Step::Shift { stop, freed } => self.shift(state, stop, freed)?,
            Step::Sleep => self.sleep(state)?,
            Step::Ask => self.ask(state)?,
        }
        Ok(())
    }

    fn key(&self, state: &State) -> u128 {
        let mut names = Vec::new();
        let mapped: Vec<_> = state
            .mapped
            .iter()
            .map(|page| {
                let (group, page) = (*page)?;
                let name = names.iter().position(|name| *name == group).unwrap_or(names.len());
                if name == names.len() {
                    names.push(group);
                }
                Some((name, page))
            })
            .collect();
        let mut hash = Hash::new().with(mapped).with(&state.stuck);
        for (key, span, class) in spans(state) {
            let kind = match class {
                None => 0,
                Some(_) if state.live.iter().any(|one| one.key == key) => 1,
                Some(_) if state.apart.is_some_and(|piece| piece.key == key) => 2,
                Some(_) if state.taken.iter().any(|piece| piece.key == key) => 3,
                Some(_) if state.pager.is_unmapped(key, span) => 4,
                Some(_) => 5,
            };
            hash = hash.with((span.size, kind));
        }
        let holes = self.viewer.choose_pages(&state.tlsf, u64::MAX, None, |_| true);
        holes.iter().fold(hash, |hash, (_, hole)| hash.with(hole.offset)).get()
    }

    fn copy(&self, state: &State) -> Option<State> {
        Some(state.clone())
    }

    fn test(&self, path: &[Step]) -> String {
        format!("#[test]\nfn a_path() {{\n    replay(&{}(), &{path:?});\n}}", self.name)
    }
}

fn pages() -> Pages {
    let mut tlsf = Tlsf::new(Align::ONE);
    let block = tlsf.add_block(1).expect("a block");
    let viewer = Pager::new(&mut tlsf, block, 1, 1).expect("a block of one page");
    let (positions, prepared) = (8, 0);
    Pages { name: "pages", positions, prepared, most_live: 3, sizes: &[1, 2, 3, 6], viewer }
}

/// Many stretches that can move, with room behind them.
fn stretches() -> Pages {
    let (positions, prepared) = (10, 6);
    Pages { name: "stretches", positions, prepared, most_live: 6, sizes: &[1, 3], ..pages() }
}

/// No address without memory is left.
fn full() -> Pages {
    let (positions, prepared) = (7, 7);
    Pages { name: "full", positions, prepared, most_live: 7, sizes: &[1, 3], ..pages() }
}

#[test]
fn pages_move() {
    explore("pages", &pages(), 9);
    explore("stretches", &stretches(), 6);
    explore("full", &full(), 6);
}
