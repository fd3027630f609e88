//! The built-in rules.
use super::placement::{Placement, Ranking, Reason, Rejection};
use super::request::{Access, Pattern, Region, Request, Writer};
use crate::{Caps, Error, ErrorKind, Heap, HeapId, HeapKind, HostAccess, Result, Use};
use alloc::vec::Vec;
use core::fmt;

/// Chooses where a request goes. A pure function of what it is shown.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Decides.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap` when no heap can serve the request, `ExceedsLimit` when it is larger than every block could be.
    fn place(&self, request: &Request<'_>, caps: &Caps) -> Result<Placement>;
}

/// The rules that hold without measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultPolicy;

/// The regions that suit a request, best first, and why the first one does.
fn regions(request: &Request<'_>) -> (&'static [Region], Reason) {
    use Region::{Constant, Device, Staging, Unified};
    match (request.writer, request.access, request.pattern) {
        (_, Access::Host, _) => (&[Staging, Unified], Reason::ReadByHost),
        (_, Access::Both, _) => (&[Unified, Staging], Reason::UsedByBoth),
        (Writer::Device, Access::Device, _) => (&[Device, Unified], Reason::WrittenByKernels),
        (_, _, Pattern::Broadcast) => (&[Constant, Device, Unified], Reason::Broadcast),
        (Writer::HostOnce, ..) => (&[Device, Unified], Reason::WrittenOnce),
        (Writer::HostPerFrame, ..) => (&[Staging, Unified], Reason::WrittenPerFrame),
    }
}

const fn kind_of(region: Region) -> HeapKind {
    match region {
        Region::Constant => HeapKind::Constant,
        Region::Staging => HeapKind::Staging,
        Region::Unified => HeapKind::Unified,
        Region::Device | Region::Shared => HeapKind::Device,
    }
}

/// Why a heap cannot serve a request, or nothing when it can.
#[must_use]
pub(crate) fn reject(request: &Request<'_>, heap: &Heap) -> Option<Rejection> {
    if heap.use_when == Use::OnRequest {
        return Some(Rejection::OnRequest);
    }
    if request.layout.size > heap.max_block {
        return Some(Rejection::TooLarge { max_block: heap.max_block });
    }
    let guaranteed = heap.align.get();
    (request.layout.align > heap.align).then_some(Rejection::Alignment { guaranteed })
}

/// Within one kind: cached memory first for the host's reads, combined memory first for its writes.
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
        let (wanted, reason) = regions(request);
        let mut heaps = Ranking::new();
        let mut chosen: Option<Region> = None;
        for region in wanted {
            let fits = |heap: &(HeapId, &Heap)| {
                heap.1.kind == kind_of(*region) && reject(request, heap.1).is_none()
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
        let exists = caps.heaps.iter().any(|heap| heap.kind == kind_of(best));
        let reason = match region == best {
            true => reason,
            false if exists => Reason::TooLargeFor(best),
            false => Reason::Substitute(best),
        };
        Ok(Placement { region, heaps, reason })
    }
}

fn nothing_fits(request: &Request<'_>, caps: &Caps) -> Error {
    let too_large = |heap: &Heap| request.layout.size > heap.max_block;
    let kind = match () {
        () if caps.heaps.is_empty() => ErrorKind::NoSuchHeap,
        () if caps.heaps.iter().all(too_large) => ErrorKind::ExceedsLimit,
        () if caps.heaps.iter().all(|heap| request.layout.align > heap.align) => {
            ErrorKind::InvalidAlignment
        }
        () => ErrorKind::NoSuchHeap,
    };
    Error::new(kind)
}
