//! Physical pages of one heap: consecutive pieces of one anonymous file.
use crate::driver::File;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use omniheap_seam::{ErrorKind, Page, Result, lock};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The pages of one heap.
///
/// Numbers are never used again, so a destroyed page stays recognisable; the file is sparse, so they cost nothing.
pub(crate) struct Pages {
    pub(crate) file: File,
    /// Bytes of one page.
    pub(crate) size: u64,
    /// Pages that stand for host memory: no account has them.
    pub(crate) on_host: AtomicU64,
    state: Mutex<State>,
}

/// State of the device: lost, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    No,
    Yes,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Sixty-four pages each, by number ÷ 64; absent when none of them lives.
    groups: BTreeMap<u64, Group>,
}

/// One bit for each page.
#[derive(Clone, Copy, Default)]
struct Group {
    live: u64,
    mapped: u64,
    /// Mapped at a second position: about to move.
    twice: u64,
}

/// Consecutive pages of one group.
#[derive(Clone, Copy)]
struct Piece {
    group: u64,
    mask: u64,
    first: u64,
}

impl Piece {
    const fn new(first: u64, count: u64) -> Self {
        let mask = (u64::MAX >> (64 - count)) << (first % 64);
        Self { group: first / 64, mask, first }
    }
}

/// Cuts a list into pieces; together they are the list, in order.
fn pieces(pages: &[Page]) -> impl Iterator<Item = Piece> {
    let joined = |a: &Page, b: &Page| a.0.checked_add(1) == Some(b.0) && a.0 / 64 == b.0 / 64;
    pages.chunk_by(joined).map(|run| Piece::new(run[0].0, run.len() as u64))
}

/// Cuts a list into runs of consecutive numbers: the first page and how many.
pub(crate) fn runs(pages: &[Page]) -> impl Iterator<Item = (Page, u64)> {
    pages.chunk_by(|a, b| a.0 + 1 == b.0).map(|run| (run[0], run.len() as u64))
}

impl State {
    fn create(&mut self, range: Range<u64>) {
        let mut first = range.start;
        while first < range.end {
            let count = (64 - first % 64).min(range.end - first);
            let piece = Piece::new(first, count);
            self.groups.entry(piece.group).or_default().live |= piece.mask;
            first += count;
        }
    }

    fn enter(&mut self, piece: Piece) -> Result<()> {
        let group = self.groups.get_mut(&piece.group).ok_or(ErrorKind::Stale)?;
        if group.live & piece.mask != piece.mask {
            return Err(ErrorKind::Stale.into());
        }
        if group.twice & piece.mask != 0 {
            return Err(ErrorKind::Busy.into());
        }
        group.twice |= group.mapped & piece.mask;
        group.mapped |= piece.mask;
        Ok(())
    }

    fn leave(&mut self, piece: Piece) {
        if let Some(group) = self.groups.get_mut(&piece.group) {
            group.mapped &= !piece.mask | group.twice;
            group.twice &= !piece.mask;
        }
    }

    /// Forgets what can be forgotten of a piece, and says which pages that were and what was wrong with the others. A
    /// mapped page stays, unless the device is gone and mapping means nothing.
    fn forget(&mut self, piece: Piece, lost: Lost) -> (u64, Result<()>) {
        let Some(group) = self.groups.get_mut(&piece.group) else {
            return (0, Err(ErrorKind::Stale.into()));
        };
        let live = group.live & piece.mask;
        let gone = if lost == Lost::Yes { live } else { live & !group.mapped };
        group.live &= !gone;
        group.mapped &= !gone;
        group.twice &= !gone;
        if group.live == 0 {
            self.groups.remove(&piece.group);
        }
        let verdict = match piece.mask {
            mask if live != mask => Err(ErrorKind::Stale.into()),
            mask if gone != mask => Err(ErrorKind::Busy.into()),
            _ => Ok(()),
        };
        (gone, verdict)
    }
}

impl Pages {
    pub(crate) fn new(size: u64) -> Result<Self> {
        let on_host = AtomicU64::new(0);
        Ok(Self { file: File::new()?, size, on_host, state: Mutex::default() })
    }

    /// Makes `count` pages with consecutive numbers.
    pub(crate) fn create(&self, count: u64) -> Result<Range<u64>> {
        let mut state = lock(&self.state);
        let range = state.next..state.next.checked_add(count).ok_or(ErrorKind::ExceedsLimit)?;
        let end = range.end.checked_mul(self.size).ok_or(ErrorKind::ExceedsLimit)?;
        self.file.resize(end)?;
        state.next = range.end;
        state.create(range.clone());
        Ok(range)
    }

    /// Frees pages; returns how many, and the error of the first that could not be freed.
    pub(crate) fn destroy(&self, pages: &[Page], lost: Lost) -> (u64, Result<()>) {
        let (mut gone, mut verdict) = (Vec::with_capacity(pages.len()), Ok(()));
        for piece in pieces(pages) {
            let (bits, answer) = lock(&self.state).forget(piece, lost);
            let base = piece.first - piece.first % 64;
            gone.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| Page(base + bit)));
            verdict = verdict.and(answer);
        }
        for (first, count) in runs(&gone) {
            verdict = verdict.and(self.file.punch(first.0 * self.size, count * self.size));
        }
        (gone.len() as u64, verdict)
    }

    /// Marks all as mapped, or none.
    pub(crate) fn enter(&self, pages: &[Page]) -> Result<()> {
        let mut state = lock(&self.state);
        for (done, piece) in pieces(pages).enumerate() {
            if let Err(error) = state.enter(piece) {
                pieces(pages).take(done).for_each(|piece| state.leave(piece));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Marks all as not mapped.
    pub(crate) fn leave(&self, pages: &[Page]) {
        let mut state = lock(&self.state);
        pieces(pages).for_each(|piece| state.leave(piece));
    }
}
