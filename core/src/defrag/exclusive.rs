//! Exclusive moves: they overwrite old places, so they wait for the device and run to their end before they return.
//!
//! A *slide* closes holes of one block: it plans and marks under the lock, copies without it, and commits under it again.
//! Threads that ask for the place of a moving allocation wait. Where a copy fails, the slides made so far are published
//! and the rest stays where it was.
//!
//! A *shift* closes unmapped ranges between pages: it maps the pages behind such a range further down and copies no byte.
//! Slides cannot cross an unmapped range, so each stretch between two of them keeps less than a page that no request gets.
//! A shifted stretch touches the one below, and slides can join their holes. Everything in it moves by whole pages, so
//! alignment up to a page holds.
#![forbid(unsafe_code)]
use super::copier::{self, OverlapCopier};
use super::snapshot::{Found, SlotsByKey};
use super::window::{MoveDown, Piece, Planned, Window, cheapest, last, room_for, widest};
use crate::device::Block;
use crate::device::insist;
use crate::pool::{Ask, Consent, Divider, Lane, LaneState, Pager, SlotId};
use crate::strategy::{BlockId, Key, Strategy, Tlsf};
use crate::{Align, Backend, ErrorKind, InsideBlock, Page, Result, Span, TimelineId, Transfer};
use alloc::{sync::Arc, vec::Vec};
use core::cell::Cell;
use std::time::Instant;

/// Slides of one block.
type Chosen = Window<SlotId>;

/// A window whose allocations are marked as moving and whose holes are held.
struct Begun<B: Backend> {
    block: Arc<Block<B>>,
    window: Chosen,
    holes: Vec<(Key, Span)>,
    /// The lane's clock at the start: spans freed before it are unused once the device is idle.
    time: u64,
}

/// The number and bytes of exclusive moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slid {
    pub(crate) moves: u64,
    pub(crate) bytes: u64,
}

impl<B: Backend> Lane<B> {
    /// Makes a hole for a request by sliding live data together; returns what moved, or `None` where it cannot.
    ///
    /// Waits for the device, so no work in flight uses what moves.
    ///
    /// # Errors
    ///
    /// Driver errors; every allocation is then at one place with its bytes.
    pub(crate) fn make_hole(&self, ask: Ask) -> Result<Option<Slid>> {
        self.make_hole_if(ask, |_| true)
    }

    /// As [`make_hole`](Self::make_hole), if that is expected to take less than `nanos` nanoseconds.
    pub(crate) fn make_hole_within(&self, ask: Ask, nanos: f64) -> Result<Option<Slid>> {
        let cost = self.shared.device.cost(self.shared.heap);
        let rates = cost.rates();
        let waiting_decided = Cell::new(false);
        let slid = self.make_hole_if(ask, |window| {
            let copying = rates.of(window.slides.len() as u64, window.bytes);
            let cheaper = copying + rates.of_waiting() < nanos;
            waiting_decided.set(waiting_decided.get() || (!cheaper && copying < nanos));
            cheaper
        })?;
        if slid.is_none() && waiting_decided.get() {
            cost.doubt_waiting();
        }
        Ok(slid)
    }

    fn make_hole_if(&self, ask: Ask, wanted: impl Fn(&Chosen) -> bool) -> Result<Option<Slid>> {
        let slack = ask.layout.align.get().saturating_sub(self.shared.unit.get());
        let size = ask.layout.size.saturating_add(slack);
        self.run(ask.unsettled(self.shared.unit), |pieces| {
            cheapest(pieces, size).map(|window| window.filter(&wanted))
        })
    }

    /// Makes a hole of at least `size` bytes out of smaller ones; returns what moved, or `None` where it cannot. `own` is
    /// the number of the caller's requests whose alignment is not recorded yet. Waits for the device.
    ///
    /// # Errors
    ///
    /// As for [`make_hole`](Self::make_hole).
    pub(crate) fn join_holes(&self, size: u64, own: u64) -> Result<Option<Slid>> {
        self.run(own, |pieces| {
            for piece in pieces.iter_mut() {
                if matches!(piece, Piece::Hole(hole) if hole.size >= size) {
                    *piece = Piece::Fixed;
                }
            }
            cheapest(pieces, size)
        })
    }

