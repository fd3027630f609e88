//! W: kernels over allocations; what other groups promise of copies, for the work that devices are there for.
#![expect(unsafe_code, reason = "launches kernels")]
use super::{fill_up, kind, place_of, take};
use crate::case::{Case, Need};
use crate::world::{Stack, World, in_heap, timelines};
use omniheap_core::{
    Allocation, Backend, Clear, ErrorKind, Heap, HeapKind, Kernel, KernelText, Lifetime, Manager,
    Pattern, Point, Reason, Region, Request, SharedArray, SharedLayout, TimelineId, Usage, Writer,
};
use omniheap_extras::{Constant, ConstantHome, allocate_constants, plan_constants};
use omniheap_shaders::{CONVOLUTION, REDUCTION, RESIDUE, SCALE};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        kernels_run_in_the_order_of_their_timeline proves [80] needs [Launch, Transfer];
        kernels_keep_the_bytes_they_use_until_they_have_run proves [81, 82] needs [Launch, Transfer, Timelines, Hold];
        kernels_run_after_a_shortage proves [29] needs [Launch, Transfer];
        kernels_see_constants_and_have_shared_memory proves [103, 104] needs [Launch, Transfer, Shared];
        constants_of_a_set_travel_with_the_launch_or_share_the_bank proves [103] needs [Launch, Transfer];
        kernels_that_ask_for_what_is_not_there_are_refused proves [104] needs [Launch, Shared];
        kernels_see_what_is_published_and_leave_it_as_it_is proves [107] needs [Launch, Transfer];
        kernels_find_zeros_in_shared_memory_that_counts_on_them proves [140] needs [Launch, Transfer, Shared];
    }
}

const MAIN: TimelineId = TimelineId::MAIN;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words(of: &[f32]) -> Vec<u32> {
    of.iter().map(|number| number.to_bits()).collect()
}

/// An allocation that holds these words.
fn holding<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    request: Request<'_>,
    content: &[u32],
) -> Allocation<Stack<B>> {
    let made = take(manager, &request);
    made.write(0, &bytes(content)).expect("inside");
    made
}

fn with<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    content: &[u32],
) -> Allocation<Stack<B>> {
    holding(manager, Request::new(4 * content.len() as u64), content)
}

fn read<B: Backend>(from: &Allocation<B>) -> Vec<u32> {
    let mut found = vec![0; usize::try_from(from.size()).expect("cases use small sizes")];
    from.read(0, &mut found).expect("inside");
    found
        .chunks_exact(4)
        .map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
        .collect()
}

/// Runs a kernel once, with words for parameters.
fn run<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    (kernel, shared): (&Kernel, u64),
    groups: u32,
    arguments: &[&Allocation<Stack<B>>],
    parameters: &[u32],
) {
    let program = manager.load(kernel, shared).expect("within the limits");
    // SAFETY: the callers in this file pass arguments as long as their parameters say, and no two are the same.
    unsafe { program.launch(MAIN, [groups, 1, 1], arguments, &bytes(parameters)) }
        .expect("as declared");
}

fn kernels_run_in_the_order_of_their_timeline<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let parameters = bytes(&[512, 1f32.to_bits(), 1f32.to_bits()]);
    let scale = manager.load(&SCALE, 0).expect("needed");
    let on_main = |content: &[f32]| holding(&manager, Request::new(2048).on(MAIN), &words(content));
    let mut from = on_main(&[1.0; 512]);
    for _ in 0..50 {
        let to = on_main(&[0.0; 512]);
        // SAFETY: 512 numbers in, 512 out.
        unsafe { scale.launch(MAIN, [2, 1, 1], &[&from, &to], &parameters) }.expect("as declared");
        // Freed while its kernel may still run: the next allocation may have its bytes, but only in its order.
        from = to;
    }
    assert_eq!(read(&from), words(&[51.0; 512]));
}

fn kernels_keep_the_bytes_they_use_until_they_have_run<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let line = timelines(&**world.backend()).open().expect("one more");
    let (from, to) = (with(&manager, &words(&[3.0; 64])), with(&manager, &words(&[0.0; 64])));
    let scale = manager.load(&SCALE, 0).expect("needed");
    let hold = world.hold(line);
    let parameters = bytes(&[64, 2f32.to_bits(), 0]);
    // SAFETY: 64 numbers in, 64 out.
    unsafe { scale.launch(line, [1, 1, 1], &[&from, &to], &parameters) }.expect("as declared");
    let place = place_of(&from);
    drop(from);
    for _ in 0..4 {
        let other = with(&manager, &words(&[9.0; 64]));
        let now = place_of(&other);
        assert!(now.0 != place.0 || !now.1.overlaps(place.1), "the kernel has not read them yet");
    }
    drop(hold);
    let epoch = timelines(&**world.backend()).mark(line).expect("open");
    timelines(&**world.backend()).wait(Point { timeline: line, epoch }).expect("it ends");
    assert_eq!(read(&to), words(&[6.0; 64]));
    drop((to, scale));
    manager.backend().wait_idle().expect("everything ends");
    manager.trim().expect("nothing is in use");
    timelines(&**world.backend()).close(line).expect("idle");
}

