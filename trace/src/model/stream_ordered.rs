//! A stream-ordered pool, as behind `cudaMallocAsync`.

use super::Observe;
use super::pytorch::Place;
use super::ranges::{Ranges, Rules};
use super::sealed::Policy;
use crate::event::StreamId;

/// Bytes that the driver takes for a pool at once.
const CHUNK: u64 = 32 << 20;

const RULES: Rules = Rules { chunks: [CHUNK; 2], small: 0, by_stream: false };

/// The policy's state: one range for all streams, grown by 32 MiB.
///
/// The driver's own policy is not published. This model shares its granularity and its reuse between streams once a
/// free has completed. On six recordings it reserves 0.80 to 1.00 of what the driver did: an estimate, and a low one.
#[derive(Debug)]
pub struct StreamOrdered(Ranges);

impl StreamOrdered {
    /// Creates a device that never runs out.
    pub fn unlimited() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// Creates a device of `capacity` bytes.
    pub fn with_capacity(capacity: u64) -> Self {
        Self(Ranges::new(RULES, capacity))
    }
}

impl Policy for StreamOrdered {
    fn allocate(
        &mut self,
        size: u64,
        stream: StreamId,
        observer: &mut impl Observe,
    ) -> Option<Place> {
        self.0.allocate(size, stream, observer)
    }

    fn free(&mut self, place: Place) {
        self.0.free(place);
    }

    fn locate(&self, _: Place) -> Option<(u32, u64)> {
        None
    }

    fn peak_reserved_bytes(&self) -> u64 {
        self.0.peak_reserved_bytes()
    }

    fn driver_calls(&self) -> u64 {
        self.0.driver_calls()
    }
}
