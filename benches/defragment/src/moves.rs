//! Ten thousand live moves in one pass: gigabytes a second.
use crate::Failure;
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Backend, Budget, Manager, ManagerConfig, PoolConfig, Request, UserPool,
};
use std::time::Instant;

/// Moves of a pass.
const MOVES: u64 = 10_000;

type Live = Vec<(u8, Allocation<AnyBackend>)>;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    println!(
        "  size   moves      MB   plan us  submit us  on device us  commit us    GB/s (submit to reached)"
    );
    let host = device.caps().device.backend == "host";
    let sizes: &[u64] = if host { &[4 << 10, 16 << 10] } else { &[4 << 10, 64 << 10, 1 << 20] };
    for size in sizes {
        // Twice: the first pass pays for what is made once.
        for _ in 0..2 {
            one(device, *size)?;
        }
    }
    Ok(())
}

fn one(device: &AnyBackend, size: u64) -> Result<(), Failure> {
    let manager = Manager::with_config(AnyBackend::clone(device), ManagerConfig::default());
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    let heap = *heaps.as_slice().first().ok_or("no heap")?;
    let each = (64 << 20 | size << 10).min(1 << 30) / size;
    let pool = PoolConfig { block: Some(each * size), lanes: Some(1), ..PoolConfig::new() };
    let pool = manager.create_pool(heap, pool)?;
    let live = scatter(&pool, size, each)?;
    device.wait_idle()?;
    let began = Instant::now();
    let mut pass = manager.begin_defragment(&Budget::new().moves(MOVES))?;
    let (plan, moves) = (began.elapsed(), pass.moves().len() as u64);
    let began = Instant::now();
    pass.start()?;
    let submit = began.elapsed();
    while !pass.is_ready()? {}
    let reached = began.elapsed();
    let began = Instant::now();
    let outcome = pass.commit()?;
    print(size, moves, [plan, submit, reached, began.elapsed()]);
    if outcome.moved.moves != moves || moves < MOVES {
        return Err(format!("{} of {moves} moves were made", outcome.moved.moves).into());
    }
    verify(&live)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn print(size: u64, moves: u64, [plan, submit, reached, commit]: [Duration; 4]) {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let bytes = (size * moves) as f64;
    println!(
        "{size:>6}  {moves:>6}  {:>6.1}  {:>8.0}  {:>9.0}  {:>12.0}  {:>9.0}  {:>6.1}",
        bytes / 1e6,
        us(plan),
        us(submit),
        us(reached),
        us(commit),
        bytes / reached.as_secs_f64() / 1e9,
    );
}

/// Blocks half full, and twice as many that are three quarters full: the first go into the holes of the others.
fn scatter(pool: &UserPool<AnyBackend>, size: u64, each: u64) -> Result<Live, Failure> {
    let sparse = MOVES.div_ceil(each / 2);
    let mut all = Vec::new();
    for number in 0..sparse * 3 * each {
        all.push((number.to_le_bytes()[0], number, pool.allocate(&Request::new(size))?));
    }
    let keeps = |number: u64| {
        if number / each < sparse { number.is_multiple_of(2) } else { number % 4 != 1 }
    };
    let live: Live = all
        .into_iter()
        .filter(|(_, number, _)| keeps(*number))
        .map(|(byte, _, one)| (byte, one))
        .collect();
    for (byte, one) in live.iter().step_by(7) {
        one.fill(0, size, *byte)?;
    }
    Ok(live)
}

fn verify(live: &Live) -> Result<(), Failure> {
    for (byte, one) in live.iter().step_by(7 * 16) {
        let mut found = vec![0; usize::try_from(one.size())?];
        one.read(0, &mut found)?;
        if found.iter().any(|found| found != byte) {
            return Err("an allocation lost its bytes".into());
        }
    }
    Ok(())
}