    /// Makes a hole of `size` bytes, or as large as possible, at the end of a lane of pages, where new pages can extend
    /// it; returns what moved, or `None` where nothing has to. Waits for the device.
    ///
    /// # Errors
    ///
    /// As for [`make_hole`](Self::make_hole).
    pub(crate) fn lay_hole_last(&self, size: u64, own: u64) -> Result<Option<Slid>> {
        self.run(own, |pieces| last(pieces, size))
    }

    /// Joins the scattered holes of a block; returns what moved, or `None` where nothing more can be gained. Waits for
    /// the device.
    ///
    /// # Errors
    ///
    /// As for [`make_hole`](Self::make_hole).
    pub(crate) fn close_up(&self) -> Result<Option<Slid>> {
        // Free pages are mapped where they are needed, so their holes need not be joined.
        if self.shared.page().is_some() {
            return Ok(None);
        }
        self.run(0, |pieces| widest(pieces))
    }

    /// Makes the slides of the cheapest window of those that `choose` finds in each block.
    fn run(
        &self,
        own: u64,
        choose: impl Fn(&mut [Piece<SlotId>]) -> Planned<SlotId>,
    ) -> Result<Option<Slid>> {
        let backend = self.shared.device.backend();
        let Some(transfer) = backend.as_transfer() else { return Ok(None) };
        let Some(begun) = self.begin(own, choose)? else { return Ok(None) };
        let cost = self.shared.device.cost(self.shared.heap);
        let asked = Instant::now();
        let idle = backend.wait_idle();
        cost.learn_waiting(asked.elapsed());
        let began = Instant::now();
        let (made, done) = match idle {
            Ok(()) => {
                self.state.lock().pass_all(begun.time);
                self.slide(transfer, &begun)
            }
            Err(error) => (0, Err(error)),
        };
        let slides = &begun.window.slides[..made];
        let bytes = slides.iter().map(|slide| slide.from.size).sum();
        let slid = Slid { moves: made as u64, bytes };
        if done.is_ok() {
            let took = began.elapsed();
            cost.learn(slid.moves, slid.bytes, took, took);
        }
        self.end(&begun, made);
        done.map(|()| (made > 0).then_some(slid))
    }

    /// Plans all blocks, and marks and holds the cheapest window.
    fn begin(
        &self,
        own: u64,
        choose: impl Fn(&mut [Piece<SlotId>]) -> Planned<SlotId>,
    ) -> Result<Option<Begun<B>>, ErrorKind> {
        let Some(mut state) = self.lock_to_move(own) else { return Ok(None) };
        if let Some(tlsf) = state.divider.general() {
            tlsf.merge_touching(); // The device will be idle, so who used which hole does not matter.
        }
        let Some((id, window)) =
            state.cheapest_window(self.shared.unit, self.granularity(), choose)?
        else {
            return Ok(None);
        };
        let block = state.blocks[id.0 as usize].as_ref().map(|held| Arc::clone(&held.block));
        let (Some(block), Some(tlsf)) = (block, state.divider.general()) else { return Ok(None) };
        let mut holes = keys_of(tlsf, id, &window)?;
        if holes.len() < window.holes.len() || hold(tlsf, &mut holes).is_err() {
            return Ok(None);
        }
        state.held_bytes += total(&holes);
        window.slides.iter().for_each(|slide| state.slots.set_moving(slide.what));
        Ok(Some(Begun { block, window, holes, time: state.users.clock() }))
    }

    fn granularity(&self) -> Align {
        self.shared.device.backend().caps().neighbour_granularity
    }

