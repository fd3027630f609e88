//! Exclusive moves of a lane: slides of allocations inside a block, and shifts of pages inside a reservation.
#![forbid(unsafe_code)]
use super::extra::Consent;
use super::snapshot::{Found, SlotsByKey};
use super::table::SlotId;
use super::{Lane, State, Suballocator};
use crate::device::{Block, insist};
use crate::{Align, Backend, ErrorKind, Page, Result, Span};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::moves::{Piece, Planned, Window, room_for};
use omniheap_strategy::pages::Pager;
use omniheap_strategy::{BlockId, Grant, Key, Strategy, Tlsf};

/// Slides of one block.
type Chosen = Window<SlotId>;

/// Chooses the slides of a block, or none.
type Choose<'a> = dyn Fn(&mut [Piece<SlotId>]) -> Planned<SlotId> + 'a;

/// A window whose allocations are marked as moving and whose holes are held.
pub(crate) struct BegunSlides<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    pub(crate) window: Chosen,
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

/// Pages behind an unmapped range, with everything in them.
struct Stretch {
    /// The range, which the stretch moves over.
    range: (Key, Span),
    /// The bytes of the stretch: whole pages.
    span: Span,
    slots: Vec<SlotId>,
    holes: Vec<(Key, Span)>,
    /// The first and the last of its pieces.
    ends: (Key, Key),
}

impl Stretch {
    const fn behind(key: Key, range: Span) -> Self {
        let span = Span { offset: range.offset + range.size, size: 0 };
        let range = (key, range);
        Self { range, span, slots: Vec::new(), holes: Vec::new(), ends: (key, key) }
    }

    /// Adds the piece that follows.
    fn add(&mut self, key: Key, span: Span) {
        let first = if self.span.size == 0 { key } else { self.ends.0 };
        (self.ends, self.span.size) = ((first, key), span.end() - self.span.offset);
    }

    /// Takes its holes, so that no request gets them.
    fn hold(&mut self, tlsf: &mut Tlsf) -> Result<(), ErrorKind> {
        let holes: Vec<Key> = self.holes.iter().map(|(key, _)| *key).collect();
        hold(tlsf, &mut self.holes)?;
        for (hole, (held, _)) in holes.into_iter().zip(&self.holes) {
            for end in [&mut self.ends.0, &mut self.ends.1] {
                *end = if *end == hole { *held } else { *end };
            }
        }
        Ok(())
    }
}

/// A stretch whose allocations are marked as moving, and whose holes and range are held.
struct BegunShift {
    stretch: Stretch,
    pages: Vec<Page>,
    /// The distance it moves: its range, and adjacent ranges before it that are closed too.
    by: u64,
    /// Addresses without memory for a stretch that is larger than that distance: no driver maps pages over pages.
    aside: Option<Grant>,
}

/// Stretches that are about to move, lowest first.
pub(crate) struct BegunShifts<B: Backend> {
    block: Arc<Block<B>>,
    shifts: Vec<BegunShift>,
}

/// How far a lane's stretches got.
///
/// Pages are mapped at their new place before the old mapping goes. So a driver that refuses, however often, loses no byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shifted {
    /// Stretches that are at their new place, from the first on.
    made: usize,
    /// Whether the next one is aside: the driver did not map it further down.
    is_aside: bool,
    /// Where the stretch that was moved last is mapped too: the driver did not unmap it there.
    leftover: Option<Leftover>,
}

/// Addresses at which pages are still mapped that are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// Those that a stretch left.
    Old,
    /// Those set aside.
    Aside(Key),
}

impl<B: Backend> BegunShifts<B> {
    /// The number of allocations that moved.
    pub(crate) fn moves(&self, shifted: Shifted) -> u64 {
        let moved = &self.shifts[..shifted.made + usize::from(shifted.is_aside)];
        moved.iter().map(|one| one.stretch.slots.len() as u64).sum()
    }
}

