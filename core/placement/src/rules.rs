//! The built-in rules.
use crate::placement::{Placement, Ranking, Reason, Rejection};
use crate::profile::Profile;
use crate::regions::{self, Refusal, RegionVerdict};
use crate::request::Request;
use crate::words::{Access, Region, Registration, Substitution, Writer};
use alloc::vec::Vec;
use core::fmt;
use omniheap_seam::{
    Caps, Error, ErrorKind, Heap, HeapId, HeapKind, HostAccess, KernelAccess, Result, Use,
};

/// Chooses the region and the heaps of a request. A pure function of its arguments.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Chooses a placement.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap` if no heap can serve the request; `ExceedsLimit` if it exceeds the largest block of every heap.
    fn place(&self, request: &Request<'_>, caps: &Caps) -> Result<Placement>;

    /// Returns the read costs that the policy assumes for a device; used in explanations.
    fn profile(&self, caps: &Caps) -> Profile {
        Profile::assumed(caps)
    }
}

/// The built-in rules with assumed read costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultPolicy;

/// The built-in rules with read costs measured on the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredPolicy {
    /// Measured read costs.
    pub profile: Profile,
}

const fn kind_of(region: Region) -> HeapKind {
    match region {
        Region::Constant => HeapKind::Constant,
        Region::Staging => HeapKind::Staging,
        Region::Unified => HeapKind::Unified,
        Region::Device | Region::Shared => HeapKind::Device,
    }
}

/// Returns why a heap cannot serve a request; `None` if it can.
#[must_use]
pub fn reject(request: &Request<'_>, heap: &Heap, caps: &Caps) -> Option<Rejection> {
    if heap.use_when == Use::OnRequest {
        return Some(Rejection::OnRequest);
    }
    if request.layout.size > heap.max_block {
        return Some(Rejection::TooLarge { max_block: heap.max_block });
    }
    if request.registration == Registration::Needed && heap.registrable.is_none() {
        return Some(Rejection::NotRegistrable);
    }
    if request.must_be_coherent() && heap.host == HostAccess::Incoherent {
        return Some(Rejection::Incoherent);
    }
    let guaranteed = heap.align.get();
    if request.layout.align > heap.align {
        return Some(Rejection::Alignment { guaranteed });
    }
    if heap.kind == HeapKind::Device { keep_apart(request, heap, caps) } else { None }
}

/// Returns why a device heap must not serve a request, on a device whose kernels cannot bind written and read-only data of
/// one block together. Such a device has a read-only heap, and data that the host writes goes nowhere else.
fn keep_apart(request: &Request<'_>, heap: &Heap, caps: &Caps) -> Option<Rejection> {
    let is_apart = |heap: &Heap| {
        heap.kind == HeapKind::Device
            && heap.use_when == Use::Normal
            && heap.kernels == KernelAccess::ReadOnly
    };
    match (request.writer, heap.kernels) {
        (Writer::Device, KernelAccess::ReadOnly) => Some(Rejection::ReadOnly),
        (Writer::HostOnce | Writer::HostPerFrame, KernelAccess::ReadWrite)
            if caps.heaps.iter().any(is_apart) =>
        {
            Some(Rejection::Written)
        }
        _ => None,
    }
}

/// Returns whether only kernels read what the host writes, and they cannot bind the heap. Spilled bytes may lie there all the
/// same: copies reach them.
fn is_out_of_reach(request: &Request<'_>, heap: &Heap) -> bool {
    let is_upload = request.writer != Writer::Device && request.access == Access::Device;
    is_upload && heap.kernels == KernelAccess::None
}

/// Returns the host heaps that a request may spill to, best first.
pub fn spill(request: &Request<'_>, caps: &Caps) -> Ranking {
    let fits = |heap: &(HeapId, &Heap)| {
        heap.1.kind == HeapKind::Staging && reject(request, heap.1, caps).is_none()
    };
    let mut found: Vec<_> = caps.heap_ids().filter(fits).collect();
    found.sort_by_key(|(_, heap)| preference(request, heap));
    let mut heaps = Ranking::new();
    found.into_iter().for_each(|(id, _)| heaps.push(id));
    heaps
}

/// Ranks heaps of one kind: cached memory first for host reads, write-combined memory first for host writes.
fn preference(request: &Request<'_>, heap: &Heap) -> u8 {
    let reads = request.access != Access::Device;
    match heap.host {
        HostAccess::Cached if reads => 0,
        HostAccess::Incoherent if reads => 1,
        HostAccess::Combined if !reads => 0,
        HostAccess::Cached => 1,
        HostAccess::None if heap.kind == HeapKind::Device => 0,
        _ => 2,
    }
}

