//! Prints how good plans are, one table for each question; seconds are those that the processor worked.
//!
//! `bars hard FROM TO SECONDS [COUNT]`: fits of seeded problems with a capacity. `open`: the same without one.
//! `bars tight SECONDS COUNT…`: bytes above the bound. `bars fixed SECONDS COUNT…`, `bars gaps SECONDS COUNT…`: with one fixed
//! buffer, and with gaps in one of a thousand. `bars large SECONDS COUNT…`: many buffers, and `bars files SECONDS FILE…`, each
//! beside greedy rules. `bars capacity SECONDS BYTES FILE…`: time until a table fits. `bars spill SECONDS`.
//! `bars trade SECONDS COUNT…`: costs of activations above their bound, without and with reads.

use core::cell::Cell;
use core::time::Duration;
use omniheap_plan::{Activation, Copies, load_profile, trade};
use omniheap_plan::{Buffer, Options, Plan, Problem, csv, solve, spill, validate};
use std::sync::LazyLock;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|v| v.parse().ok()).unwrap_or(or);
    let rest = || args.iter().skip(2).filter_map(|v| v.parse().ok());
    let seconds = number(1, 5);
    match args.first().map(String::as_str) {
        Some(kind @ ("hard" | "open")) => {
            let count = args.get(4).and_then(|v| v.parse().ok());
            hard_ones(number(1, 0)..number(2, 20), number(3, 8), count, kind == "open");
        }
        Some(kind @ ("tight" | "fixed" | "gaps")) => rest().for_each(|n| tight(kind, seconds, n)),
        Some("large") => {
            rest().for_each(|n| beside_greedy(&n.to_string(), &hard::large(7, n as u64), seconds));
        }
        Some("files") => {
            args.iter().skip(2).for_each(|f| beside_greedy(f, &table(f, None), seconds));
        }
        Some("capacity") => {
            let capacity = Some(number(2, 1 << 20));
            for file in args.iter().skip(3) {
                let done = run(&table(file, capacity), seconds);
                println!("{} fits={} {:.3} s", short(file), done.plan.fits(), done.seconds);
            }
        }
        Some("spill") => spilled(seconds),
        Some("trade") => rest().for_each(|n| traded(seconds, n)),
        _ => eprintln!(
            "hard | open | tight | fixed | gaps | large | files | capacity | spill | trade"
        ),
    }
}

fn table(file: &str, capacity: Option<u64>) -> Problem {
    let text = std::fs::read_to_string(file).expect("the file can be read");
    csv::read(&text, capacity).expect("the file is a table").problem
}

fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// A plan, and the seconds after which the first and the last one were there.
struct Done {
    plan: Plan,
    first: f64,
    first_peak: u64,
    seconds: f64,
}

fn run(problem: &Problem, seconds: u64) -> Done {
    let start = worked();
    let first = Cell::new(None);
    let late = || worked() - start >= Duration::from_secs(seconds);
    let progress = |now: omniheap_plan::Progress| {
        first.set(first.get().or_else(|| Some(((worked() - start).as_secs_f64(), now.peak))));
    };
    let options = Options {
        stop: Some(&late),
        progress: Some(&progress),
        effort: u64::MAX,
        ..Options::default()
    };
    let plan = solve(problem, &options).expect("the problem makes sense");
    let seconds = (worked() - start).as_secs_f64();
    if plan.fits() {
        validate(problem, &plan.spots).expect("a plan that fits is valid");
    }
    let (first, first_peak) = first.get().unwrap_or((seconds, plan.peak()));
    Done { plan, first, first_peak, seconds }
}

/// Percent above `of`.
#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn over(peak: u64, of: u64) -> f64 {
    100.0 * (peak as f64 / of.max(1) as f64 - 1.0)
}

fn hard_ones(seeds: core::ops::Range<u64>, seconds: u64, count: Option<usize>, open: bool) {
    let all = seeds.end - seeds.start;
    let (mut fit, mut bounds) = (0, 0);
    for seed in seeds {
        let (mut problem, shape) =
            count.map_or_else(|| hard::problem(seed), |count| hard::sized(seed, count));
        if open {
            problem.regions[0].capacity = None;
        }
        let done = run(&problem, seconds);
        let peak = done.plan.peak();
        fit += u64::from(peak <= hard::CAPACITY);
        bounds += u64::from(peak == done.plan.lower_bound());
        let percent = over(peak, hard::CAPACITY);
        println!("{seed} {shape}: {percent:.2} % over, {:.2} s", done.seconds);
    }
    println!("{fit} of {all} fit, {bounds} at the bound");
}

fn tight(kind: &str, seconds: u64, count: usize) {
    for seed in 100..104 {
        let (mut problem, shape) = hard::sized(seed, count);
        problem.regions[0].capacity = None;
        let plain = if kind == "tight" { None } else { Some(run(&problem, seconds)) };
        let step = if kind == "gaps" { 1_000 } else { problem.buffers.len() };
        for buffer in problem.buffers.iter_mut().step_by(step) {
            let (start, end) = (buffer.live.start, buffer.live.end);
            match kind {
                "fixed" => buffer.fixed = Some((1 << 19) - buffer.size / 2),
                "gaps" if end - start > 2 => *buffer = buffer.clone().gap(start + 1, end - 1),
                _ => {}
            }
        }
        let done = run(&problem, seconds);
        let percent = over(done.plan.peak(), done.plan.lower_bound());
        print!("{kind} {shape}: first {:.3} s, {percent:.2} % over the bound", done.first);
        match plain {
            Some(plain) => println!(
                " (plain: first {:.3} s, {:.2} %)",
                plain.first,
                over(plain.plan.peak(), plain.plan.lower_bound())
            ),
            None => println!(", {:.2} s", done.seconds),
        }
    }
}

