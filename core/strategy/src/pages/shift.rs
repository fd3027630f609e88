//! Shifts: pages behind an unmapped range are mapped further down, over it. No byte is copied.
use super::Pager;
use crate::{Grant, Key, Tlsf};
use alloc::vec::Vec;
use omniheap_seam::{Page, Span};

/// Pages behind an unmapped range, with everything in them; `T` names what lives there.
#[derive(Debug)]
pub struct Stretch<T> {
    /// The range, which the stretch moves over.
    range: (Key, Span),
    /// The bytes of the stretch: whole pages.
    span: Span,
    slots: Vec<T>,
    holes: Vec<(Key, Span)>,
    /// The first and the last of its pieces.
    ends: (Key, Key),
}

impl<T> Stretch<T> {
    /// Nothing yet, behind a range.
    #[must_use]
    pub const fn behind(key: Key, range: Span) -> Self {
        let span = Span { offset: range.offset + range.size, size: 0 };
        let range = (key, range);
        Self { range, span, slots: Vec::new(), holes: Vec::new(), ends: (key, key) }
    }

    /// Adds the live span that follows.
    pub fn add_live(&mut self, key: Key, span: Span, slot: T) {
        self.slots.push(slot);
        self.add(key, span);
    }

    /// Adds the hole that follows.
    pub fn add_hole(&mut self, key: Key, span: Span) {
        self.holes.push((key, span));
        self.add(key, span);
    }

    fn add(&mut self, key: Key, span: Span) {
        let first = if self.span.size == 0 { key } else { self.ends.0 };
        (self.ends, self.span.size) = ((first, key), span.end() - self.span.offset);
    }

    /// Returns true if the stretch has no live span.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes its holes, so that no request gets them; whether it did.
    fn hold(&mut self, tlsf: &mut Tlsf) -> bool {
        let holes: Vec<Key> = self.holes.iter().map(|(key, _)| *key).collect();
        let is_held = tlsf.carve_all(&mut self.holes).is_ok();
        for (hole, (held, _)) in holes.into_iter().zip(&self.holes).filter(|_| is_held) {
            for end in [&mut self.ends.0, &mut self.ends.1] {
                *end = if *end == hole { *held } else { *end };
            }
        }
        is_held
    }
}

/// A stretch that is about to move: its holes and its range are held.
#[derive(Debug)]
pub struct Shift<T> {
    stretch: Stretch<T>,
    pages: Vec<Page>,
    /// The distance it moves: its range, and adjacent ranges before it that are closed too.
    by: u64,
    /// Addresses without memory for a stretch that is larger than that distance: no driver maps pages over pages.
    aside: Option<Grant>,
}

impl<T> Shift<T> {
    /// Returns the live spans of the stretch.
    #[must_use]
    pub fn slots(&self) -> &[T] {
        &self.stretch.slots
    }

    /// The pages that move.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Returns the pages' present span, and the span they move to.
    #[must_use]
    pub const fn places(&self) -> [Span; 2] {
        let old = self.stretch.span;
        [old, Span { offset: old.offset - self.by, size: old.size }]
    }

    /// Returns the span where the pages are mapped in between, if they must be.
    #[must_use]
    pub const fn aside(&self) -> Option<Grant> {
        self.aside
    }

    /// Bytes of holes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.stretch.holes.iter().map(|(_, hole)| hole.size).sum()
    }
}

/// Progress of the moves of stretches.
///
/// Pages are mapped at their new place before the old mapping goes. So a driver that refuses, however often, loses no byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shifted {
    /// Stretches that are at their new place, from the first on.
    pub made: usize,
    /// True if the next stretch is aside: the driver did not map it further down.
    pub is_aside: bool,
    /// Place where the stretch that was moved last is mapped too: the driver did not unmap it there.
    pub leftover: Option<Leftover>,
}

impl Shifted {
    /// Everything that moved.
    pub fn moved<T>(self, shifts: &[Shift<T>]) -> impl Iterator<Item = &T> {
        shifts[..self.made + usize::from(self.is_aside)].iter().flat_map(Shift::slots)
    }
}

/// Addresses at which pages are still mapped that are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Pages at the addresses that a stretch left.
    Old,
    /// Pages at the addresses aside.
    Aside(Key),
}

