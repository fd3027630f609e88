//! The regions that suit a request, and why the others do not.
use crate::placement::Reason;
use crate::profile::{Probe, Profile, TableSize};
use crate::request::Request;
use crate::words::{Access, Pattern, Region, Writer};
use core::fmt;
use omniheap_seam::{Caps, Heap, HeapKind, HostAccess, KernelAccess, Use};

/// Percent that a region must save to be chosen over device memory. Smaller gains are within noise.
const MARGIN: u64 = 5;

/// Most reads per byte at which caches do not matter.
const FEW: u32 = 4;

/// Bytes of the constant cache that a kernel's own parameters and literals take. A table that ends this close to the cache's
/// capacity is treated as one that exceeds it.
const BESIDE: u64 = 512;

/// One request takes at most this fraction of a small, contended heap.
const SHARE: u64 = 8;

/// The reason why a region was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The device does not have this region.
    Missing,
    /// The request exceeds the region's size limit.
    TooLarge {
        /// Bytes requested.
        size: u64,
        /// Largest request that the region serves.
        limit: u64,
    },
    /// Kernels write the data, and the region is read-only for kernels.
    ReadOnly,
    /// The host accesses the data, and the region is slow to read or not host-visible.
    NotForHost,
    /// Only kernels access the data, and the region is slow for kernels.
    NotForKernels,
    /// The request needs coherent memory, and the region is not coherent.
    Incoherent,
    /// Reads would be slower, or not fast enough to be worth it.
    Slower {
        /// Read time in percent of the read time from device memory.
        percent: u64,
    },
    /// The region would work, but another one suits the request better.
    Outranked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the device has no such memory"),
            Self::TooLarge { size, limit } => {
                write!(f, "the request of {size} bytes exceeds its limit of {limit} bytes")
            }
            Self::ReadOnly => {
                f.write_str("kernels write this data, and this memory is read-only for them")
            }
            Self::NotForHost => f.write_str(
                "the host accesses this data, and this memory is slow to read or not host-visible",
            ),
            Self::NotForKernels => {
                f.write_str("only kernels access this data, and this memory is slow for them")
            }
            Self::Incoherent => {
                f.write_str("the request needs coherent memory, and this memory needs a flush")
            }
            Self::Slower { percent } => {
                write!(f, "reads would take {percent} % of the read time from device memory")
            }
            Self::Outranked => f.write_str("it would work, but another region suits better"),
        }
    }
}

/// A policy's verdict on one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionVerdict {
    /// The region.
    pub region: Region,
    /// The reason why it was not chosen; `None` for the chosen region.
    pub refusal: Option<Refusal>,
}

/// All regions, in the order of verdicts.
pub(super) const ALL: [Region; 5] =
    [Region::Device, Region::Constant, Region::Shared, Region::Staging, Region::Unified];

/// Returns the regions that suit a request, best first, and the reason for the first one.
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
            let bindable = !is_staging_unbindable(caps);
            let regions: &[_] =
                if bindable { &[Constant, Staging, Unified] } else { &[Constant, Device, Unified] };
            (regions, Reason::Broadcast)
        }
        (Writer::HostPerFrame, _) if has_local_window(request, caps, profile) => {
            let bindable = !is_staging_unbindable(caps);
            (
                if bindable { &[Unified, Staging] } else { &[Unified, Device] },
                Reason::WrittenInPlace,
            )
        }
        (Writer::HostPerFrame, _) if request.reuse > 1 => {
            (&[Device, Unified], Reason::CopiedPerFrame)
        }
        (Writer::HostPerFrame, _) if is_staging_unbindable(caps) => {
            (&[Device, Unified], Reason::StagingUnbindable)
        }
        (Writer::HostPerFrame, _) => (&[Staging, Unified], Reason::WrittenPerFrame),
    }
}

