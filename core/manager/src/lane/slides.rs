//! Exclusive moves of a lane: slides of allocations inside a block, and shifts of pages inside a reservation.
#![forbid(unsafe_code)]
use super::extra::{Consent, SlotId};
use super::occupancy::Found;
use super::snapshot::SlotsByKey;
use super::state::{Lane, State};
use crate::device::{Block, insist};
use crate::{Align, Backend, ErrorKind, Point, Result, Span, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::moves::{Piece, Planned, Window, room_for};
use omniheap_strategy::pages::{Leftover, Shift, Shifted, Stretch};
use omniheap_strategy::{BlockId, Grant, Key, LastUse, Tlsf};

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

/// State of the copies that slides have submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// None of them runs any more.
    Ended,
    /// Some may still run on a timeline: nothing could wait for it.
    MayRun(TimelineId),
}

impl<B: Backend> Lane<B> {
    /// Plans all blocks, and marks and holds the cheapest window.
    pub(crate) fn begin_slides(
        &self,
        choose: &Choose<'_>,
    ) -> Result<Option<BegunSlides<B>>, ErrorKind> {
        let Some(mut state) = self.lock_state_to_plan() else { return Ok(None) };
        let Some((id, window)) = state.cheapest_window(self.granularity(), choose)? else {
            return Ok(None);
        };
        let block = Arc::clone(state.bytes.block(id));
        let Some(tlsf) = state.bytes.general_mut() else { return Ok(None) };
        tlsf.merge_touching(); // The device will be idle, so who used which hole does not matter.
        let mut holes = keys_of(tlsf, id, &window)?;
        if holes.len() < window.holes.len() || tlsf.carve_all(&mut holes).is_err() {
            return Ok(None);
        }
        // Once the bytes are copied, there is no way back.
        tlsf.pledge(window.slides.len()).inspect_err(|_| tlsf.free_all(&holes))?;
        state.bytes.count_held(total(&holes));
        window.slides.iter().for_each(|slide| state.occupancy.set_moving(slide.what));
        Ok(Some(BegunSlides { block, window, holes, time: state.order.clock() }))
    }

    /// Publishes the new places of the first slides, and the old ones of the rest. What copies may still write is in use by their
    /// timeline.
    pub(crate) fn end_slides(&self, begun: &BegunSlides<B>, made: usize, copies: Copies) {
        if let Copies::MayRun(on) = copies {
            self.order_behind(begun, on);
        }
        let state = &mut *self.state.lock_flushed();
        if let Copies::MayRun(on) = copies {
            self.count_copies(state, begun, on);
        }
        state.bytes.count_let_go(total(&begun.holes));
        if let Some(tlsf) = state.bytes.general_mut() {
            tlsf.free_all(&begun.holes);
            tlsf.redeem(begun.window.slides.len());
            for slide in &begun.window.slides[..made] {
                let key = state.occupancy.moving_key(slide.what);
                let key = key.expect("moving slots stay until the slide ends");
                // The bytes have moved. The holes of the window were held until now, slides come in the order of their places, and each
                // has the node that was pledged for it.
                tlsf.slide_to(key, slide.to).expect("the hole before a slide is free");
            }
        }
        state.end_moves(self, begun.window.slides.iter().map(|slide| slide.what), made);
    }

    /// Counts the copies of slides as the last use of the holes in their window, and as a use of everything that slides.
    /// `state` is the locked state of this lane.
    fn count_copies(&self, state: &mut State<B>, begun: &BegunSlides<B>, on: TimelineId) {
        // A lane that can know no more timelines gives the holes to nobody again.
        let user = state.order.enter(Some(on));
        let last = user.map_or(LastUse::SEVERAL, |user| state.order.free(user));
        if let Some(tlsf) = state.bytes.general_mut() {
            // Slides take it along to the bytes that they leave.
            begun.holes.iter().for_each(|(key, _)| tlsf.set_last_use(*key, last));
        }
        for slide in &begun.window.slides {
            let lost = state.note_copy(slide.what, on);
            if lost > 0 {
                self.shared.device.quarantine(lost, "copies of slides could not be followed");
            }
        }
    }

    /// Has the timelines that use what slides run after the copies, as far as that can be told them.
    fn order_behind(&self, begun: &BegunSlides<B>, on: TimelineId) {
        let Some(timelines) = self.timelines() else { return };
        let (mut users, guard) = (Vec::new(), self.lock_moves());
        begun.window.slides.iter().for_each(|slide| guard.timelines_of(slide.what, &mut users));
        drop(guard);
        users.retain(|user| ![on, TimelineId::ALL].contains(user));
        let ordered = timelines.mark(on).and_then(|epoch| {
            let point = Point { timeline: on, epoch };
            users.iter().try_for_each(|user| {
                let ordered = timelines.order(*user, point);
                self.shared.device.unless_closed(*user, ordered).map(drop)
            })
        });
        tracing::error!(?ordered, "copies of slides could not be followed");
    }