    /// Copies everything to its new place; returns how many slides were made, from the first on, even after an error.
    fn slide(
        &self,
        transfer: &dyn Transfer<Block = B::Block>,
        begun: &Begun<B>,
    ) -> (usize, Result<()>) {
        let inside = self.shared.device.backend().caps().copy.inside_block;
        let bounce = self.bounce(&begun.window, inside);
        if inside == InsideBlock::Forbidden && bounce.is_none() {
            return (0, Ok(()));
        }
        // The device is idle before and after, so any timeline will do; this one is never closed.
        let on = TimelineId::MAIN;
        let copier =
            OverlapCopier { transfer, on, block: &begun.block, bounce: bounce.as_ref(), inside };
        let mut made = 0;
        let there = copier.go(&begun.window.slides, &mut made);
        // Submitted copies will finish, even if the driver refuses the first wait.
        let idle = insist(|| self.shared.device.backend().wait_idle());
        if idle.is_err()
            && let Some(bounce) = bounce
        {
            self.shared.device.give_up(bounce);
        }
        (made, there.and(idle))
    }

    /// A bounce block, where copies inside a block are forbidden or would be many small ones.
    fn bounce(&self, window: &Window<SlotId>, inside: InsideBlock) -> Option<Block<B>> {
        let crawls = |slide: &MoveDown<SlotId>| {
            let distance = slide.from.offset - slide.to;
            distance < slide.from.size && distance < copier::SIZES[1]
        };
        if inside == InsideBlock::Allowed && !window.slides.iter().any(crawls) {
            return None;
        }
        let largest = window.slides.iter().map(|slide| slide.from.size).max()?;
        copier::take(&self.shared.device, self.shared.heap, largest)
    }

    /// Publishes the new places of the first slides, and the old ones of the rest.
    fn end(&self, begun: &Begun<B>, made: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.held_bytes -= total(&begun.holes);
        if let Divider::General(tlsf) = &mut state.divider {
            release(tlsf, &begun.holes);
            for slide in &begun.window.slides[..made] {
                let key = state
                    .slots
                    .moving_key(slide.what)
                    .expect("moving slots stay until the slide ends");
                let slid = tlsf.slide_to(key, slide.to);
                debug_assert!(slid.is_ok(), "the hole before a slide is free");
            }
        }
        state.end_moves(self, begun.window.slides.iter().map(|slide| slide.what), made);
    }
}

impl<B: Backend> LaneState<B> {
    /// Ends exclusive moves; the first `made` allocations are at a new place. This is the locked state of `lane`.
    fn end_moves(&mut self, lane: &Lane<B>, slots: impl Iterator<Item = SlotId>, made: usize) {
        for (number, slot) in slots.enumerate() {
            if number < made {
                lane.tell_move(self, slot);
            }
            self.let_go(lane, slot);
        }
        lane.moved.raise();
    }

    /// The window that moves the fewest bytes, of those that `choose` finds in each block.
    fn cheapest_window(
        &self,
        unit: Align,
        granularity: Align,
        choose: impl Fn(&mut [Piece<SlotId>]) -> Planned<SlotId>,
    ) -> Result<Option<(BlockId, Chosen)>, ErrorKind> {
        let Divider::General(tlsf) = &self.divider else { return Ok(None) };
        let slots = SlotsByKey::new(self)?;
        let ids = (0u32..).map(BlockId).zip(&self.blocks);
        let mut best: Option<(BlockId, Chosen)> = None;
        for id in ids.filter_map(|(id, held)| held.as_ref().map(|_| id)) {
            let mut pieces = self.pieces(tlsf, id, &slots, (unit, granularity))?;
            let window = choose(&mut pieces)?;
            let is_better =
                |window: &Chosen| best.as_ref().is_none_or(|(_, known)| window.bytes < known.bytes);
            best = window.filter(is_better).map(|window| (id, window)).or(best);
        }
        Ok(best)
    }

    /// The pieces of a block.
    fn pieces(
        &self,
        tlsf: &Tlsf,
        id: BlockId,
        slots: &SlotsByKey,
        (unit, granularity): (Align, Align),
    ) -> Result<Vec<Piece<SlotId>>, ErrorKind> {
        let mut count = 0;
        tlsf.for_each_in(id, |_, _, _| count += 1);
        let mut pieces = room_for(count)?;
        tlsf.for_each_in(id, |key, span, holds| {
            let Some(class) = holds else { return pieces.push(Piece::Hole(span)) };
            pieces.push(match self.mobile(slots, key, class) {
                Found::Mobile(mobile) if mobile.consent == Consent::Given => {
                    // Starting at a granule keeps clear of a neighbour of another class below. The distance to
                    // the neighbour above only grows.
                    let align = mobile.align.unwrap_or(unit).max(granularity);
                    Piece::Movable(span, align, mobile.slot)
                }
                _ => Piece::Fixed,
            });
        });
        Ok(pieces)
    }
}

