//! Steps of a budget while another thread allocates: how long they take, and what they cost the other.
//!
//! A step is timed twice: by the clock on the wall, and by what its thread computed. On a machine that does other things
//! too, the first includes the time for which the thread was not running.
#![expect(unsafe_code, reason = "reads the thread's own clock")]
use crate::Failure;
use crate::random::Random;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Manager, ManagerConfig, Request,
    defrag::{Background, Budget, Defragmentation, Step},
};
use std::time::Instant;

/// Time budget of one step.
const BUDGET: Duration = Duration::from_micros(500);
/// Duration of each part, and number of pairs.
const PART: Duration = Duration::from_millis(250);
const PAIRS: usize = 24;
/// One step in so long: a frame.
const FRAME: Duration = Duration::from_micros(4_000);

pub(crate) fn run(device: &AnyBackend) -> Result<(), Failure> {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(2);
    let budget = Budget::new().time(BUDGET);
    config.defragmentation = Defragmentation::Background(Background::new(budget).between(5, 15));
    let manager = Manager::with_config(AnyBackend::clone(device), config);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut live = fragmented(&manager);
    let mut random = Random(3);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| work(&manager, &stop, &count));
        // Parts alternate, so that what else the machine does hits both.
        let (mut speeds, mut pauses) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..PAIRS {
            let alone = part(&count, || Ok(()))?;
            let beside = part(&count, || {
                let (began, computed) = (Instant::now(), computed());
                let step = manager.step()?;
                let took = Pause { wall: began.elapsed(), computed: self::computed() - computed };
                if step == Step::Idle {
                    // Nothing left to gain: scatter it again.
                    scatter(&manager, &mut live, &mut random);
                } else {
                    let returns = matches!(&step, Step::Committed(done) if done.moves.is_empty());
                    pauses[usize::from(returns)].push(took);
                }
                Ok(())
            })?;
            speeds.push(beside / alone);
        }
        report(&mut speeds, &mut pauses, &manager);
        Ok(())
    })
}

/// Ends the other thread, whatever happens.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the other thread's operations per second while `frame` is called once per frame.
#[expect(clippy::cast_precision_loss, reason = "a speed")]
fn part(count: &AtomicU64, mut frame: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let (began, before) = (Instant::now(), count.load(Relaxed));
    while began.elapsed() < PART {
        frame()?;
        std::thread::sleep(FRAME.saturating_sub(Duration::from_micros(100)));
    }
    Ok((count.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64())
}

/// Duration of one step.
#[derive(Clone, Copy, Debug)]
struct Pause {
    wall: Duration,
    computed: Duration,
}

/// One of a pause's times.
type Clock = fn(&Pause) -> Duration;

/// Returns the CPU time of the calling thread.
pub(crate) fn computed() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every system with threads, and `now` is a place for its answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}

fn report(speeds: &mut [f64], pauses: &mut [Vec<Pause>; 2], manager: &Manager<AnyBackend>) {
    let kinds = ["steps that plan, copy or commit", "steps that return a block: one driver call"];
    for (kind, pauses) in kinds.iter().zip(pauses) {
        show(kind, pauses);
    }
    speeds.sort_unstable_by(f64::total_cmp);
    let at = |quarter: usize| speeds[(speeds.len() * quarter / 4).min(speeds.len() - 1)];
    println!(
        "the other thread's speed beside / without, {PAIRS} pairs of {PART:?}: lower quartile {:.2}  median {:.2}",
        at(1),
        at(2)
    );
    println!("{:?}", manager.report().defragmentation);
}

fn show(kind: &str, pauses: &mut [Pause]) {
    let clocks: [(&str, Clock); 2] =
        [("wall", |pause| pause.wall), ("computed", |pause| pause.computed)];
    println!("{} {kind}; pause / budget of {BUDGET:?}", pauses.len());
    for (name, clock) in clocks {
        pauses.sort_unstable_by_key(clock);
        let at = |thousandth: usize| {
            let at = (pauses.len() * thousandth / 1000).min(pauses.len().saturating_sub(1));
            pauses.get(at).map_or(0.0, |one| clock(one).as_secs_f64() / BUDGET.as_secs_f64())
        };
        println!("  {name:>8}: p50 {:.2}  p99 {:.2}  most {:.2}", at(500), at(990), at(1000));
    }
}

/// Allocations in blocks of which half is free.
fn fragmented(manager: &Manager<AnyBackend>) -> Vec<Allocation<AnyBackend>> {
    let mut live = Vec::new();
    scatter(manager, &mut live, &mut Random(1));
    live
}

/// Fills up to a size, and frees every other.
fn scatter(
    manager: &Manager<AnyBackend>,
    live: &mut Vec<Allocation<AnyBackend>>,
    random: &mut Random,
) {
    while manager.totals().live_bytes < 192 << 20 {
        live.extend(manager.allocate(&Request::new(random.size(256 << 10))));
    }
    let keep = live.len() / 2;
    while live.len() > keep {
        live.swap_remove(random.index(live.len())).free();
    }
}

/// Allocates and frees until it is stopped.
fn work(manager: &Manager<AnyBackend>, stop: &AtomicBool, count: &AtomicU64) {
    let (mut random, mut live) = (Random(5), Vec::<Allocation<AnyBackend>>::new());
    while !stop.load(Relaxed) {
        for _ in 0..64 {
            if live.len() > 512 {
                live.swap_remove(random.index(live.len())).free();
            }
            live.extend(manager.allocate(&Request::new(256 + random.below(16 << 10))));
        }
        count.fetch_add(64, Relaxed);
    }
}
