//! Writes seeded problems that are feasible by construction, as MiniMalloc CSV.
//!
//! `generate hard SEED` cuts a rectangle of time and memory into 60 to 400 buffers and takes up to 10 % away;
//! `generate large SEED COUNT` makes a graph of many buffers; `generate bench FROM TO SECONDS` solves hard problems and
//! prints how many fit; seconds are those that the processor worked, so that other work on the machine does not count.

use core::time::Duration;
use omniheap_plan::{Buffer, Options, Problem, Region, csv, solve, validate};
use std::sync::LazyLock;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|v| v.parse().ok()).unwrap_or(or);
    match args.first().map(String::as_str) {
        Some("hard") => print(hard::problem(number(1, 1)).0),
        Some("large") => print(large(number(1, 1), number(2, 1_000_000))),
        Some("bench") => bench(number(1, 0), number(2, 40), number(3, 8)),
        _ => eprintln!("generate hard SEED | large SEED COUNT | bench FROM TO SECONDS"),
    }
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

fn bench(from: u64, to: u64, seconds: u64) {
    let mut solved = 0;
    for seed in from..to {
        let (problem, shape) = hard::problem(seed);
        let start = worked();
        let late = || worked() - start >= Duration::from_secs(seconds);
        let options = Options { stop: Some(&late), effort: u64::MAX, ..Options::default() };
        let plan = solve(&problem, &options).expect("generated problems make sense");
        if plan.fits() {
            validate(&problem, &plan.spots).expect("a plan that fits is valid");
            solved += 1;
        }
        println!(
            "{seed} {shape} fits={} {:.3} s, {} nodes",
            plan.fits(),
            (worked() - start).as_secs_f64(),
            plan.nodes
        );
    }
    println!("{solved} of {}", to - from);
}

/// How long this thread had a processor; on systems that do not say, how much time passed.
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
