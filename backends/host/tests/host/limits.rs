//! Limits from outside, honoured by a manager.
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    AllocateError, Caps, ErrorKind, HeapId, HeapKind, LimitKind, LimitValue, Limits, Manager,
    ManagerConfig, Relief, Request,
};
use omniheap_host::{Host, heap, real_devices};
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

fn manager(host: Host, root: &Path, variable: Option<&'static str>) -> Manager<Host> {
    let variables = move |name: &str| variable.filter(|_| name == "OMNIHEAP_LIMIT").map(Into::into);
    let limits = SystemLimits::new(Vendor::Nvidia, 0).within(root, variables);
    Manager::with_config(host.limited_by(limits), ManagerConfig::default().plain())
}

/// Runs a test on the usual host device, and on each real one.
fn on_each(test: impl Fn(Host)) {
    test(Host::new());
    for caps in real_devices() {
        println!("on {}", caps.device.name);
        test(Host::like(caps).expect("host memory acts it out"));
    }
}

fn request(mib: u64) -> Request<'static> {
    Request::new(mib * MIB).heap(HEAP)
}

#[test]
fn the_least_limit_is_honoured_and_every_one_is_reported() {
    on_each(the_least_limit_on);
}

fn the_least_limit_on(host: Host) {
    let root = group("least");
    set(&root, "dmem.max", &(64 * MIB).to_string());
    set(&root, "dmem.low", &(16 * MIB).to_string());
    let manager = manager(host, &root, Some("96M"));
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
    on_each(a_limit_that_moves_on);
}

fn a_limit_that_moves_on(host: Host) {
    let root = group("rises");
    set(&root, "dmem.max", &(8 * MIB).to_string());
    let manager = manager(host, &root, None);
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
    on_each(all_domains_on);
}

fn all_domains_on(host: Host) {
    let root = group("domains");
    let manager = manager(host, &root, Some("48M"));
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
    on_each(no_limit_on);
}

fn no_limit_on(host: Host) {
    let root = group("above");
    set(&root, "dmem.max", "18446744073709551615");
    let manager = manager(host, &root, Some("plenty"));
    drop(manager.allocate(&request(16)).expect("nothing stands against it"));
    let told = manager.report().limits;
    assert!(matches!(told[0].limit.value, LimitValue::Unreadable(_)), "{told:?}");
}

/// Allocates from one heap until it is refused, a little more than `most` bytes at most.
fn fill(manager: &Manager<Host>, heap: HeapId, most: u64) -> Vec<omniheap_core::Allocation<Host>> {
    let about = manager.caps().heap(heap).expect("a heap");
    let size = MIB.min(about.max_block);
    let request = Request::new(size).heap(heap);
    let all = core::iter::from_fn(|| manager.allocate(&request).ok());
    all.take(usize::try_from(most / size + 2).expect("few")).collect()
}

fn held(manager: &Manager<Host>, of: impl Fn(&Caps, HeapId) -> bool) -> u64 {
    let heaps = manager.caps().heap_ids().filter(|(heap, _)| of(manager.caps(), *heap));
    heaps.map(|(heap, _)| manager.heap_use(heap).expect("a heap").reserved).sum()
}

#[test]
fn a_limit_counts_all_memory_of_the_device_together_and_no_memory_of_the_host() {
    on_each(|host| {
        let manager = manager(host, Path::new("/nowhere"), Some("8MiB"));
        let limits = manager.report().limits;
        assert_eq!(limits.len(), 1, "it is one limit: {limits:?}");
        assert!(manager.caps().is_device_memory(limits[0].heap));
        let mut live = Vec::new();
        for (heap, about) in manager.caps().heap_ids() {
            let is_device = manager.caps().is_device_memory(heap);
            let most = manager.heap_use(heap).expect("a heap").hard_limit;
            let of_device = held(&manager, Caps::is_device_memory);
            assert_eq!(most, if is_device { 8 * MIB - of_device } else { u64::MAX }, "{about:?}");
            let filled = fill(&manager, heap, if is_device { 8 * MIB } else { 16 * MIB });
            assert!(is_device || filled.len() >= 16, "host memory is not limited: {about:?}");
            live.extend(filled);
            assert!(held(&manager, Caps::is_device_memory) <= 8 * MIB, "{about:?}");
        }
        assert_eq!(held(&manager, Caps::is_device_memory), 8 * MIB, "all of it may be held");
        drop(live);
        manager.trim().expect("host memory");
        assert_eq!(manager.heap_use(HEAP).expect("a heap").hard_limit, 8 * MIB);
    });
}

