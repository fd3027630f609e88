//! One row per device: what is chosen for each kind, best first, by memory type.
use super::{
    Facts, Paging, Suits, Table,
    layouts::{self, Reported},
    power, translate,
};
use crate::driver::Owner;
use ash::vk;
use omniheap_seam::{Align, Error, ErrorKind, HeapId, HeapKind, HostAccess, Mapper, Result, Use};

fn types(table: &Table, heaps: &[HeapId]) -> Vec<u32> {
    heaps.iter().map(|id| table.slots[usize::from(id.0)].memory_type).collect()
}

/// A device, then memory types, best first, for device, unified and staging memory.
type Row = (Reported, &'static [u32], &'static [u32], &'static [u32]);

#[test]
fn every_device_gets_its_best_memory_first() {
    let rows: [Row; 11] = [
        (layouts::NVIDIA_SMALL_BAR, &[7, 10, 0, 8, 9], &[10, 8, 9], &[8, 9, 10]),
        (layouts::NVIDIA_NO_BAR, &[7, 0, 9, 10], &[9, 10], &[9, 10]),
        (layouts::NVIDIA_RESIZABLE_BAR, &[1, 4, 0, 2, 3], &[4, 2, 3], &[2, 3, 4]),
        (layouts::H200, &[1, 4, 0, 2, 3], &[4, 2, 3], &[2, 3, 4]),
        (layouts::AMD_DISCRETE, &[0, 2, 1, 3], &[2, 1, 3], &[1, 3, 2]),
        (layouts::AMD_APU, &[0, 2, 1, 3], &[2, 1, 3], &[1, 3, 2]),
        (layouts::INTEL_SHARED_CACHE, &[0], &[0], &[0]),
        (layouts::INTEL_NO_SHARED_CACHE, &[0, 1, 2], &[1, 2], &[1, 2]),
        (layouts::APPLE, &[0, 1, 2], &[1, 2], &[1, 2]),
        (layouts::LAVAPIPE, &[0], &[0], &[0]),
        (layouts::PHONE, &[0, 2, 3, 1], &[2, 3, 1], &[2, 3, 1]),
    ];
    for (reported, device, unified, staging) in rows {
        let table = translate(&reported.facts());
        let chosen = |kind| types(&table, &table.candidates(reported.buffers, kind));
        assert_eq!(chosen(HeapKind::Device), device, "device memory of {reported:?}");
        assert_eq!(chosen(HeapKind::Unified), unified, "unified memory of {reported:?}");
        assert_eq!(chosen(HeapKind::Staging), staging, "staging memory of {reported:?}");
        assert_eq!(chosen(HeapKind::Constant), device, "constants live in device memory");
    }
}

#[test]
fn what_the_host_must_see_is_never_hidden() {
    for reported in layouts::ALL {
        let table = translate(&reported.facts());
        for kind in [HeapKind::Staging, HeapKind::Unified] {
            let found = table.candidates(!0, kind);
            assert!(!found.is_empty(), "{reported:?}");
            let visible = |id: &HeapId| table.caps.heap(*id).unwrap().host.is_visible();
            assert!(found.iter().all(visible), "{reported:?}");
        }
    }
}

#[test]
fn every_type_is_one_heap_ranked_within_its_kind() {
    for reported in layouts::ALL {
        let table = translate(&reported.facts());
        assert_eq!(table.caps.heaps.len(), reported.types.len());
        let mut seen: Vec<u32> = table.slots.iter().map(|slot| slot.memory_type).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..u32::try_from(reported.types.len()).unwrap()));
        for (slot, heap) in table.slots.iter().zip(&table.caps.heaps) {
            let (physical, flags) = reported.types[slot.index()];
            assert_eq!(u32::from(heap.physical), physical);
            assert_eq!(heap.size, reported.heaps[usize::from(heap.physical)]);
            assert_eq!(slot.flags.as_raw(), flags);
        }
    }
}