    /// Notes that everything that was freed up to the start of slides has passed: the device was idle.
    pub(crate) fn pass_slides(&self, begun: &BegunSlides<B>) {
        self.state.lock_flushed().pass_all(begun.time);
    }

    fn granularity(&self) -> Align {
        self.shared.device.backend().caps().neighbour_granularity
    }
}

impl<B: Backend> State<B> {
    /// The window that moves the fewest bytes, of those that `choose` finds in each block.
    fn cheapest_window(
        &self,
        granularity: Align,
        choose: &Choose<'_>,
    ) -> Result<Option<(BlockId, Chosen)>, ErrorKind> {
        let Some(tlsf) = self.bytes.general() else { return Ok(None) };
        let slots = SlotsByKey::new(&self.occupancy)?;
        let mut best: Option<(BlockId, Chosen)> = None;
        for (id, _) in self.bytes.blocks() {
            let mut pieces = self.pieces(tlsf, id, &slots, granularity)?;
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
        granularity: Align,
    ) -> Result<Vec<Piece<SlotId>>, ErrorKind> {
        let mut count = 0;
        tlsf.for_each_in(id, |_, _, _| count += 1);
        let mut pieces = room_for(count)?;
        tlsf.for_each_in(id, |key, span, holds| {
            let Some(class) = holds else {
                match pieces.last_mut() {
                    // Holes of different users that touch are one in a window.
                    Some(Piece::Hole(hole)) => hole.size += span.size,
                    _ => pieces.push(Piece::Hole(span)),
                }
                return;
            };
            pieces.push(match slots.find(&self.occupancy, key, class) {
                Found::Mobile(mobile) if mobile.consent == Consent::Given => {
                    // Starting at a granule keeps clear of a neighbour of another class below. The distance to
                    // the neighbour above only grows.
                    Piece::Movable(span, mobile.align.max(granularity), mobile.slot)
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

fn total(holes: &[(Key, Span)]) -> u64 {
    holes.iter().map(|(_, hole)| hole.size).sum()
}

/// Stretches that are about to move, lowest first. Their allocations are marked as moving.
pub(crate) struct BegunShifts<B: Backend> {
    block: Arc<Block<B>>,
    shifts: Vec<Shift<SlotId>>,
}

impl<B: Backend> BegunShifts<B> {
    /// The number of allocations that moved.
    pub(crate) fn moves(&self, shifted: Shifted) -> usize {
        shifted.moved(&self.shifts).count()
    }

    fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.shifts.iter().flat_map(Shift::slots).copied()
    }

    fn held_bytes(&self) -> u64 {
        self.shifts.iter().map(Shift::held_bytes).sum()
    }
}

impl<B: Backend> Lane<B> {
    /// Finds the stretches that can move, and holds them.
    pub(crate) fn begin_shift(&self) -> Option<BegunShifts<B>> {
        let mut state = self.lock_state_to_plan()?;
        let stretches = state.stretches(self.granularity());
        let block = state.bytes.reservation()?;
        let (pager, tlsf) = state.bytes.pages_mut()?;
        let begun = BegunShifts { block, shifts: pager.begin_shifts(tlsf, stretches) };
        begun.slots().for_each(|slot| state.occupancy.set_moving(slot));
        state.bytes.count_held(begun.held_bytes());
        (!begun.shifts.is_empty()).then_some(begun)
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
        one: &Shift<SlotId>,
        shifted: &mut Shifted,
    ) -> Result<()> {
        let page = self.shared.page().ok_or(ErrorKind::Unsupported)?;
        let [old, new] = one.places();
        let map = |at| self.map(block, at, page, one.pages());
        let unmap = |shifted: &mut Shifted, at, leftover| {
            insist(|| self.unmap(block, at)).inspect_err(|_| shifted.leftover = Some(leftover))
        };
        let Some(Grant { span: aside, key, .. }) = one.aside() else {
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
        let mut state = self.state.lock_flushed();
        if let Some((pager, tlsf)) = state.bytes.pages_mut() {
            pager.end_shifts(tlsf, &begun.shifts, shifted);
        }
        state.bytes.count_let_go(begun.held_bytes());
        state.end_moves(self, begun.slots(), begun.moves(shifted));
    }
}

impl<B: Backend> State<B> {
    /// The stretches that can move down over the unmapped range before them, lowest first.
    fn stretches(&self, granularity: Align) -> Vec<Stretch<SlotId>> {
        let mut found: Vec<Stretch<_>> = Vec::new();
        let slots = SlotsByKey::new(&self.occupancy);
        let (Some((pager, tlsf)), Ok(slots)) = (self.bytes.pages(), slots) else { return found };
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
            match holds.map(|class| slots.find(&self.occupancy, key, class)) {
                None => stretch.add_hole(key, span),
                Some(Found::Mobile(mobile))
                    if mobile.consent == Consent::Given
                        && mobile.align.max(granularity).get() <= pager.page() =>
                {
                    stretch.add_live(key, span, mobile.slot);
                }
                Some(_) => open = None,
            }
        });
        found.extend(open);
        found.retain(|stretch| !stretch.is_empty());
        found
    }
}