fn kernels_run_after_a_shortage<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(16 << 20, u64::MAX));
    let (from, to) = (with(&manager, &words(&[5.0; 256])), with(&manager, &words(&[0.0; 256])));
    let (rest, why) = fill_up(&manager, &in_heap(world.device_heap(), 1 << 20));
    assert!(why.is_out_of_memory(), "{why:?}");
    run(&manager, (&SCALE, 0), 1, &[&from, &to], &[256, 2f32.to_bits(), 0]);
    assert_eq!(read(&to), words(&[10.0; 256]), "new work runs");
    assert_eq!(read(&from), words(&[5.0; 256]), "older data is intact");
    drop(rest);
}

fn kernels_see_constants_and_have_shared_memory<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let out = with(&manager, &[0; 4]);
    let many = with(&manager, &words(&[1.0; 1000]));
    run(&manager, (&REDUCTION, 1024), 4, &[&many, &out], &[1000, 4]);
    let sum: f32 = read(&out).into_iter().map(f32::from_bits).sum();
    assert_eq!(sum, 1000.0, "groups add up in shared memory");
    let image = with(&manager, &words(&[1.0, 2.0, 3.0, 4.0]));
    let mut filter = [0.0; 256];
    filter[..9].copy_from_slice(&[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let table = Request::new(1024).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    for round in 1..=3 {
        let filter = filter.map(|weight| weight * round as f32);
        let filter = holding(&manager, table, &words(&filter));
        run(&manager, (&CONVOLUTION.constant, 0), 1, &[&filter, &image, &out], &[2, 2, 1]);
        let expected = [7.0, 9.0, 11.0, 13.0].map(|value| value * round as f32);
        assert_eq!(read(&out), words(&expected), "as written before the launch, round {round}");
    }
}

fn constants_of_a_set_travel_with_the_launch_or_share_the_bank<B: Backend + 'static>(
    world: &World<B>,
) {
    let manager = world.manager();
    let Some(limits) = manager.caps().constant else { return };
    let table = |sixteenths: u64| {
        let size = limits.bank.min(limits.max_bind).min(1 << 20) / 16 * sixteenths;
        Request::new(size).writer(Writer::HostOnce).pattern(Pattern::Broadcast).reuse(2)
    };
    let small = Request::new(12)
        .usage(Usage::Upload)
        .pattern(Pattern::Broadcast)
        .lifetime(Lifetime::Kernel);
    let set = [small, table(10), table(7), table(7)];
    let plan = plan_constants(&manager, &set, 0).expect("served");
    assert_eq!(plan.benefit, plan.bound, "few constants are placed in the best way there is");
    let region = |home: &ConstantHome| match home {
        ConstantHome::Push { .. } => None,
        ConstantHome::Memory(placement) => Some((placement.region, placement.reason)),
    };
    let inside = Some((Region::Constant, Reason::Broadcast));
    let homes: Vec<_> = plan.homes.iter().map(region).collect();
    assert_eq!(homes[2..], [inside; 2], "together they gain more than the large one");
    let is_bank = |heap: &Heap| heap.kind == HeapKind::Constant && heap.size <= limits.bank;
    let is_full = limits.bank <= 1 << 20 && manager.caps().heaps.iter().any(is_bank);
    assert_eq!(homes[1] != inside, is_full, "a bank has no room for all three");
    let made = allocate_constants(&manager, &set, 0).expect("as planned");
    let (from, to) = (with(&manager, &words(&[3.0; 64])), with(&manager, &words(&[0.0; 64])));
    assert_eq!(homes[0].is_none(), limits.push >= 12, "the smallest travels where there is room");
    if let Constant::Push { offset } = made[0] {
        assert_eq!(offset, 0, "the kernel has no parameters of its own");
        run(&manager, (&SCALE, 0), 1, &[&from, &to], &[64, 2f32.to_bits(), 1f32.to_bits()]);
        assert_eq!(read(&to), words(&[7.0; 64]), "and the kernel sees it");
    }
}