/// The keys of a window's holes.
fn keys_of(tlsf: &Tlsf, block: BlockId, window: &Chosen) -> Result<Vec<(Key, Span)>, ErrorKind> {
    let mut holes = room_for(window.holes.len())?;
    tlsf.for_each_in(block, |key, span, _| {
        if window.holes.get(holes.len()) == Some(&span) {
            holes.push((key, span));
        }
    });
    Ok(holes)
}

/// Takes holes, all or none, so that no request gets them. Their keys become those of the taken spans.
fn hold(tlsf: &mut Tlsf, holes: &mut [(Key, Span)]) -> Result<(), ErrorKind> {
    for at in 0..holes.len() {
        let (key, hole) = holes[at];
        match tlsf.carve_in(key, hole) {
            Ok(grant) => holes[at].0 = grant.key,
            Err(kind) => {
                release(tlsf, &holes[..at]);
                return Err(kind);
            }
        }
    }
    Ok(())
}

/// Frees holes that [`hold`] took.
fn release(tlsf: &mut Tlsf, holes: &[(Key, Span)]) {
    for (key, _) in holes {
        let freed = tlsf.free(*key);
        debug_assert!(freed.is_ok(), "held until now");
    }
}

fn total(holes: &[(Key, Span)]) -> u64 {
    holes.iter().map(|(_, hole)| hole.size).sum()
}

/// Pages behind an unmapped range (a run), with everything in them.
struct Stretch {
    /// The run, which the stretch moves over.
    run: (Key, Span),
    /// The bytes of the stretch: whole pages.
    span: Span,
    slots: Vec<SlotId>,
    holes: Vec<(Key, Span)>,
    /// The last of its pieces.
    last: Key,
}

impl Stretch {
    const fn behind(key: Key, run: Span) -> Self {
        let span = Span { offset: run.offset + run.size, size: 0 };
        Self { run: (key, run), span, slots: Vec::new(), holes: Vec::new(), last: key }
    }
}

/// A stretch whose allocations are marked as moving, and whose holes and run are held.
struct BegunShift {
    stretch: Stretch,
    pages: Vec<Page>,
    /// The distance it moves: its run, and adjacent runs before it that are closed too.
    by: u64,
}

impl<B: Backend> Lane<B> {
    /// Closes the unmapped ranges of a lane of pages, where nothing behind them is fixed; returns what moved, or `None`
    /// where nothing can. `own` is the number of the caller's requests whose alignment is not recorded yet. Waits for the
    /// device.
    ///
    /// # Errors
    ///
    /// Driver errors; pages that had moved by then stay at their new place, the rest at their old one.
    pub(crate) fn close_runs(&self, own: u64) -> Result<Option<Slid>> {
        let Some((block, begun)) = self.begin_shift(own) else { return Ok(None) };
        let mut done = self.shared.device.backend().wait_idle();
        let mut made = 0;
        for one in &begun {
            if done.is_ok() {
                done = self.shift_pages(&block, one.stretch.span, one.by, &one.pages);
                made += usize::from(done.is_ok());
            }
        }
        let moves = begun[..made].iter().map(|one| one.stretch.slots.len() as u64).sum();
        self.end_shift(&begun, made);
        done.map(|()| Some(Slid { moves, bytes: 0 }))
    }

