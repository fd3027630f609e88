//! Layers over a real backend: every capability passes, every count is right.
#![expect(unsafe_code, reason = "maps pages")]
use crate::common::{HEAP, MAIN, MIB, free, host, kind};
use omniheap_core::{
    Backend, BlockOffset, Epoch, ErrorKind, HeapKind, Move, Page, Point, Result, erase,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Corruption, Fault, Limit, Live, Plan, Record, Wrapped, errors};
use std::thread;

/// Uses every capability once and cleans up behind itself, also when a call fails.
fn workout<B: Backend>(backend: &B) -> Result<()> {
    let block = backend.allocate(HEAP, 8192)?;
    let used = use_block(backend, &block);
    let idle = backend.wait_idle();
    let freed = free(backend, block);
    used.and(idle).and(freed)?;
    pages(backend)
}

fn use_block<B: Backend>(backend: &B, block: &B::Block) -> Result<()> {
    let transfer = backend.as_transfer().expect("forwarded");
    let lines = backend.as_timelines().expect("forwarded");
    let place = |offset| BlockOffset { block, offset };
    transfer.write(MAIN, place(0), b"abcd")?;
    transfer.fill(MAIN, place(4), 4, b'x')?;
    transfer.copy(MAIN, &[Move { from: place(0), to: place(4096), size: 8 }])?;
    let mut bytes = [0; 8];
    transfer.read(MAIN, place(4096), &mut bytes)?;
    assert_eq!(&bytes, b"abcdxxxx");
    let line = lines.open()?;
    let point = Point { timeline: MAIN, epoch: lines.mark(MAIN)? };
    let ran = lines.order(line, point).and(lines.wait(point)).and(lines.reached(line).map(drop));
    lines.close(line).and(ran)?;
    assert_ne!(backend.as_address().expect("forwarded").address(block), 0);
    backend.as_budget().expect("forwarded").budget(HEAP)?;
    let map = backend.as_map().expect("forwarded");
    match map.map(block) {
        Err(error) if error.kind() != ErrorKind::NotMappable => Err(error),
        answer => {
            assert!(answer.is_err(), "the heap is hidden");
            Ok(())
        }
    }
}

fn pages<B: Backend>(backend: &B) -> Result<()> {
    let remap = backend.as_remap().expect("forwarded");
    let block = remap.reserve(HEAP, 8 * MIB)?;
    let mut pages: Vec<Page> = Vec::new();
    let mut verdict = remap.create(HEAP, 2, &mut pages);
    if verdict.is_ok() {
        // SAFETY: block and pages come from `remap`, and none is mapped.
        verdict = unsafe { remap.map_pages(&block, 1, &pages) };
        if verdict.is_ok() {
            // SAFETY: no work uses the pages.
            verdict = unsafe { remap.unmap_pages(&block, 1, 2) };
        }
        // SAFETY: unmapped, unless the driver refused; then the host refuses too.
        verdict = verdict.and(unsafe { remap.destroy(HEAP, &pages) });
    }
    let freed = free(backend, block);
    verdict.and(freed)
}

#[test]
fn a_stack_of_layers_forwards_everything_and_leaves_nothing() {
    let stack = Fault::new(Limit::new(Record::new(host(64 * MIB)), &[32 * MIB], 8));
    workout(&stack).expect("nothing fails");
    let record = stack.inner().inner();
    assert_eq!(record.live(), Live::default());
    assert_eq!(
        record.driver_calls(),
        8,
        "allocate, free, reserve, create, map, unmap, destroy, free"
    );
    assert_eq!(record.peak_bytes(), 4 * MIB);
    assert_eq!(record.calls().of(CallKind::Free), 2);
    assert_eq!(record.calls().total(), stack.seen());
    let erased = erase(stack);
    workout(&erased).expect("nothing fails");
}