fn kernels_that_ask_for_what_is_not_there_are_refused<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let caps = world.backend().caps().shared.expect("needed");
    let most = caps.per_group.max(caps.per_group_opt_in);
    let load = |shared| manager.load(&REDUCTION, shared).map(drop);
    assert_eq!(kind(load((most + 4).next_multiple_of(4))), ErrorKind::ExceedsLimit);
    assert_eq!(kind(load(1026)), ErrorKind::Misaligned);
    // SAFETY: its SPIR-V is none, and so it is refused, also where other text would run.
    let slip = unsafe { Kernel::new(KernelText { spirv: &[1, 2, 3], ..*SCALE }) };
    assert_eq!(kind(manager.load(&slip, 0).map(drop)), ErrorKind::InvalidConfig);
    load(1024).expect("nothing is left of the refusals");
    let (a, b) = (take(&manager, &Request::new(1024)), take(&manager, &Request::new(1024)));
    let scale = manager.load(&SCALE, 0).expect("needed");
    let launch = |groups, arguments: &[&Allocation<Stack<B>>], parameters: &[u8]| {
        // SAFETY: every call is refused.
        kind(unsafe { scale.launch(MAIN, groups, arguments, parameters) })
    };
    assert_eq!(launch([1, 1, 1], &[&a], &[0; 12]), ErrorKind::InvalidConfig);
    assert_eq!(launch([1, 1, 1], &[&a, &b], &[0; 8]), ErrorKind::InvalidConfig);
    assert_eq!(launch([1, 0, 1], &[&a, &b], &[0; 12]), ErrorKind::ZeroSize);
    let other = world.manager();
    let foreign = take(&other, &Request::new(1024));
    assert_eq!(launch([1, 1, 1], &[&a, &foreign], &[0; 12]), ErrorKind::Foreign);
}

fn kernels_see_what_is_published_and_leave_it_as_it_is<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let (image, out) = (with(&manager, &words(&[1.0, 2.0, 3.0, 4.0])), with(&manager, &[0; 4]));
    let mut filter = [0.0; 256];
    filter[..9].copy_from_slice(&[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let table = Request::new(1024).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    let filter = holding(&manager, table, &words(&filter));
    for one in [&filter, &image] {
        one.publish().expect("written");
    }
    run(&manager, (&CONVOLUTION.constant, 0), 1, &[&filter, &image, &out], &[2, 2, 1]);
    assert_eq!(read(&out), words(&[7.0, 9.0, 11.0, 13.0]), "the kernel sees the bytes");
    let (scale, parameters) = (manager.load(&SCALE, 0).expect("needed"), [4, 1f32.to_bits(), 0]);
    // SAFETY: the call is refused.
    let refused = unsafe { scale.launch(MAIN, [1; 3], &[&out, &image], &bytes(&parameters)) };
    assert_eq!(kind(refused), ErrorKind::Published);
    assert_eq!(read(&image), words(&[1.0, 2.0, 3.0, 4.0]));
}

/// Returns the shared memory that a kernel finds when it starts, group by group; it leaves a canary there.
fn found<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    array: SharedArray<'_>,
    canary: u32,
) -> Vec<u32> {
    const GROUPS: u32 = 64;
    let caps = manager.caps().shared.expect("needed");
    let layout = SharedLayout::plan(&[array], 0, &caps).expect("small");
    let has = |when: Clear| u32::from(layout.clears.iter().any(|(clear, _)| *clear == when));
    let length = u32::try_from(layout.bytes / 4).expect("small");
    let out = with(manager, &vec![canary; (length * GROUPS) as usize]);
    let parameters = [length, has(Clear::Before(0)), canary, has(Clear::After(0))];
    run(manager, (&RESIDUE, layout.bytes), GROUPS, &[&out], &parameters);
    read(&out)
}

fn kernels_find_zeros_in_shared_memory_that_counts_on_them<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let listener = manager.domain(world.config()).expect("the device clears memory");
    let array = SharedArray::new("left", 4, 2048);
    found(&manager, array, 0xA5A5_A5A5);
    let zeroed = found(&listener, array.zeroed(), 0x0101_0101);
    assert!(zeroed.iter().all(|word| *word == 0), "zeros, whoever was there before");
    found(&manager, array.secret(), 0xC3C3_C3C3);
    let heard = found(&listener, array, 0x0202_0202);
    assert!(heard.iter().all(|word| *word != 0xC3C3_C3C3), "a secret is gone with its kernel");
}
