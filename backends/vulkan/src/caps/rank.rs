//! Ranking and substitution of heaps. Pure.
#![forbid(unsafe_code)]
use super::{Slot, Suits, Table};
use omniheap_seam::{Heap, HeapId, HeapKind, HostAccess};

/// Device memory first, then what both sides reach.
pub(super) const fn kind(kind: HeapKind) -> u8 {
    match kind {
        HeapKind::Device => 0,
        HeapKind::Unified => 1,
        _ => 2,
    }
}

/// Ranks host access. Most visible memory is written by the host; requests that read back look for `Cached`.
pub(super) const fn host(host: HostAccess) -> u8 {
    match host {
        HostAccess::Combined => 0,
        HostAccess::Cached => 1,
        HostAccess::Incoherent => 2,
        HostAccess::None => 3,
    }
}

impl Table {
    /// Returns the heaps whose memory type is in `type_bits`, best first for `kind`; those with special properties are left out.
    ///
    /// Device memory falls back to unified and then to host memory; what the host must see never falls back to memory
    /// that it cannot.
    pub(crate) fn candidates(&self, type_bits: u32, kind: HeapKind) -> Vec<HeapId> {
        let mut found: Vec<(u8, HeapId)> = self
            .in_types(type_bits)
            .filter(|(_, slot, _)| slot.suits != Suits::Named)
            .filter_map(|(id, _, heap)| Some((distance(kind, heap)?, id)))
            .collect();
        found.sort();
        found.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn in_types(&self, type_bits: u32) -> impl Iterator<Item = (HeapId, &Slot, &Heap)> {
        self.caps
            .heap_ids()
            .zip(&self.slots)
            .filter(move |(_, slot)| type_bits & (1 << slot.memory_type) != 0)
            .map(|((id, heap), slot)| (id, slot, heap))
    }
}

/// Returns the distance of a heap from the wanted kind; `None` if it cannot serve.
fn distance(wish: HeapKind, heap: &Heap) -> Option<u8> {
    let visible = heap.host.is_visible();
    match (wish, heap.kind) {
        (HeapKind::Staging, HeapKind::Staging) | (HeapKind::Unified, HeapKind::Unified) => {
            visible.then_some(0)
        }
        (HeapKind::Staging, HeapKind::Unified) | (HeapKind::Unified, HeapKind::Staging) => {
            visible.then_some(1)
        }
        (HeapKind::Staging | HeapKind::Unified, _) => None,
        (_, HeapKind::Device) => Some(0),
        (_, HeapKind::Unified) => Some(1),
        (..) => Some(if visible { 3 } else { 2 }),
    }
}
