//! Device time of the copies of a pass, by its own time stamps, beside the same number of moves between two bare
//! blocks in the same run.
mod events;

use crate::Failure;
use crate::moves::{MOVES, blocks, each, scatter, verify};
use crate::stopwatch::Stopwatch;
use core::time::Duration;
use events::Events;
use omniheap::cuda::Cuda;
use omniheap::vulkan::Vulkan;
use omniheap::{
    AnyBackend, Backend, BackendKind, HeapId, Manager, ManagerConfig, Request, TimelineId,
    defrag::{Budget, Decision},
    seam::{AnyBlock, BlockOffset, Move, erase},
};
use std::sync::Arc;
use std::time::Instant;

const MAIN: TimelineId = TimelineId::MAIN;
/// Rounds per batch.
const ROUNDS: usize = 15;
/// Work before the first: clocks of an idle device are slow.
const WARM: Duration = Duration::from_millis(1200);

/// A device's own clock.
trait Watch {
    /// Starts timing. Work submitted after it does not begin before [`stop`](Self::stop).
    fn start(&self) -> Result<(), Failure>;
    /// Waits; what the device took.
    fn stop(&self) -> Result<Duration, Failure>;
}

/// Time stamps of a queue. The device goes last.
struct Stamps(Stopwatch, Arc<Vulkan>);

impl Watch for Stamps {
    fn start(&self) -> Result<(), Failure> {
        self.0.start(&self.1);
        Ok(())
    }

    fn stop(&self) -> Result<Duration, Failure> {
        Ok(Duration::from_nanos(self.0.stop(&self.1)))
    }
}

pub(crate) fn run(kind: BackendKind) -> Result<(), Failure> {
    match kind {
        BackendKind::Vulkan => {
            let vulkan = Arc::new(Vulkan::open(0)?);
            let watch = Stamps(Stopwatch::create(&vulkan), Arc::clone(&vulkan));
            measure(&erase(vulkan), &watch)
        }
        BackendKind::Cuda => {
            let cuda = Arc::new(Cuda::open(0)?);
            let watch = Events::create(Arc::clone(&cuda))?;
            measure(&erase(cuda), &watch)
        }
        _ => Err("only CUDA and Vulkan have time stamps".into()),
    }
}

fn measure(device: &AnyBackend, watch: &dyn Watch) -> Result<(), Failure> {
    println!("GB copied per second of device time, {ROUNDS} rounds after {WARM:?} of other work");
    println!(
        "in brackets: microseconds for one move alone, and the median rate of the others beyond it"
    );
    println!("   size   moves   of a pass: least, median, most   between two blocks: the same");
    for size in [4 << 10, 64 << 10, 1 << 20] {
        let manager = Manager::with_config(AnyBackend::clone(device), ManagerConfig::default());
        let heaps = manager.explain(&Request::new(1))?.placement.heaps;
        let heap = *heaps.as_slice().first().ok_or("no heap")?;
        let room = device.caps().heap(heap).map_or(0, |heap| heap.size / 3);
        if MOVES * 4 * size > room {
            println!("{size:>7}   more than a third of this device's memory");
            continue;
        }
        let (moves, planned) = planned(&manager, watch, size)?;
        let bare = bare(device, heap, watch, moves, size)?;
        println!("{size:>7}  {moves:>6}   {planned:>30}   {bare:>30}");
    }
    Ok(())
}

/// Returns the copies that a manager plans for one pass: how many, and their rates.
fn planned(
    manager: &Manager<AnyBackend>,
    watch: &dyn Watch,
    size: u64,
) -> Result<(u64, String), Failure> {
    let pool = blocks(manager, size)?;
    let live = scatter(&pool, size, each(size))?;
    let mut pass = manager.begin_defragment(&Budget::new().moves(MOVES))?;
    let count = pass.moves().len();
    let moves: Vec<_> = pass
        .moves()
        .map(|one| {
            let (from, to) = (one.from(), one.to());
            let size = from.span.size;
            let from = BlockOffset { block: from.block, offset: from.span.offset };
            Move { from, to: BlockOffset { block: to.block, offset: to.span.offset }, size }
        })
        .collect();
    let rates = rates(manager.backend(), watch, &moves)?;
    drop(moves);
    for which in 0..count {
        // They were copied above, again and again.
        pass.decide(which, Decision::OwnerCopies)?;
    }
    pass.commit()?;
    verify(&live)?;
    Ok((count as u64, rates))
}

/// As many moves between two blocks, or what fits into them, in a scattered order.
fn bare(
    device: &AnyBackend,
    heap: HeapId,
    watch: &dyn Watch,
    moves: u64,
    size: u64,
) -> Result<String, Failure> {
    let most = device.caps().heap(heap).map_or(0, |heap| heap.max_block.min(heap.size / 8));
    let count = moves.min(most / size);
    let [from, to] = [device.allocate(heap, count * size)?, device.allocate(heap, count * size)?];
    let place = |block, number: u64| BlockOffset { block, offset: number * size };
    let one = |number: u64| {
        let (from, to) = (place(&from, number), place(&to, number * 7919 % count));
        Move { from, to, size }
    };
    let list: Vec<_> = (0..count).map(one).collect();
    let rates = rates(device, watch, &list)?;
    drop(list);
    for block in [from, to] {
        release(device, block)?;
    }
    Ok(if count < moves { format!("{rates} ({count})") } else { rates })
}

/// Returns the least, the median and the most of what was copied in a second.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rates(
    device: &AnyBackend,
    watch: &dyn Watch,
    moves: &[Move<'_, AnyBlock>],
) -> Result<String, Failure> {
    let transfer = device.as_transfer().ok_or("no transfers")?;
    let began = Instant::now();
    while began.elapsed() < WARM {
        transfer.copy(MAIN, moves)?;
        device.wait_idle()?;
    }
    let sizes = |moves: &[Move<'_, AnyBlock>]| moves.iter().map(|one| one.size).sum::<u64>() as f64;
    let times = |moves: &[Move<'_, AnyBlock>]| -> Result<[f64; ROUNDS], Failure> {
        let mut times = [0.0; ROUNDS];
        for time in &mut times {
            watch.start()?;
            transfer.copy(MAIN, moves)?;
            *time = watch.stop()?.as_secs_f64();
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    };
    let first = &moves[..1];
    // On Vulkan this is mostly the way from one submission to the next, and the stamps have submissions of their own.
    let (one, all) = (times(first)?[ROUNDS / 2], times(moves)?);
    let rate = |time: f64| sizes(moves) / time / 1e9;
    let (least, median, most) = (rate(all[ROUNDS - 1]), rate(all[ROUNDS / 2]), rate(all[0]));
    let beyond = (sizes(moves) - sizes(first)) / (all[ROUNDS / 2] - one) / 1e9;
    Ok(format!("{least:.0}, {median:.0}, {most:.0} ({:.1}, {beyond:.0})", one * 1e6))
}

#[expect(unsafe_code, reason = "gives a block back")]
fn release(device: &AnyBackend, block: AnyBlock) -> Result<(), Failure> {
    // SAFETY: `rates` waited for every copy, and nothing else names the block.
    Ok(unsafe { device.free(block) }?)
}
