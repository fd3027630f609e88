//! Checks the device's driver calls, and the calls it rejects without asking the driver.
#![expect(unsafe_code, reason = "launches kernels, and makes a reservation")]
use crate::driver::{Call, Function, Plain, SYMBOL};
use crate::rig::{Block, CONSTANT, DEVICE, Device, Kind, PAGE, allocate, at, free, open};
use core::{ptr::NonNull, sync::atomic::Ordering};
use omniheap_core::{
    self as seam, Align, Argument, DriverBudget as _, ErrorKind, Kernel, KernelText, Launch as _,
    Map as _, Move, Page, ProgramId, Result, Slot, TimelineId, Transfer as _,
};
use omniheap_stream::{
    BOUNCE, BlockSource, CodeDriver, Feature, IpcHandle, Launch, MemoryDriver, Positions, Rows,
    StreamOwner, Verdict, lock,
    selftest::{Claims, PROBE, run, stamp},
};
use std::sync::Arc;

const MAIN: TimelineId = TimelineId::MAIN;
const KERNEL: Kernel = {
    let text = KernelText {
        name: "weigh",
        group: [32, 1, 1],
        slots: &[Slot::Constant, Slot::Write],
        parameters: 4,
        wgsl: "",
        spirv: &[],
        cpp: "weigh",
        host: |_| {},
    };
    // SAFETY: the driver of these tests compiles nothing.
    unsafe { Kernel::new(text) }
};

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn block(device: &Device, size: u64) -> Block {
    allocate(device, DEVICE, size).expect("small")
}

fn read(device: &Device, from: &Block, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    device.read(MAIN, at(from, offset), &mut bytes).expect("in range");
    bytes
}

#[test]
fn slips_of_an_author_are_refused_though_the_driver_never_sees_them() {
    // SAFETY: its SPIR-V is none, and so it is refused.
    let slip = unsafe { Kernel::new(KernelText { spirv: &[1, 2, 3], ..*KERNEL }) };
    assert_eq!(kind(open().load(&slip, 0)), Some(ErrorKind::InvalidConfig));
    open().load(&KERNEL, 0).expect("as declared");
}

#[test]
fn small_moves_go_in_one_launch_and_large_ones_by_the_driver() {
    let device = open();
    let (from, to) = (block(&device, 16 << 20), block(&device, 16 << 20));
    device.write(MAIN, at(&from, 0), &(0..=255).collect::<Vec<u8>>()).expect("in range");
    device.fill(MAIN, at(&from, 4 << 20), 8 << 20, 7).expect("in range");
    device.driver().calls();
    let step = |offset, size| Move { from: at(&from, offset), to: at(&to, offset + 1), size };
    device.copy(MAIN, &[step(0, 10), step(100, 10), step(200, 10)]).expect("in range");
    assert_eq!(device.driver().calls(), [Call::Launch { function: Function::Compact, stream: 0 }]);
    assert_eq!(read(&device, &to, 101, 10), (100..110).collect::<Vec<u8>>());
    device
        .copy(MAIN, &[step(0, 10), step(20, 10), step(40, 10), step(4 << 20, 8 << 20)])
        .expect("in");
    let calls = device.driver().calls();
    assert_eq!(calls[0], Call::Launch { function: Function::Compact, stream: 0 });
    assert!(matches!(calls[1..], [Call::Copy { size: 0x80_0000, .. }]), "{calls:?}");
    device.copy(MAIN, &[step(0, 10), step(20, 0), step(40, 10)]).expect("in range");
    let alone = device.driver().calls();
    assert!(matches!(alone[..], [Call::Copy { .. }, Call::Copy { .. }]), "{alone:?}");
}