    /// Finds the stretches that can move, and holds them.
    fn begin_shift(&self, own: u64) -> Option<(Arc<Block<B>>, Vec<BegunShift>)> {
        let mut state = self.lock_to_move(own)?;
        let stretches = state.stretches(self.shared.device.backend().caps().neighbour_granularity);
        let state = &mut *state;
        let (Some(pager), Divider::General(tlsf)) = (&mut state.pager, &mut state.divider) else {
            return None;
        };
        let held = state.blocks[pager.block().0 as usize].as_ref()?;
        let mut begun: Vec<BegunShift> = Vec::with_capacity(stretches.len());
        for mut stretch in stretches {
            let ends_in_hole = stretch.holes.last().is_some_and(|(key, _)| *key == stretch.last);
            if hold(tlsf, &mut stretch.holes).is_err() {
                break;
            }
            if let Some((key, _)) = stretch.holes.last().filter(|_| ends_in_hole) {
                stretch.last = *key;
            }
            pager.take_run(stretch.run.1);
            stretch.slots.iter().for_each(|slot| state.slots.set_moving(*slot));
            state.held_bytes += total(&stretch.holes);
            let follows = |last: &&BegunShift| last.stretch.span.end() == stretch.run.1.offset;
            let before = begun.last().filter(follows).map_or(0, |last| last.by);
            let (pages, by) = (pager.pages_at(stretch.span), before + stretch.run.1.size);
            begun.push(BegunShift { stretch, pages, by });
        }
        (!begun.is_empty()).then(|| (Arc::clone(&held.block), begun))
    }

    /// Publishes the new places of the first stretches, and the old ones of the rest.
    fn end_shift(&self, begun: &[BegunShift], made: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(pager), Divider::General(tlsf)) = (&mut state.pager, &mut state.divider) {
            put_runs_behind(pager, tlsf, begun, made);
            for one in begun {
                release(tlsf, &one.stretch.holes);
                state.held_bytes -= total(&one.stretch.holes);
            }
        }
        let moved = begun[..made].iter().map(|one| one.stretch.slots.len()).sum();
        let all = begun.iter().flat_map(|one| one.stretch.slots.iter().copied());
        state.end_moves(self, all, moved);
    }
}

impl<B: Backend> LaneState<B> {
    /// The stretches that can move down over the run before them, lowest first.
    fn stretches(&self, granularity: Align) -> Vec<Stretch> {
        let mut found: Vec<Stretch> = Vec::new();
        let (Some(pager), Divider::General(tlsf)) = (&self.pager, &self.divider) else {
            return found;
        };
        let Ok(slots) = SlotsByKey::new(self) else { return found };
        // The first pages have nothing below them to join.
        let (mut open, mut is_first) = (None, true);
        tlsf.for_each_in(pager.block(), |key, span, holds| {
            if pager.is_run(key, span) {
                found.extend(open.take());
                open = (!is_first).then(|| Stretch::behind(key, span));
                return;
            }
            is_first = false;
            let Some(stretch) = open.as_mut() else { return };
            match holds.map(|class| self.mobile(&slots, key, class)) {
                None => stretch.holes.push((key, span)),
                Some(Found::Mobile(mobile))
                    if mobile.consent == Consent::Given
                        && mobile.align.map_or(1, Align::get).max(granularity.get())
                            <= pager.page() =>
                {
                    stretch.slots.push(mobile.slot);
                }
                Some(_) => return open = None,
            }
            (stretch.last, stretch.span.size) = (key, span.end() - stretch.span.offset);
        });
        found.extend(open);
        found.retain(|stretch| !stretch.slots.is_empty());
        found
    }
}

/// Puts the runs of the stretches that moved behind them, joined where stretches were adjacent. Restores the others.
fn put_runs_behind(pager: &mut Pager, tlsf: &mut Tlsf, begun: &[BegunShift], made: usize) {
    let mut carried: Option<Key> = None;
    for (number, BegunShift { stretch, .. }) in begun.iter().enumerate() {
        let mut run = stretch.run.0;
        if number >= made {
            pager.abandon_run(tlsf, run);
            continue;
        }
        match carried.map(|before| (before, tlsf.join(before, run))) {
            Some((_, Ok(joined))) => run = joined.key,
            Some((before, Err(_))) => pager.abandon_run(tlsf, before),
            None => {}
        }
        pager.shifted(tlsf, run, stretch.last, stretch.span);
        carried = Some(run);
    }
    if let Some(run) = carried {
        pager.abandon_run(tlsf, run);
    }
}
