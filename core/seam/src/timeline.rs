//! Time on a device: one integer per queue.

/// One queue or stream of a device, on which work runs in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelineId(pub u32);

impl TimelineId {
    /// The timeline that every backend has and that is never closed.
    pub const MAIN: Self = Self(0);
    /// All work of a device. Nothing is submitted to it; a mark on it is reached once everything that was submitted before,
    /// to any timeline, has finished. See [`Timelines::mark`](crate::Timelines::mark).
    pub const ALL: Self = Self(u32::MAX);
}

/// A point on a timeline. Reached epochs only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before everything: reached on every timeline from the start.
    pub const START: Self = Self(0);
}

/// An epoch of one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// The timeline.
    pub timeline: TimelineId,
    /// Epoch on that timeline.
    pub epoch: Epoch,
}