#[test]
fn an_erased_backend_gives_back_host_pages_and_kernels() {
    let host = std::sync::Arc::new(host(64 * MIB));
    let erased = erase(std::sync::Arc::clone(&host));
    let (remap, launch) = (erased.as_remap().expect("pages"), erased.as_launch().expect("kernels"));
    let mut pages = Vec::new();
    remap.create_on_host(HEAP, 3, 1, &mut pages).expect("fits");
    assert!(pages.len() == 3 && host.on_host(HEAP).expect("pages") > 0);
    // SAFETY: made above and never mapped.
    unsafe { remap.destroy_on_host(HEAP, &pages) }.expect("it takes them back");
    assert_eq!(host.on_host(HEAP), Ok(0));
    let program = launch.load(&omniheap_shaders::SCALE, 0).expect("host runs kernels");
    launch.unload(program).expect("it is loaded");
    assert!(launch.unload(program).is_err(), "it is gone");
}

#[test]
fn the_log_tells_what_was_asked_and_answered() {
    let record = Record::new(host(MIB));
    record.start_log();
    let block = record.allocate(HEAP, 5000).expect("fits");
    assert_eq!(kind(record.allocate(HEAP, 2 * MIB)), ErrorKind::ExceedsLimit);
    assert_eq!(record.live_blocks().len(), 1);
    assert_eq!(record.live().block_bytes, 8192, "as the heap rounds it");
    free(&record, block).expect("idle");
    let log = record.take_log();
    let told: Vec<_> = log.iter().map(|e| (e.call.kind, e.call.size, e.error.is_some())).collect();
    let expected = [
        (CallKind::Allocate, 8192, false),
        (CallKind::Allocate, 2 * MIB, true),
        (CallKind::Free, 8192, false),
    ];
    assert_eq!(told, expected);
    free(&record, record.allocate(HEAP, 1).expect("fits")).expect("idle");
    assert!(record.take_log().is_empty(), "stopped");
}

#[test]
fn every_single_fault_is_reported_and_leaves_nothing_unaccounted() {
    let dry = Fault::new(Record::new(host(64 * MIB)));
    dry.inner().start_log();
    workout(&dry).expect("nothing fails");
    let kinds: Vec<_> = dry.inner().take_log().iter().map(|entry| entry.call.kind).collect();
    assert_eq!(kinds.len() as u64, dry.seen());
    for (at, failing) in kinds.iter().enumerate() {
        for pick in 0..errors(*failing).len() {
            let fault = Fault::new(Record::new(host(64 * MIB)));
            fault.inject(Plan::Nth(at as u64), pick);
            let verdict = workout(&fault);
            assert_eq!(fault.injected(), 1, "{failing:?} at {at}");
            assert_eq!(kind(verdict), errors(*failing)[pick], "{failing:?} at {at}");
            let (live, kept) = (fault.inner().live(), fault.quarantine());
            assert_eq!(live.blocks + live.reservations, kept.blocks, "{failing:?} at {at}");
            fault.inject(Plan::Never, 0);
            workout(&fault).expect("well again");
        }
    }
}

#[test]
fn a_device_lost_at_any_call_gives_everything_back() {
    let dry = Fault::new(host(64 * MIB));
    workout(&dry).expect("nothing fails");
    for at in 0..dry.seen() {
        let fault = Fault::new(Record::new(host(64 * MIB)));
        fault.inject(Plan::LoseDeviceAt(at), 0);
        assert_eq!(kind(workout(&fault)), ErrorKind::DeviceLost, "lost at {at}");
        assert_eq!(fault.inner().live(), Live::default(), "lost at {at}");
    }
}

