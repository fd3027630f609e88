//! How it is measured: whole runs for the mean, single operations for the tail.
use crate::workload::{Step, Workload};
use std::time::{Duration, Instant};

/// An allocator under test. A new one is made for every run.
pub trait Peer {
    type Held;
    fn allocate(&mut self, size: u64) -> Option<Self::Held>;
    fn free(&mut self, held: Self::Held);
    /// Bytes held from the device at most, where the peer takes any.
    fn peak_reserved(&self) -> Option<u64> {
        None
    }
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub ns: f64,
    pub p999: f64,
    pub reserved: Option<u64>,
}

/// Runs a workload `repeat` times; the fastest run counts, as the one that was disturbed least.
pub fn measure<P: Peer>(workload: &Workload, repeat: u32, make: impl Fn(&Workload) -> P) -> Option<Figures> {
    let mut best = Duration::MAX;
    let mut reserved = None;
    for _ in 0..repeat {
        let mut peer = make(workload);
        best = best.min(run(&mut peer, workload)?);
        reserved = peer.peak_reserved();
    }
    let p999 = tail(&mut make(workload), workload)?;
    Some(Figures { ns: best.as_nanos() as f64 / workload.steps.len() as f64, p999, reserved })
}

fn run<P: Peer>(peer: &mut P, workload: &Workload) -> Option<Duration> {
    let mut held: Vec<Option<P::Held>> = (0..workload.slots).map(|_| None).collect();
    let start = Instant::now();
    for step in &workload.steps {
        match *step {
            Step::Allocate { slot, size } => held[slot as usize] = Some(peer.allocate(size)?),
            Step::Free { slot } => peer.free(held[slot as usize].take().expect("allocated before")),
        }
    }
    let took = start.elapsed();
    held.into_iter().flatten().for_each(|held| peer.free(held));
    Some(took)
}

/// The 99.9th percentile of single operations, less the clock's own cost.
fn tail<P: Peer>(peer: &mut P, workload: &Workload) -> Option<f64> {
    let mut held: Vec<Option<P::Held>> = (0..workload.slots).map(|_| None).collect();
    let mut times = Vec::with_capacity(workload.steps.len());
    for step in &workload.steps {
        let start = Instant::now();
        match *step {
            Step::Allocate { slot, size } => held[slot as usize] = Some(peer.allocate(size)?),
            Step::Free { slot } => peer.free(held[slot as usize].take().expect("allocated before")),
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    held.into_iter().flatten().for_each(|held| peer.free(held));
    let at = times.len() * 999 / 1000;
    let (_, value, _) = times.select_nth_unstable(at);
    Some((*value as f64 - clock_cost()).max(0.0))
}

fn clock_cost() -> f64 {
    let mut times: Vec<u64> = (0..10_001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos() as u64
        })
        .collect();
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1 as f64
}