fn beside_greedy(name: &str, problem: &Problem, seconds: u64) {
    let done = run(problem, seconds);
    let bound = done.plan.lower_bound();
    println!(
        "{}: {} buffers, first {:.3} s {:.2} %, then {:.3} % over the bound after {:.2} s",
        short(name),
        problem.buffers.len(),
        done.first,
        over(done.first_peak, bound),
        over(done.plan.peak(), bound),
        done.seconds
    );
    let life = |b: &Buffer| b.live.end - b.live.start;
    let rules: [Rule<'_>; 3] = [
        ("size", &|b| u128::MAX - u128::from(b.size)),
        ("area", &|b| u128::MAX - u128::from(b.size) * u128::from(life(b))),
        ("time", &|b| u128::from(b.live.start)),
    ];
    for (rule, key) in rules {
        let mut order: Vec<usize> = (0..problem.buffers.len()).collect();
        order.sort_by_key(|&i| (key(&problem.buffers[i]), i));
        println!("  first fit by {rule}: {:.3} %", over(first_fit(problem, &order), bound));
    }
}

/// A name, and the key by which buffers are sorted.
type Rule<'a> = (&'a str, &'a dyn Fn(&Buffer) -> u128);

/// The peak of textbook first fit: each buffer in the lowest hole among those placed before.
fn first_fit(problem: &Problem, order: &[usize]) -> u64 {
    let end = problem.buffers.iter().map(|b| b.live.end).max().unwrap_or(1);
    let slice = end / 4096 + 1;
    let mut placed: Vec<Vec<(u64, u64, u64, u64)>> = vec![Vec::new(); 4097];
    let mut met = Vec::new();
    let mut peak = 0;
    for &i in order {
        let b = &problem.buffers[i];
        let at = |tick: u64| usize::try_from(tick / slice).expect("there are 4,097");
        let slices = at(b.live.start)..=at(b.live.end - 1);
        met.clear();
        for k in slices.clone() {
            let meets = |p: &&(u64, u64, u64, u64)| p.2 < b.live.end && b.live.start < p.3;
            met.extend(placed[k].iter().filter(meets).map(|p| (p.0, p.1)));
        }
        met.sort_unstable();
        let mut at = 0u64;
        for &(from, to) in &met {
            if from >= at + b.size {
                break;
            }
            at = at.max(to).next_multiple_of(b.align);
        }
        for k in slices {
            placed[k].push((at, at + b.size, b.live.start, b.live.end));
        }
        peak = peak.max(at + b.size);
    }
    peak
}

/// Asks for the cheapest buffers to spill at half of what is needed.
fn spilled(seconds: u64) {
    for count in [500, 5_000, 50_000] {
        let (mut problem, shape) = hard::sized(9, count);
        problem.regions[0].capacity = Some(hard::CAPACITY * 3 / 4);
        for (i, buffer) in (0..).zip(&mut problem.buffers) {
            buffer.spill_cost = Some(1 + i % 7);
        }
        let start = worked();
        let late = || worked() - start >= Duration::from_secs(seconds);
        let options = Options { stop: Some(&late), effort: u64::MAX, ..Options::default() };
        let found = spill(&problem, &options).expect("the problem makes sense");
        let cost = found.map(|s| s.cost);
        println!("{shape}: cost {cost:?} after {:.2} s", (worked() - start).as_secs_f64());
    }
}

/// Chooses what to keep, to recompute and to move at parts of what is live.
fn traded(seconds: u64, count: usize) {
    let (problem, all, copies) = saved::free(5, count as u64);
    let (chain, read) = saved::blocks(count / 6, 0);
    for share in [3, 4, 5, 7, 9] {
        for (kind, problem, all, copies) in
            [("free", &problem, &all, Some(copies)), ("chain", &chain, &read, None)]
        {
            print!("{kind} {} of {share}/10: ", all.len());
            traded_at(problem.clone(), all, copies, (seconds, share));
        }
    }
}

fn traded_at(
    mut problem: Problem,
    all: &[Activation],
    copies: Option<Copies>,
    (seconds, share): (u64, u64),
) {
    let live = load_profile(&problem).iter().map(|step| step.bytes).max().unwrap_or(0);
    problem.regions[0].capacity = Some(live * share / 10);
    let start = worked();
    let late = || worked() - start >= Duration::from_secs(seconds);
    let options = Options { stop: Some(&late), effort: 10_000, ..Options::default() };
    match trade(&problem, all, copies, &options) {
        Ok(found) => print!(
            "cost {}, {:.3} % over the bound",
            found.cost,
            over(found.cost, found.lower_bound)
        ),
        Err(error) => print!("{error}"),
    }
    println!(", {:.2} s", (worked() - start).as_secs_f64());
}

/// Returns the CPU time of this thread, or the elapsed time where it is not known.
fn worked() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

#[path = "../tests/suite/hard.rs"]
mod hard;
#[path = "../tests/suite/saved.rs"]
mod saved;
