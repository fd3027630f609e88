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
use crate::device::{Block, insist};
use crate::lane::{Ask, BegunSlides, Copies, Lane, SlotId};
use crate::{Backend, ErrorKind, InsideBlock, Result, TimelineId, Transfer};
use core::cell::Cell;
use omniheap_strategy::moves::{MoveDown, Piece, Planned, Window, cheapest, last, widest};
use omniheap_strategy::pages::Shifted;
use std::time::Instant;

/// Slides of one block.
type Chosen = Window<SlotId>;

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
        self.run(|pieces| cheapest(pieces, size).map(|window| window.filter(&wanted)))
    }

    /// Makes a hole of at least `size` bytes out of smaller ones; returns what moved, or `None` where it cannot. Waits for
    /// the device.
    ///
    /// # Errors
    ///
    /// As for [`make_hole`](Self::make_hole).
    pub(crate) fn join_holes(&self, size: u64) -> Result<Option<Slid>> {
        self.run(|pieces| {
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
    pub(crate) fn lay_hole_last(&self, size: u64) -> Result<Option<Slid>> {
        self.run(|pieces| last(pieces, size))
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
        self.run(|pieces| widest(pieces))
    }

    /// Makes the slides of the cheapest window of those that `choose` finds in each block.
    fn run(
        &self,
        choose: impl Fn(&mut [Piece<SlotId>]) -> Planned<SlotId>,
    ) -> Result<Option<Slid>> {
        let backend = self.shared.device.backend();
        let Some(transfer) = backend.as_transfer() else { return Ok(None) };
        let Some(begun) = self.begin_slides(&choose)? else { return Ok(None) };
        let cost = self.shared.device.cost(self.shared.heap);
        let asked = Instant::now();
        let idle = backend.wait_idle();
        cost.learn_waiting(asked.elapsed());
        let began = Instant::now();
        let (made, done, copies) = match idle {
            Ok(()) => {
                self.pass_slides(&begun);
                self.slide(transfer, &begun)
            }
            Err(error) => (0, Err(error), Copies::Ended),
        };
        let slides = &begun.window.slides[..made];
        let bytes = slides.iter().map(|slide| slide.from.size).sum();
        let slid = Slid { moves: made as u64, bytes };
        if done.is_ok() {
            let took = began.elapsed();
            cost.learn(slid.moves, slid.bytes, took, took);
        }
        self.end_slides(&begun, made, copies);
        done.map(|()| (made > 0).then_some(slid))
    }

    /// Copies everything to its new place; returns how many slides were made, from the first on, even after an error, and what is
    /// known of the copies.
    fn slide(
        &self,
        transfer: &dyn Transfer<Block = B::Block>,
        begun: &BegunSlides<B>,
    ) -> (usize, Result<()>, Copies) {
        let inside = self.shared.device.backend().caps().copy.inside_block;
        let bounce = self.bounce(&begun.window, inside);
        if inside == InsideBlock::Forbidden && bounce.is_none() {
            return (0, Ok(()), Copies::Ended);
        }
        // The device is idle before and after, so any timeline will do; this one is never closed.
        let on = TimelineId::MAIN;
        let copier =
            OverlapCopier { transfer, on, block: &begun.block, bounce: bounce.as_ref(), inside };
        let mut made = 0;
        let there = copier.go(&begun.window.slides, &mut made);
        // Submitted copies will finish, even if the driver refuses the first wait, or every wait for more than they are.
        let device = &self.shared.device;
        let idle = insist(|| device.backend().wait_idle()).or_else(|_| device.finish(on));
        // A lost device runs nothing.
        let copies = match idle {
            Err(error) if error.kind() != ErrorKind::DeviceLost => Copies::MayRun(on),
            _ => Copies::Ended,
        };
        if idle.is_err()
            && let Some(bounce) = bounce
        {
            device.give_up(bounce);
        }
        (made, there.and(idle), copies)
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

    /// Closes the unmapped ranges of a lane of pages, where nothing behind them is fixed; returns what moved, or `None`
    /// where nothing can. Waits for the device.
    ///
    /// # Errors
    ///
    /// Driver errors; pages that had moved by then stay at their new place, the rest at their old one.
    pub(crate) fn close_unmapped_ranges(&self) -> Result<Option<Slid>> {
        let Some(begun) = self.begin_shift() else { return Ok(None) };
        let (shifted, done) = match self.shared.device.backend().wait_idle() {
            Ok(()) => self.shift(&begun),
            Err(error) => (Shifted::default(), Err(error)),
        };
        self.end_shift(&begun, shifted);
        done.map(|()| Some(Slid { moves: begun.moves(shifted) as u64, bytes: 0 }))
    }
}
