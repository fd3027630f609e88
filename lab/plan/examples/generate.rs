//! Writes seeded problems that are feasible by construction, as MiniMalloc CSV.
//!
//! `generate hard SEED [COUNT]` cuts a rectangle of time and memory into COUNT buffers, else 60 to 400, and takes up to
//! 10 % away; `generate large SEED COUNT` makes a graph of many buffers.

use omniheap_plan::Problem;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|v| v.parse().ok()).unwrap_or(or);
    let count = |at: usize| args.get(at).and_then(|v| v.parse().ok());
    match args.first().map(String::as_str) {
        Some("hard") => print(&hard_problem(number(1, 1), count(2)).0),
        Some("large") => print(&hard::large(number(1, 1), number(2, 1_000_000))),
        _ => eprintln!("generate hard SEED [COUNT] | large SEED COUNT"),
    }
}

fn hard_problem(seed: u64, count: Option<usize>) -> (Problem, String) {
    count.map_or_else(|| hard::problem(seed), |count| hard::sized(seed, count))
}

/// Prints the columns of these problems: no alignment, no gaps, no places.
fn print(problem: &Problem) {
    println!("id,lower,upper,size");
    for (id, buffer) in problem.buffers.iter().enumerate() {
        println!("{id},{},{},{}", buffer.live.start, buffer.live.end, buffer.size);
    }
}

#[path = "../tests/suite/hard.rs"]
mod hard;
