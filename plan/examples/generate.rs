//! Writes seeded problems that are feasible by construction, as MiniMalloc CSV.
//!
//! `generate hard SEED [COUNT]` cuts a rectangle of time and memory into COUNT buffers, else 60 to 400, and takes up to
//! 10 % away; `generate large SEED COUNT` makes a graph of many buffers; `generate bench FROM TO SECONDS [COUNT]` solves
//! hard problems and prints how many fit, and how far above the capacity the others are; seconds are those that the
//! processor worked, so that other work on the machine does not count.

use core::time::Duration;
use omniheap_plan::{Buffer, Options, Problem, Region, csv, solve, validate};
use std::sync::LazyLock;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|v| v.parse().ok()).unwrap_or(or);
    let count = |at: usize| args.get(at).and_then(|v| v.parse().ok());
    match args.first().map(String::as_str) {
        Some("hard") => print(hard_problem(number(1, 1), count(2)).0),
        Some("large") => print(large(number(1, 1), number(2, 1_000_000))),
        Some("bench") => bench(number(1, 0)..number(2, 40), number(3, 8), count(4)),
        _ => {
            eprintln!(
                "generate hard SEED [COUNT] | large SEED COUNT | bench FROM TO SECONDS [COUNT]"
            );
        }
    }
}

fn hard_problem(seed: u64, count: Option<usize>) -> (Problem, String) {
    count.map_or_else(|| hard::problem(seed), |count| hard::sized(seed, count))
}

fn print(problem: Problem) {
    let names = (0..problem.buffers.len()).map(|i| i.to_string()).collect();
    let offsets = vec![0; problem.buffers.len()];
    let table = csv::Table { problem, names, offsets: Vec::new() };
    // The offsets are no plan, so their column is cut off.
    for line in csv::write(&table, &offsets).lines() {
        println!("{}", line.rsplit_once(',').map_or(line, |l| l.0));
    }
}

fn bench(seeds: core::ops::Range<u64>, seconds: u64, count: Option<usize>) {
    let (mut solved, all) = (0, seeds.end.saturating_sub(seeds.start));
    for seed in seeds {
        let (problem, shape) = hard_problem(seed, count);
        let start = worked();
        let late = || worked() - start >= Duration::from_secs(seconds);
        let options = Options { stop: Some(&late), effort: u64::MAX, ..Options::default() };
        let plan = solve(&problem, &options).expect("generated problems make sense");
        if plan.fits() {
            validate(&problem, &plan.spots).expect("a plan that fits is valid");
            solved += 1;
        }
        println!(
            "{seed} {shape} fits={} {} per 10,000 over, {:.3} s, {} nodes",
            plan.fits(),
            plan.peak() * 10_000 / hard::CAPACITY.min(plan.peak()) - 10_000,
            (worked() - start).as_secs_f64(),
            plan.nodes
        );
    }
    println!("{solved} of {all}");
}

/// Returns the CPU time of this thread, or the elapsed time where it is not known.
fn worked() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Buffers whose sizes and lifetimes both span several orders of magnitude, like those of a training step.
fn large(seed: u64, count: u64) -> Problem {
    let mut rng = hard::Rng(seed);
    let mut problem = Problem::new(Region::unbounded());
    for _ in 0..count {
        let size = 256 << rng.below(14);
        let size = size + rng.below(size);
        let reach = 8 << rng.below(12);
        let life = 1 + rng.below(reach);
        let start = rng.below(4 * count);
        problem.push(Buffer::new(size, start, start + life));
    }
    problem
}

#[path = "../tests/suite/hard.rs"]
mod hard;
