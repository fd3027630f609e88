//! omniheap: the strategy alone, and the whole manager.
use crate::measure::Peer;
use crate::null::Null;
use crate::workload::{ALIGN, Workload};
use omniheap_core::strategy::{Key, Strategy, Tlsf};
use omniheap_core::{Align, Allocation, Backend, Class, HeapKind, Layout, Manager, ManagerConfig, Request};
use omniheap_host::{Host, heap};

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
        let host = Host::builder().heap(heap(HeapKind::Device, 1 << 38)).open().expect("a host device");
        Self(Manager::with_config(Null::like(host.caps()), ManagerConfig::default().plain()))
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
}

/// How much faster two threads are than one, each with its own churn on one manager.
pub fn scaling(workload: &Workload) -> f64 {
    let churn = |manager: &Manager<Null>| {
        let mut peer = Whole(manager.clone());
        let mut held: Vec<Option<Allocation<Null>>> = (0..workload.slots).map(|_| None).collect();
        for step in &workload.steps {
            match *step {
                crate::workload::Step::Allocate { slot, size } => held[slot as usize] = peer.allocate(size),
                crate::workload::Step::Free { slot } => held[slot as usize] = None,
            }
        }
    };
    let best = |threads: usize| {
        (0..5)
            .map(|_| {
                let manager = Whole::new(workload).0;
                let start = std::time::Instant::now();
                std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| churn(&manager)))));
                start.elapsed().as_secs_f64()
            })
            .fold(f64::MAX, f64::min)
    };
    2.0 * best(1) / best(2)
}
