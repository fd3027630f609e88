//! Times a defragmentation pass on the host alone: ten thousand moves on the null device.
use crate::Failure;
use crate::pause::computed;
use core::time::Duration;
use omniheap::{
    Allocation, Backend as _, Manager, ManagerConfig, PoolConfig, Request, UserPool,
    defrag::Budget, open,
};
use omniheap_null::Null;

/// Moves of a pass.
const MOVES: u64 = 10_000;
/// Bytes of an allocation, and allocations of a block.
const SIZE: u64 = 4 << 10;
const EACH: u64 = 1 << 12;
/// Blocks to be emptied.
const SPARSE: u64 = MOVES.div_ceil(EACH / 2);
/// Passes of which the median is taken.
const PASSES: usize = 31;

pub(crate) fn run() -> Result<(), Failure> {
    let caps = open(omniheap::BackendKind::Host, 0)?.caps().clone();
    let manager = Manager::with_config(Null::new(caps), ManagerConfig::default());
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    let heap = *heaps.as_slice().first().ok_or("no heap")?;
    let (block, minimum) = (Some(EACH * SIZE), SPARSE * 3 * EACH * SIZE);
    let pool = PoolConfig::new().block(block).minimum(minimum).lanes(1);
    let pool = manager.create_pool(heap, pool)?;
    let mut times = Vec::new();
    for _ in 0..PASSES {
        times.push(one(&manager, &pool)?);
    }
    println!(
        "ns that the thread computed for each of {MOVES} moves, median of {PASSES} passes (least)"
    );
    for (at, part) in ["plan", "submit", "commit"].into_iter().enumerate() {
        times.sort_unstable_by_key(|times| times[at]);
        let each = |time: Duration| time.as_secs_f64() * 1e9 / 1e4;
        println!("{part:>8}  {:>6.1}  ({:.1})", each(times[PASSES / 2][at]), each(times[0][at]));
    }
    Ok(())
}

/// Returns the times of planning, submitting and committing.
fn one(manager: &Manager<Null>, pool: &UserPool<Null>) -> Result<[Duration; 3], Failure> {
    let mut live = Vec::new();
    for number in 0..SPARSE * 3 * EACH {
        live.push((number, pool.allocate(&Request::new(SIZE))?));
    }
    // Blocks half full, and twice as many that are three quarters full: the first go into the holes of the others.
    live.retain(
        |(number, _): &(u64, Allocation<Null>)| {
            if number / EACH < SPARSE { number.is_multiple_of(2) } else { number % 4 != 1 }
        },
    );
    let began = computed();
    let mut pass = manager.begin_defragment(&Budget::new().moves(MOVES))?;
    let plan = computed() - began;
    let began = computed();
    pass.start()?;
    let submit = computed() - began;
    let began = computed();
    let outcome = pass.commit()?;
    let commit = computed() - began;
    if outcome.moved.moves != MOVES {
        return Err(format!("{} moves were made", outcome.moved.moves).into());
    }
    Ok([plan, submit, commit])
}
