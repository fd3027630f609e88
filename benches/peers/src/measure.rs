//! Measurement: whole runs in slices for the mean, single operations for the tail.
//!
//! Machines are shared. So peers take turns, and of each slice of a workload the fastest of all runs counts, as the one
//! that was disturbed least.
use crate::workload::{Step, Workload};
use std::time::Instant;

/// Operations timed together.
const SLICE: usize = 1024;

/// An allocator under test. A new one is made for every run.
pub trait Peer {
    type Held;
    fn allocate(&mut self, size: u64) -> Option<Self::Held>;
    fn free(&mut self, held: Self::Held);
    /// Returns the bytes held from the device at most, where the peer takes any.
    fn peak_reserved(&self) -> Option<u64> {
        None
    }
}

/// Results.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub ns: f64,
    pub p999: f64,
    pub reserved: Option<u64>,
}

/// The runs of one peer so far.
#[derive(Default)]
struct Record {
    slices: Vec<u64>,
    tails: Vec<f64>,
    reserved: Option<u64>,
}

/// A peer by name, ready to be run.
pub struct Entry<'a> {
    pub name: &'static str,
    run: Box<Runner<'a>>,
}

type Runner<'a> = dyn Fn(&Workload, Timing) -> Option<Run> + 'a;

#[derive(Clone, Copy)]
enum Timing {
    Slices,
    Tail,
}

struct Run {
    times: Vec<u64>,
    reserved: Option<u64>,
}

impl<'a> Entry<'a> {
    pub fn new<P: Peer>(name: &'static str, make: impl Fn(&Workload) -> P + 'a) -> Self {
        let run = move |workload: &Workload, timing| match timing {
            Timing::Slices => timed::<P, SLICE>(make(workload), workload),
            Timing::Tail => timed::<P, 1>(make(workload), workload),
        };
        Self { name, run: Box::new(run) }
    }
}

/// Runs a workload through all peers in turn, `repeat` times; `None` for a peer that could not serve it.
pub fn measure(peers: &[Entry<'_>], workload: &Workload, repeat: u32) -> Vec<Option<Figures>> {
    let mut records: Vec<Option<Record>> = peers.iter().map(|_| Some(Record::default())).collect();
    for _ in 0..repeat {
        for (peer, record) in peers.iter().zip(&mut records) {
            *record = record.take().and_then(|record| once(peer, workload, record));
        }
    }
    let figures = |record: Record| Figures {
        ns: record.slices.iter().sum::<u64>() as f64 / workload.steps.len() as f64,
        p999: record.tails.into_iter().fold(f64::MAX, f64::min),
        reserved: record.reserved,
    };
    records.into_iter().map(|record| record.map(figures)).collect()
}

fn once(peer: &Entry<'_>, workload: &Workload, mut record: Record) -> Option<Record> {
    let run = (peer.run)(workload, Timing::Slices)?;
    record.slices.resize(run.times.len(), u64::MAX);
    for (best, time) in record.slices.iter_mut().zip(&run.times) {
        *best = (*best).min(*time);
    }
    record.reserved = run.reserved;
    let mut tail = (peer.run)(workload, Timing::Tail)?.times;
    let at = tail.len() * 999 / 1000;
    let (_, value, _) = tail.select_nth_unstable(at);
    record.tails.push((*value as f64 - clock_cost()).max(0.0));
    Some(record)
}

fn timed<P: Peer, const TOGETHER: usize>(mut peer: P, workload: &Workload) -> Option<Run> {
    let mut held: Vec<Option<P::Held>> = (0..workload.slots).map(|_| None).collect();
    let mut times = Vec::with_capacity(workload.steps.len() / TOGETHER + 1);
    for steps in workload.steps.chunks(TOGETHER) {
        let start = Instant::now();
        for step in steps {
            match *step {
                Step::Allocate { slot, size } => held[slot as usize] = Some(peer.allocate(size)?),
                Step::Free { slot } => {
                    peer.free(held[slot as usize].take().expect("allocated before"))
                }
            }
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    let reserved = peer.peak_reserved();
    held.into_iter().flatten().for_each(|held| peer.free(held));
    Some(Run { times, reserved })
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