#[test]
fn a_limit_is_exact_for_sixteen_threads() {
    let limit = Limit::new(host(64 * MIB), &[100 << 12], u64::MAX);
    let blocks: Vec<Wrapped<<Host as Backend>::Block>> = thread::scope(|scope| {
        let ask = || (0..10).filter_map(|_| limit.allocate(HEAP, 4096).ok()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(blocks.len(), 100);
    assert_eq!(kind(limit.allocate(HEAP, 1)), ErrorKind::OutOfDeviceMemory);
    blocks.into_iter().for_each(|block| free(&limit, block).expect("idle"));
    assert_eq!(limit.as_budget().expect("forwarded").budget(HEAP).expect("alive").used, 0);
}

#[test]
fn a_limit_shows_in_caps_and_separates_never_from_not_now() {
    let limit = Limit::new(host(64 * MIB), &[4 * MIB], 2);
    assert_eq!((limit.caps().heaps[0].size, limit.caps().max_blocks), (4 * MIB, 2));
    assert_eq!(kind(limit.allocate(HEAP, 5 * MIB)), ErrorKind::ExceedsLimit);
    let a = limit.allocate(HEAP, MIB).expect("fits");
    let b = limit.allocate(HEAP, MIB).expect("fits");
    assert_eq!(kind(limit.allocate(HEAP, MIB)), ErrorKind::OutOfDeviceMemory, "two blocks");
    let remap = limit.as_remap().expect("forwarded");
    let mut pages = Vec::new();
    remap.create(HEAP, 1, &mut pages).expect("a page is no block");
    assert_eq!(kind(remap.create(HEAP, 1, &mut pages)), ErrorKind::OutOfDeviceMemory);
    // SAFETY: just created, never mapped.
    unsafe { remap.destroy(HEAP, &pages) }.expect("unmapped");
    free(&limit, a).expect("idle");
    free(&limit, b).expect("idle");
}

#[test]
fn lies_are_told_and_reach_no_foreign_byte() {
    let host = Host::builder().heap(heap(HeapKind::Unified, 64 * MIB)).open().expect("valid");
    let fault = Fault::new(host);
    let address = fault.as_address().expect("forwarded");
    let honest = fault.allocate(HEAP, 8192).expect("fits");
    let truth = address.address(&honest);
    fault.inject(Plan::Corruption(0, Corruption::ShortBlock), 0);
    let short = fault.allocate(HEAP, 8192).expect("claims success");
    let transfer = fault.as_transfer().expect("forwarded");
    let past = BlockOffset { block: &short, offset: 4096 };
    assert_eq!(kind(transfer.fill(MAIN, past, 1, 1)), ErrorKind::OutOfRange);
    fault.inject(Plan::Never, 0);
    assert_eq!(kind(fault.as_map().expect("forwarded").map(&short)), ErrorKind::NotMappable);
    for (lie, told) in [(Corruption::NullAddress, 0), (Corruption::MisalignedAddress, truth + 1)] {
        fault.inject(Plan::Corruption(0, lie), 0);
        assert_eq!(address.address(&honest), truth, "from the first call on");
        fault.wait_idle().expect("alive");
        assert_eq!(address.address(&honest), told);
    }
    fault.inject(Plan::Corruption(0, Corruption::NeverReached), 0);
    transfer.fill(MAIN, BlockOffset { block: &honest, offset: 0 }, 1, 1).expect("inside");
    fault.wait_idle().expect("alive");
    let lines = fault.as_timelines().expect("forwarded");
    assert_eq!(lines.reached(MAIN).expect("alive"), Epoch::START);
    fault.inject(Plan::Never, 0);
    assert!(lines.reached(MAIN).expect("alive") > Epoch::START);
    free(&fault, honest).expect("idle");
    free(&fault, short).expect("idle");
}

#[test]
fn quarantine_survives_a_new_plan() {
    let fault = Fault::new(host(MIB));
    let block = fault.allocate(HEAP, 1).expect("fits");
    fault.inject(Plan::Kind(CallKind::Free, 0), 0);
    free(&fault, block).expect_err("planned");
    fault.inject(Plan::Never, 0);
    assert_eq!(fault.quarantine().blocks, 1);
}
