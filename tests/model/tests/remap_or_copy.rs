//! In pools of pages, whichever was measured to be cheaper makes room: mapping free pages elsewhere, or copying.
use core::time::Duration;
use omniheap_core::layer::{CallKind, Fault, Plan};
use omniheap_core::{
    Align, Allocation, Defragmentation, HeapKind, Manager, ManagerConfig, Remapping, Request, Rung,
};
use omniheap_host::{Host, heap};

const MIB: u64 = 1 << 20;
/// Bytes of the heap.
const CAPACITY: u64 = 32 * MIB;

type Device = Fault<Host>;

fn manager(defragmentation: Defragmentation) -> Manager<Device> {
    manager_with(defragmentation, Remapping::WhereCheaper)
}

fn manager_with(defragmentation: Defragmentation, remapping: Remapping) -> Manager<Device> {
    let mut device = heap(HeapKind::Device, CAPACITY);
    device.page = device.page.map(|_| Align::of(64 << 10));
    let host = Host::builder().heap(device).open().expect("a device");
    let mut config = ManagerConfig::default();
    (config.pool.lanes, config.defragmentation) = (Some(1), defragmentation);
    config.remapping = remapping;
    Manager::with_config(Fault::new(host), config)
}

/// Moves small allocations off the pages that they hold open, so that copies are measured.
fn measure_copies(manager: &Manager<Device>) {
    let small = (0..256).map(|_| manager.allocate(&Request::new(16 << 10)).expect("fits"));
    let small: Vec<_> = small.collect::<Vec<_>>().into_iter().step_by(4).collect();
    manager.defragment().expect("alive");
    assert!(manager.report().defragmentation.moves > 0);
    drop(small);
    manager.trim().expect("alive");
}

/// A full heap of which every other mebibyte is free.
fn scattered(manager: &Manager<Device>) -> Vec<Allocation<Device>> {
    let all: Vec<_> =
        (0..CAPACITY / MIB).map(|_| manager.allocate(&Request::new(MIB)).expect("fits")).collect();
    let kept: Vec<_> = all.into_iter().step_by(2).collect();
    for (byte, one) in (1..).zip(&kept) {
        one.fill(0, MIB, byte).expect("in range");
    }
    kept
}

#[track_caller]
fn intact(manager: &Manager<Device>, kept: &[Allocation<Device>]) {
    manager.validate().expect("sound");
    for (byte, one) in (1..).zip(kept) {
        let mut found = vec![0; 1 << 20];
        one.read(0, &mut found).expect("in range");
        assert!(found.iter().all(|found| *found == byte), "allocation {byte} lost its bytes");
    }
}

/// Asks twice for half of what is free; the bytes copied for each. Remaps are measured by the first.
fn ask_twice(manager: &Manager<Device>) -> [u64; 2] {
    ask_twice_for(manager, CAPACITY / 4)
}

fn ask_twice_for(manager: &Manager<Device>, size: u64) -> [u64; 2] {
    let kept = scattered(manager);
    let mut large = Vec::new();
    let copied = [(); 2].map(|()| {
        let before = manager.report().defragmentation.bytes;
        large.push(manager.allocate(&Request::new(size)).expect("as much is free"));
        manager.report().defragmentation.bytes - before
    });
    manager.backend().inject(Plan::Never, 0);
    intact(manager, &kept);
    copied
}

#[test]
fn pages_are_mapped_elsewhere_until_both_ways_are_measured() {
    let manager = manager(Defragmentation::OnRequest);
    let costs = |manager: &Manager<Device>| manager.report().move_costs[0];
    assert!(costs(&manager).per_page.is_none() && costs(&manager).per_mib.is_none());
    manager.backend().inject(Plan::Delay(CallKind::UnmapPages, Duration::from_millis(20)), 0);
    assert_eq!(ask_twice(&manager), [0, 0], "copies were never measured");
    assert!(costs(&manager).per_remap > Some(Duration::from_millis(10)));
    assert_eq!(costs(&manager).per_mib, None);
}

#[test]
fn copies_are_made_where_mapping_is_dear() {
    let manager = manager(Defragmentation::OnRequest);
    manager.backend().inject(Plan::Delay(CallKind::UnmapPages, Duration::from_millis(50)), 0);
    measure_copies(&manager);
    let served = |manager: &Manager<Device>| manager.report().rungs[Rung::Defragment as usize];
    let before = served(&manager);
    let [_, second] = ask_twice(&manager);
    assert!(second > 0, "{:?}", manager.report().move_costs);
    assert!(served(&manager) > before);
}

#[test]
fn unless_asked_for_places_do_not_depend_on_what_calls_took() {
    let manager = manager_with(Defragmentation::OnRequest, Remapping::default());
    manager.backend().inject(Plan::Delay(CallKind::UnmapPages, Duration::from_millis(50)), 0);
    measure_copies(&manager);
    assert_eq!(ask_twice(&manager), [0, 0]);
}

#[test]
fn pages_are_mapped_elsewhere_once_copies_turned_out_to_be_dear() {
    let manager = manager(Defragmentation::OnRequest);
    manager.backend().inject(Plan::Delay(CallKind::UnmapPages, Duration::from_millis(40)), 0);
    measure_copies(&manager);
    let [_, cheap] = ask_twice_for(&manager, 2 * MIB);
    assert!(cheap > 0, "{:?}", manager.report().move_costs);
    // No single copy is believed altogether, so more than one is made; how many depends on what this machine's calls take.
    let settles = (0..32).any(|_| {
        manager.backend().inject(Plan::Delay(CallKind::Copy, Duration::from_millis(600)), 0);
        ask_twice_for(&manager, 2 * MIB) == [0, 0]
    });
    assert!(settles, "{:?}", manager.report().move_costs);
}

#[test]
fn pages_are_mapped_elsewhere_where_copies_are_not_wanted() {
    let manager = manager(Defragmentation::Off);
    manager.backend().inject(Plan::Delay(CallKind::UnmapPages, Duration::from_millis(20)), 0);
    measure_copies(&manager);
    assert_eq!(ask_twice(&manager), [0, 0]);
}
