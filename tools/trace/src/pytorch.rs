//! PyTorch memory snapshots: the pickle that `torch.cuda.memory._dump_snapshot` writes.
//!
//! A snapshot holds, per device, the last events of the caching allocator and the segments as they are at its end.
//! From both follows what was there when the history began, so that a trace starts with everything that it frees.

mod frames;
mod history;
mod ranges;

use crate::error::{Error, ErrorKind, Position};
use crate::input::Input;
use crate::limits::Limits;
use crate::trace::Trace;
use omniheap_pickle::{Cell, Data, Keys, Refusal, Rules};
use std::io::Read;

/// The keys of a snapshot that say something about memory.
const KEYS: &[&str] = &[
    "segments",
    "device_traces",
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "frames",
    "filename",
    "line",
    "name",
    "address",
    "total_size",
    "blocks",
    "state",
    "requested_size",
    "device",
];

/// Positions in [`KEYS`].
mod key {
    pub(super) const SEGMENTS: usize = 0;
    pub(super) const DEVICE_TRACES: usize = 1;
    pub(super) const ACTION: usize = 2;
    pub(super) const ADDR: usize = 3;
    pub(super) const SIZE: usize = 4;
    pub(super) const STREAM: usize = 5;
    pub(super) const TIME: usize = 6;
    pub(super) const FRAMES: usize = 7;
    pub(super) const FILENAME: usize = 8;
    pub(super) const LINE: usize = 9;
    pub(super) const NAME: usize = 10;
    pub(super) const ADDRESS: usize = 11;
    pub(super) const TOTAL_SIZE: usize = 12;
    pub(super) const BLOCKS: usize = 13;
    pub(super) const STATE: usize = 14;
    pub(super) const REQUESTED_SIZE: usize = 15;
    pub(super) const DEVICE: usize = 16;
}

/// Device of a snapshot to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The one with the most events; without any history, the first.
    #[default]
    Busiest,
    /// The one with this index.
    Index(u32),
}

/// Reads one device's history out of a snapshot, plain or gzip.
///
/// # Errors
/// [`ErrorKind::Forbidden`] when the pickle holds more than plain data, [`ErrorKind::Malformed`] when it is no
/// snapshot, and the kinds of broken records, with the byte at which the pickle broke.
pub fn read(source: impl Read, device: Device, limits: &Limits) -> Result<Trace, Error> {
    read_input(&mut Input::new(source, limits)?, device, limits)
}

pub(crate) fn read_input(
    input: &mut Input<'_>,
    device: Device,
    limits: &Limits,
) -> Result<Trace, Error> {
    let bytes = input.rest().map_err(|kind| Error::new(Position::Input, kind))?;
    // Two bytes of bookkeeping per byte of input fit every real snapshot twice over.
    let rules = Rules { keys: Keys::Only(KEYS), globals: &[], depth: limits.depth, expansion: 2 };
    let (data, root) = omniheap_pickle::parse(&bytes, rules)
        .map_err(|failure| Error::new(Position::Byte(failure.at as u64), failure.kind.into()))?;
    let parts = Parts::of(&data, root, device).ok_or_else(no_snapshot)?;
    history::convert(&data, &parts, limits)
}

impl From<Refusal> for ErrorKind {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::Malformed("pickle"),
            Refusal::Truncated => Self::Truncated,
            Refusal::Forbidden(_) => Self::Forbidden,
            Refusal::OverLimit { what, limit } => Self::OverLimit { what, limit },
        }
    }
}

fn no_snapshot() -> Error {
    Error::new(
        Position::Input,
        ErrorKind::Malformed("PyTorch snapshot: no `segments` and `device_traces`"),
    )
}

/// The parts of a snapshot that concern one device.
struct Parts<'d> {
    device: i64,
    segments: &'d [Cell],
    events: &'d [Cell],
    /// Events of other devices.
    left_out: u64,
}

impl<'d> Parts<'d> {
    fn of(data: &'d Data<'_>, root: Cell, device: Device) -> Option<Self> {
        let segments = data.list(data.get(root, key::SEGMENTS)?)?;
        let traces =
            data.get(root, key::DEVICE_TRACES).and_then(|traces| data.list(traces)).unwrap_or(&[]);
        let events_of =
            |index: usize| traces.get(index).and_then(|trace| data.list(*trace)).unwrap_or(&[]);
        let index = match device {
            Device::Index(index) => index as usize,
            // The first of the longest, so that equal ones do not depend on chance.
            Device::Busiest => {
                (0..traces.len()).rev().max_by_key(|&index| events_of(index).len()).unwrap_or(0)
            }
        };
        let events = events_of(index);
        let all: usize = (0..traces.len()).map(|index| events_of(index).len()).sum();
        let device = i64::try_from(index).ok()?;
        Some(Self { device, segments, events, left_out: (all - events.len()) as u64 })
    }

    /// Returns whether `segment` is of this device; snapshots of old versions do not say.
    fn has(&self, data: &Data<'_>, segment: Cell) -> bool {
        data.int(segment, key::DEVICE).is_none_or(|device| device == self.device)
    }
}
