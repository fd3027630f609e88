//! Exclusive moves of a lane: slides of allocations inside a block, and shifts of pages inside a reservation.
#![forbid(unsafe_code)]
use super::extra::Consent;
use super::pages::Pager;
use super::snapshot::{Found, SlotsByKey};
use super::table::SlotId;
use super::{Lane, State, Suballocator};
use crate::device::Block;
use crate::{Align, Backend, ErrorKind, Page, Result, Span};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::{BlockId, Key, Strategy, Tlsf};

/// A piece of a block. The pieces of a block are adjacent and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<T> {
    /// Free bytes.
    Hole(Span),
    /// May move to a multiple of its alignment.
    Movable(Span, Align, T),
    /// An allocation that may not move.
    Fixed,
}

/// One move towards the start of its block: into a lower hole, or over the hole before it (a slide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveDown<T> {
    pub(crate) what: T,
    pub(crate) from: Span,
    pub(crate) to: u64,
}

/// Slides in one stretch of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window<T> {
    /// Lowest first: each moves into bytes that are free by then.
    pub(crate) slides: Vec<MoveDown<T>>,
    /// Holes that must stay free until the slides are done.
    pub(crate) holes: Vec<Span>,
    /// Bytes that move.
    pub(crate) bytes: u64,
}

/// Slides of one block.
type Chosen = Window<SlotId>;

/// Chooses the slides of a block, or none.
type Choose<'a> = dyn Fn(&mut [Piece<SlotId>]) -> Result<Option<Chosen>, ErrorKind> + 'a;

/// A window whose allocations are marked as moving and whose holes are held.
pub(crate) struct BegunSlides<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    pub(crate) window: Window<SlotId>,
    holes: Vec<(Key, Span)>,
    /// The lane's clock at the start: spans freed before it are unused once the device is idle.
    time: u64,
}

impl<B: Backend> Lane<B> {
    /// Plans all blocks, and marks and holds the cheapest window.
    pub(crate) fn begin_slides(
        &self,
        own: u64,
        choose: &Choose<'_>,
    ) -> Result<Option<BegunSlides<B>>, ErrorKind> {
        let Some(mut state) = self.lock_state_to_plan(own) else { return Ok(None) };
        if let Some(tlsf) = state.suballocator.general() {
            tlsf.merge_touching(); // The device will be idle, so who used which hole does not matter.
        }
        let Some((id, window)) =
            state.cheapest_window(self.shared.unit, self.granularity(), choose)?
        else {
            return Ok(None);
        };
        let block = state.blocks[id.0 as usize].as_ref().map(|held| Arc::clone(&held.block));
        let (Some(block), Some(tlsf)) = (block, state.suballocator.general()) else {
            return Ok(None);
        };
        let mut holes = keys_of(tlsf, id, &window)?;
        if holes.len() < window.holes.len() || hold(tlsf, &mut holes).is_err() {
            return Ok(None);
        }
        state.held_bytes += total(&holes);
        window.slides.iter().for_each(|slide| state.slots.set_moving(slide.what));
        Ok(Some(BegunSlides { block, window, holes, time: state.users.clock() }))
    }