#[test]
fn what_is_wrong_is_refused_before_the_driver_is_asked() {
    let (device, other) = (open(), open());
    let (ours, theirs) = (block(&device, 100), block(&other, 100));
    device.driver().calls();
    let step = |from, to, offset, size| Move { from: at(from, 0), to: at(to, offset), size };
    let fine = step(&ours, &ours, 50, 10);
    for (wrong, expected) in [
        (step(&ours, &ours, 91, 10), ErrorKind::OutOfRange),
        (step(&ours, &ours, u64::MAX, 10), ErrorKind::OutOfRange),
        (step(&theirs, &ours, 0, 10), ErrorKind::Foreign),
    ] {
        assert_eq!(kind(device.copy(MAIN, &[fine, wrong])), Some(expected));
    }
    assert_eq!(kind(device.write(MAIN, at(&ours, 99), &[0; 2])), Some(ErrorKind::OutOfRange));
    assert_eq!(
        kind(device.fill(TimelineId(9), at(&ours, 0), 1, 0)),
        Some(ErrorKind::NoSuchTimeline)
    );
    assert_eq!(kind(free(&device, theirs)), Some(ErrorKind::Foreign));
    assert_eq!(device.fill(MAIN, at(&ours, 100), 0, 1), Ok(()));
    assert_eq!(device.driver().calls(), [], "nothing was asked");
    let rows = |pitch, width| {
        let (from, to) = (at(&ours, 0), at(&ours, 50));
        Rows { from, from_pitch: pitch, to, to_pitch: 10, width, height: 4 }
    };
    assert_eq!(device.copy_rows(MAIN, rows(10, 8)), Ok(()));
    assert_eq!(device.driver().calls().len(), 4);
    assert_eq!(kind(device.copy_rows(MAIN, rows(10, 11))), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(device.copy_rows(MAIN, rows(40, 8))), Some(ErrorKind::OutOfRange));
}

/// Loads the kernel and returns a launcher: on a timeline, with a constant of the given size.
fn launcher<'a>(
    device: &'a Device,
    constant: &'a Block,
    to: &'a Block,
) -> impl Fn(TimelineId, u64) -> Result<()> + 'a {
    let program: ProgramId = device.load(&KERNEL, 0).expect("it builds");
    move |on, size| {
        let arguments =
            [Argument { place: at(constant, 0), size }, Argument { place: at(to, 0), size: 4 }];
        // SAFETY: the kernel does nothing.
        unsafe { seam::Launch::launch(device, on, program, [1; 3], &arguments, &[0; 4]) }
    }
}

#[test]
fn constants_are_copied_when_they_may_have_changed_and_only_then() {
    let device = open();
    let (to, bank) = (block(&device, 4), allocate(&device, CONSTANT, 256).expect("small"));
    let launch = launcher(&device, &bank, &to);
    let second = device.timelines().open().expect("a stream");
    let symbol = device.driver().symbol();
    let seen = |on, size| {
        launch(on, size).expect("a small launch");
        device.driver().calls()
    };
    let (copy, run) = (
        |size, stream| Call::Copy { to: symbol, size, stream },
        |stream| Call::Launch { function: Function::Other, stream },
    );
    device.driver().calls();
    let other = {
        let first = seen(MAIN, 16);
        assert_eq!(first, [copy(16, 0), run(0)], "the first time");
        assert_eq!(seen(MAIN, 16), [run(0)], "nothing has changed");
        assert_eq!(seen(MAIN, 32), [copy(32, 0), run(0)], "more of it");
        device.write(MAIN, at(&bank, 0), &[1; 8]).expect("in range");
        assert_eq!(seen(MAIN, 32), [copy(32, 0), run(0)], "it was written");
        seen(second, 32)
    };
    // Elsewhere it waits for the launches that still read the symbol.
    let [Call::Order { stream }, Call::Copy { .. }, Call::Launch { .. }] = other[..] else {
        panic!("{other:?}");
    };
    assert_ne!(stream, 0);
    assert_eq!(kind(launch(MAIN, SYMBOL + 4)), Some(ErrorKind::ExceedsLimit));
    let plain = block(&device, 64);
    let launch = launcher(&device, &plain, &to);
    for _ in 0..2 {
        device.driver().calls();
        launch(MAIN, 16).expect("a small launch");
        assert_eq!(device.driver().calls(), [copy(16, 0), run(0)], "nobody tells of its writes");
    }
}

/// The stream of another thread cannot be marked here, and the driver may refuse a mark: neither says that nothing runs there.
#[test]
fn constants_are_not_overwritten_while_an_unmarked_stream_may_read_them() {
    let device = open();
    let (to, bank) = (block(&device, 4), allocate(&device, CONSTANT, 256).expect("small"));
    let (launch, driver) = (launcher(&device, &bank, &to), device.driver());
    let event = u32::MAX;
    // The launch waits on its stream, and the event stands behind it.
    let launch_and_wait = |on, stream| {
        launch(on, 16).expect("a small launch");
        lock(&driver.streams).submit(stream);
        lock(&driver.streams).record(event, stream);
    };
    let refuse = |refuses| driver.refuses_records.store(refuses, Ordering::Relaxed);
    let second = device.timelines().open().expect("a stream");
    let stream = device.timelines().get(second).and_then(|it| it.stream()).expect("open");
    launch_and_wait(second, stream);
    refuse(true);
    launch(MAIN, 16).expect("a small launch");
    assert!(lock(&driver.streams).is_finished(event), "the mark was refused");
    refuse(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let owner = StreamOwner::Thread(std::thread::current().id());
            launch_and_wait(device.timelines().add(77, owner).expect("a stream"), 77);
        });
        other.join().expect("no panic");
    });
    launch(MAIN, 16).expect("a small launch");
    assert!(lock(&driver.streams).is_finished(event), "another thread's stream");
}

