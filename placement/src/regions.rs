//! Which regions suit a request, and why the others do not.
use crate::placement::Reason;
use crate::profile::{Probe, Profile, TableSize};
use crate::request::Request;
use crate::rules::must_be_coherent;
use crate::words::{Access, Pattern, Region, Writer};
use core::fmt;
use omniheap_seam::{Caps, Heap, HeapKind, HostAccess, Use};

/// A region must save this many percent to be worth leaving device memory: below that, noise would decide.
const MARGIN: u64 = 5;

/// Reads of a byte that are too few for caches to matter.
const FEW: u32 = 4;

/// Bytes of a kernel's own in the cache of constants, parameters and literals: near the end of that cache a table is as good
/// as beyond it.
const BESIDE: u64 = 512;

/// Of a heap that everyone wants a little of, one request takes at most this part.
const SHARE: u64 = 8;

/// Why a region does not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The device has none.
    Missing,
    /// The request is larger than the region's limit.
    TooLarge {
        /// Bytes that are asked for.
        size: u64,
        /// Bytes that the region gives.
        limit: u64,
    },
    /// Kernels write it, and the region is read-only for them.
    ReadOnly,
    /// The host uses it, and does not reach the region, or only slowly.
    NotForHost,
    /// Only kernels use it, and they reach the region slowly.
    NotForKernels,
    /// Its memory needs a flush, and the request must be coherent.
    Incoherent,
    /// Kernels would be slower, or not enough faster.
    Slower {
        /// The time from there, in percent of that from device memory.
        percent: u64,
    },
    /// It would serve, and another region suits the request better.
    Outranked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the device has none"),
            Self::TooLarge { size, limit } => {
                write!(f, "{size} bytes are asked for and {limit} are the limit")
            }
            Self::ReadOnly => f.write_str("kernels write it, and there they only read"),
            Self::NotForHost => f.write_str("the host uses it, and is slow or blind there"),
            Self::NotForKernels => f.write_str("only kernels use it, and they are slow there"),
            Self::Incoherent => f.write_str("it needs a flush, and the request must be coherent"),
            Self::Slower { percent } => {
                write!(f, "reads would take {percent} % of the time from device memory")
            }
            Self::Outranked => f.write_str("it would serve, but another region suits better"),
        }
    }
}

/// What a policy thinks of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionVerdict {
    /// The region.
    pub region: Region,
    /// Why it does not serve; `None` for the one that does.
    pub refusal: Option<Refusal>,
}

/// Every region, in the order of verdicts.
pub(super) const ALL: [Region; 5] =
    [Region::Device, Region::Constant, Region::Shared, Region::Staging, Region::Unified];

/// The regions that suit a request, best first, and why the first one does.
pub(super) fn wanted(
    request: &Request<'_>,
    caps: &Caps,
    profile: &Profile,
) -> (&'static [Region], Reason) {
    use Region::{Constant, Device, Shared, Staging, Unified};
    match (request.writer, request.access) {
        (_, Access::Host) => (&[Staging, Unified], Reason::ReadByHost),
        (_, Access::Both) => (&[Unified, Staging], Reason::UsedByBoth),
        (Writer::Device, Access::Device) => match best(request, caps, profile) {
            Shared => (&[Shared, Unified], Reason::ReusedByGroup),
            _ => (&[Device, Unified], Reason::WrittenByKernels),
        },
        (Writer::HostOnce, _) => match best(request, caps, profile) {
            Constant => (&[Constant, Device, Unified], Reason::Broadcast),
            Shared => (&[Shared, Unified], Reason::ReusedByGroup),
            _ => (&[Device, Unified], Reason::WrittenOnce),
        },
        (Writer::HostPerFrame, _) if best(request, caps, profile) == Constant => {
            (&[Constant, Staging, Unified], Reason::Broadcast)
        }
        (Writer::HostPerFrame, _) if has_local_window(request, caps, profile) => {
            (&[Unified, Staging], Reason::WrittenInPlace)
        }
        (Writer::HostPerFrame, _) if request.reuse > 1 => {
            (&[Device, Unified], Reason::CopiedPerFrame)
        }
        (Writer::HostPerFrame, _) => (&[Staging, Unified], Reason::WrittenPerFrame),
    }
}

/// Where kernels read it fastest, on average over the probes that they may resemble. A broadcast table wants the constant
/// region also where it is too large for it: then the placement says what substitutes it.
fn best(request: &Request<'_>, caps: &Caps, profile: &Profile) -> Region {
    let mean = |region: Region| cost(request, profile, region);
    let (device, constant, shared) =
        (mean(Region::Device), mean(Region::Constant), mean(Region::Shared));
    let is_read_only = request.writer != Writer::Device;
    let may_constant =
        is_read_only && constant.saturating_mul(100) <= device.saturating_mul(100 - MARGIN);
    // No margin: shared memory that gains nothing loses little, and nothing else drives its bytes out.
    let may_shared = request.pattern != Pattern::Coalesced
        && !is_seldom(request)
        && shared <= device
        && request.layout.size <= shared_limit(caps);
    match () {
        () if may_shared && !(may_constant && constant <= shared) => Region::Shared,
        () if may_constant => Region::Constant,
        () => Region::Device,
    }
}

/// Whether all lanes read the same bytes, a few times only. No cache holds those for long, and a copy does not pay: all that
/// counts is that one read serves every lane.
const fn is_seldom(request: &Request<'_>) -> bool {
    matches!(request.pattern, Pattern::Broadcast | Pattern::Uniform) && request.reuse <= FEW
}

