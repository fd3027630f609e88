//! Measurement: whole runs in slices for the mean, single operations for the tail.
//!
//! Machines are shared. So peers take turns, and of each slice and of each operation of a workload the fastest of all runs
//! counts, as the one that was disturbed least. An operation that asks the driver takes as long as the driver does, so the
//! tail of the others is told beside the tail of all.
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
    /// Returns the driver calls so far that took or returned memory; `None` where they are not counted.
    fn driver_calls(&self) -> Option<u64> {
        None
    }
}

/// Results.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub ns: f64,
    pub p999: f64,
    /// The same without the operations that asked the driver, where those are known.
    pub quiet_p999: Option<f64>,
    pub reserved: Option<u64>,
}

/// The runs of one peer so far.
#[derive(Default)]
struct Record {
    slices: Vec<u64>,
    operations: Vec<u64>,
    reserved: Option<u64>,
}

/// A peer by name, ready to be run.
pub struct Entry<'a> {
    pub name: &'static str,
    run: Box<Runner<'a>>,
}

type Runner<'a> = dyn Fn(&Workload, Finding) -> Option<Run> + 'a;

/// Finding of a run.
#[derive(Clone, Copy)]
enum Finding {
    /// The time of each slice.
    Slices,
    /// The time of each operation.
    Operations,
    /// The driver calls of each operation.
    Calls,
}

struct Run {
    figures: Vec<u64>,
    reserved: Option<u64>,
}

impl<'a> Entry<'a> {
    pub fn new<P: Peer>(name: &'static str, make: impl Fn(&Workload) -> P + 'a) -> Self {
        let run = move |workload: &Workload, finding| match finding {
            Finding::Slices => timed::<P, SLICE>(make(workload), workload),
            Finding::Operations => timed::<P, 1>(make(workload), workload),
            Finding::Calls => counted(make(workload), workload),
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
    let figures = |peer: &Entry<'_>, record: Record| {
        let calls = (peer.run)(workload, Finding::Calls).map(|run| run.figures);
        let is_quiet = |at: &usize| calls.as_ref().is_some_and(|calls| calls[*at] == 0);
        let quiet = (0..record.operations.len()).filter(is_quiet);
        let quiet: Vec<u64> = quiet.map(|at| record.operations[at]).collect();
        Figures {
            ns: record.slices.iter().sum::<u64>() as f64 / workload.steps.len() as f64,
            p999: p999(record.operations).unwrap_or(0.0),
            quiet_p999: p999(quiet),
            reserved: record.reserved,
        }
    };
    peers.iter().zip(records).map(|(peer, record)| Some(figures(peer, record?))).collect()
}

fn once(peer: &Entry<'_>, workload: &Workload, mut record: Record) -> Option<Record> {
    let run = (peer.run)(workload, Finding::Slices)?;
    keep_least(&mut record.slices, &run.figures);
    record.reserved = run.reserved;
    keep_least(&mut record.operations, &(peer.run)(workload, Finding::Operations)?.figures);
    Some(record)
}

fn keep_least(least: &mut Vec<u64>, times: &[u64]) {
    least.resize(times.len(), u64::MAX);
    for (least, time) in least.iter_mut().zip(times) {
        *least = (*least).min(*time);
    }
}

/// Returns the 99.9th percentile of the times of single operations, without the cost of the clock.
fn p999(mut times: Vec<u64>) -> Option<f64> {
    let at = times.len() * 999 / 1000;
    let (_, value, _) = (at < times.len()).then(|| times.select_nth_unstable(at))?;
    Some((*value as f64 - clock_cost()).max(0.0))
}

/// Counts the driver calls of each operation; `None` where the peer does not know them.
fn counted<P: Peer>(mut peer: P, workload: &Workload) -> Option<Run> {
    let mut held: Vec<Option<P::Held>> = (0..workload.slots).map(|_| None).collect();
    let (mut figures, mut before) =
        (Vec::with_capacity(workload.steps.len()), peer.driver_calls()?);
    for step in &workload.steps {
        run_step(&mut peer, &mut held, step)?;
        let now = peer.driver_calls()?;
        figures.push(now - before);
        before = now;
    }
    held.into_iter().flatten().for_each(|held| peer.free(held));
    Some(Run { figures, reserved: None })
}

#[inline]
fn run_step<P: Peer>(peer: &mut P, held: &mut [Option<P::Held>], step: &Step) -> Option<()> {
    match *step {
        Step::Allocate { slot, size } => held[slot as usize] = Some(peer.allocate(size)?),
        Step::Free { slot } => peer.free(held[slot as usize].take().expect("allocated before")),
    }
    Some(())
}

fn timed<P: Peer, const TOGETHER: usize>(mut peer: P, workload: &Workload) -> Option<Run> {
    let mut held: Vec<Option<P::Held>> = (0..workload.slots).map(|_| None).collect();
    let mut figures = Vec::with_capacity(workload.steps.len() / TOGETHER + 1);
    for steps in workload.steps.chunks(TOGETHER) {
        let start = Instant::now();
        for step in steps {
            run_step(&mut peer, &mut held, step)?;
        }
        figures.push(start.elapsed().as_nanos() as u64);
    }
    let reserved = peer.peak_reserved();
    held.into_iter().flatten().for_each(|held| peer.free(held));
    Some(Run { figures, reserved })
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
