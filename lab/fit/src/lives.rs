//! The allocations of a trace as lives, which can be resized, split, added and made a trace again.

use omniheap_trace::{Alignment, Builder, LabelId, Limits, Op, StreamId, Trace};

/// A point between the events of a trace: the event, and an order around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) event: u32,
    order: u32,
}

/// Order of what the trace itself holds.
const RECORDED: u32 = 1 << 30;

impl Point {
    const fn recorded(event: u32) -> Self {
        Self { event, order: RECORDED }
    }

    /// Before `event`; among several such points `rank` decides.
    pub(super) fn before(event: u32, rank: usize) -> Self {
        Self { event, order: narrow(rank).min(RECORDED - 1) }
    }

    /// After `event`; among several such points `rank` decides.
    pub(super) fn after(event: u32, rank: u32) -> Self {
        Self { event, order: RECORDED + 1 + rank }
    }
}

/// One allocation from its birth to its death.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) birth: Point,
    /// `None` if it is live at the end.
    pub(super) death: Option<Point>,
    /// Bytes; a life of none is left out.
    pub(super) size: u64,
    pub(super) stream: StreamId,
    pub(super) align: Alignment,
    pub(super) label: LabelId,
}

impl Life {
    /// Returns whether it is still live at `event`.
    pub(super) fn survives(&self, event: u32) -> bool {
        self.death.is_none_or(|death| death.event >= event)
    }
}

/// Returns the lives of a trace, in the order of their births. A life ends where its free completes.
pub(super) fn of(trace: &Trace) -> Vec<Life> {
    let mut lives = Vec::with_capacity(trace.allocations() as usize);
    for (event, at) in trace.events().iter().zip(0_u32..) {
        match event.op {
            Op::Allocate { id, size, stream, align } => {
                let (birth, label) = (Point::recorded(at), trace.label_of(id));
                lives.push(Life { birth, death: None, size, stream, align, label });
            }
            Op::FreeCompleted { id, .. } => {
                lives[id.0 as usize].death = Some(Point::recorded(at));
            }
            _ => {}
        }
    }
    lives
}

/// Returns the trace of changed lives, with the labels and the times of the trace they came from; `None` when more bytes
/// are live at once than 64 bits count.
pub(super) fn to_trace(lives: &[Life], from: &Trace) -> Option<Trace> {
    let mut points = Vec::with_capacity(2 * lives.len());
    for (life, number) in lives.iter().zip(0_u32..).filter(|(life, _)| life.size > 0) {
        points.push((life.birth, true, number));
        points.extend(life.death.map(|death| (death, false, number)));
    }
    // Births before deaths at one point: what is there at the same time is counted.
    points.sort_unstable_by_key(|&(point, is_birth, number)| (point, !is_birth, number));
    let limits = Limits { events: Limits::MAX_EVENTS, live: u64::MAX, ..Limits::default() };
    let mut builder = Builder::like(from, &limits);
    let mut step = from.meta().last_step;
    for (point, is_birth, number) in points {
        if step.is_some_and(|step| point.event >= step) {
            builder.begin_step();
            step = None;
        }
        let Life { size, stream, align, label, .. } = lives[number as usize];
        builder.at(from.events()[point.event as usize].time_us).ok()?;
        if is_birth {
            let id = builder.allocate(u64::from(number), size, stream, align).ok()?;
            builder.set_label(id, label).ok()?;
        } else {
            builder.free_completed(u64::from(number), None, stream).ok()?;
        }
    }
    if step.is_some() {
        builder.begin_step();
    }
    Some(builder.finish())
}

fn narrow(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