impl Pager {
    /// Holds stretches with the ranges before them, lowest first, as far as there are addresses for those that go aside.
    pub fn begin_shifts<T>(
        &mut self,
        tlsf: &mut Tlsf,
        stretches: Vec<Stretch<T>>,
    ) -> Vec<Shift<T>> {
        let mut shifts: Vec<Shift<T>> = Vec::with_capacity(stretches.len());
        let end = stretches.last().map_or(0, |last| last.span.end());
        for mut stretch in stretches {
            let follows = |last: &&Shift<T>| last.stretch.span.end() == stretch.range.1.offset;
            let by = stretch.range.1.size + shifts.last().filter(follows).map_or(0, |last| last.by);
            if !stretch.hold(tlsf) {
                break;
            }
            let size = stretch.span.size;
            let aside = (size > by).then(|| self.set_aside(tlsf, end, size));
            if aside == Some(None) {
                tlsf.free_all(&stretch.holes);
                break;
            }
            self.take_unmapped(stretch.range.1);
            let (pages, aside) = (self.pages_at(stretch.span), aside.flatten());
            shifts.push(Shift { stretch, pages, by, aside });
        }
        shifts
    }

    /// Puts the unmapped ranges of the stretches that moved behind them, joined where stretches were adjacent. Restores the
    /// others, and frees the holes of all.
    pub fn end_shifts<T>(&mut self, tlsf: &mut Tlsf, shifts: &[Shift<T>], shifted: Shifted) {
        let Shifted { made, is_aside, leftover } = shifted;
        let mut carried: Option<Key> = None;
        for (number, Shift { stretch, .. }) in shifts.iter().enumerate() {
            let mut range = stretch.range.0;
            if number >= made {
                self.abandon_unmapped(tlsf, range);
                continue;
            }
            match carried.map(|before| (before, tlsf.join(before, range))) {
                Some((_, Ok(joined))) => range = joined.key,
                Some((before, Err(_))) => self.abandon_unmapped(tlsf, before),
                None => {}
            }
            self.exchange(tlsf, range, stretch.ends, stretch.span);
            carried = Some(range);
        }
        if let Some(Shift { stretch, aside: Some(aside), .. }) = shifts.get(made)
            && is_aside
        {
            self.exchange(tlsf, aside.key, stretch.ends, stretch.span);
        }
        // A range where something is still mapped can hold nothing else.
        match carried {
            Some(range) if leftover == Some(Leftover::Old) => self.strand_unmapped(tlsf, range),
            Some(range) => self.abandon_unmapped(tlsf, range),
            None => {}
        }
        for Grant { key, .. } in shifts.iter().filter_map(|one| one.aside) {
            match leftover {
                Some(Leftover::Aside(left)) if left == key => self.strand_unmapped(tlsf, key),
                _ => self.abandon_unmapped(tlsf, key),
            }
        }
        shifts.iter().for_each(|one| tlsf.free_all(&one.stretch.holes));
    }
}

#[cfg(test)]
mod tests {
    //! Tests of what is published of stretches that moved, by what the driver did.
    use super::*;
    use crate::Strategy;
    use omniheap_seam::{Align, Class};

    const PAGE: u64 = 1 << 16;

    fn span(first: u64, pages: u64) -> Span {
        Span { offset: first * PAGE, size: pages * PAGE }
    }

    /// A page, an unmapped range of `gap` pages, and a stretch of two pages that is about to move over it.
    fn begun(gap: u64) -> (Pager, Tlsf, Vec<Shift<()>>) {
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
        let mut stretch = Stretch::behind(range.key, range.span);
        stretch.add_live(key, span(1 + gap, 2), ());
        let shifts = pager.begin_shifts(&mut tlsf, Vec::from([stretch]));
        (pager, tlsf, shifts)
    }

    /// Publishes, and says where the stretch is, what else has memory by the table, and what is out of use.
    fn publish(gap: u64, shifted: impl Fn(&Shift<()>) -> Shifted) -> (u64, Vec<u64>, u64) {
        let (mut pager, mut tlsf, shifts) = begun(gap);
        pager.end_shifts(&mut tlsf, &shifts, shifted(&shifts[0]));
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
        assert_eq!(publish(1, |_| moved), (1, alloc::vec![0, 1, 2], 0));
        assert_eq!(publish(3, |_| moved), (1, alloc::vec![0, 1, 2], 0));
        let none = Shifted::default();
        assert_eq!(publish(1, |_| none), (2, alloc::vec![0, 2, 3], 0));
        assert_eq!(
            publish(1, |_| Shifted { is_aside: true, ..none }),
            (4, alloc::vec![0, 4, 5], 0)
        );
        let old = Some(Leftover::Old);
        assert_eq!(
            publish(3, |_| Shifted { leftover: old, ..moved }),
            (1, alloc::vec![0, 1, 2], 3)
        );
        let aside = |one: &Shift<()>| one.aside.map(|piece| Leftover::Aside(piece.key));
        let keeps = |one: &Shift<()>| Shifted { leftover: aside(one), ..moved };
        assert_eq!(publish(1, keeps), (1, alloc::vec![0, 1, 2], 2));
        let stays = |one: &Shift<()>| Shifted { leftover: aside(one), ..none };
        assert_eq!(publish(1, stays), (2, alloc::vec![0, 2, 3], 2));
    }
}