/// Allocates device memory while some physical memory is full and another fails with `error`; returns the types tried.
fn asked(reported: Reported, full: &[u8], error: ErrorKind) -> (Vec<u32>, Result<u32>) {
    let table = translate(&reported.facts());
    let heaps = table.candidates(reported.buffers, HeapKind::Device);
    let mut asked = Vec::new();
    let given = table.first_that_gives(&heaps, Error::kind, |heap| {
        let memory_type = table.slots[usize::from(heap.0)].memory_type;
        asked.push(memory_type);
        let physical = table.caps.heap(heap).unwrap().physical;
        if full.contains(&physical) { Err(error.into()) } else { Ok(memory_type) }
    });
    (asked, given)
}

#[test]
fn a_full_memory_is_asked_once() {
    let oom = ErrorKind::OutOfDeviceMemory;
    let rows: [(Reported, &[u8], &[u32]); 7] = [
        (layouts::NVIDIA_SMALL_BAR, &[], &[7]),
        (layouts::NVIDIA_SMALL_BAR, &[0], &[7, 10]),
        (layouts::NVIDIA_SMALL_BAR, &[0, 2], &[7, 10, 0]),
        (layouts::NVIDIA_RESIZABLE_BAR, &[0], &[1, 0]),
        (layouts::H200, &[0], &[1, 0]),
        (layouts::AMD_DISCRETE, &[0, 2], &[0, 2, 1]),
        (layouts::INTEL_NO_SHARED_CACHE, &[], &[0]),
    ];
    for (reported, full, order) in rows {
        let (asked, given) = asked(reported, full, oom);
        assert_eq!(asked, order, "{full:?} of {reported:?}");
        assert_eq!(given.ok(), order.last().copied());
    }
    let (order, given) = asked(layouts::H200, &[0, 1], oom);
    assert_eq!((order, given.unwrap_err().kind()), (vec![1, 0], oom), "everything is full");
    let (order, _) = asked(layouts::H200, &[0], ErrorKind::OutOfHostMemory);
    assert_eq!(order, [1, 4, 0], "that says nothing of the others");
    let (order, given) = asked(layouts::H200, &[0], ErrorKind::DeviceLost);
    assert_eq!((order, given.unwrap_err().kind()), (vec![1], ErrorKind::DeviceLost));
    let none = translate(&layouts::H200.facts()).first_that_gives(&[], Error::kind, |_| Ok(()));
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NoSuchHeap);
}

#[test]
fn special_memory_only_on_request() {
    let named = |reported: Reported, flag| {
        let table = translate(&reported.facts());
        let found = table.with_flags(!0, flag);
        assert!(!found.is_empty());
        for id in &found {
            assert_eq!(table.caps.heap(*id).unwrap().use_when, Use::OnRequest);
            assert_eq!(table.slots[usize::from(id.0)].suits, Suits::Named);
        }
        for kind in [HeapKind::Device, HeapKind::Unified, HeapKind::Staging] {
            assert!(table.candidates(!0, kind).iter().all(|id| !found.contains(id)));
        }
    };
    named(layouts::PHONE, vk::MemoryPropertyFlags::PROTECTED);
    named(layouts::PHONE, vk::MemoryPropertyFlags::LAZILY_ALLOCATED);
    named(layouts::AMD_DISCRETE, vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD);
    named(layouts::AMD_APU, vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD);
}

#[test]
fn types_that_take_no_buffer_are_for_images_alone() {
    let table = translate(&layouts::NVIDIA_SMALL_BAR.facts());
    let image_bits = 0b10 | 1 << 7;
    let found = table.candidates(image_bits, HeapKind::Device);
    assert_eq!(types(&table, &found), [7, 1], "the image's own spill type comes second");
    let spill = table.caps.heap(found[1]).unwrap();
    assert_eq!((spill.use_when, spill.host), (Use::OnRequest, HostAccess::None));
    assert_eq!(spill.kind, HeapKind::Staging, "it is host memory");
    assert_eq!(spill.page, None);
}

#[test]
fn the_host_reaches_memory_as_its_flags_say() {
    let table = translate(&layouts::PHONE.facts());
    let host = |memory_type| {
        let index = table.slots.iter().position(|slot| slot.memory_type == memory_type);
        table.caps.heaps[index.unwrap()].host
    };
    let read = [0, 1, 2, 3].map(host);
    use HostAccess::{Cached, Combined, Incoherent, None};
    assert_eq!(read, [None, Incoherent, Combined, Cached]);
}

