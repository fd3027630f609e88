//! PyTorch's caching allocator with `expandable_segments:True`.

use super::Observe;
use super::pytorch::{LARGE_BLOCK, Place, SMALL, SMALL_BLOCK};
use super::ranges::{Ranges, Rules};
use super::sealed::Policy;
use crate::event::StreamId;

const RULES: Rules = Rules { chunks: [SMALL_BLOCK, LARGE_BLOCK], small: SMALL, by_stream: true };

/// The policy's state: for each stream one range of small requests, grown by 2 MiB, and one of large ones, grown by 20 MiB.
///
/// # Cost
/// *O*(log pieces) per allocate and free; a request that finds the device full looks at every free piece.
#[derive(Debug)]
pub struct Expandable(Ranges);

impl Expandable {
    /// Creates a device that never runs out.
    pub fn unlimited() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// Creates a device of `capacity` bytes.
    pub fn with_capacity(capacity: u64) -> Self {
        Self(Ranges::new(RULES, capacity))
    }
}

impl Policy for Expandable {
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