#[test]
fn arguments_and_shapes_are_checked() {
    let device = open();
    let (to, bank) = (block(&device, 8), allocate(&device, CONSTANT, 256).expect("small"));
    let launch = launcher(&device, &bank, &to);
    assert_eq!(kind(launch(MAIN, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(kind(launch(MAIN, 6)), Some(ErrorKind::Misaligned));
    assert_eq!(kind(launch(MAIN, 260)), Some(ErrorKind::OutOfRange));
    let kernel =
        Plain::compile(device.driver(), "").expect("always").kernel("any").expect("always");
    device.driver().calls();
    // SAFETY: the kernel does nothing.
    let shaped = |shape| kind(unsafe { device.launch(MAIN, &kernel, shape, &[]) });
    let one = Launch::linear(1, 1);
    assert_eq!(shaped(one.shared(900)), None);
    assert_eq!(device.driver().calls().len(), 1, "up to the default nothing is opted in to");
    assert_eq!((shaped(one.shared(901)), shaped(one.shared(2900))), (None, None));
    let calls = device.driver().calls();
    assert_eq!(calls[0], Call::AllowShared(2900), "all of it, less what the kernel has");
    assert_eq!(calls.len(), 3, "and once");
    assert_eq!(shaped(one.shared(2901)), Some(ErrorKind::ExceedsLimit));
    assert_eq!(shaped(Launch::linear(1, 257)), Some(ErrorKind::ExceedsLimit));
    // SAFETY: it is refused.
    let foreign = unsafe { open().launch(MAIN, &kernel, one, &[]) };
    assert_eq!(kind(foreign), Some(ErrorKind::Foreign));
}

#[test]
fn only_mapped_pages_are_reached() {
    let device = open();
    let memory = device.driver().allocate(4 * 4096).expect("small");
    let positions = Positions::new(PAGE, 4).expect("small");
    positions.map(1, &[Page(1), Page(2)], |_| Ok(())).expect("nothing is mapped");
    // SAFETY: the memory is there, for this block alone.
    let block = unsafe { device.block(DEVICE, memory, 4 * PAGE, Kind::Reserved(positions)) };
    assert_eq!(device.used(DEVICE), 0, "addresses are no memory");
    assert_eq!(device.fill(MAIN, at(&block, PAGE), 2 * PAGE, 1), Ok(()));
    assert_eq!(kind(device.fill(MAIN, at(&block, PAGE - 1), 2, 1)), Some(ErrorKind::OutOfRange));
    assert_eq!(
        kind(device.fill(MAIN, at(&block, 3 * PAGE - 1), 2, 1)),
        Some(ErrorKind::OutOfRange)
    );
    assert_eq!(free(&device, block), Ok(()));
}

#[test]
fn blocks_are_counted_and_broken_promises_are_given_back() {
    let device = open();
    let first = block(&device, 5000);
    assert_eq!(device.used(DEVICE), 5000);
    assert_eq!(kind(allocate(&device, DEVICE, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(kind(allocate(&device, DEVICE, (64 << 20) + 1)), Some(ErrorKind::ExceedsLimit));
    device.driver().calls();
    let aside = |_, _| Ok((device.driver().allocate(4096)? + 1, Kind::Device));
    let give_back = |block: Block| {
        device.let_go(&block)?;
        // SAFETY: `aside` took it, one byte earlier, and nothing uses it.
        unsafe { device.driver().free(block.address() - 1) }
    };
    // SAFETY: eight bytes from there on are the block's.
    let broken = unsafe { device.allocate(DEVICE, 8, aside, give_back) };
    assert_eq!(kind(broken), Some(ErrorKind::Driver));
    assert_eq!((device.driver().calls(), device.used(DEVICE)), (vec![Call::Free], 5000));
    let told = device.budget(DEVICE).expect("it tells");
    assert_eq!((told.budget, told.used), (4 << 20, 1 << 20));
    assert_eq!(kind(device.map(&first)), Some(ErrorKind::NotMappable));
    assert_eq!(free(&device, first), Ok(()));
    assert_eq!((device.used(DEVICE), device.driver().live()), (0, 0));
}

#[test]
fn memory_of_another_process_is_as_long_as_it_says() {
    let device = open();
    let ours = block(&device, 100);
    let handle = device.ipc_handle(&ours).expect("plain memory");
    let opened: Block = device.open_ipc(DEVICE, &handle).expect("the same device");
    assert_eq!((opened.address(), opened.size()), (ours.address(), 100));
    assert_eq!(kind(device.ipc_handle(&opened)), Some(ErrorKind::Unsupported));
    let open = |handle: IpcHandle| kind::<Block>(device.open_ipc(DEVICE, &handle));
    assert_eq!(open(IpcHandle { uuid: Some([2; 16]), ..handle }), Some(ErrorKind::Foreign));
    assert_eq!(open(IpcHandle { size: 0, ..handle }), Some(ErrorKind::ZeroSize));
    for size in [101, 1 << 40, u64::MAX - 0xFF, u64::MAX - ours.address(), u64::MAX] {
        device.driver().calls();
        let refused = open(IpcHandle { size, ..handle });
        assert_eq!(refused, Some(ErrorKind::ExceedsLimit), "{size} bytes");
        assert_eq!(device.driver().calls(), [Call::CloseIpc], "and is closed again");
    }
    device.driver().calls();
    device.driver().is_short.store(true, Ordering::Relaxed);
    assert_eq!(open(handle), Some(ErrorKind::ExceedsLimit));
    assert_eq!(device.driver().calls(), [Call::CloseIpc], "and is closed again");
}

#[test]
fn what_fails_when_a_device_is_opened_is_left_out() {
    let driver = Arc::new(Plain::default());
    let claims = Claims {
        has_pages: false,
        has_managed: true,
        has_concurrent_managed: true,
        wants_managed: true,
        has_pools: true,
        block_source: BlockSource::AsyncPool,
    };
    let pages = |_| -> Result<Align> { panic!("it is not claimed") };
    let pool = |stream| {
        let memory = driver.allocate(PROBE)?;
        // SAFETY: allocated just above.
        let stamped = unsafe { stamp(&*driver, memory, stream) };
        // SAFETY: used by nothing any more.
        unsafe { driver.free(memory) }.and(stamped)
    };
    let verdicts = || {
        run(&driver, claims, pages, pool).map(|outcome| {
            let found = |feature| outcome.findings.iter().find(|found| found.feature == feature);
            [Feature::Pages, Feature::Managed, Feature::AsyncPool]
                .map(|feature| found(feature).expect("each is judged").verdict)
        })
    };
    assert_eq!(verdicts(), Ok([Verdict::Absent, Verdict::Works, Verdict::Works]));
    driver.is_broken.store(true, Ordering::Relaxed);
    let [_, managed, pooled] = verdicts().expect("it opens all the same");
    assert_eq!(managed, Verdict::Works, "the device has not touched it yet");
    assert!(matches!(pooled, Verdict::Quarantined(_)));
    assert_eq!(driver.live(), 0, "nothing is left behind");
    driver.calls();
    driver.is_lost.store(true, Ordering::Relaxed);
    assert_eq!(kind(verdicts()), Some(ErrorKind::DeviceLost));
    assert_eq!(driver.calls().last(), Some(&Call::DestroyStream));
}

#[test]
fn the_device_touches_managed_memory_when_somebody_wants_some() {
    let device = open();
    let (driver, fills) = (device.driver(), |calls: Vec<Call>| {
        calls.into_iter().filter(|call| matches!(call, Call::Fill { .. })).count()
    });
    assert_eq!(fills(driver.calls()), 0, "opening a device costs none of its memory");
    driver.is_broken.store(true, Ordering::Relaxed);
    let before = driver.live();
    assert_eq!(kind(device.allocate_managed(4096)), Some(ErrorKind::Driver));
    assert_eq!(driver.live(), before, "nothing is left behind");
    driver.is_broken.store(false, Ordering::Relaxed);
    driver.calls();
    for tries in [1, 0] {
        let memory = device.allocate_managed(4096).expect("it works now");
        assert_eq!(fills(driver.calls()), tries, "tried once");
        // SAFETY: allocated just above, used by nothing.
        unsafe { driver.free(memory) }.expect("allocated");
    }
}

#[test]
fn a_call_that_failed_may_run_all_the_same_and_its_pinned_bytes_wait() {
    let device = open();
    let (driver, target) = (device.driver(), block(&device, 2 << 20));
    let source = || driver.written_from.load(Ordering::Relaxed);
    device.write(MAIN, at(&target, 0), &[1; 100]).expect("in range");
    let first = source();
    driver.is_unsure.store(true, Ordering::Relaxed);
    assert_eq!(kind(device.write(MAIN, at(&target, 0), &[2; 100])), Some(ErrorKind::Driver));
    let (failed, recorded) = (source(), driver.records.load(Ordering::Relaxed));
    assert_ne!(first, failed);
    let mut bytes = [0; 100];
    assert_eq!(kind(device.read(MAIN, at(&target, 0), &mut bytes)), Some(ErrorKind::Driver));
    assert!(driver.records.load(Ordering::Relaxed) > recorded, "an event says when it has passed");
    // Slices that are pinned already go as they are, and are the caller's again afterwards.
    let mut pinned = vec![9; 2 << 20];
    let records = || driver.records.load(Ordering::Relaxed);
    let before = records();
    assert_eq!(kind(device.write(MAIN, at(&target, 0), &pinned)), Some(ErrorKind::Driver));
    assert_eq!(source(), pinned.as_ptr().expose_provenance() as u64);
    assert_eq!(kind(device.read(MAIN, at(&target, 0), &mut pinned)), Some(ErrorKind::Driver));
    assert_eq!(records(), before + 2, "both are waited for");
    driver.is_unsure.store(false, Ordering::Relaxed);
    device.write(MAIN, at(&target, 0), &[3; 100]).expect("in range");
    assert_ne!(source(), failed, "the device may still read there");
    assert_eq!(read(&device, &target, 0, 100), [3; 100]);
    free(&device, target).expect("idle");
}

#[test]
fn borrowed_memory_is_written_and_left_to_its_owner() {
    let device = open();
    let owned = block(&device, 4096);
    let before = device.used(DEVICE);
    // SAFETY: the owner lives until the end, and nothing else uses its bytes.
    let borrowed = unsafe { device.borrow(owned.address() + 256, 512) }.expect("it has memory");
    device.write(MAIN, at(&borrowed, 4), &[7; 8]).expect("in range");
    let behind = device.write(MAIN, at(&borrowed, 508), &[7; 8]);
    assert_eq!(kind(behind), Some(ErrorKind::OutOfRange));
    assert_eq!(read(&device, &owned, 260, 8), [7; 8]);
    device.let_go(&borrowed).expect("it is the device's own");
    assert_eq!(device.used(DEVICE), before);
    free(&device, owned).expect("nothing uses it");
}

#[test]
fn pinned_memory_of_others_goes_as_it_is_until_its_pin_or_the_device_is_gone() {
    let device = open();
    let (driver, target) = (Arc::clone(device.driver()), block(&device, BOUNCE as u64));
    driver.is_short.store(true, Ordering::Relaxed); // It knows of no pinned memory by itself.
    let mut pieces = [vec![3_u8; BOUNCE], vec![4; BOUNCE]];
    let write = |bytes: &[u8]| {
        device.write(MAIN, at(&target, 0), bytes).expect("in range");
        driver.written_from.load(Ordering::Relaxed) == bytes.as_ptr().expose_provenance() as u64
    };
    assert!(!write(&pieces[0]), "by way of a bounce");
    let [first, second] = pieces.each_mut().map(|piece| NonNull::from(&mut piece[0]));
    // SAFETY: the pieces outlive the pins.
    let pin = |start| unsafe { device.pin_host(start, BOUNCE) }.expect("mapped");
    let mut pins = [first, second].map(pin);
    assert!(pins.iter().all(Option::is_some));
    assert!(pin(first).is_none(), "it is pinned already");
    assert!(pieces.iter().all(|piece| write(piece) && write(&piece[4096..])));
    pins[0] = None;
    assert!(!write(&pieces[0]) && write(&pieces[1]));
    driver.is_unsure.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    assert_eq!(kind(unsafe { device.pin_host(first, BOUNCE) }.map(drop)), Some(ErrorKind::Driver));
    assert_eq!(lock(&driver.pinned).len(), 1);
    drop(target);
    drop(device);
    assert!(lock(&driver.pinned).is_empty());
    drop(pins);
}