#[test]
fn limits_bound_a_block() {
    let mut facts = layouts::NVIDIA_SMALL_BAR.facts();
    facts.max_allocation = 1_000_000_001;
    let table = translate(&facts);
    for heap in &table.caps.heaps {
        assert_eq!(heap.max_block, heap.size.min(1_000_000_001) & !63, "{heap:?}");
        assert_eq!((heap.granule, heap.align), (Align::of(64), Align::of(65_536)));
    }
    facts.max_buffer = 65_535;
    assert!(translate(&facts).caps.heaps.iter().all(|heap| heap.max_block == 65_472));
    assert_eq!(table.caps.max_blocks, 4096);
    assert_eq!(table.caps.neighbour_granularity, Align::of(1024));
    assert_eq!(table.caps.atom, Align::of(64));
    let constant = table.caps.constant.unwrap();
    assert_eq!((constant.bank, constant.align.get(), constant.push), (65_536, 64, 256));
}

#[test]
fn pages_are_where_they_were_wished_and_possible() {
    let paged = |facts: &Facts| {
        let table = translate(facts);
        let heaps = table.caps.heap_ids().filter(|(_, heap)| heap.page.is_some());
        let heaps: Vec<_> = heaps.map(|(id, _)| id).collect();
        let mut found = types(&table, &heaps);
        found.sort_unstable();
        found
    };
    let mut facts = layouts::NVIDIA_RESIZABLE_BAR.facts();
    assert_eq!(paged(&facts), [0, 1], "hidden memory");
    facts.paging = Paging::EveryHeap;
    assert_eq!(paged(&facts), [0, 1, 2, 3, 4]);
    facts.sparse.as_mut().unwrap().types = 0b10;
    assert_eq!(paged(&facts), [1]);
    let heap = &translate(&facts).caps.heaps[0];
    assert_eq!((heap.page, heap.mapper), (Some(Align::of(2 << 20)), Mapper::Queue));
    facts.sparse.as_mut().unwrap().align = 4 << 20;
    assert_eq!(translate(&facts).caps.heaps[0].page, Some(Align::of(4 << 20)));
    facts.paging = Paging::Off;
    assert_eq!(paged(&facts), []);
    facts.sparse = None;
    facts.paging = Paging::EveryHeap;
    assert_eq!(paged(&facts), []);
    let mut one = layouts::LAVAPIPE.facts();
    assert_eq!(paged(&one), [], "the host would lose its view");
    one.paging = Paging::EveryHeap;
    assert_eq!(paged(&one), [0]);
}

#[test]
fn strange_alignments_are_made_safe() {
    assert_eq!(power(0), Align::ONE);
    assert_eq!(power(48), Align::of(64));
    assert_eq!(power(u64::MAX), Align::of(1 << 63));
}

#[test]
fn special_memory_needs_its_feature() {
    use super::features::Feature;
    let needs = |reported: Reported| -> Vec<Option<Feature>> {
        translate(&reported.facts()).slots.iter().map(|slot| slot.needs()).collect()
    };
    let phone = needs(layouts::PHONE);
    assert_eq!(phone.iter().flatten().collect::<Vec<_>>(), [&Feature::ProtectedMemory]);
    let amd = needs(layouts::AMD_DISCRETE);
    assert_eq!(amd.iter().flatten().count(), 4);
    assert!(amd.iter().flatten().all(|feature| *feature == Feature::DeviceCoherentMemory));
}

#[test]
fn a_device_that_an_engine_owns_has_pages_only_where_they_are_asked_for() {
    let usual = Paging::default();
    assert_eq!(usual.on_device_of(Owner::Us), Paging::DeviceOnly);
    assert_eq!(usual.on_device_of(Owner::Caller), Paging::Off);
    assert_eq!(Paging::DeviceOnly.on_device_of(Owner::Caller), Paging::DeviceOnly);
}
