//! Allocators that `fit` and `batch` replay a trace through.
use clap::ValueEnum;
use omniheap::trace::model::{BlockOrder, PyTorch};
use omniheap::trace::{Op, Trace};
use omniheap_cli::Failure;
use omniheap_cli::replay::{Device, Paging, Program, planned};
use omniheap_fit::{Peak, Ranges, completes};
use serde::Serialize;
use std::panic::resume_unwind;

/// An allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Allocator {
    /// PyTorch's caching allocator, default settings: exact model
    Torch,
    /// PyTorch's caching allocator, `expandable_segments:True`: exact model
    Expandable,
    /// `cudaMallocAsync`: an estimate, because the driver's policy is not published
    Async,
    /// omniheap's manager, paged pools: the manager itself, on accounts
    Omniheap,
    /// Every allocation placed ahead of time by omniheap's planner
    Plan,
}

/// Origin of an allocator's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A model that reserves what the allocator reserves.
    Model,
    /// A model that shares the allocator's granularity, not all of its rules.
    Estimate,
    /// The allocator itself.
    Replay,
}

impl Allocator {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Torch => "PyTorch's default policy",
            Self::Expandable => "PyTorch's expandable segments",
            Self::Async => "cudaMallocAsync (estimate)",
            Self::Omniheap => "omniheap, paged pools",
            Self::Plan => "omniheap, planned ahead",
        }
    }

    pub(crate) const fn origin(self) -> Origin {
        match self {
            Self::Torch | Self::Expandable => Origin::Model,
            Self::Async => Origin::Estimate,
            Self::Omniheap | Self::Plan => Origin::Replay,
        }
    }

    /// Replays on a device without limit.
    pub(crate) fn peak(self, name: &str, trace: &Trace) -> Result<Peak, Failure> {
        match self {
            Self::Torch => Ok(Peak::of(trace, PyTorch::unlimited())),
            Self::Expandable => Ok(Peak::of(trace, Ranges::expandable(u64::MAX))),
            Self::Async => Ok(Peak::of(trace, Ranges::stream_ordered(u64::MAX))),
            Self::Omniheap => managed(trace),
            Self::Plan => placed(name, trace),
        }
    }

    /// Says whether the trace completes in `capacity` bytes, given its peak without a limit; with a model, its last step many times more.
    ///
    /// An allocator that is full returns what nobody uses to the driver, so a trace may fit below its peak. The driver's order of
    /// blocks is not known: whatever does not fit with one of several does not fit.
    pub(crate) fn fits(self, trace: &Trace, peak: &Peak, capacity: u64) -> Result<bool, Failure> {
        self.fits_in(trace, peak, capacity, &BlockOrder::TRIED)
    }

    /// As [`fits`](Self::fits), with the most common order of blocks alone: an estimate that takes a quarter of the time.
    pub(crate) fn may_fit(
        self,
        trace: &Trace,
        peak: &Peak,
        capacity: u64,
    ) -> Result<bool, Failure> {
        self.fits_in(trace, peak, capacity, &[BlockOrder::Below])
    }

    fn fits_in(
        self,
        trace: &Trace,
        peak: &Peak,
        capacity: u64,
        orders: &[BlockOrder],
    ) -> Result<bool, Failure> {
        let holds = holds(peak, capacity);
        Ok(match self {
            Self::Torch => completes_in(trace, capacity, orders),
            Self::Expandable => completes(trace, Ranges::expandable(capacity)),
            Self::Async => completes(trace, Ranges::stream_ordered(capacity)),
            Self::Omniheap if !holds => {
                let device = Device::open(None, 0)?;
                device.completes(&Program::new(trace), capacity, Paging::Wanted)?.is_some()
            }
            Self::Omniheap | Self::Plan => holds,
        })
    }
}

/// Says whether the trace completes with each of these orders of blocks. The first one is tried alone, because it is likely to fail if one does.
fn completes_in(trace: &Trace, capacity: u64, orders: &[BlockOrder]) -> bool {
    let in_order = |order: BlockOrder| completes(trace, PyTorch::with_order(capacity, order));
    let Some((first, others)) = orders.split_first() else { return true };
    in_order(*first)
        && std::thread::scope(|scope| {
            let each = others.iter().map(|order| scope.spawn(|| in_order(*order)));
            let each: Vec<_> = each.collect();
            each.into_iter().all(|one| one.join().unwrap_or_else(|why| resume_unwind(why)))
        })
}

/// Replays through a manager whose device has room for everything.
fn managed(trace: &Trace) -> Result<Peak, Failure> {
    let (device, program) = (Device::open(None, 0)?, Program::new(trace));
    let room = program.peak_live(&[]).saturating_mul(4);
    let (played, curve) = device.reserved_curve(&program, Paging::Wanted, room)?;
    let step = curve.iter().find(|(_, bytes)| *bytes == played.peak_reserved);
    let step = step.map_or(0, |&(step, _)| step);
    let event = event_of(trace, step);
    let refused = played.failed.len() as u64;
    Ok(Peak { reserved_bytes: played.peak_reserved, event, refused })
}

/// Says whether the trace stays within `capacity` bytes, given its peak without a limit.
pub(crate) const fn holds(peak: &Peak, capacity: u64) -> bool {
    peak.refused == 0 && peak.reserved_bytes <= capacity
}

/// Returns the event of a step of a replay, which leaves other events out.
fn event_of(trace: &Trace, step: u64) -> usize {
    let steps =
        trace.events().iter().enumerate().filter(|(_, event)| {
            matches!(event.op, Op::Allocate { .. } | Op::FreeCompleted { .. })
        });
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    steps.map(|(event, _)| event).nth(step).unwrap_or(0)
}

/// Plans the trace; all of the plan is reserved from the start.
fn placed(name: &str, trace: &Trace) -> Result<Peak, Failure> {
    let schedule = planned(trace).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    let regions = schedule.iter().flat_map(|schedule| schedule.regions());
    let reserved_bytes = regions.map(|region| region.size).sum();
    Ok(Peak { reserved_bytes, event: 0, refused: 0 })
}
