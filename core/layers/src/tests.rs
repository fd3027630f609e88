//! Plans and counts, over the null device.
#![expect(unsafe_code, reason = "frees blocks")]
use crate::{CallKind, Fault, Limit, Plan, Record};
use core::time::Duration;
use omniheap_null::Null;
use omniheap_seam::{Align, Backend, Caps, DeviceInfo, ErrorKind, Heap, HeapId, HeapKind, Result};

const HEAP: HeapId = HeapId(0);

fn null() -> Null {
    let heap = Heap::new(HeapKind::Device, 1 << 20).align(Align::ONE).granule(Align::of(16));
    Null::new(Caps::new(DeviceInfo::default(), vec![heap]).max_blocks(8))
}

fn free<B: Backend>(backend: &B, block: B::Block) -> Result<()> {
    // SAFETY: nothing uses a block without bytes.
    unsafe { backend.free(block) }
}

/// Returns which of ten calls (allocate, idle, allocate, idle, …) fail under a plan.
fn failing(plan: Plan) -> Vec<u64> {
    let fault = Fault::new(null());
    fault.inject(plan, 0);
    let call = |n: u64| match n % 2 {
        0 => fault.allocate(HEAP, 1).map(drop),
        _ => fault.wait_idle(),
    };
    let failed: Vec<_> = (0..10).filter(|n| call(*n).is_err()).collect();
    assert_eq!((fault.seen(), fault.injected()), (10, failed.len() as u64));
    failed
}

#[test]
fn plans_fail_the_calls_they_name() {
    assert_eq!(failing(Plan::Never), []);
    assert_eq!(failing(Plan::Nth(3)), [3]);
    assert_eq!(failing(Plan::From(3)), [3, 5, 7, 9], "the same kind only");
    assert_eq!(failing(Plan::NthThenOk { at: 2, times: 2 }), [2, 4]);
    assert_eq!(failing(Plan::Pair(0, 9)), [0, 9]);
    assert_eq!(failing(Plan::Kind(CallKind::WaitIdle, 2)), [5]);
    assert_eq!(failing(Plan::LoseDeviceAt(6)), [6, 7, 8, 9]);
    assert_eq!(failing(Plan::Delay(CallKind::WaitIdle, Duration::ZERO)), []);
    assert_eq!(failing(Plan::Random { per_million: 1_000_000, seed: 1 }).len(), 10);
    assert_eq!(failing(Plan::Random { per_million: 0, seed: 1 }), []);
}

#[test]
fn the_same_seed_fails_the_same_calls() {
    let plan = |seed| Plan::Random { per_million: 400_000, seed };
    assert_eq!(failing(plan(7)), failing(plan(7)));
    assert!((0..20).any(|seed| failing(plan(seed)) != failing(plan(7))), "the seed matters");
}

#[test]
fn picks_go_round_the_table() {
    let fault = Fault::new(null());
    for (pick, kind) in super::errors(CallKind::Allocate).iter().enumerate() {
        fault.inject(Plan::Nth(0), pick);
        assert_eq!(fault.allocate(HEAP, 1).expect_err("planned").kind(), *kind);
    }
    fault.inject(Plan::Nth(0), super::errors(CallKind::Allocate).len());
    assert_eq!(fault.allocate(HEAP, 1).expect_err("planned").kind(), ErrorKind::OutOfDeviceMemory);
}

#[test]
fn every_kind_has_its_number_and_an_error() {
    for (number, kind) in CallKind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, number);
        assert!(!super::errors(*kind).is_empty());
    }
}

#[test]
fn a_short_block_is_half() {
    let fault = Fault::new(null());
    fault.inject(Plan::Corruption(0, super::Corruption::ShortBlock), 0);
    fault.allocate(HEAP, 96).expect("claims success");
    assert_eq!(fault.inner().used(HEAP), 48);
}

#[test]
fn a_refused_free_is_quarantined() {
    let fault = Fault::new(Record::new(null()));
    let block = fault.allocate(HEAP, 1).expect("fits");
    fault.inject(Plan::Nth(0), 0);
    assert_eq!(free(&fault, block).expect_err("planned").kind(), ErrorKind::Driver);
    assert_eq!((fault.quarantine().blocks, fault.inner().live().blocks), (1, 1));
    assert_eq!(fault.inner().live_blocks()[0].size, 16, "rounded to the granule");
}

#[test]
fn a_patient_layer_waits_before_it_gives_up_what_seems_lost() {
    let calls = |fault: Fault<Record<Null>>, plan, pick| -> Vec<CallKind> {
        let block = fault.allocate(HEAP, 1).expect("fits");
        fault.inject(plan, pick);
        let _ = fault.wait_idle();
        fault.inner().start_log();
        let _ = free(&fault, block);
        fault.inner().take_log().iter().map(|entry| entry.call.kind).collect()
    };
    let fresh = || Fault::new(Record::new(null()));
    let is_lost = |kind: &ErrorKind| *kind == ErrorKind::DeviceLost;
    let lost = super::errors(CallKind::WaitIdle).iter().position(is_lost).expect("it may be");
    for (plan, pick) in [(Plan::LoseDeviceAt(0), 0), (Plan::Nth(0), lost)] {
        assert_eq!(calls(fresh().patient(), plan, pick), [CallKind::WaitIdle, CallKind::Free]);
        assert_eq!(calls(fresh(), plan, pick), [CallKind::Free]);
    }
    assert_eq!(calls(fresh().patient(), Plan::Never, 0), [CallKind::Free], "nothing was lost");
}

#[test]
fn a_limit_counts_rounded_bytes_and_takes_failures_back() {
    let limit = Limit::new(Fault::new(null()), &[32], 9);
    limit.inner().inject(Plan::Nth(0), 0);
    limit.allocate(HEAP, 1).expect_err("planned");
    let a = limit.allocate(HEAP, 1).expect("fits");
    let b = limit.allocate(HEAP, 16).expect("fits");
    let kind = limit.allocate(HEAP, 1).expect_err("full").kind();
    assert_eq!(kind, ErrorKind::OutOfDeviceMemory);
    free(&limit, a).expect("free");
    free(&limit, b).expect("free");
    assert_eq!(limit.caps().max_blocks, 8, "the device has fewer than the limit");
}
