//! Many small pieces of device memory, and one stretch of host memory: the blocks of a KV cache come and go together.
#![forbid(unsafe_code)]
use omniheap_core::{
    Allocation, Backend, CopyRegion, Error, ErrorKind, InsideBlock, Manager, Request, Result,
    TimelineId,
};

/// Bytes that are laid together at a time. The host lists the next pieces while the link carries these.
const BATCH: u64 = 32 << 20;
/// Bytes of the first batch: the link waits while the host lists these.
const FIRST: u64 = 1 << 20;
/// Growth of each batch over the one before, which the link carries while the host lists it.
const GROWTH: u64 = 4;

/// A part of an allocation.
#[derive(Debug)]
pub struct Piece<'a, B: Backend> {
    /// The allocation.
    pub allocation: &'a Allocation<B>,
    /// Bytes from its start.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

impl<B: Backend> Clone for Piece<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Piece<'_, B> {}

/// Copies pieces to `to`, side by side in their order, in the order of a timeline: one batch on the device lays them together, and one copy carries
/// them. So small pieces travel as fast as large ones.
///
/// `to` begins with the first piece. Copies of host memory are fastest where the device has pinned it, as it has
/// [`Usage::Readback`](omniheap_core::Usage::Readback).
///
/// ```
/// use omniheap_core::{Manager, Request, TimelineId, Usage};
/// use omniheap_host::Host;
/// use omniheap_residency::{Piece, gather, scatter};
///
/// let manager = Manager::new(Host::new());
/// let cache = manager.allocate(&Request::new(1 << 20))?;
/// let stretch = manager.allocate(&Request::new(3 * 4096).usage(Usage::Readback))?;
/// cache.fill(0, 1 << 20, 7)?;
/// let blocks = [5, 99, 42].map(|block| Piece { allocation: &cache, offset: block * 4096, size: 4096 });
/// gather(&manager, TimelineId::MAIN, &blocks, Piece { allocation: &stretch, offset: 0, size: 3 * 4096 })?;
/// scatter(&manager, TimelineId::MAIN, Piece { allocation: &stretch, offset: 0, size: 3 * 4096 }, &blocks)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// `OutOfRange` where `to` is smaller than the pieces together; as for [`Manager::copy`] and [`Manager::allocate`]. Where the driver refuses a
/// copy, those before it have been made.
pub fn gather<B: Backend>(
    manager: &Manager<B>,
    on: TimelineId,
    pieces: &[Piece<'_, B>],
    to: Piece<'_, B>,
) -> Result<()> {
    carry(manager, on, pieces, to, Way::Gather)
}

/// Copies what lies side by side in `from` to pieces, in the order of a timeline: the way back of [`gather`].
///
/// # Errors
///
/// As for [`gather`].
pub fn scatter<B: Backend>(
    manager: &Manager<B>,
    on: TimelineId,
    from: Piece<'_, B>,
    pieces: &[Piece<'_, B>],
) -> Result<()> {
    carry(manager, on, pieces, from, Way::Scatter)
}

#[derive(Clone, Copy)]
enum Way {
    /// From pieces to the stretch.
    Gather,
    /// From the stretch to pieces.
    Scatter,
}

impl Way {
    /// The copy between bytes on the side of the pieces and as many on the side of the stretch.
    const fn region<'a, B: Backend>(
        self,
        here: Piece<'a, B>,
        there: Piece<'a, B>,
    ) -> CopyRegion<'a, B> {
        let (from, to) = match self {
            Self::Gather => (here, there),
            Self::Scatter => (there, here),
        };
        let (from_offset, to_offset, size) = (from.offset, to.offset, here.size);
        CopyRegion { from: from.allocation, from_offset, to: to.allocation, to_offset, size }
    }
}

fn carry<B: Backend>(
    manager: &Manager<B>,
    on: TimelineId,
    pieces: &[Piece<'_, B>],
    stretch: Piece<'_, B>,
    way: Way,
) -> Result<()> {
    let total = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.size));
    let total = total.filter(|total| *total <= stretch.size).ok_or(ErrorKind::OutOfRange)?;
    let bounce = match batches(pieces).any(|batch| batch.len() > 1) {
        true => Some(bounce(manager, on, total.min(BATCH))?),
        false => None,
    };
    let mut at = stretch.offset;
    for batch in batches(pieces) {
        let size = batch.iter().map(|piece| piece.size).sum();
        let there = Piece { offset: at, size, ..stretch };
        match (batch, &bounce) {
            ([alone], _) => manager.copy(on, &[way.region(*alone, there)])?,
            (_, Some(bounce)) => carry_batch(manager, on, batch, bounce, there, way)?,
            (_, None) => {}
        }
        at += size;
    }
    Ok(())
}

/// Device memory in which a batch lies side by side. The timeline uses it again in its own order, so that nobody waits for it.
fn bounce<B: Backend>(manager: &Manager<B>, on: TimelineId, size: u64) -> Result<Allocation<B>> {
    let request = Request::new(size).on(on).name("bounce of pieces");
    let is_alone = manager.caps().copy.inside_block == InsideBlock::Forbidden;
    let request = if is_alone { request.dedicated() } else { request };
    manager.allocate(&request).map_err(Error::from)
}

/// Copies pieces through the bounce, where they lie side by side as they do `there`.
fn carry_batch<B: Backend>(
    manager: &Manager<B>,
    on: TimelineId,
    batch: &[Piece<'_, B>],
    bounce: &Allocation<B>,
    there: Piece<'_, B>,
    way: Way,
) -> Result<()> {
    let mut offset = 0;
    let small = batch.iter().map(|piece| {
        let place = Piece { allocation: bounce, offset, size: piece.size };
        offset += piece.size;
        way.region(*piece, place)
    });
    let small: Vec<_> = small.collect();
    let large = [way.region(Piece { allocation: bounce, offset: 0, size: there.size }, there)];
    match way {
        Way::Gather => manager.copy(on, &small).and_then(|()| manager.copy(on, &large)),
        Way::Scatter => manager.copy(on, &large).and_then(|()| manager.copy(on, &small)),
    }
}

/// Cuts pieces into batches, from [`FIRST`] to [`BATCH`] bytes; a piece that is larger is alone.
fn batches<'a, 'b, B: Backend>(
    mut pieces: &'b [Piece<'a, B>],
) -> impl Iterator<Item = &'b [Piece<'a, B>]> {
    let mut most = FIRST;
    core::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |piece: &&Piece<'_, B>| {
            bytes += piece.size;
            bytes <= most
        };
        let count = pieces.iter().take_while(fits).count().max(1).min(pieces.len());
        let (batch, rest) = pieces.split_at(count);
        (pieces, most) = (rest, BATCH.min(GROWTH * most));
        (count > 0).then_some(batch)
    })
}
