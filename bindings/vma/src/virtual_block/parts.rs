//! A range that the general or the linear algorithm divides, and its parts.
#![forbid(unsafe_code)]
use crate::linear::{Linear, Side};
use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};
use omniheap_strategy::{Key, Strategy, Tlsf};

/// Choice among the holes that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// A small hole, found at once.
    Small,
    /// The lowest hole.
    Lowest,
}

/// Wish for a new part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) size: u64,
    pub(super) align: Align,
    pub(super) side: Side,
    pub(super) choice: Choice,
}

/// A part in use.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) span: Span,
    pub(super) user_data: AtomicPtr<c_void>,
    place: Place,
}

/// Key that frees a part.
#[derive(Clone, Copy, Debug)]
enum Place {
    General(Key),
    Linear,
}

/// Algorithm that divides the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    General,
    Linear,
}

#[derive(Debug)]
enum Division {
    General(Box<Tlsf>),
    Linear(Linear),
}

impl Division {
    fn new(algorithm: Algorithm, size: u64) -> Result<Self, ErrorKind> {
        if algorithm == Algorithm::Linear {
            return Ok(Self::Linear(Linear::new(size)));
        }
        let mut tlsf = Box::new(Tlsf::new(Align::ONE));
        tlsf.add_block(size)?;
        Ok(Self::General(tlsf))
    }

    fn place(&mut self, wish: Wish) -> Result<(u64, Place), ErrorKind> {
        match self {
            Self::Linear(linear) => {
                let offset = linear.allocate(wish.size, wish.align.get(), wish.side);
                Ok((offset.ok_or(ErrorKind::OutOfDeviceMemory)?, Place::Linear))
            }
            Self::General(..) if wish.side == Side::Upper => Err(ErrorKind::Unsupported),
            Self::General(tlsf) => {
                let layout = Layout::new(wish.size).align(wish.align);
                let grant = match wish.choice {
                    Choice::Small => tlsf.allocate(layout, Class::Linear)?,
                    Choice::Lowest => {
                        tlsf.allocate_lowest(layout, Class::Linear, |_, _, _| true)?
                    }
                };
                Ok((grant.span.offset, Place::General(grant.key)))
            }
        }
    }

    fn free(&mut self, part: &Part) {
        match (self, part.place) {
            (Self::General(tlsf), Place::General(key)) => {
                let freed = tlsf.free(key);
                debug_assert!(freed.is_ok(), "a part in use has a live key: {freed:?}");
            }
            (Self::Linear(linear), _) => {
                let was_live = linear.free(part.span.offset);
                debug_assert!(was_live, "a part in use is live");
            }
            (Self::General(..), Place::Linear) => {}
        }
    }
}

/// A slot of the table of parts. Its stamp counts the parts that were in it.
#[derive(Debug)]
struct Slot {
    stamp: u32,
    part: Option<Part>,
}

/// Name of a part: a slot, and its stamp. Its number is never zero.
fn number(slot: usize, stamp: u32) -> u64 {
    u64::from(stamp) << 32 | u64::try_from(slot).map_or(0, |slot| slot + 1)
}

/// A range, and its parts.
#[derive(Debug)]
pub(super) struct Parts {
    size: u64,
    algorithm: Algorithm,
    division: Division,
    slots: Vec<Slot>,
    free: Vec<usize>,
    count: u32,
    bytes: u64,
}

