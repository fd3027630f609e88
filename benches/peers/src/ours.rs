//! omniheap: the strategy alone, and the whole manager.
use crate::measure::Peer;
use crate::workload::{ALIGN, Step, Workload};
use omniheap_core::strategy::{Key, Strategy, Tlsf};
use omniheap_core::{
    Align, Allocation, Backend, Class, HeapKind, Layout, Manager, ManagerConfig, Request,
};
use omniheap_host::{Host, heap};
use omniheap_null::Null;
use std::sync::Barrier;
use std::time::Instant;

/// The general-purpose strategy on one block of twice the peak.
pub struct Offsets(Tlsf);

impl Offsets {
    pub fn new(workload: &Workload) -> Self {
        let mut tlsf = Tlsf::new(Align::ONE);
        tlsf.add_block(workload.peak_live * 2).expect("a block of twice the peak");
        Self(tlsf)
    }
}

impl Peer for Offsets {
    type Held = Key;
    fn allocate(&mut self, size: u64) -> Option<Key> {
        let layout = Layout::new(size).align(Align::of(ALIGN));
        Some(self.0.allocate(layout, Class::Linear).ok()?.key)
    }
    fn free(&mut self, held: Key) {
        self.0.free(held).expect("live");
    }
}

/// The manager with plain pools that grow by blocks, over a driver that costs nothing.
pub struct Whole(Manager<Null>);

impl Whole {
    pub fn new(_: &Workload) -> Self {
        let host =
            Host::builder().heap(heap(HeapKind::Device, 1 << 38)).open().expect("a host device");
        Self(Manager::with_config(Null::new(host.caps().clone()), ManagerConfig::default().plain()))
    }
}

impl Peer for Whole {
    type Held = Allocation<Null>;
    fn allocate(&mut self, size: u64) -> Option<Allocation<Null>> {
        self.0.allocate(&Request::new(size)).ok()
    }
    fn free(&mut self, held: Allocation<Null>) {
        drop(held);
    }
    fn peak_reserved(&self) -> Option<u64> {
        Some(self.0.report().peak_reserved_bytes)
    }
    fn driver_calls(&self) -> Option<u64> {
        Some(self.0.summary().driver_calls)
    }
}

/// Returns the speed-up of two threads over one, each with its own churn on one manager.
///
/// The runs are short and take turns, so that some of each kind find both cores free.
pub fn scaling(workload: &Workload) -> f64 {
    let mut best = [f64::MAX; 2];
    for _ in 0..40 {
        for (threads, best) in (1..).zip(&mut best) {
            *best = best.min(together(workload, threads));
        }
    }
    2.0 * best[0] / best[1]
}

/// Returns the seconds that `threads` threads need, each for the whole workload.
fn together(workload: &Workload, threads: usize) -> f64 {
    let manager = Whole::new(workload).0;
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    ready.wait();
                    churn(&manager, workload);
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        threads.into_iter().for_each(|thread| thread.join().expect("the churn ends"));
        start.elapsed().as_secs_f64()
    })
}

fn churn(manager: &Manager<Null>, workload: &Workload) {
    let mut peer = Whole(manager.clone());
    let mut held: Vec<Option<Allocation<Null>>> = (0..workload.slots).map(|_| None).collect();
    for step in &workload.steps {
        match *step {
            Step::Allocate { slot, size } => held[slot as usize] = peer.allocate(size),
            Step::Free { slot } => held[slot as usize] = None,
        }
    }
}
