//! Limits from outside, honoured by a manager.
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    ErrorKind, HeapId, LimitKind, LimitValue, Limits, Manager, ManagerConfig, Relief, Request,
};
use omniheap_host::Host;
use omniheap_limits::{SystemLimits, Vendor};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const HEAP: HeapId = HeapId(0);

/// A cgroup of its own, in a folder of this test.
fn group(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limits").join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("proc/self")).expect("a folder");
    fs::create_dir_all(root.join("sys/fs/cgroup/job")).expect("a folder");
    fs::write(root.join("proc/self/cgroup"), "0::/job\n").expect("a file");
    root
}

fn set(root: &Path, file: &str, value: &str) {
    let text = format!("nvidia/0000:01:00.0/vidmem {value}\n");
    fs::write(root.join("sys/fs/cgroup/job").join(file), text).expect("a file");
}

fn manager(root: &Path, variable: Option<&'static str>) -> Manager<Host> {
    let variables = move |name: &str| variable.filter(|_| name == "OMNIHEAP_LIMIT").map(Into::into);
    let limits = SystemLimits::new(Vendor::Nvidia, 0).within(root, variables);
    Manager::with_config(Host::new().limited_by(limits), ManagerConfig::default().plain())
}

fn request(mib: u64) -> Request<'static> {
    Request::new(mib * MIB).heap(HEAP)
}

#[test]
fn the_least_limit_is_honoured_and_every_one_is_reported() {
    let root = group("least");
    set(&root, "dmem.max", &(64 * MIB).to_string());
    set(&root, "dmem.low", &(16 * MIB).to_string());
    let manager = manager(&root, Some("96M"));
    manager.set_budget(HEAP, Limits::hard(80 * MIB)).expect("a heap");
    let held = manager.heap_use(HEAP).expect("a heap");
    assert_eq!((held.hard_limit, held.soft_limit), (64 * MIB, 16 * MIB));
    let live = manager.allocate(&request(48)).expect("it fits");
    let refused = manager.allocate(&request(32)).expect_err("the cgroup allows less");
    assert_eq!(refused.kind(), ErrorKind::OverBudget);
    let told = manager.report().limits;
    let told: Vec<_> = told.iter().map(|it| (it.limit.kind, it.limit.value.clone())).collect();
    let bytes = |mib| LimitValue::Bytes(mib * MIB);
    let (hard, soft) = (LimitKind::Hard, LimitKind::Soft);
    assert_eq!(told, [(hard, bytes(96)), (hard, bytes(64)), (soft, bytes(16))]);
    drop(live);
}

#[test]
fn a_limit_that_rises_after_a_refusal_is_seen_and_one_that_sinks_presses() {
    let root = group("rises");
    set(&root, "dmem.max", &(8 * MIB).to_string());
    let manager = manager(&root, None);
    assert_eq!(
        manager.allocate(&request(16)).map_err(|it| it.kind()).err(),
        Some(ErrorKind::OverBudget)
    );
    set(&root, "dmem.max", "max");
    let live = manager.allocate(&request(16)).expect("there is no limit now");
    set(&root, "dmem.max", &(4 * MIB).to_string());
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    manager.on_pressure(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Relief::Nothing
    });
    // The sunken limit is read when memory is refused for another reason.
    manager.set_budget(HEAP, Limits::hard(20 * MIB)).expect("a heap");
    assert!(manager.allocate(&request(16)).is_err());
    assert!(asked.load(Ordering::Relaxed) > 0, "the program was asked");
    assert_eq!(manager.heap_use(HEAP).expect("a heap").hard_limit, 4 * MIB);
    assert!(manager.allocate(&request(1)).is_err(), "nothing more is taken from the driver");
    drop(live);
}

#[test]
fn all_domains_together_stay_below_the_limit() {
    let root = group("domains");
    let manager = manager(&root, Some("48M"));
    let other =
        manager.domain(ManagerConfig::default().plain()).expect("host memory can be cleared");
    let live = manager.allocate(&request(32)).expect("it fits");
    assert_eq!(
        other.allocate(&request(32)).map_err(|it| it.kind()).err(),
        Some(ErrorKind::OverBudget)
    );
    drop(live);
}

#[test]
fn a_limit_above_the_device_and_an_unreadable_one_change_nothing() {
    let root = group("above");
    set(&root, "dmem.max", "18446744073709551615");
    let manager = manager(&root, Some("plenty"));
    drop(manager.allocate(&request(16)).expect("nothing stands against it"));
    let told = manager.report().limits;
    assert!(matches!(told[0].limit.value, LimitValue::Unreadable(_)), "{told:?}");
}
