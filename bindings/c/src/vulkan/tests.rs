//! Memory that a driver ties to one resource.
use super::*;
use crate::open::settings;
use omniheap::{Align, Backend as _, Limits, TimelineId, report::SpanState, seam::Span};
use std::sync::Arc;

const SIZE: u64 = 100_000;

fn open() -> Option<Arc<Holder>> {
    // SAFETY: null stands for the usual settings.
    let settings = unsafe { settings(ptr::null()) }.unwrap();
    match Vulkan::open(0) {
        Ok(vulkan) => Some(Holder::vulkan(vulkan, 0, settings).unwrap()),
        Err(why) => {
            println!("SKIPPED: no Vulkan device here: {why}");
            None
        }
    }
}

/// # Safety
///
/// As for [`allocate`].
unsafe fn allocate_plain(
    holder: &Holder,
    buffer: vk::Buffer,
    needs: &Needs,
    flags: u32,
    name: Option<&str>,
) -> Result<Allocation<AnyBackend>, Failure> {
    // SAFETY: the caller's promise.
    unsafe { allocate(holder, buffer, needs, &Wanted::plain(flags, name)?) }
}

/// A buffer, and what it would need if the driver insisted on memory of its own.
fn tied(vulkan: &Vulkan) -> (vk::Buffer, Needs) {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(SIZE).usage(usage);
    // SAFETY: a plain description, which every device takes.
    let buffer = unsafe { vulkan.ash_device().create_buffer(&info, None) }.unwrap();
    // SAFETY: made just above.
    let mut needs = unsafe { vulkan.buffer_needs(buffer, HeapKind::Device) }.unwrap();
    needs.alone = Alone::Required;
    (buffer, needs)
}

#[test]
fn memory_tied_to_a_resource_counts_and_goes_back() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, needs) = tied(vulkan);
    let reserved = || holder.manager.heap_use(needs.heaps[0]).unwrap().reserved;
    // SAFETY: the needs are the buffer's own.
    let made = unsafe { allocate_plain(&holder, buffer, &needs, 0, Some("tied")) }.unwrap();
    assert_eq!((made.size(), reserved()), (needs.layout.size, needs.layout.size));
    let binding = made.binding();
    assert_eq!(binding.span().offset, 0);
    // SAFETY: fresh, with its own needs. Memory that is not tied to it is refused by `bind_buffer`.
    unsafe { vulkan.bind_buffer(buffer, &needs, block(&binding).unwrap(), 0) }.unwrap();
    drop(binding);
    // SAFETY: the device never used it.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
    drop(made);
    assert_eq!(reserved(), 0);
}

#[test]
fn a_budget_holds_for_memory_tied_to_a_resource() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, mut needs) = tied(vulkan);
    let heap = needs.heaps[0];
    needs.heaps = vec![heap];
    let limit = needs.layout.size - 1;
    holder.manager.set_budget(heap, Limits::hard(limit)).unwrap();
    // SAFETY: the needs are the buffer's own.
    let refused = unsafe { allocate_plain(&holder, buffer, &needs, 0, None) };
    assert_eq!(refused.err().map(|why| why.status), Some(OmniheapStatus::OverBudget));
    assert_eq!(holder.manager.heap_use(heap).unwrap().reserved, 0);
    // SAFETY: never bound.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
}

#[test]
fn memory_that_a_driver_prefers_is_tied_and_exact_or_else_shared() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, mut needs) = tied(vulkan);
    let heap = needs.heaps[0];
    (needs.alone, needs.heaps) = (Alone::Preferred, vec![heap]);
    let reserved = || holder.manager.heap_use(heap).unwrap().reserved;
    // SAFETY: the needs are the buffer's own.
    let made = || unsafe { allocate_plain(&holder, buffer, &needs, 0, None) }.unwrap();
    let own = made();
    assert_eq!(reserved(), needs.layout.size, "no more than it needs");
    drop(own);
    let beside = holder.manager.allocate(&Request::new(SIZE).heap(heap)).unwrap();
    let held = reserved();
    holder.manager.set_budget(heap, Limits::hard(held)).unwrap();
    let shared = made();
    assert_eq!(reserved(), held, "it lies beside the other");
    drop((shared, beside));
    // SAFETY: never bound.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
}

#[test]
fn a_resource_that_no_block_is_aligned_for_has_memory_of_its_own() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, mut needs) = tied(vulkan);
    (needs.alone, needs.layout.align) = (Alone::No, Align::of(1 << 40));
    // SAFETY: the needs are the buffer's own, but for the alignment, which offset zero meets.
    let made = unsafe { allocate_plain(&holder, buffer, &needs, 0, None) }.unwrap();
    assert_eq!(made.binding().span(), Span { offset: 0, size: needs.layout.size });
    drop(made);
    // SAFETY: never bound.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
}

#[test]
fn a_bound_buffer_moves_only_where_its_owner_said_so() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, mut needs) = tied(vulkan);
    needs.alone = Alone::No;
    let movable = |flags| {
        // SAFETY: the needs are the buffer's own.
        let _made = unsafe { allocate_plain(&holder, buffer, &needs, flags, None) }.unwrap();
        let report = holder.manager.report();
        let blocks = report.pools.iter().flat_map(|pool| &pool.blocks);
        blocks.flat_map(|block| &block.live).any(|span| span.state == SpanState::Movable)
    };
    assert!(!movable(0));
    assert!(movable(OMNIHEAP_MOVED_ON_CONSENT));
    // SAFETY: as above.
    let wrong = unsafe { allocate_plain(&holder, buffer, &needs, 1 << 30, None) };
    assert_eq!(wrong.err().map(|why| why.status), Some(OmniheapStatus::InvalidArgument));
    // SAFETY: never bound.
    unsafe { vulkan.ash_device().destroy_buffer(buffer, None) };
}

#[test]
fn a_retired_buffer_goes_when_its_work_has_ended() {
    let Some(holder) = open() else { return };
    let vulkan = vulkan(&holder).unwrap();
    let (buffer, needs) = tied(vulkan);
    // SAFETY: the needs are the buffer's own.
    let made = unsafe { allocate_plain(&holder, buffer, &needs, 0, None) }.unwrap();
    let mut allocation = OmniheapAllocation { id: 0 };
    // SAFETY: a place of this test's.
    unsafe { publish(&holder, made, ptr::null_mut(), &raw mut allocation) }.unwrap();
    vulkan.with_queue(TimelineId::MAIN, |_, _| ()).unwrap();
    // SAFETY: null is refused; the buffer is never used.
    let retire = |buffer| unsafe { omniheap_vulkan_retire_buffer(buffer, allocation) };
    assert_eq!(retire(0), OmniheapStatus::NullArgument);
    assert_eq!(retire(buffer.as_raw()), OmniheapStatus::Ok);
    assert_eq!(retire(buffer.as_raw()), OmniheapStatus::Stale);
    holder.manager.backend().wait_idle().unwrap();
    holder.manager.retire().unwrap();
    assert_eq!(holder.manager.heap_use(needs.heaps[0]).unwrap().reserved, 0);
}