    /// Publishes the new places of the first slides, and the old ones of the rest.
    pub(crate) fn end_slides(&self, begun: &BegunSlides<B>, made: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.held_bytes -= total(&begun.holes);
        if let Suballocator::General(tlsf) = &mut state.suballocator {
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

    /// Notes that everything that was freed up to the start of slides has passed: the device was idle.
    pub(crate) fn pass_slides(&self, begun: &BegunSlides<B>) {
        self.state.lock().pass_all(begun.time);
    }

    fn granularity(&self) -> Align {
        self.shared.device.backend().caps().neighbour_granularity
    }
}

impl<B: Backend> State<B> {
    /// The window that moves the fewest bytes, of those that `choose` finds in each block.
    fn cheapest_window(
        &self,
        unit: Align,
        granularity: Align,
        choose: &Choose<'_>,
    ) -> Result<Option<(BlockId, Chosen)>, ErrorKind> {
        let Suballocator::General(tlsf) = &self.suballocator else { return Ok(None) };
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

/// An empty list with room. Allocation failures are reported, because slides are made when memory is short.
pub(crate) fn room_for<T>(count: usize) -> Result<Vec<T>, ErrorKind> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
    Ok(list)
}

/// Pages behind an unmapped range, with everything in them.
struct Stretch {
    /// The range, which the stretch moves over.
    range: (Key, Span),
    /// The bytes of the stretch: whole pages.
    span: Span,
    slots: Vec<SlotId>,
    holes: Vec<(Key, Span)>,
    /// The last of its pieces.
    last: Key,
}

impl Stretch {
    const fn behind(key: Key, range: Span) -> Self {
        let span = Span { offset: range.offset + range.size, size: 0 };
        Self { range: (key, range), span, slots: Vec::new(), holes: Vec::new(), last: key }
    }
}

/// A stretch whose allocations are marked as moving, and whose holes and range are held.
pub(crate) struct BegunShift {
    stretch: Stretch,
    pages: Vec<Page>,
    /// The distance it moves: its range, and adjacent ranges before it that are closed too.
    by: u64,
}

impl BegunShift {
    /// The number of allocations in it.
    pub(crate) fn moves(&self) -> u64 {
        self.stretch.slots.len() as u64
    }
}

impl<B: Backend> Lane<B> {
    /// Finds the stretches that can move, and holds them.
    pub(crate) fn begin_shift(&self, own: u64) -> Option<(Arc<Block<B>>, Vec<BegunShift>)> {
        let mut state = self.lock_state_to_plan(own)?;
        let stretches = state.stretches(self.shared.device.backend().caps().neighbour_granularity);
        let state = &mut *state;
        let (Some(pager), Suballocator::General(tlsf)) =
            (&mut state.pager, &mut state.suballocator)
        else {
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
            pager.take_unmapped(stretch.range.1);
            stretch.slots.iter().for_each(|slot| state.slots.set_moving(*slot));
            state.held_bytes += total(&stretch.holes);
            let follows = |last: &&BegunShift| last.stretch.span.end() == stretch.range.1.offset;
            let before = begun.last().filter(follows).map_or(0, |last| last.by);
            let (pages, by) = (pager.pages_at(stretch.span), before + stretch.range.1.size);
            begun.push(BegunShift { stretch, pages, by });
        }
        (!begun.is_empty()).then(|| (Arc::clone(&held.block), begun))
    }

    /// Publishes the new places of the first stretches, and the old ones of the rest.
    pub(crate) fn end_shift(&self, begun: &[BegunShift], made: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(pager), Suballocator::General(tlsf)) =
            (&mut state.pager, &mut state.suballocator)
        {
            put_ranges_behind(pager, tlsf, begun, made);
            for one in begun {
                release(tlsf, &one.stretch.holes);
                state.held_bytes -= total(&one.stretch.holes);
            }
        }
        let moved = begun[..made].iter().map(|one| one.stretch.slots.len()).sum();
        let all = begun.iter().flat_map(|one| one.stretch.slots.iter().copied());
        state.end_moves(self, all, moved);
    }

    /// Maps the pages of a stretch further down; on failure they are where they were. The device is idle.
    ///
    /// # Errors
    ///
    /// As for [`shift_pages`](Self::shift_pages).
    pub(crate) fn shift(&self, block: &Block<B>, one: &BegunShift) -> Result<()> {
        self.shift_pages(block, one.stretch.span, one.by, &one.pages)
    }
}

impl<B: Backend> State<B> {
    /// The stretches that can move down over the unmapped range before them, lowest first.
    fn stretches(&self, granularity: Align) -> Vec<Stretch> {
        let mut found: Vec<Stretch> = Vec::new();
        let (Some(pager), Suballocator::General(tlsf)) = (&self.pager, &self.suballocator) else {
            return found;
        };
        let Ok(slots) = SlotsByKey::new(self) else { return found };
        // The first pages have nothing below them to join.
        let (mut open, mut is_first) = (None, true);
        tlsf.for_each_in(pager.block(), |key, span, holds| {
            if pager.is_unmapped(key, span) {
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

/// Puts the unmapped ranges of the stretches that moved behind them, joined where stretches were adjacent. Restores the others.
fn put_ranges_behind(pager: &mut Pager, tlsf: &mut Tlsf, begun: &[BegunShift], made: usize) {
    let mut carried: Option<Key> = None;
    for (number, BegunShift { stretch, .. }) in begun.iter().enumerate() {
        let mut range = stretch.range.0;
        if number >= made {
            pager.abandon_unmapped(tlsf, range);
            continue;
        }
        match carried.map(|before| (before, tlsf.join(before, range))) {
            Some((_, Ok(joined))) => range = joined.key,
            Some((before, Err(_))) => pager.abandon_unmapped(tlsf, before),
            None => {}
        }
        pager.shifted(tlsf, range, stretch.last, stretch.span);
        carried = Some(range);
    }
    if let Some(range) = carried {
        pager.abandon_unmapped(tlsf, range);
    }
}
