//! Resources that move with their owner's consent: made again at the new place, or not at all.
#![expect(unsafe_code, reason = "creates native objects, as an engine does")]
use crate::rig::Rig;
use omniheap_core::{
    Backend, BlockRange, Budget, Decision, ErrorKind, HeapKind, Manager, ManagerConfig,
    MoveOutcome, Span,
};
use omniheap_vulkan::{Resource, Vulkan, ash::vk};

crate::cases! {
    a_resource_switches_where_its_memory_moved if |_| true;
    moves_that_are_called_off_leave_resources_as_they_are if |_| true;
    resources_that_nobody_moves_stay if |_| true;
    twins_that_do_not_fit_are_refused if |_| true;
    a_twin_outlives_its_backend if |_| true;
}

type Buffer = Resource<vk::Buffer>;

fn info() -> vk::BufferCreateInfo<'static> {
    use vk::BufferUsageFlags as U;
    vk::BufferCreateInfo::default().size(100_000).usage(U::TRANSFER_DST | U::TRANSFER_SRC)
}

fn manager(rig: &Rig) -> Manager<Vulkan> {
    Manager::with_config(rig.open(), ManagerConfig::default().plain())
}

/// Every fourth of many buffers; `None` where the driver wants memory of its own for each.
fn scattered(manager: &Manager<Vulkan>) -> Option<Vec<Buffer>> {
    let kind = HeapKind::Device;
    // SAFETY: a plain buffer, of which no old handle is used after a move;
    let make = || unsafe { Vulkan::create_movable_buffer(manager, &info(), kind) }.unwrap();
    let all: Vec<_> = (0..400).map(|_| make()).collect();
    let alone = all[0].memory().binding().span().offset == all[1].memory().binding().span().offset;
    let left: Vec<_> = all.into_iter().step_by(4).collect();
    manager.backend().wait_idle().unwrap();
    manager.retire().unwrap();
    (!alone).then_some(left)
}

fn stamp(buffers: &[Buffer]) {
    for (at, one) in (0u64..).zip(buffers) {
        one.memory().write(0, &at.to_le_bytes()).unwrap();
    }
}

fn check(buffers: &[Buffer]) {
    for (at, one) in (0u64..).zip(buffers) {
        let mut bytes = [0; 8];
        one.memory().read(0, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), at);
    }
}

fn a_resource_switches_where_its_memory_moved(rig: &Rig) {
    let manager = manager(rig);
    let Some(mut buffers) = scattered(&manager) else { return };
    stamp(&buffers);
    let before = manager.totals();
    let mut pass = manager.begin_defragment(&Budget::new()).unwrap();
    assert!(!pass.is_empty());
    let mut twins = Vec::new();
    for (at, planned) in pass.moves().enumerate() {
        assert!(planned.needs_consent());
        let which = buffers.iter().position(|one| one.memory().id() == planned.allocation());
        // SAFETY: the same description; the pass lives until the commit.
        let twin = unsafe { manager.backend().twin_of_buffer(&info(), &planned.to()) }.unwrap();
        twins.push((at, which.unwrap(), twin));
    }
    // The pass copies the bytes of buffers; the owner makes the handles.
    twins.iter().for_each(|(at, ..)| pass.decide(*at, Decision::Copy).unwrap());
    pass.start().unwrap();
    // An allocation whose place was read does not move.
    let stays = twins[0].1;
    drop(buffers[stays].memory().binding());
    let outcome = pass.commit().unwrap();
    for (at, which, twin) in twins {
        let (old, new) = (buffers[which].handle(), twin.handle());
        let switched = buffers[which].switch_to(twin);
        assert_eq!(switched, outcome.moves[at].1 == MoveOutcome::Moved);
        assert_eq!(switched, which != stays);
        assert_eq!(buffers[which].handle(), if switched { new } else { old });
    }
    check(&buffers);
    assert!(manager.totals().reserved_bytes < before.reserved_bytes);
    manager.backend().wait_idle().unwrap();
}

fn moves_that_are_called_off_leave_resources_as_they_are(rig: &Rig) {
    let manager = manager(rig);
    let Some(mut buffers) = scattered(&manager) else { return };
    stamp(&buffers);
    let mut pass = manager.begin_defragment(&Budget::new()).unwrap();
    let planned = pass.moves().next().expect("there is something to gain");
    let which = buffers.iter().position(|one| one.memory().id() == planned.allocation()).unwrap();
    // SAFETY: the same description; the pass lives longer than any use.
    let twin = unsafe { manager.backend().twin_of_buffer(&info(), &planned.to()) }.unwrap();
    pass.decide(0, Decision::Copy).unwrap();
    pass.start().unwrap();
    drop(pass);
    let handle = buffers[which].handle();
    assert!(!buffers[which].switch_to(twin), "the pass was dropped");
    assert_eq!(buffers[which].handle(), handle);
    check(&buffers);
    manager.backend().wait_idle().unwrap();
}

fn resources_that_nobody_moves_stay(rig: &Rig) {
    let manager = manager(rig);
    let Some(buffers) = scattered(&manager) else { return };
    // SAFETY: a plain buffer.
    let pinned = unsafe { Vulkan::create_buffer(&manager, &info(), HeapKind::Device) }.unwrap();
    let place = |one: &Buffer| one.memory().binding().span();
    let places: Vec<Span> = buffers.iter().map(place).collect();
    manager.defragment().unwrap();
    let pass = manager.begin_defragment(&Budget::new()).unwrap();
    assert!(pass.moves().all(|one| one.allocation() != pinned.memory().id()));
    let outcome = pass.commit().unwrap();
    assert!(outcome.moves.iter().all(|(_, one)| *one == MoveOutcome::Stayed));
    assert!(buffers.iter().map(place).eq(places));
}

fn a_twin_outlives_its_backend(rig: &Rig) {
    // No frame ends, so nothing is destroyed before the manager ends.
    let vulkan = rig.open_with(rig.options.frames_in_flight(1));
    let heap = vulkan.candidates(!0, HeapKind::Device)[0];
    let block = vulkan.allocate(heap, 1 << 20).unwrap();
    let to = BlockRange { block: &block, span: Span { offset: 0, size: 1 << 20 } };
    // SAFETY: a plain buffer, which is never used.
    let [first, last] = [(); 2].map(|()| unsafe { vulkan.twin_of_buffer(&info(), &to) }.unwrap());
    drop(first);
    drop(vulkan);
    // The layer reports handles that the end of the device leaves behind.
    drop(last);
}

fn twins_that_do_not_fit_are_refused(rig: &Rig) {
    let manager = manager(rig);
    let vulkan = manager.backend();
    let other = rig.open();
    let heap = vulkan.candidates(!0, HeapKind::Device)[0];
    let block = vulkan.allocate(heap, 1 << 20).unwrap();
    let refused = |vulkan: &Vulkan, offset, size| {
        let to = BlockRange { block: &block, span: Span { offset, size } };
        // SAFETY: refused before anything is bound.
        unsafe { vulkan.twin_of_buffer(&info(), &to) }.map(drop).unwrap_err().kind()
    };
    assert_eq!(refused(vulkan, 0, 99_000), ErrorKind::OutOfRange);
    assert_eq!(refused(vulkan, 1, 200_000), ErrorKind::Misaligned);
    assert_eq!(refused(&other, 0, 200_000), ErrorKind::Foreign);
}
