//! Ten thousand live moves in one pass: what the device takes, what passes on the clock, and what the host takes for each.
use crate::Failure;
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Backend, Manager, ManagerConfig, Point, PoolConfig, Request,
    TimelineId, UserPool,
    defrag::{Budget, Pass},
    seam::BlockOffset,
};
use std::time::Instant;

/// Moves of a pass.
pub(crate) const MOVES: u64 = 10_000;
/// Moves of a short one, and how often both are made.
const FEW: u64 = 2_500;
const ROUNDS: usize = 3;

pub(crate) type Live = Vec<(u8, Allocation<AnyBackend>)>;

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    println!(
        "device: between passes of {FEW} and of {MOVES} moves, each from the end of the work that it was"
    );
    println!(
        "queued behind to its arrival, so that what the host sees late is in neither; medians of {ROUNDS}"
    );
    println!("wall: from submit, on an idle device, to arrival; host: nanoseconds for each move");
    println!(
        "   size   moves       MB   device us    GB/s   wall us    GB/s   host: plan  submit  commit"
    );
    let host = device.caps().device.backend == "host";
    let sizes: &[u64] = if host { &[4 << 10, 16 << 10] } else { &[4 << 10, 64 << 10, 1 << 20] };
    let front = Front::new(device, if host { 16 << 20 } else { 1 << 30 })?;
    for size in sizes {
        let manager = Manager::with_config(AnyBackend::clone(device), ManagerConfig::default());
        let pool = blocks(&manager, *size)?;
        let pass = |moves, front| one(&manager, &pool, *size, moves, front);
        // The first pass pays for what is made once.
        pass(MOVES, None)?;
        let wall = pass(MOVES, None)?;
        let behind = Some((&front, wall.submit));
        let (mut few, mut all) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            few.extend(pass(FEW, behind)?.device);
            all.extend(pass(MOVES, behind)?.device);
        }
        print(*size, &wall, between(few, all));
    }
    Ok(())
}

/// Estimates the device time of all moves from the difference to fewer moves; `None` if there is none.
fn between(mut few: Vec<Duration>, mut all: Vec<Duration>) -> Option<Duration> {
    few.sort_unstable();
    all.sort_unstable();
    let more = all.get(all.len() / 2)?.checked_sub(*few.get(few.len() / 2)?)?;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand moves")]
    let part = MOVES as f64 / (MOVES - FEW) as f64;
    Some(more.mul_f64(part))
}

/// Times of one pass.
struct Times {
    moves: u64,
    plan: Duration,
    submit: Duration,
    arrival: Duration,
    commit: Duration,
    /// Device time, known if the pass was queued behind longer work.
    device: Option<Duration>,
}

/// Allocations of a size in a block.
pub(crate) fn each(size: u64) -> u64 {
    (64 << 20 | size << 10).min(1 << 30) / size
}

/// Returns a pool whose blocks stay, so that a commit is a commit and no driver call.
pub(crate) fn blocks(
    manager: &Manager<AnyBackend>,
    size: u64,
) -> Result<UserPool<AnyBackend>, Failure> {
    let heaps = manager.explain(&Request::new(1))?.placement.heaps;
    let heap = *heaps.as_slice().first().ok_or("no heap")?;
    let each = each(size);
    let minimum = MOVES.div_ceil(each / 2) * 3 * each * size;
    let block = Some(each * size);
    let pool = PoolConfig::new().block(block).minimum(minimum).lanes(1);
    Ok(manager.create_pool(heap, pool)?)
}

fn one(
    manager: &Manager<AnyBackend>,
    pool: &UserPool<AnyBackend>,
    size: u64,
    wanted: u64,
    front: Option<(&Front, Duration)>,
) -> Result<Times, Failure> {
    let device = manager.backend();
    let live = scatter(pool, size, each(size))?;
    device.wait_idle()?;
    let began = Instant::now();
    let mut pass = manager.begin_defragment(&Budget::new().moves(wanted))?;
    let (plan, moves) = (began.elapsed(), pass.moves().len() as u64);
    let queue = front.map(|(front, submit)| front.queue(submit)).transpose()?;
    let began = Instant::now();
    pass.start()?;
    let submit = began.elapsed();
    let on_device = queue.map(|point| follow(device, point, &mut pass)).transpose()?.flatten();
    while !pass.is_ready()? {}
    let arrival = began.elapsed();
    let began = Instant::now();
    let outcome = pass.commit()?;
    let commit = began.elapsed();
    if outcome.moved.moves != moves || moves < wanted {
        return Err(format!("{} of {moves} moves were made", outcome.moved.moves).into());
    }
    verify(&live)?;
    Ok(Times { moves, plan, submit, arrival, commit, device: on_device })
}