#[test]
fn heaps_that_are_taken_from_at_once_stay_below_their_common_limit() {
    let is_card = |caps: &Caps| caps.device.name == "Vulkan, card";
    let caps = real_devices().into_iter().find(is_card).expect("it is real");
    let host = Host::like(caps).expect("host memory acts it out");
    let manager = manager(host, Path::new("/nowhere"), Some("8MiB"));
    // Counted after it is there and before it goes: never more than what is held.
    let live = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for heap in [HeapId(0), HeapId(3)] {
            let (manager, live) = (&manager, &live);
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let size = (1 + round % 5) * MIB;
                    let request = Request::new(size).heap(heap).dedicated();
                    let got: Vec<_> =
                        (0..3).filter_map(|_| manager.allocate(&request).ok()).collect();
                    let bytes = got.len() as u64 * size;
                    let all = live.fetch_add(bytes, Ordering::Relaxed) + bytes;
                    assert!(all <= 8 * MIB, "{all} bytes under a limit of 8 MiB");
                    live.fetch_sub(bytes, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(fill(&manager, HeapId(3), 8 * MIB).len(), 8, "every claim was booked back");
}

#[test]
fn empty_memory_of_one_heap_makes_room_in_another_and_goes_back_when_others_ask() {
    on_each(|host| {
        let manager = manager(host, Path::new("/nowhere"), Some("8MiB"));
        let caps = manager.caps();
        let ids: Vec<_> = caps.heap_ids().map(|(heap, _)| heap).collect();
        let device = |heap: &HeapId| caps.is_device_memory(*heap);
        for heap in ids.iter().copied().filter(|heap| device(heap)) {
            let filled = fill(&manager, heap, 8 * MIB);
            assert!(!filled.is_empty(), "what is empty elsewhere is returned: {heap:?}");
            drop(filled);
        }
        let last = fill(&manager, HEAP, 8 * MIB);
        let host = ids.iter().copied().find(|heap| !device(heap));
        let kept = host.map(|heap| fill(&manager, heap, 2 * MIB));
        drop((last, kept));
        let before = held(&manager, Caps::is_device_memory);
        let of_host = held(&manager, |caps, heap| !caps.is_device_memory(heap));
        assert_eq!(manager.return_memory(u64::MAX).expect("alive"), before);
        assert_eq!(held(&manager, Caps::is_device_memory), 0);
        let after = held(&manager, |caps, heap| !caps.is_device_memory(heap));
        assert_eq!(after, of_host, "host memory is nothing that others lack");
    });
}

#[test]
fn a_reserve_holds_under_a_limit_of_the_process() {
    let host = || Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open().expect("a host");
    let kind = |error: AllocateError| error.kind();
    let own = manager(host(), Path::new("/nowhere"), Some("16MiB"));
    let other = own.domain(ManagerConfig::default().plain()).expect("it clears memory");
    let refused = own.set_reserve(HEAP, 17 * MIB).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ExceedsLimit), "more than the process may hold");
    own.set_reserve(HEAP, 12 * MIB).expect("within the limit");
    assert_eq!(
        other.set_reserve(HEAP, 5 * MIB).map_err(|error| error.kind()),
        Err(ErrorKind::ExceedsLimit)
    );
    assert_eq!(other.allocate(&request(16)).map(drop).map_err(kind), Err(ErrorKind::OverBudget));
    assert_eq!(other.allocate(&request(5)).map(drop).map_err(kind), Err(ErrorKind::OverBudget));
    let beside = other.allocate(&request(4)).expect("beside the reserve");
    let inside = own.allocate(&request(12)).expect("in its reserve");
    drop(inside);
    own.trim().expect("alive");
    assert_eq!(other.allocate(&request(1)).map(drop).map_err(kind), Err(ErrorKind::OverBudget));
    drop(own);
    let rest = other.allocate(&request(12)).expect("nothing is promised any more");
    drop((beside, rest));
}