impl<B: Backend> Lane<B> {
    /// Finds the stretches that can move, and holds them.
    pub(crate) fn begin_shift(&self, own: u64) -> Option<BegunShifts<B>> {
        let mut state = self.lock_state_to_plan(own)?;
        let stretches = state.stretches(self.shared.device.backend().caps().neighbour_granularity);
        let state = &mut *state;
        let (Some(pager), Suballocator::General(tlsf)) =
            (&mut state.pager, &mut state.suballocator)
        else {
            return None;
        };
        let block = Arc::clone(&state.blocks[pager.block().0 as usize].as_ref()?.block);
        let mut shifts: Vec<BegunShift> = Vec::with_capacity(stretches.len());
        let end = stretches.last().map_or(0, |last| last.span.end());
        for mut stretch in stretches {
            let follows = |last: &&BegunShift| last.stretch.span.end() == stretch.range.1.offset;
            let by = stretch.range.1.size + shifts.last().filter(follows).map_or(0, |last| last.by);
            if stretch.hold(tlsf).is_err() {
                break;
            }
            let size = stretch.span.size;
            let aside = (size > by).then(|| pager.set_aside(tlsf, end, size));
            if aside == Some(None) {
                release(tlsf, &stretch.holes);
                break;
            }
            pager.take_unmapped(stretch.range.1);
            stretch.slots.iter().for_each(|slot| state.slots.set_moving(*slot));
            state.held_bytes += total(&stretch.holes);
            let (pages, aside) = (pager.pages_at(stretch.span), aside.flatten());
            shifts.push(BegunShift { stretch, pages, by, aside });
        }
        (!shifts.is_empty()).then_some(BegunShifts { block, shifts })
    }

    /// Maps the pages of the stretches further down, until the driver refuses. The device is idle.
    pub(crate) fn shift(&self, begun: &BegunShifts<B>) -> (Shifted, Result<()>) {
        let mut shifted = Shifted::default();
        let mut shifts = begun.shifts.iter();
        let done = shifts.try_for_each(|one| self.shift_one(&begun.block, one, &mut shifted));
        (shifted, done)
    }

    fn shift_one(
        &self,
        block: &Block<B>,
        BegunShift { stretch, pages, by, aside }: &BegunShift,
        shifted: &mut Shifted,
    ) -> Result<()> {
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        let (old, new) = (stretch.span, Span { offset: stretch.span.offset - by, ..stretch.span });
        let map = |at| self.map(block, at, page, pages);
        let unmap = |shifted: &mut Shifted, at, leftover| {
            insist(|| self.unmap(block, at)).inspect_err(|_| shifted.leftover = Some(leftover))
        };
        let Some(Grant { span: aside, key, .. }) = *aside else {
            map(new)?;
            shifted.made += 1;
            return unmap(shifted, old, Leftover::Old);
        };
        map(aside)?;
        unmap(shifted, old, Leftover::Aside(key))?;
        map(new).inspect_err(|_| shifted.is_aside = true)?;
        shifted.made += 1;
        unmap(shifted, aside, Leftover::Aside(key))
    }

    /// Publishes the new places of the stretches that moved, and the old ones of the rest.
    pub(crate) fn end_shift(&self, begun: &BegunShifts<B>, shifted: Shifted) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(pager), Suballocator::General(tlsf)) =
            (&mut state.pager, &mut state.suballocator)
        {
            put_ranges_behind(pager, tlsf, &begun.shifts, shifted);
            for one in &begun.shifts {
                release(tlsf, &one.stretch.holes);
                state.held_bytes -= total(&one.stretch.holes);
            }
        }
        let moved = usize::try_from(begun.moves(shifted)).expect("as many as there are slots");
        let all = begun.shifts.iter().flat_map(|one| one.stretch.slots.iter().copied());
        state.end_moves(self, all, moved);
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
            stretch.add(key, span);
        });
        found.extend(open);
        found.retain(|stretch| !stretch.slots.is_empty());
        found
    }
}

