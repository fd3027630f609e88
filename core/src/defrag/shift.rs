//! Closes the runs between pages by mapping what lies behind them further down: no byte is copied.
//!
//! A slide cannot cross addresses without memory, so every stretch between two runs keeps less than a page that no request
//! gets: little each, much where there are many. A stretch that moves down over the run before it touches the one below,
//! and slides join their holes. Everything in it moves by whole pages, so alignment up to a page holds.
#![forbid(unsafe_code)]
use super::mobile::{Found, SlotsByKey};
use super::slide::Slid;
use crate::device::Block;
use crate::pool::{Consent, Divider, Lane, LaneState, Pager, SlotId};
use crate::strategy::{Key, Strategy, Tlsf};
use crate::{Align, Backend, ErrorKind, Page, Result, Span};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Acquire;

/// Pages behind a run, with everything in them.
struct Stretch {
    /// The run, which the stretch moves over.
    run: (Key, Span),
    /// The stretch itself: whole pages.
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
struct Begun {
    stretch: Stretch,
    pages: Vec<Page>,
    /// By how many bytes it moves: its run, and those before it that are closed too.
    by: u64,
}

impl<B: Backend> Lane<B> {
    /// Closes the runs of a lane of pages, where nothing behind them is fixed; says what moved, or `None` where nothing can.
    /// `own` are the caller's requests whose alignment is not noted yet. Waits for the device.
    ///
    /// # Errors
    ///
    /// What the driver says; what had moved by then stays there, the rest is where it was.
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
        self.end_shift(begun, made);
        done.map(|()| Some(Slid { moves, bytes: 0 }))
    }

    /// Finds what can move, and holds it.
    fn begin_shift(&self, own: u64) -> Option<(Arc<Block<B>>, Vec<Begun>)> {
        let mut state = self.state.lock();
        if self.shared.unsettled.load(Acquire) > own {
            return None;
        }
        let stretches = state.stretches(self.shared.device.backend().caps().neighbour_granularity);
        let state = &mut *state;
        let (Some(pager), Divider::General(tlsf)) = (&mut state.pager, &mut state.divider) else {
            return None;
        };
        let held = state.blocks[pager.block().0 as usize].as_ref()?;
        let mut begun: Vec<Begun> = Vec::with_capacity(stretches.len());
        for mut stretch in stretches {
            if hold(tlsf, &mut stretch).is_err() {
                break;
            }
            pager.take_run(stretch.run.1);
            stretch.slots.iter().for_each(|slot| state.slots.set_moving(*slot));
            state.held_bytes += stretch.holes.iter().map(|(_, hole)| hole.size).sum::<u64>();
            let follows = |last: &&Begun| last.stretch.span.end() == stretch.run.1.offset;
            let before = begun.last().filter(follows).map_or(0, |last| last.by);
            let (pages, by) = (pager.pages_at(stretch.span), before + stretch.run.1.size);
            begun.push(Begun { stretch, pages, by });
        }
        (!begun.is_empty()).then(|| (Arc::clone(&held.block), begun))
    }

    /// Publishes the new places of the first stretches, and the old ones of the rest.
    fn end_shift(&self, begun: Vec<Begun>, made: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(pager), Divider::General(tlsf)) = (&mut state.pager, &mut state.divider) {
            put_runs_behind(pager, tlsf, &begun, made);
            for (key, hole) in begun.iter().flat_map(|one| &one.stretch.holes) {
                let freed = tlsf.free(*key);
                debug_assert!(freed.is_ok(), "a shift holds its holes");
                state.held_bytes -= hole.size;
            }
        }
        for (number, one) in begun.iter().enumerate() {
            for slot in &one.stretch.slots {
                if number < made {
                    self.tell_move(state, *slot);
                }
                state.let_go(self, *slot);
            }
        }
        self.moved.raise();
    }
}

impl<B: Backend> LaneState<B> {
    /// The stretches that can move down over the run before them, lowest first.
    fn stretches(&self, granularity: Align) -> Vec<Stretch> {
        let mut found: Vec<Stretch> = Vec::new();
        let (Some(pager), Divider::General(tlsf)) = (&self.pager, &self.divider) else {
            return found;
        };
        let mut slots = SlotsByKey::default();
        self.slots.iter().for_each(|(id, slot)| slots.note(id, slot.key));
        // The first pages have nothing below them to touch.
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

/// Holds the holes of a stretch, all or none.
fn hold(tlsf: &mut Tlsf, stretch: &mut Stretch) -> Result<(), ErrorKind> {
    for at in 0..stretch.holes.len() {
        let (key, hole) = stretch.holes[at];
        match tlsf.carve_in(key, hole) {
            Ok(grant) => {
                stretch.holes[at].0 = grant.key;
                stretch.last = if stretch.last == key { grant.key } else { stretch.last };
            }
            Err(kind) => {
                stretch.holes[..at].iter().for_each(|(key, _)| {
                    let _ = tlsf.free(*key);
                });
                return Err(kind);
            }
        }
    }
    Ok(())
}

/// Puts the runs of the first stretches behind them, joined where stretches followed each other, and the rest back.
fn put_runs_behind(pager: &mut Pager, tlsf: &mut Tlsf, begun: &[Begun], made: usize) {
    let mut carried: Option<Key> = None;
    for (number, Begun { stretch, .. }) in begun.iter().enumerate() {
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
