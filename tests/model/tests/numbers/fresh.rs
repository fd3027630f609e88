//! Gaps of the tests that samples of mutants found: a row of one, a pass of one move, a refusal that is told.
use super::before::asked;
use super::{MIB, device, managed, one_lane, plain};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Align, Backend, BlockOffset, Budget, CopyCaps, ErrorKind, InsideBlock, Manager, ManagerConfig,
    Move, Request,
};
use omniheap_layers::{CallKind, Verdict};
use std::sync::Arc;

/// A copy alone in its row, beside rows of many.
#[test]
fn a_batch_of_long_rows_and_a_short_one_is_checked() {
    let caps = CopyCaps { align: Align::of(1), inside_block: InsideBlock::Allowed };
    let (from, to) = ([0_u8; 4], [1_u8; 4]);
    let step = |target: usize, offset: u64, source: u64| Move {
        from: BlockOffset { block: &from[0], offset: source },
        to: BlockOffset { block: &to[target], offset },
        size: 4,
    };
    let row = |target: usize, first: u64| (0..32_u64).map(move |at| (target, first + 4 * at));
    for alone in 0..3 {
        let targets =
            (0..3).flat_map(|target| row(target, 64).take(if target == alone { 1 } else { 32 }));
        let mut batch: Vec<_> =
            targets.zip(0..).map(|((target, to), at)| step(target, to, 4 * at)).collect();
        assert_eq!(caps.check_batch(&batch, |_| Ok(1 << 20)), Ok(()), "{alone}");
        let (again, at) = ((alone + 1) % 3, batch.len() as u64);
        batch.push(step(again, 66, 4 * at));
        let refused = caps.check_batch(&batch, |_| Ok(1 << 20)).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Overlap), "{alone}");
    }
}

/// Some allocations, all but one of each few freed.
fn scattered<B: Backend>(
    manager: &Manager<B>,
    count: u64,
    every: usize,
) -> Vec<omniheap_core::Allocation<B>> {
    let ask = |_| manager.allocate(&Request::new(200_000)).expect("fits");
    (0..count).map(ask).collect::<Vec<_>>().into_iter().step_by(every).collect()
}

/// The first copy tells what copies cost.
#[test]
fn a_pass_of_one_move_is_a_measurement() {
    let manager = managed(device(64 * MIB), plain());
    let _kept = scattered(&manager, 100, 5);
    let pass = manager.begin_defragment(&Budget::new().moves(1)).expect("alive");
    let outcome = pass.run(|_| omniheap_core::Decision::Copy).expect("alive");
    assert_eq!(outcome.moved.moves, 1);
    let costs = manager.report().move_costs;
    assert!(costs.iter().any(|cost| cost.per_copy.is_some()), "{costs:?}");
}

/// A driver that does not unmap a page is named by the request that needs it, and asked again by the next one.
#[test]
fn a_driver_that_refuses_to_unmap_is_told_and_asked_again() {
    let (host, refuses) = (device(16 * MIB), Arc::new(AtomicBool::new(false)));
    let asks = Arc::clone(&refuses);
    let device = asked(&host, move |call| match call.kind {
        CallKind::UnmapPages if asks.load(Relaxed) => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let all = [(); 7].map(|()| manager.allocate(&Request::new(2 * MIB)).expect("fits"));
    let kept: Vec<_> = all.into_iter().step_by(2).collect();
    refuses.store(true, Relaxed);
    let trimmed = manager.trim();
    assert_eq!(trimmed.map_err(|error| error.kind()), Err(ErrorKind::Driver));
    manager.validate().expect("sound");
    refuses.store(false, Relaxed);
    assert_eq!(manager.trim(), Ok(6 * MIB), "all three holes");
    drop(kept);
}