/// What caches see of a table: the part that a group reads.
fn touched(request: &Request<'_>) -> u64 {
    request.touches.map_or(request.layout.size, |bytes| bytes.clamp(1, request.layout.size.max(1)))
}

/// What a group's reads cost from a region, in percent of reading each byte once from device memory: the mean of what the
/// probes say.
fn cost(request: &Request<'_>, profile: &Profile, region: Region) -> u64 {
    let costs = Probe::like(request).map(|probe| cost_of(probe, request, profile, region));
    let (sum, count) = costs.fold((0u64, 0), |(sum, count), cost| (sum + cost, count + 1));
    sum / count.max(1)
}

/// The same in a kernel like `probe`.
fn cost_of(probe: Probe, request: &Request<'_>, profile: &Profile, region: Region) -> u64 {
    let reuse = u64::from(request.reuse.max(1));
    let reads = profile.cost(probe, touched(request));
    match region {
        // Where the compiler knows the addresses the constant region never loses then; computed ones cost what they cost.
        Region::Constant if is_seldom(request) && probe.pattern() == Pattern::Broadcast => {
            (100 - MARGIN) * reuse
        }
        Region::Constant => {
            let table = touched(request);
            let classes = TableSize::of(table)..=TableSize::of(table.saturating_add(BESIDE));
            let reached = TableSize::ALL.into_iter().filter(|class| classes.contains(class));
            let costs = reached.map(|class| profile.cost(probe, class.most()).constant);
            u64::from(costs.max().unwrap_or(reads.constant)) * reuse
        }
        // A tile is read often by definition.
        Region::Shared if request.pattern == Pattern::Tiled => 0,
        Region::Shared => {
            // All of it is brought there, but what reads from there gain depends on the part that is read.
            let stage = u64::from(profile.cost(probe, request.layout.size).stage);
            match request.reuse {
                // To bring all of it there reads more bytes than the group asks for.
                0 => 100 + stage.max(1),
                _ => stage + u64::from(reads.shared) * reuse,
            }
        }
        _ => 100 * reuse,
    }
}

/// Bytes that a group has without opting in: more would cost other groups their place.
fn shared_limit(caps: &Caps) -> u64 {
    caps.shared.map_or(0, |limits| limits.per_group)
}

/// Bytes of the constant region that one kernel can be shown.
pub(super) fn constant_limit(caps: &Caps) -> Option<u64> {
    caps.constant.map(|limits| limits.bank.min(limits.max_bind))
}

/// Whether the host can write where kernels read fast, with room for others: device memory behind a window that is faster
/// than staging, or the one memory of a device that shares the host's. Memory that migrates is not that.
fn has_local_window(request: &Request<'_>, caps: &Caps, profile: &Profile) -> bool {
    let is_faster = u64::from(profile.window()) <= 100 - MARGIN;
    let is_shared = !caps.heaps.iter().any(|heap| heap.kind == HeapKind::Device);
    let is_window = |heap: &Heap| {
        heap.kind == HeapKind::Unified
            && heap.use_when == Use::Normal
            && (is_shared || (is_faster && heap.host == HostAccess::Combined))
            && request.layout.size <= heap.size / SHARE
    };
    caps.heaps.iter().any(is_window)
}

/// Why a region does not serve a request that another one serves.
pub(super) fn refuse(
    request: &Request<'_>,
    caps: &Caps,
    profile: &Profile,
    region: Region,
) -> Refusal {
    let size = request.layout.size;
    let limit = limit(caps, region);
    let Some(limit) = limit.filter(|limit| *limit > 0) else { return Refusal::Missing };
    if size > limit {
        return Refusal::TooLarge { size, limit };
    }
    let host = request.access != Access::Device;
    let percent = |region| cost(request, profile, region) / u64::from(request.reuse.max(1));
    match region {
        Region::Constant | Region::Shared | Region::Device if host => Refusal::NotForHost,
        Region::Constant if request.writer == Writer::Device => Refusal::ReadOnly,
        Region::Constant | Region::Shared => Refusal::Slower { percent: percent(region) },
        Region::Device => Refusal::Outranked,
        Region::Staging | Region::Unified if needs_flush(request, caps, region) => {
            Refusal::Incoherent
        }
        Region::Staging | Region::Unified if host => Refusal::NotForHost,
        Region::Staging | Region::Unified => Refusal::NotForKernels,
    }
}

/// Whether a request that must be coherent finds no memory of the region that is.
fn needs_flush(request: &Request<'_>, caps: &Caps, region: Region) -> bool {
    let kind = if region == Region::Staging { HeapKind::Staging } else { HeapKind::Unified };
    let is_coherent = |heap: &Heap| heap.kind == kind && heap.host != HostAccess::Incoherent;
    must_be_coherent(request) && !caps.heaps.iter().any(is_coherent)
}

/// The most bytes that a region gives one request; `None` where the device lacks it.
fn limit(caps: &Caps, region: Region) -> Option<u64> {
    let largest = |kind: HeapKind| {
        let of_kind = caps.heaps.iter().filter(|heap| heap.kind == kind);
        of_kind.filter(|heap| heap.use_when == Use::Normal).map(|heap| heap.max_block).max()
    };
    match region {
        Region::Constant => constant_limit(caps),
        Region::Shared => caps.shared.map(|limits| limits.per_group_opt_in.max(limits.per_group)),
        Region::Device => largest(HeapKind::Device),
        Region::Staging => largest(HeapKind::Staging),
        Region::Unified => largest(HeapKind::Unified),
    }
}