/// From the end of the work before a pass to the arrival of its copies; `None` where that work ended too early.
fn follow(
    device: &AnyBackend,
    before: Point,
    pass: &mut Pass<AnyBackend>,
) -> Result<Option<Duration>, Failure> {
    let timelines = device.as_timelines().ok_or("no timelines")?;
    if timelines.reached(before.timeline)? >= before.epoch {
        return Ok(None);
    }
    while timelines.reached(before.timeline)? < before.epoch {}
    let began = Instant::now();
    while !pass.is_ready()? {}
    Ok(Some(began.elapsed()))
}

/// Work that keeps the device busy while a pass is submitted behind it.
struct Front {
    device: AnyBackend,
    room: Allocation<AnyBackend>,
    /// Time of one fill.
    each: Duration,
}

impl Front {
    fn new(device: &AnyBackend, size: u64) -> Result<Self, Failure> {
        let manager = Manager::with_config(AnyBackend::clone(device), ManagerConfig::default());
        let room = manager.allocate(&Request::new(size))?;
        let mut front = Self { device: AnyBackend::clone(device), room, each: Duration::ZERO };
        front.fill()?;
        device.wait_idle()?;
        let began = Instant::now();
        (0..8).try_for_each(|_| front.fill())?;
        device.wait_idle()?;
        front.each = began.elapsed() / 8;
        Ok(front)
    }

    /// Submits one fill, and does not wait for it.
    fn fill(&self) -> Result<(), Failure> {
        let binding = self.room.binding();
        let to = BlockOffset { block: binding.block(), offset: binding.span().offset };
        let transfer = self.device.as_transfer().ok_or("no transfers")?;
        Ok(transfer.fill(TimelineId::MAIN, to, self.room.size(), 1)?)
    }

    /// Queues work of more than twice some time, where passes wait for it; its end.
    fn queue(&self, time: Duration) -> Result<Point, Failure> {
        let enough = (time * 3 + Duration::from_millis(4)).as_secs_f64();
        let mut queued = 0.0;
        while queued < enough {
            self.fill()?;
            queued += self.each.as_secs_f64();
        }
        let timelines = self.device.as_timelines().ok_or("no timelines")?;
        let timeline = TimelineId::MAIN;
        Ok(Point { timeline, epoch: timelines.mark(timeline)? })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn print(size: u64, wall: &Times, device: Option<Duration>) {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / wall.moves as f64;
    let bytes = (size * wall.moves) as f64;
    let rate = |time: Duration| bytes / time.as_secs_f64() / 1e9;
    let device = device
        .map_or_else(|| "-       -".into(), |time| format!("{:.0}  {:>6.1}", us(time), rate(time)));
    println!(
        "{size:>7}  {:>6}  {:>7.1}  {device:>18}  {:>8.0}  {:>6.1}   {:>10.0}  {:>6.0}  {:>6.0}",
        wall.moves,
        bytes / 1e6,
        us(wall.arrival),
        rate(wall.arrival),
        each(wall.plan),
        each(wall.submit),
        each(wall.commit),
    );
}

/// Blocks half full, and twice as many that are three quarters full: the first go into the holes of the others.
pub(crate) fn scatter(pool: &UserPool<AnyBackend>, size: u64, each: u64) -> Result<Live, Failure> {
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

pub(crate) fn verify(live: &Live) -> Result<(), Failure> {
    for (byte, one) in live.iter().step_by(7 * 16) {
        let mut found = vec![0; usize::try_from(one.size())?];
        one.read(0, &mut found)?;
        if found.iter().any(|found| found != byte) {
            return Err("an allocation lost its bytes".into());
        }
    }
    Ok(())
}