/// Puts the unmapped ranges of the stretches that moved behind them, joined where stretches were adjacent. Restores the others.
fn put_ranges_behind(
    pager: &mut Pager,
    tlsf: &mut Tlsf,
    shifts: &[BegunShift],
    Shifted { made, is_aside, leftover }: Shifted,
) {
    let mut carried: Option<Key> = None;
    for (number, BegunShift { stretch, .. }) in shifts.iter().enumerate() {
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
        pager.exchange(tlsf, range, stretch.ends, stretch.span);
        carried = Some(range);
    }
    if let Some(BegunShift { stretch, aside: Some(aside), .. }) = shifts.get(made)
        && is_aside
    {
        pager.exchange(tlsf, aside.key, stretch.ends, stretch.span);
    }
    // Where something is still mapped, nothing else can be.
    match carried {
        Some(range) if leftover == Some(Leftover::Old) => pager.strand_unmapped(tlsf, range),
        Some(range) => pager.abandon_unmapped(tlsf, range),
        None => {}
    }
    for Grant { key, .. } in shifts.iter().filter_map(|one| one.aside) {
        match leftover {
            Some(Leftover::Aside(left)) if left == key => pager.strand_unmapped(tlsf, key),
            _ => pager.abandon_unmapped(tlsf, key),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is published of stretches that moved, by what the driver did.
    use super::*;
    use crate::Class;

    const PAGE: u64 = 1 << 16;

    fn span(first: u64, pages: u64) -> Span {
        Span { offset: first * PAGE, size: pages * PAGE }
    }

    /// A page, an unmapped range of `gap` pages, and a stretch of two pages that is about to move over it.
    fn begun(gap: u64) -> (Pager, Tlsf, Vec<BegunShift>) {
        let mut tlsf = Tlsf::new(Align::ONE);
        let block = tlsf.add_block(64 * PAGE).unwrap();
        let mut pager = Pager::new(&mut tlsf, block, 64 * PAGE, PAGE).unwrap();
        let all = pager.set_apart(&mut tlsf, (3 + gap) * PAGE, |_| true).unwrap();
        pager.reserve_table(all.span).unwrap();
        pager.hand_over(all, &(0..3 + gap).map(Page).collect::<Vec<_>>());
        tlsf.free(all.key).unwrap();
        tlsf.carve(block, span(0, 1), Class::Linear).unwrap();
        let key = tlsf.carve(block, span(1 + gap, 2), Class::Linear).unwrap().key;
        let range = pager.take_pages(&mut tlsf, gap * PAGE, None, |_| true)[0];
        pager.note_unmapped(&mut tlsf, range);
        pager.take_unmapped(range.span);
        let mut stretch = Stretch::behind(range.key, range.span);
        stretch.add(key, span(1 + gap, 2));
        let pages = pager.pages_at(stretch.span);
        let (size, by) = (stretch.span.size, range.span.size);
        let aside =
            (size > by).then(|| pager.set_aside(&mut tlsf, (3 + gap) * PAGE, size).unwrap());
        (pager, tlsf, Vec::from([BegunShift { stretch, pages, by, aside }]))
    }

    /// Publishes, and says where the stretch is, what else has memory by the table, and what is out of use.
    fn publish(gap: u64, shifted: impl Fn(&BegunShift) -> Shifted) -> (u64, Vec<u64>, u64) {
        let (mut pager, mut tlsf, shifts) = begun(gap);
        put_ranges_behind(&mut pager, &mut tlsf, &shifts, shifted(&shifts[0]));
        let at = tlsf.grant(shifts[0].stretch.ends.0).unwrap().span.offset / PAGE;
        let mapped = pager.mapped_spans().into_iter();
        let mapped = mapped.flat_map(|(span, _)| (span.offset..span.end()).step_by(1 << 16));
        assert_eq!(pager.in_flight_bytes(), pager.stranded_bytes(), "nothing else is set apart");
        (at, mapped.map(|offset| offset / PAGE).collect(), pager.stranded_bytes() / PAGE)
    }

    #[test]
    fn a_stretch_is_where_its_pages_are_and_nothing_is_mapped_over_what_is_left() {
        let (made, is_aside, leftover) = (1, false, None);
        let moved = Shifted { made, is_aside, leftover };
        assert_eq!(publish(1, |_| moved), (1, vec![0, 1, 2], 0));
        assert_eq!(publish(3, |_| moved), (1, vec![0, 1, 2], 0));
        let none = Shifted::default();
        assert_eq!(publish(1, |_| none), (2, vec![0, 2, 3], 0));
        assert_eq!(publish(1, |_| Shifted { is_aside: true, ..none }), (4, vec![0, 4, 5], 0));
        let old = Some(Leftover::Old);
        assert_eq!(publish(3, |_| Shifted { leftover: old, ..moved }), (1, vec![0, 1, 2], 3));
        let aside = |one: &BegunShift| one.aside.map(|piece| Leftover::Aside(piece.key));
        let keeps = |one: &BegunShift| Shifted { leftover: aside(one), ..moved };
        assert_eq!(publish(1, keeps), (1, vec![0, 1, 2], 2));
        let stays = |one: &BegunShift| Shifted { leftover: aside(one), ..none };
        assert_eq!(publish(1, stays), (2, vec![0, 2, 3], 2));
    }
}
