//! Managers that stay within the driver's budget, on host memory whose budget follows a script.
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    ErrorKind, HeapBudget, HeapId, HeapKind, Manager, ManagerConfig, Relief, Request,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Call, CallKind, Hooks, Layer, Verdict};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const DEVICE: HeapId = HeapId(0);

/// Answers of the driver, and the number of times that it was asked.
#[derive(Debug, Default)]
struct Script {
    budget: AtomicU64,
    others: AtomicU64,
    asked: AtomicU64,
}

#[derive(Debug)]
struct Says(Arc<Script>);

// SAFETY: changes nothing but the budget that is reported.
#[expect(unsafe_code, reason = "signs the contract of Hooks")]
unsafe impl Hooks for Says {
    fn before(&self, call: &Call) -> Verdict {
        self.0.asked.fetch_add(u64::from(call.kind == CallKind::Budget), Relaxed);
        Verdict::Forward
    }

    fn budget(&self, _: HeapId, truth: HeapBudget) -> HeapBudget {
        let used = truth.used + self.0.others.load(Relaxed);
        HeapBudget { budget: self.0.budget.load(Relaxed), used }
    }
}

fn rig(config: ManagerConfig) -> (Manager<Layer<Host, Says>>, Arc<Script>) {
    let host = Host::builder().heap(heap(HeapKind::Device, 1024 * MIB)).open().expect("a device");
    let script = Arc::new(Script::default());
    script.budget.store(64 * MIB, Relaxed);
    let layer = Layer::wrap(host, Says(Arc::clone(&script)));
    (Manager::with_config(layer, config.plain()), script)
}

/// Allocates 1 MiB at a time until a request fails; returns what was live and why it failed.
fn fill(manager: &Manager<Layer<Host, Says>>) -> (u64, ErrorKind) {
    let mut live = Vec::new();
    loop {
        match manager.allocate(&Request::new(MIB)) {
            Ok(allocation) => live.push(allocation),
            Err(why) => return (live.len() as u64 * MIB, why.kind()),
        }
    }
}

#[test]
fn growth_stops_before_the_drivers_budget_and_only_where_it_is_honoured() {
    let (manager, script) = rig(ManagerConfig::default().within_driver_budget());
    let (held, why) = fill(&manager);
    assert_eq!(why, ErrorKind::OverBudget);
    assert!(held > 56 * MIB && held <= 63 * MIB, "{held} of 64 MiB, a reserve of 1 MiB");
    script.others.store(32 * MIB, Relaxed);
    manager.trim().expect("all of it is empty");
    let (held, _) = fill(&manager);
    assert!(held > 24 * MIB && held <= 31 * MIB, "{held} beside 32 MiB of other programs");
    let (manager, script) = rig(ManagerConfig::default());
    assert_eq!(fill(&manager).0, 1024 * MIB, "the driver decides");
    assert_eq!(script.asked.load(Relaxed), 0);
}

#[test]
fn a_request_over_the_budget_asks_the_program_and_is_served_when_it_frees() {
    let (manager, _script) = rig(ManagerConfig::default().within_driver_budget());
    let spare = Arc::new(std::sync::Mutex::new(Vec::new()));
    while let Ok(one) = manager.allocate(&Request::new(MIB).no_grow()).or_else(|_| {
        match manager.heap_use(DEVICE).expect("a heap").reserved < 56 * MIB {
            true => manager.allocate(&Request::new(MIB)),
            false => Err(ErrorKind::OutOfDeviceMemory.into()),
        }
    }) {
        spare.lock().expect("alone").push(one);
    }
    let given = Arc::clone(&spare);
    manager.on_pressure(move |_| match given.lock().expect("alone").drain(..).count() {
        0 => Relief::Nothing,
        _ => Relief::Freed,
    });
    let large = manager.allocate(&Request::new(40 * MIB)).expect("the callback made room");
    assert!(spare.lock().expect("alone").is_empty(), "the callback ran");
    drop(large);
}

#[test]
fn the_driver_is_asked_seldom_and_a_step_settles() {
    let (manager, script) = rig(ManagerConfig::default().within_driver_budget());
    script.budget.store(1024 * MIB, Relaxed);
    let live: Vec<_> =
        (0..64).map(|_| manager.allocate(&Request::new(MIB)).expect("fits")).collect();
    let asked = script.asked.load(Relaxed);
    assert!(asked <= 8, "asked {asked} times for 64 MiB of 1 GiB");
    let told = |manager: &Manager<_>| {
        let use_now: omniheap_core::HeapUse = Manager::heap_use(manager, DEVICE).expect("a heap");
        use_now.driver.expect("read by now")
    };
    assert_eq!(told(&manager).budget, 1024 * MIB);
    assert!(told(&manager).used >= 64 * MIB);
    script.budget.store(512 * MIB, Relaxed);
    manager.step().expect("alive");
    let once = told(&manager).budget;
    assert!(once > 512 * MIB && once < 1024 * MIB, "one step takes a part of the change: {once}");
    for _ in 0..200 {
        manager.step().expect("alive");
    }
    assert_eq!(told(&manager).budget, 512 * MIB);
    script.budget.store(0, Relaxed);
    let refused = manager.allocate(&Request::new(128 * MIB)).expect_err("there is no budget");
    assert_eq!(refused.kind(), ErrorKind::OverBudget, "a request sees the fresh budget");
    assert_eq!(manager.totals().live, live.len() as u64, "nothing changed");
}
