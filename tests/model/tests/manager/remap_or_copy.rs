//! In pools of pages, whichever is expected to be cheaper makes room: mapping free pages elsewhere, or copying.
//!
//! Nothing here depends on how long calls really take: what must happen follows from what the report says they took.
use core::time::Duration;
use omniheap_core::{
    Align, Allocation, Defragmentation, HeapKind, Manager, ManagerConfig, Mapper, MoveCost,
    Remapping, Request, Rung,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Fault, Plan};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 64 << 10;
/// Bytes of the heap.
const CAPACITY: u64 = 32 * MIB;
/// Bytes of each of the two large requests: half of what is free.
const LARGE: u64 = CAPACITY / 4;

type Device = Fault<Host>;

/// Bytes that one request copied, and the costs that both ways were expected to have before it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    size: u64,
    copied: u64,
    costs: MoveCost,
}

impl Asked {
    /// The way that the costs leave no choice about, if they do; the pages are in one hole at least and in all at most.
    fn must_copy(&self) -> Option<bool> {
        let MoveCost { per_copy, per_mib, per_remap, per_page, wait, .. } = self.costs;
        let (Some(per_remap), Some(per_page)) = (per_remap, per_page) else { return Some(false) };
        let holes = u32::try_from(CAPACITY / MIB / 2).expect("few");
        let pages = u32::try_from(self.size / PAGE).expect("few");
        let mapping = [per_remap, per_remap * holes + per_page * pages];
        let wait = wait.unwrap_or_default();
        let each = per_copy.zip(per_mib).map(|(call, mib)| call + mib)?;
        // One mebibyte lies between each two holes.
        let moves = u32::try_from(self.size / MIB).expect("few");
        let copying = [each * (moves - 1) + wait, each * moves + wait];
        if copying[1] < mapping[0] {
            return Some(true);
        }
        (copying[0] > mapping[1]).then_some(false)
    }
}

fn manager(remapping: Remapping, mapper: Mapper) -> Manager<Device> {
    manager_with(Defragmentation::OnRequest, remapping, mapper)
}

fn manager_with(
    defragmentation: Defragmentation,
    remapping: Remapping,
    mapper: Mapper,
) -> Manager<Device> {
    let mut device = heap(HeapKind::Device, CAPACITY);
    device.page = device.page.map(|_| Align::of(PAGE));
    device.mapper = mapper;
    let host = Host::builder().heap(device).open().expect("a device");
    let mut config = ManagerConfig::default();
    (config.pool.lanes, config.defragmentation) = (Some(1), defragmentation);
    config.remapping = remapping;
    Manager::with_config(Fault::new(host), config)
}

/// Makes calls of a kind longer, and those of all others as long as they were.
fn delay(manager: &Manager<Device>, kind: CallKind, millis: u64) {
    manager.backend().inject(Plan::Delay(kind, Duration::from_millis(millis)), 0);
}

fn slow(manager: &Manager<Device>, kind: CallKind) {
    delay(manager, kind, 50);
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

/// Makes a request that fits no hole, and keeps what it gets.
#[track_caller]
fn ask(manager: &Manager<Device>, size: u64, kept: &mut Vec<Allocation<Device>>) -> Asked {
    let before = manager.report();
    kept.push(manager.allocate(&Request::new(size)).expect("as much is free"));
    let copied = manager.report().defragmentation.bytes - before.defragmentation.bytes;
    Asked { size, copied, costs: before.move_costs[0] }
}

/// Asks twice for half of what is free. Remaps are measured by the first, unless they were before.
#[track_caller]
fn ask_twice(manager: &Manager<Device>) -> [Asked; 2] {
    let (kept, mut large) = (scattered(manager), Vec::new());
    let asked = [(); 2].map(|()| ask(manager, LARGE, &mut large));
    manager.backend().inject(Plan::Never, 0);
    intact(manager, &kept);
    asked
}

#[track_caller]
fn follows_the_costs(asked: Asked) {
    if let Some(copies) = asked.must_copy() {
        assert_eq!(asked.copied > 0, copies, "{asked:?}");
    }
}

#[test]
fn the_cheaper_way_is_taken_where_somebody_asks_for_it() {
    for dear in [CallKind::UnmapPages, CallKind::Copy] {
        let manager = manager(Remapping::WhereCheaper, Mapper::Host);
        slow(&manager, dear);
        measure_copies(&manager);
        ask_twice(&manager).into_iter().for_each(follows_the_costs);
    }
}

#[test]
fn the_cheaper_way_is_taken_by_itself_where_a_queue_maps_pages() {
    for dear in [CallKind::UnmapPages, CallKind::Copy] {
        let manager = manager(Remapping::default(), Mapper::Queue);
        slow(&manager, dear);
        measure_copies(&manager);
        ask_twice(&manager).into_iter().for_each(follows_the_costs);
    }
}

#[test]
fn waiting_for_the_device_counts_against_copies() {
    let manager = manager(Remapping::WhereCheaper, Mapper::Host);
    delay(&manager, CallKind::UnmapPages, 10);
    measure_copies(&manager);
    let (kept, mut large) = (scattered(&manager), Vec::new());
    (0..2).for_each(|_| follows_the_costs(ask(&manager, 2 * MIB, &mut large)));
    // The first that copies now learns how long that is; mapping is cheaper from then on.
    delay(&manager, CallKind::WaitIdle, 300);
    (0..3).for_each(|_| follows_the_costs(ask(&manager, 2 * MIB, &mut large)));
    manager.backend().inject(Plan::Never, 0);
    intact(&manager, &kept);
}

#[test]
fn what_copying_served_is_counted_as_defragmentation() {
    let manager = manager(Remapping::default(), Mapper::Queue);
    slow(&manager, CallKind::UnmapPages);
    measure_copies(&manager);
    let served = || manager.report().rungs[Rung::Defragment as usize];
    let before = served();
    let copied = ask_twice(&manager).iter().filter(|asked| asked.copied > 0).count();
    assert_eq!(served() - before, copied as u64);
}

#[test]
fn mapping_is_measured_before_anything_is_copied() {
    let manager = manager(Remapping::WhereCheaper, Mapper::Queue);
    let costs = || manager.report().move_costs[0];
    assert!(costs().per_page.is_none() && costs().per_mib.is_none());
    slow(&manager, CallKind::UnmapPages);
    let [first, second] = ask_twice(&manager);
    assert_eq!(first.copied, 0, "nothing was known");
    assert!(second.costs.per_remap > Some(Duration::from_millis(10)));
}

#[test]
fn where_the_host_maps_pages_places_do_not_depend_on_what_calls_took() {
    for remapping in [Remapping::default(), Remapping::Always] {
        let manager = manager(remapping, Mapper::Host);
        slow(&manager, CallKind::UnmapPages);
        measure_copies(&manager);
        assert_eq!(ask_twice(&manager).map(|asked| asked.copied), [0, 0]);
    }
}

#[test]
fn nothing_is_copied_where_somebody_says_so() {
    for (when, how) in [
        (Defragmentation::OnRequest, Remapping::Always),
        (Defragmentation::Off, Remapping::WhereCheaper),
        (Defragmentation::Off, Remapping::default()),
    ] {
        let manager = manager_with(when, how, Mapper::Queue);
        slow(&manager, CallKind::UnmapPages);
        measure_copies(&manager);
        assert_eq!(ask_twice(&manager).map(|asked| asked.copied), [0, 0], "{when:?} {how:?}");
    }
}