impl Parts {
    pub(super) fn new(size: u64, algorithm: Algorithm) -> Result<Self, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let division = Division::new(algorithm, size)?;
        let (slots, free) = (Vec::new(), Vec::new());
        Ok(Self { size, algorithm, division, slots, free, count: 0, bytes: 0 })
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Number of parts in use.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the parts in use.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a part; returns its number and its offset.
    pub(super) fn allocate(
        &mut self,
        wish: Wish,
        user_data: *mut c_void,
    ) -> Result<(u64, u64), ErrorKind> {
        if wish.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let count = self.count.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let (offset, place) = self.division.place(wish)?;
        let span = Span { offset, size: wish.size };
        let part = Part { span, user_data: AtomicPtr::new(user_data), place };
        (self.count, self.bytes) = (count, self.bytes + wish.size);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { stamp: 0, part: None });
            self.slots.len() - 1
        });
        self.slots[slot].part = Some(part);
        Ok((number(slot, self.slots[slot].stamp), offset))
    }

    fn slot(&self, handle: u64) -> Option<usize> {
        let slot = usize::try_from((handle & u64::from(u32::MAX)).checked_sub(1)?).ok()?;
        let held = self.slots.get(slot)?;
        (held.part.is_some() && number(slot, held.stamp) == handle).then_some(slot)
    }

    pub(super) fn get(&self, handle: u64) -> Option<&Part> {
        self.slots[self.slot(handle)?].part.as_ref()
    }

    /// Frees a part; returns `None` for a number that names none.
    pub(super) fn free(&mut self, handle: u64) -> Option<()> {
        let slot = self.slot(handle)?;
        let part = self.vacate(slot)?;
        self.division.free(&part);
        Some(())
    }

    /// Takes a part out of its slot. A slot whose stamps have run out is not used again.
    fn vacate(&mut self, slot: usize) -> Option<Part> {
        let held = &mut self.slots[slot];
        let part = held.part.take()?;
        (self.count, self.bytes) = (self.count - 1, self.bytes - part.span.size);
        if let Some(stamp) = held.stamp.checked_add(1) {
            held.stamp = stamp;
            self.free.push(slot);
        }
        Some(part)
    }

    /// Frees all parts.
    pub(super) fn clear(&mut self) -> Result<(), ErrorKind> {
        self.division = Division::new(self.algorithm, self.size)?;
        for slot in 0..self.slots.len() {
            let _ = self.vacate(slot);
        }
        Ok(())
    }

    /// Shows parts and holes, lowest offset first.
    pub(super) fn for_each(&self, mut show: impl FnMut(Span, Option<&Part>)) {
        let mut parts: Vec<&Part> =
            self.slots.iter().filter_map(|slot| slot.part.as_ref()).collect();
        parts.sort_unstable_by_key(|part| part.span.offset);
        let mut at = 0;
        for part in parts {
            if part.span.offset > at {
                show(Span { offset: at, size: part.span.offset - at }, None);
            }
            show(part.span, Some(part));
            at = part.span.end();
        }
        if at < self.size {
            show(Span { offset: at, size: self.size - at }, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null_mut;

    fn wish(size: u64) -> Wish {
        Wish { size, align: Align::ONE, side: Side::Lower, choice: Choice::Small }
    }

    fn pieces(parts: &Parts) -> Vec<(u64, u64, bool)> {
        let mut seen = Vec::new();
        parts.for_each(|span, part| seen.push((span.offset, span.size, part.is_some())));
        seen
    }

    #[test]
    fn a_number_names_one_part_and_no_later_one() {
        for algorithm in [Algorithm::General, Algorithm::Linear] {
            let mut parts = Parts::new(1000, algorithm).expect("a range");
            let (first, _) = parts.allocate(wish(100), null_mut()).expect("room");
            assert_eq!(parts.free(first), Some(()));
            assert!(parts.get(first).is_none() && parts.free(first).is_none());
            let (second, offset) = parts.allocate(wish(100), null_mut()).expect("room");
            assert_ne!(first, second);
            assert_eq!((offset, parts.get(second).map(|part| part.span.size)), (0, Some(100)));
            for made_up in [0, 2, first, u64::MAX, u64::from(u32::MAX), 1 << 32] {
                assert!(made_up == second || parts.free(made_up).is_none(), "{made_up}");
            }
            parts.clear().expect("a range");
            assert!(parts.get(second).is_none());
            assert_eq!(
                (parts.count(), parts.bytes(), pieces(&parts)),
                (0, 0, vec![(0, 1000, false)])
            );
        }
    }

    #[test]
    fn parts_and_holes_tile_the_range() {
        let mut parts = Parts::new(1000, Algorithm::General).expect("a range");
        let handles =
            [100, 200, 300].map(|size| parts.allocate(wish(size), null_mut()).expect("room").0);
        assert_eq!(parts.free(handles[1]), Some(()));
        assert_eq!(
            pieces(&parts),
            [(0, 100, true), (100, 200, false), (300, 300, true), (600, 400, false)]
        );
        assert_eq!((parts.count(), parts.bytes()), (2, 400));
    }

    #[test]
    fn the_lowest_hole_is_taken_on_request() {
        let mut parts = Parts::new(1000, Algorithm::General).expect("a range");
        let handles = [300, 100, 100, 400]
            .map(|size| parts.allocate(wish(size), null_mut()).expect("room").0);
        assert!(parts.free(handles[0]).and_then(|()| parts.free(handles[2])).is_some());
        let lowest = Wish { choice: Choice::Lowest, align: Align::of(64), ..wish(100) };
        assert_eq!(parts.allocate(wish(100), null_mut()).map(|(_, at)| at), Ok(400), "the least");
        assert_eq!(parts.allocate(lowest, null_mut()).map(|(_, at)| at), Ok(0));
        assert_eq!(parts.allocate(lowest, null_mut()).map(|(_, at)| at), Ok(128));
        assert!(parts.allocate(lowest, null_mut()).is_err());
    }

    #[test]
    fn the_upper_end_is_only_of_the_linear_algorithm() {
        let upper = Wish { side: Side::Upper, ..wish(100) };
        let mut general = Parts::new(1000, Algorithm::General).expect("a range");
        assert_eq!(general.allocate(upper, null_mut()), Err(ErrorKind::Unsupported));
        let mut linear = Parts::new(1000, Algorithm::Linear).expect("a range");
        assert_eq!(linear.allocate(upper, null_mut()).map(|(_, at)| at), Ok(900));
        assert_eq!(linear.allocate(wish(900), null_mut()).map(|(_, at)| at), Ok(0));
        assert_eq!(linear.allocate(wish(1), null_mut()), Err(ErrorKind::OutOfDeviceMemory));
        assert_eq!(linear.count(), 2);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(Parts::new(0, Algorithm::General).is_err());
        for algorithm in [Algorithm::General, Algorithm::Linear] {
            let mut parts = Parts::new(1 << 62, algorithm).expect("a range");
            assert_eq!(parts.allocate(wish(0), null_mut()), Err(ErrorKind::ZeroSize));
            assert!(parts.allocate(wish(1), null_mut()).is_ok());
            for size in [u64::MAX, u64::MAX - 1] {
                let aligned = Wish { align: Align::of(1 << 63), ..wish(size) };
                assert!(parts.allocate(aligned, null_mut()).is_err(), "{algorithm:?} {size}");
            }
        }
    }
}