impl Policy for DefaultPolicy {
    fn place(&self, request: &Request<'_>, caps: &Caps) -> Result<Placement> {
        place(request, caps, &Profile::assumed(caps))
    }
}

impl Policy for MeasuredPolicy {
    fn place(&self, request: &Request<'_>, caps: &Caps) -> Result<Placement> {
        place(request, caps, &self.profile)
    }

    fn profile(&self, _: &Caps) -> Profile {
        self.profile
    }
}

/// Returns whether a heap can back a region. Device memory backs shared memory, and constants on devices without a constant
/// heap. On integrated GPUs the unified heap backs everything.
fn is_home(region: Region, heap: &Heap, caps: &Caps) -> bool {
    let of = |kind: HeapKind| caps.heaps.iter().any(|heap| heap.kind == kind);
    let lives_in_device = match region {
        Region::Shared => true,
        Region::Constant => !of(HeapKind::Constant) && caps.constant.is_some(),
        _ => false,
    };
    let is_only_memory = heap.kind == HeapKind::Unified && !of(HeapKind::Device);
    match lives_in_device {
        true => heap.kind == HeapKind::Device || is_only_memory,
        false => heap.kind == kind_of(region),
    }
}

fn place(request: &Request<'_>, caps: &Caps, profile: &Profile) -> Result<Placement> {
    let (wanted, reason) = regions::wanted(request, caps, profile);
    let mut heaps = Ranking::new();
    let mut chosen: Option<Region> = None;
    for region in wanted {
        let limit = regions::constant_limit(caps).unwrap_or(0);
        if *region == Region::Constant && request.layout.size > limit {
            continue;
        }
        let fits = |heap: &(HeapId, &Heap)| {
            is_home(*region, heap.1, caps)
                && reject(request, heap.1, caps).is_none()
                && !is_out_of_reach(request, heap.1)
        };
        let mut found: Vec<_> = caps.heap_ids().filter(fits).collect();
        found.sort_by_key(|(_, heap)| preference(request, heap));
        for (id, _) in found {
            chosen.get_or_insert(*region);
            heaps.push(id);
        }
    }
    let best = wanted[0];
    let region = chosen.ok_or_else(|| nothing_fits(request, caps))?;
    let exists = caps.heaps.iter().any(|heap| is_home(best, heap, caps));
    let reason = match region == best {
        true => reason,
        false if exists => Reason::TooLargeFor(best),
        false => Reason::Substitute(best),
    };
    if region != best && request.substitution == Substitution::Forbidden {
        let kind = if exists { ErrorKind::ExceedsLimit } else { ErrorKind::NoSuchHeap };
        return Err(kind.into());
    }
    Ok(Placement { region, heaps, reason })
}

/// Returns the verdict on every region, given the chosen one.
pub fn judge(
    request: &Request<'_>,
    caps: &Caps,
    profile: &Profile,
    chosen: Region,
) -> Vec<RegionVerdict> {
    let verdict = |region: Region| RegionVerdict {
        region,
        refusal: (region != chosen).then(|| regions::refuse(request, caps, profile, region)),
    };
    regions::ALL.into_iter().map(verdict).collect()
}

/// Returns the best region that the device has for a request, and the reason why it cannot be used. For errors of [`Policy::place`].
pub fn refused(request: &Request<'_>, caps: &Caps, profile: &Profile) -> RegionVerdict {
    let (wanted, _) = regions::wanted(request, caps, profile);
    let refusal = |region: &Region| regions::refuse(request, caps, profile, *region);
    let is_there = |region: &&Region| refusal(region) != Refusal::Missing;
    let region = wanted.iter().find(is_there).unwrap_or(&wanted[0]);
    let refusal = refusal(region);
    let is_final = matches!(refusal, Refusal::Missing | Refusal::TooLarge { .. });
    RegionVerdict { region: *region, refusal: is_final.then_some(refusal) }
}

/// The error of a request for registrable memory that no heap, or not the one it names, can serve.
#[must_use]
pub fn not_registrable() -> Error {
    ErrorKind::Unsupported.because(
        "communication libraries cannot register memory of this heap; `Heap::registrable` says which heaps have such memory",
    )
}

fn nothing_fits(request: &Request<'_>, caps: &Caps) -> Error {
    let too_large = |heap: &Heap| request.layout.size > heap.max_block;
    let kind = match () {
        () if caps.heaps.is_empty() => ErrorKind::NoSuchHeap,
        () if request.registration == Registration::Needed => return not_registrable(),
        () if caps.heaps.iter().all(too_large) => ErrorKind::ExceedsLimit,
        () if caps.heaps.iter().all(|heap| request.layout.align > heap.align) => {
            ErrorKind::InvalidAlignment
        }
        () => ErrorKind::NoSuchHeap,
    };
    Error::new(kind)
}
