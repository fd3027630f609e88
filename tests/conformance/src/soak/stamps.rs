//! Bytes that tell allocations apart, written and compared in batches by the device itself.
use crate::rng::{Rng, mix};
use crate::world::{Stack, World};
use omniheap_core::{Allocation, Backend, CopyRegion, Manager, Request, TimelineId};

/// Bytes of a stamp, unless the allocation is smaller.
pub(super) const STAMPED: u64 = 64;
/// Bytes that stamps are cut from: tens of thousands of different ones.
const PATTERN: u64 = 256 << 10;
/// Stamps that are written or compared at a time.
const MOST: usize = 1024;

/// A stamp of one allocation: where it begins, and whose it is.
pub(super) struct Stamp<'a, B: Backend + 'static> {
    pub(super) one: &'a Allocation<Stack<B>>,
    pub(super) offset: u64,
    pub(super) id: u64,
}

/// The pattern, and a place to gather stamps in for each timeline.
pub(super) struct Stamps<B: Backend + 'static> {
    pattern: Allocation<Stack<B>>,
    bytes: Vec<u8>,
    areas: Vec<(TimelineId, Allocation<Stack<B>>)>,
    unit: u64,
    /// Bytes of a whole stamp, rounded to what the device copies.
    length: u64,
}

impl<B: Backend + 'static> Stamps<B> {
    /// Writes the pattern to the device.
    pub(super) fn new(
        world: &World<B>,
        manager: &Manager<Stack<B>>,
        lines: &[TimelineId],
        rng: &mut Rng,
    ) -> Result<Self, String> {
        let bytes: Vec<u8> = (0..PATTERN / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        // Blocks of their own: not every device copies inside one.
        let pattern = made(manager, &Request::new(PATTERN).dedicated())?;
        pattern.write(0, &bytes).map_err(|error| error.to_string())?;
        let length = world.whole(STAMPED);
        let area = Request::new(MOST as u64 * length).dedicated();
        let areas = lines.iter().map(|line| {
            let area = if world.backend().as_timelines().is_some() { area.on(*line) } else { area };
            Ok((*line, made(manager, &area)?))
        });
        let areas = areas.collect::<Result<_, String>>()?;
        let unit = world.backend().caps().copy.align.get().max(4);
        Ok(Self { pattern, bytes, areas, unit, length })
    }

    /// Bytes of all that this holds.
    pub(super) fn held(&self) -> u64 {
        self.pattern.size() + self.areas.iter().map(|(_, area)| area.size()).sum::<u64>()
    }

    /// Returns the offset in the pattern of the stamp of `id`.
    fn place(&self, id: u64) -> u64 {
        mix(id) % ((PATTERN - self.length) / self.unit) * self.unit
    }

    fn size_of(&self, stamp: &Stamp<'_, B>) -> u64 {
        self.length.min(stamp.one.size())
    }

    /// Returns the offsets of the stamps in an allocation: at its start, and at its end where it is large enough for
    /// two.
    pub(super) fn ends(&self, size: u64) -> (u64, Option<u64>) {
        (0, (size >= 2 * self.length).then(|| size - self.length))
    }

    /// Writes stamps, in a timeline's order.
    pub(super) fn write(
        &self,
        manager: &Manager<Stack<B>>,
        on: TimelineId,
        stamps: &[Stamp<'_, B>],
    ) -> Result<(), String> {
        for part in stamps.chunks(MOST) {
            let copies: Vec<_> = part
                .iter()
                .map(|stamp| CopyRegion {
                    from: &self.pattern,
                    from_offset: self.place(stamp.id),
                    to: stamp.one,
                    to_offset: stamp.offset,
                    size: self.size_of(stamp),
                })
                .collect();
            manager.copy(on, &copies).map_err(|error| format!("stamping: {error}"))?;
        }
        Ok(())
    }

    /// Compares stamps, after everything earlier on a timeline; the first that is not what was written.
    pub(super) fn find_lost(
        &self,
        manager: &Manager<Stack<B>>,
        on: TimelineId,
        stamps: &[Stamp<'_, B>],
    ) -> Result<Option<usize>, String> {
        let area = self.areas.iter().find(|(line, _)| *line == on).map(|(_, area)| area);
        let area = area.ok_or("a timeline without a place to gather stamps in")?;
        for (number, part) in stamps.chunks(MOST).enumerate() {
            let place = |at: usize| at as u64 * self.length;
            let copies: Vec<_> = part
                .iter()
                .enumerate()
                .map(|(at, stamp)| CopyRegion {
                    from: stamp.one,
                    from_offset: stamp.offset,
                    to: area,
                    to_offset: place(at),
                    size: self.size_of(stamp),
                })
                .collect();
            manager.copy(on, &copies).map_err(|error| format!("gathering: {error}"))?;
            let mut found = vec![0; index(place(part.len()))];
            area.read(0, &mut found).map_err(|error| format!("reading: {error}"))?;
            let is_lost = |at: usize, stamp: &Stamp<'_, B>| {
                let (at, from) = (index(place(at)), index(self.place(stamp.id)));
                let size = index(self.size_of(stamp));
                found[at..at + size] != self.bytes[from..from + size]
            };
            let lost = part.iter().enumerate().position(|(at, stamp)| is_lost(at, stamp));
            if let Some(at) = lost {
                return Ok(Some(number * MOST + at));
            }
        }
        Ok(None)
    }
}

fn made<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    request: &Request<'_>,
) -> Result<Allocation<Stack<B>>, String> {
    manager.allocate(request).map_err(|error| format!("{} bytes: {error}", request.layout.size))
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("within a vector")
}