/// Returns whether the device has staging memory, and kernels can bind none of it.
fn is_staging_unbindable(caps: &Caps) -> bool {
    let is_staging = |heap: &&Heap| heap.kind == HeapKind::Staging && heap.use_when == Use::Normal;
    let mut staging = caps.heaps.iter().filter(is_staging).peekable();
    staging.peek().is_some() && staging.all(|heap| heap.kernels == KernelAccess::None)
}

/// Returns the region with the lowest mean read cost over the probes that match the request. May return the constant region
/// for a table that is too large for it: the placement then names the substitute.
fn best(request: &Request<'_>, caps: &Caps, profile: &Profile) -> Region {
    let is_read_only = request.writer != Writer::Device;
    let is_shareable = request.pattern != Pattern::Coalesced
        && !is_seldom(request)
        && request.layout.size <= shared_limit(caps);
    if !is_read_only && !is_shareable {
        return Region::Device; // Whatever reads cost elsewhere.
    }
    let mean = |region: Region| cost(request, profile, region);
    let (device, constant, shared) =
        (mean(Region::Device), mean(Region::Constant), mean(Region::Shared));
    let may_constant =
        is_read_only && constant.saturating_mul(100) <= device.saturating_mul(100 - MARGIN);
    // No margin: shared memory that gains nothing loses little, and nothing else drives its bytes out.
    let may_shared = is_shareable && shared <= device;
    match () {
        () if may_shared && !(may_constant && constant <= shared) => Region::Shared,
        () if may_constant => Region::Constant,
        () => Region::Device,
    }
}

/// Returns whether all lanes read the same bytes, and only a few times. Then caches and copies do not pay; one read serves
/// all lanes.
const fn is_seldom(request: &Request<'_>) -> bool {
    matches!(request.pattern, Pattern::Broadcast | Pattern::Uniform) && request.reuse <= FEW
}

/// Returns the bytes that one workgroup reads, which is the working set for caches.
fn touched(request: &Request<'_>) -> u64 {
    request.touches.map_or(request.layout.size, |bytes| bytes.clamp(1, request.layout.size.max(1)))
}

/// Returns the cost of a workgroup's reads from a region, as the mean over the matching probes. 100 is the cost of reading
/// each byte once from device memory.
fn cost(request: &Request<'_>, profile: &Profile, region: Region) -> u64 {
    let costs = Probe::like(request).map(|probe| cost_of(probe, request, profile, region));
    let (sum, count) = costs.fold((0u64, 0), |(sum, count), cost| (sum + cost, count + 1));
    sum / count.max(1)
}

/// Returns the same cost for one probe.
fn cost_of(probe: Probe, request: &Request<'_>, profile: &Profile, region: Region) -> u64 {
    let reuse = u64::from(request.reuse.max(1));
    let reads = profile.cost(probe, touched(request));
    match region {
        // If the compiler knows the addresses, the constant region never loses; computed addresses cost what they cost.
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

/// Returns the shared memory of a workgroup without opt-in. More would reduce occupancy.
fn shared_limit(caps: &Caps) -> u64 {
    caps.shared.map_or(0, |limits| limits.per_group)
}

/// Returns the bytes of constant memory that one kernel can bind.
pub(super) fn constant_limit(caps: &Caps) -> Option<u64> {
    caps.constant.map(|limits| limits.bank.min(limits.max_bind))
}

/// Returns whether the host can write directly to memory that kernels read fast, with room to spare: host-visible device
/// memory that is faster than staging, or the memory of an integrated GPU. Managed memory that migrates does not count.
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

/// Returns why a region was not chosen for a request.
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

/// Returns whether the request needs coherent memory and the region has none.
fn needs_flush(request: &Request<'_>, caps: &Caps, region: Region) -> bool {
    let kind = if region == Region::Staging { HeapKind::Staging } else { HeapKind::Unified };
    let is_coherent = |heap: &Heap| heap.kind == kind && heap.host != HostAccess::Incoherent;
    request.must_be_coherent() && !caps.heaps.iter().any(is_coherent)
}

/// Returns the largest request that a region serves; `None` if the device does not have it.
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
