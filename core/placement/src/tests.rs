//! Tables and properties of the rules.
mod bank;
mod decisions;
mod devices;
mod layout;
mod likeness;

use super::*;
use devices::*;
use omniheap_seam::{Align, ErrorKind, HeapKind, HostAccess, KernelAccess};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn table(size: u64, pattern: Pattern, reuse: u32) -> Request<'static> {
    Request::new(size).writer(Writer::HostOnce).pattern(pattern).reuse(reuse)
}

/// Name of a request, the request, and its region on each device.
type Row = (&'static str, Request<'static>, [(Region, Reason); 9]);

/// H200, MI300X, RX 7900, RTX 4090, RTX 2080, Iris Xe, Adreno, Mali, WebGPU: one of a few answers each.
fn row<const FEW: usize>(
    name: &'static str,
    request: Request<'static>,
    few: [Answer; FEW],
    at: [usize; 9],
) -> Row {
    (name, request, at.map(|place| few[place]))
}

type Answer = (Region, Reason);

/// Tables that kernels read.
fn tables() -> Vec<Row> {
    use Reason::{Broadcast, ReusedByGroup, Substitute, TooLargeFor, WrittenOnce};
    use Region::{Constant, Device, Shared, Unified};
    let (constant, shared) = ([(Constant, Broadcast); 2], [(Shared, ReusedByGroup); 2]);
    let once = [(Device, WrittenOnce), (Unified, Substitute(Device))];
    let (device, unified) = ((Device, TooLargeFor(Constant)), (Unified, TooLargeFor(Constant)));
    let large =
        [device, constant[0], constant[0], device, device, constant[0], unified, unified, device];
    let tile = Request::new(8 * KIB).pattern(Pattern::Tiled).reuse(16);
    vec![
        row("weights", table(16 * KIB, Pattern::Broadcast, 100), shared, [0; 9]),
        row("filter", table(KIB, Pattern::Broadcast, 100), constant, [0; 9]),
        row("palette", table(4 * KIB, Pattern::Gathered, 64), shared, [0; 9]),
        row("tile", tile, shared, [0; 9]),
        row("once", table(4 * KIB, Pattern::Gathered, 1), once, [0, 0, 0, 0, 0, 1, 1, 1, 0]),
        ("large", table(16 * MIB, Pattern::Broadcast, 1), large),
    ]
}

/// Data that the host or kernels write.
fn streams() -> Vec<Row> {
    use Reason::{
        CopiedPerFrame, ReadByHost, StagingUnbindable, Substitute, UsedByBoth, WrittenByKernels,
        WrittenInPlace, WrittenPerFrame,
    };
    use Region::{Device, Staging, Unified};
    let plain = [(Device, WrittenByKernels), (Unified, Substitute(Device))];
    let frame =
        [(Staging, WrittenPerFrame), (Unified, WrittenInPlace), (Device, StagingUnbindable)];
    let often = [(Device, CopiedPerFrame), (Unified, WrittenInPlace)];
    let back = [(Staging, ReadByHost), (Unified, Substitute(Staging))];
    let both = [(Unified, UsedByBoth), (Staging, Substitute(Unified))];
    let on_both = Request::new(MIB).access(Access::Both);
    let again = Request::new(512 * MIB).usage(Usage::Upload).reuse(4);
    vec![
        row("plain", Request::new(MIB), plain, [0, 0, 0, 0, 0, 1, 1, 1, 0]),
        row("frame", Request::new(MIB).usage(Usage::Upload), frame, [0, 0, 0, 1, 1, 1, 1, 1, 2]),
        row("often", again, often, [0, 0, 0, 1, 0, 1, 1, 1, 0]),
        row("back", Request::new(MIB).usage(Usage::Readback), back, [0, 0, 0, 0, 0, 1, 1, 1, 0]),
        row("both", on_both, both, [0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ]
}

#[test]
fn every_request_goes_where_the_table_says_and_says_why() {
    for (name, request, wanted) in tables().into_iter().chain(streams()) {
        for (device, wanted) in all().iter().zip(wanted) {
            let placed = DefaultPolicy.place(&request, device).expect("it fits");
            assert_eq!((placed.region, placed.reason), wanted, "{name} on {}", device.device.name);
        }
    }
}

#[test]
fn a_coherent_request_leaves_out_what_needs_a_flush() {
    let back = Request::new(MIB).usage(Usage::Readback);
    let heaps = |request: &Request<'_>| {
        let placed = DefaultPolicy.place(request, &lazy_phone()).expect("it fits");
        placed.heaps.as_slice().to_vec()
    };
    assert_eq!(
        heaps(&back),
        [omniheap_seam::HeapId(1), omniheap_seam::HeapId(0)],
        "cached memory reads faster"
    );
    assert_eq!(heaps(&back.coherent()), [omniheap_seam::HeapId(0)]);
}

#[test]
fn a_slow_window_is_not_used() {
    let frame = Request::new(MIB).usage(Usage::Upload);
    let slow = MeasuredPolicy { profile: Profile::ASSUMED.with_window(110) };
    let region = |policy: &dyn Policy, device: &omniheap_seam::Caps| {
        policy.place(&frame, device).expect("it fits").region
    };
    assert_eq!(region(&DefaultPolicy, &rtx_4090()), Region::Unified);
    assert_eq!(region(&slow, &rtx_4090()), Region::Staging);
    let at = |percent| MeasuredPolicy { profile: Profile::ASSUMED.with_window(percent) };
    let both = [95, 96].map(|percent| region(&at(percent), &rtx_4090()));
    assert_eq!(both, [Region::Unified, Region::Staging], "five percent are worth it");
    assert_eq!(region(&slow, &intel_integrated()), Region::Unified, "its only memory");
}

/// Returns the same cost for every probe of a pattern.
fn with(profile: Profile, pattern: Pattern, size: u64, cost: Cost) -> Profile {
    let set = |profile: Profile, probe| profile.with(probe, TableSize::of(size), cost);
    Probe::like(&table(size, pattern, 1)).fold(profile, set)
}

#[test]
fn what_a_group_reads_less_than_once_is_not_brought_closer() {
    let cheap = Cost { constant: 500, shared: 10, stage: 0 };
    let profile = with(Profile::ASSUMED, Pattern::Gathered, 32 * KIB, cheap);
    let region = |reuse| {
        let request = table(32 * KIB, Pattern::Gathered, reuse);
        MeasuredPolicy { profile }.place(&request, &h200()).expect("it fits").region
    };
    assert_eq!((region(1), region(0)), (Region::Shared, Region::Device));
}

#[test]
fn computed_addresses_records_and_what_a_group_touches_matter() {
    let region =
        |request: Request<'_>| DefaultPolicy.place(&request, &h200()).expect("it fits").region;
    assert_eq!(region(table(KIB, Pattern::Broadcast, 100)), Region::Constant);
    assert_eq!(region(table(KIB, Pattern::Uniform, 100)), Region::Shared, "the compiler is blind");
    assert_eq!(region(table(40 * KIB, Pattern::Broadcast, 4)), Region::Constant, "seldom read");
    assert_eq!(region(table(40 * KIB, Pattern::Uniform, 4)), Region::Device, "and computed");
    assert_eq!(region(table(4 * KIB, Pattern::Gathered, 64)), Region::Shared);
    assert_eq!(region(table(4 * KIB, Pattern::Records, 64)), Region::Device, "as fast, unstaged");
    let fast = Cost { constant: 500, shared: 60, stage: 100 };
    let plain = Cost { shared: 100, ..fast };
    let profile = with(Profile::ASSUMED, Pattern::Gathered, 32 * KIB, fast);
    let profile = with(profile, Pattern::Gathered, 256, plain);
    let measured = MeasuredPolicy { profile };
    let all = table(32 * KIB, Pattern::Gathered, 8);
    let placed = |request: &Request<'_>| measured.place(request, &h200()).expect("it fits").region;
    assert_eq!(placed(&all), Region::Shared);
    assert_eq!(placed(&all.touches(256)), Region::Device, "a cache holds that little as well");
    assert_eq!(placed(&all.touches(u64::MAX)), Region::Shared, "never more than all");
}

#[test]
fn every_size_has_the_class_above_it() {
    let sizes = [(1, 256), (256, 256), (257, 512), (1792, 2048), (40_960, 49_152)];
    for (size, most) in sizes {
        assert_eq!(TableSize::of(size).most(), most, "{size}");
    }
    assert_eq!(TableSize::of(u64::MAX).most(), MIB, "the last one serves the rest");
    assert_eq!(TableSize::ALL.map(TableSize::most).map(TableSize::of), TableSize::ALL);
}

#[test]
fn words_stand_for_one_value_each() {
    fn check<T: Keyword + core::fmt::Debug>(count: usize) {
        assert_eq!(T::WORDS.len(), count);
        for (word, value) in T::WORDS {
            assert_eq!((T::from_word(word), value.word()), (Some(*value), *word));
        }
        assert_eq!(T::from_word("sideways"), None);
    }
    check::<Region>(5);
    check::<Writer>(3);
    check::<Access>(3);
    check::<Pattern>(7);
    check::<Work>(2);
    check::<Dependence>(3);
    check::<Probe>(8);
    check::<Lifetime>(3);
    check::<Coherence>(2);
    check::<Substitution>(2);
    check::<Spill>(2);
    check::<Privacy>(2);
}

#[test]
fn a_substitute_is_named_and_can_be_forbidden() {
    let large = table(16 * MIB, Pattern::Broadcast, 1);
    let placed = DefaultPolicy.place(&large, &h200()).expect("device memory");
    assert_eq!(placed.reason, Reason::TooLargeFor(Region::Constant));
    let kind = |request: &Request<'_>, caps: &omniheap_seam::Caps| {
        DefaultPolicy.place(request, caps).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(kind(&large.no_substitute(), &h200()), Err(ErrorKind::ExceedsLimit));
    assert_eq!(kind(&table(KIB, Pattern::Broadcast, 9).no_substitute(), &h200()), Ok(()));
    let both = Request::new(KIB).access(Access::Both);
    assert_eq!(
        DefaultPolicy.place(&both, &web()).expect("staging").reason,
        Reason::Substitute(Region::Unified)
    );
    assert_eq!(kind(&both.no_substitute(), &web()), Err(ErrorKind::NoSuchHeap));
}

#[test]
fn what_kernels_read_is_never_placed_where_they_cannot_bind_it() {
    let upload = Request::new(KIB).usage(Usage::Upload);
    let placed = DefaultPolicy.place(&upload, &web()).expect("device memory");
    let told = (placed.region, placed.reason);
    assert_eq!(told, (Region::Device, Reason::StagingUnbindable));
    let kernels = |placed: &Placement, caps: &omniheap_seam::Caps| {
        let heaps = placed.heaps.as_slice().iter();
        heaps.map(|heap| caps.heap(*heap).expect("there").kernels).collect::<Vec<_>>()
    };
    assert_eq!(kernels(&placed, &web()), [KernelAccess::ReadOnly], "and nowhere else");
    let table = upload.pattern(Pattern::Broadcast);
    let placed = DefaultPolicy.place(&table, &web()).expect("constants");
    assert_eq!(placed.region, Region::Constant);
    assert!(!kernels(&placed, &web()).contains(&KernelAccess::None), "not as a substitute either");
    let mut window = web();
    window.heaps.push(heap(HeapKind::Unified, 1024 * MIB, HostAccess::Combined));
    let placed = DefaultPolicy.place(&upload, &window).expect("the window");
    assert!(!kernels(&placed, &window).contains(&KernelAccess::None));
    // One staging heap that kernels can bind is enough, and a device without staging memory substitutes it.
    let mut bindable = web();
    bindable.heaps.push(heap(HeapKind::Staging, 1024 * MIB, HostAccess::Cached));
    let placed = DefaultPolicy.place(&upload, &bindable).expect("staging");
    assert_eq!(kernels(&placed, &bindable), [KernelAccess::ReadWrite]);
    // Data that the host reads is copied there.
    let read = DefaultPolicy.place(&Request::new(KIB).usage(Usage::Readback), &web());
    assert_eq!(read.expect("staging").region, Region::Staging);
}

#[test]
fn verdicts_name_the_limit_and_the_value() {
    let large = table(16 * MIB, Pattern::Broadcast, 1);
    let verdicts = judge(&large, &h200(), &Profile::ASSUMED, Region::Device);
    let of = |region| verdicts.iter().find(|verdict| verdict.region == region).expect("each once");
    let limit = 64 * KIB;
    let too_large = Refusal::TooLarge { size: 16 * MIB, limit };
    assert_eq!(of(Region::Constant).refusal, Some(too_large));
    assert!(too_large.to_string().contains("16777216") && too_large.to_string().contains("65536"));
    assert_eq!(of(Region::Device).refusal, None);
    assert_eq!(of(Region::Staging).refusal, Some(Refusal::NotForKernels));
    let verdicts = judge(&large, &h200(), &Profile::ASSUMED, Region::Staging);
    assert_eq!(
        verdicts[0].refusal,
        Some(Refusal::Outranked),
        "device memory is not slower than itself"
    );
    let verdicts = judge(&Request::new(KIB), &web(), &Profile::ASSUMED, Region::Device);
    let refusals: Vec<_> = verdicts.iter().filter_map(|verdict| verdict.refusal).collect();
    assert!(refusals.contains(&Refusal::Missing), "no unified memory there");
    assert!(refusals.contains(&Refusal::ReadOnly), "kernels write it");
}

#[test]
fn a_refusal_is_exact_at_its_limit() {
    let refusal = |request: &Request<'_>, caps: &omniheap_seam::Caps, region| {
        regions::refuse(request, caps, &Profile::ASSUMED, region)
    };
    let mut caps = h200();
    for (limit, expected) in [(0, Refusal::Missing), (1, Refusal::TooLarge { size: 2, limit: 1 })] {
        caps.shared = Some(shared(limit, limit, limit));
        assert_eq!(refusal(&Request::new(2), &caps, Region::Shared), expected);
    }
    let upload = Request::new(KIB).usage(Usage::Upload).coherent();
    assert_ne!(refusal(&upload, &caps, Region::Staging), Refusal::Incoherent);
    for heap in &mut caps.heaps {
        heap.host = HostAccess::Incoherent;
    }
    assert_eq!(refusal(&upload, &caps, Region::Staging), Refusal::Incoherent);
    let plain = Request::new(KIB).usage(Usage::Upload);
    assert_ne!(refusal(&plain, &caps, Region::Staging), Refusal::Incoherent);
}

#[test]
fn a_refused_request_is_told_the_limit_of_memory_that_is_there() {
    let mut caps = h200();
    caps.heaps.truncate(1);
    caps.heaps[0].kind = HeapKind::Unified;
    let limit = caps.heaps[0].max_block;
    let verdict = refused(&Request::new(limit + 1), &caps, &Profile::ASSUMED);
    assert_eq!(verdict.region, Region::Unified, "an integrated device has no device memory");
    assert_eq!(verdict.refusal, Some(Refusal::TooLarge { size: limit + 1, limit }));
    caps.heaps.clear();
    let verdict = refused(&Request::new(1), &caps, &Profile::ASSUMED);
    assert_eq!((verdict.region, verdict.refusal), (Region::Device, Some(Refusal::Missing)));
}

#[test]
fn what_fits_a_block_and_not_its_alignment_is_misaligned_not_too_large() {
    let mut caps = h200();
    caps.heaps.retain(|heap| heap.kind == HeapKind::Device);
    let most = caps.heaps[0].max_block;
    let kind = |size| {
        let request = Request::new(size).align(Align::of(1 << 20));
        DefaultPolicy.place(&request, &caps).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(kind(most), Err(ErrorKind::InvalidAlignment));
    assert_eq!(kind(most + 1), Err(ErrorKind::ExceedsLimit));
}

#[test]
fn what_spills_goes_to_the_memory_that_its_host_accesses_want() {
    let caps = h200();
    let heaps = |request: &Request<'_>| spill(request, &caps).as_slice().to_vec();
    let ids = |first, second| vec![omniheap_seam::HeapId(first), omniheap_seam::HeapId(second)];
    assert_eq!(heaps(&Request::new(KIB)), ids(1, 2), "write-combined memory first");
    assert_eq!(heaps(&Request::new(KIB).usage(Usage::Readback)), ids(2, 1), "cached memory first");
    let mut caps = caps;
    caps.heaps[1].host = HostAccess::Incoherent;
    let found = spill(&Request::new(KIB), &caps).as_slice().to_vec();
    assert_eq!(found, ids(2, 1), "what needs no flush first");
    let found = spill(&Request::new(KIB).usage(Usage::Readback), &caps).as_slice().to_vec();
    assert_eq!(found, ids(2, 1), "reads as well");
}

#[test]
fn where_costs_are_equal_shared_memory_goes_before_device_memory_and_constants_before_both() {
    let placed = |profile, request: &Request<'_>| {
        MeasuredPolicy { profile }.place(request, &h200()).expect("it fits").region
    };
    let gathered = |stage| {
        let cost = Cost { constant: 500, shared: 90, stage };
        with(Profile::ASSUMED, Pattern::Gathered, 32 * KIB, cost)
    };
    let request = table(32 * KIB, Pattern::Gathered, 10);
    assert_eq!(placed(gathered(100), &request), Region::Shared, "10 reads of 90 and 100 more");
    assert_eq!(placed(gathered(101), &request), Region::Device);
    let equal = Cost { constant: 50, shared: 50, stage: 0 };
    // A kernel's own bytes stand beside the table.
    let profile = with(Profile::ASSUMED, Pattern::Broadcast, KIB, equal);
    let profile = with(profile, Pattern::Broadcast, KIB + 512, equal);
    assert_eq!(placed(profile, &table(KIB, Pattern::Broadcast, 100)), Region::Constant);
}

#[test]
fn a_bank_holds_what_one_kernel_can_bind_of_it() {
    let request = table(KIB, Pattern::Broadcast, 100);
    for (bank, max_bind) in [(64 * KIB, 512), (512, 64 * KIB)] {
        let mut device = h200();
        let constant = device.constant.expect("it has a bank");
        device.constant = Some(omniheap_seam::ConstantCaps { bank, max_bind, ..constant });
        let placed = DefaultPolicy.place(&request, &device).expect("elsewhere");
        assert_eq!(placed.reason, Reason::TooLargeFor(Region::Constant));
    }
}

#[test]
fn only_a_read_only_heap_of_device_memory_takes_what_the_host_writes() {
    let mut device = h200();
    device.heaps[1].kernels = KernelAccess::ReadOnly;
    let request = Request::new(KIB).writer(Writer::HostOnce);
    assert_eq!(reject(&request, &device.heaps[0], &device), None);
    assert_eq!(DefaultPolicy.place(&request, &device), DefaultPolicy.place(&request, &h200()));
}

#[test]
fn a_ranking_has_eight_places() {
    let mut ranking = Ranking::new();
    (0..12).chain(0..3).for_each(|heap| ranking.push(omniheap_seam::HeapId(heap)));
    assert!(ranking.as_slice().iter().map(|heap| heap.0).eq(0..8));
}

#[test]
fn a_measurement_changes_the_decision() {
    let filter = table(KIB, Pattern::Broadcast, 100);
    let slow = Cost { constant: 120, shared: 120, stage: 200 };
    let profile = with(Profile::ASSUMED, Pattern::Broadcast, KIB, slow);
    let measured = MeasuredPolicy { profile };
    assert_eq!(measured.place(&filter, &h200()).expect("fits").region, Region::Device);
    let larger = table(4 * KIB, Pattern::Broadcast, 100);
    assert_eq!(measured.place(&larger, &h200()).expect("fits").region, Region::Shared);
}

#[test]
fn the_mean_of_the_probes_decides() {
    // One kind of kernel is a third faster from constants than from shared memory, the other twice as slow.
    let rolled = Cost { constant: 45, shared: 60, stage: 0 };
    let unrolled = Cost { constant: 100, shared: 50, stage: 0 };
    let size = TableSize::of(2 * KIB);
    let both = |size, first, second| {
        let profile = with(Profile::ASSUMED, Pattern::Broadcast, 2 * KIB, second);
        profile.with(Probe::Whole, size, first).with(Probe::Busy, size, first)
    };
    let region = |profile| {
        let request = table(2 * KIB, Pattern::Broadcast, 100);
        MeasuredPolicy { profile }.place(&request, &h200()).expect("it fits").region
    };
    let agreed = with(both(size, rolled, rolled), Pattern::Broadcast, 3 * KIB, rolled);
    assert_eq!(region(both(size, rolled, unrolled)), Region::Shared);
    assert_eq!(region(agreed), Region::Constant);
    // Table sizes near the end of the constant cache count as beyond it.
    assert_eq!(region(with(agreed, Pattern::Broadcast, 3 * KIB, unrolled)), Region::Shared);
}

#[test]
fn a_bank_and_ranges_of_buffers_are_different_constants() {
    let region = |device: &omniheap_seam::Caps, request: &Request<'_>| {
        DefaultPolicy.place(request, device).expect("it fits").region
    };
    let edge = table(3 * KIB / 2, Pattern::Broadcast, 100);
    let wanted = (Region::Shared, Region::Constant);
    assert_eq!((region(&h200(), &edge), region(&rtx_4090(), &edge)), wanted);
    assert_eq!(region(&web(), &edge), Region::Constant, "a heap of constants is not a bank");
    // A kernel that spends little time in its table loses by a copy where shared memory is dear.
    for size in [12 * KIB, 40 * KIB] {
        let large = table(size, Pattern::Gathered, 2);
        let wanted = (Region::Shared, Region::Device);
        assert_eq!((region(&h200(), &large), region(&rtx_4090(), &large)), wanted, "{size}");
    }
}

/// Numbers that depend on the seed alone.
pub(super) fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("small")
}

/// Returns a request that says anything.
fn anything(next: &mut impl FnMut(u64) -> u64) -> Request<'static> {
    let most = 1 << (1 + next(30));
    let request = Request::new(1 + next(most))
        .align(Align::of(1 << next(8)))
        .writer([Writer::Device, Writer::HostOnce, Writer::HostPerFrame][index(next(3))])
        .access([Access::Device, Access::Host, Access::Both][index(next(3))])
        .pattern(Pattern::WORDS[index(next(7))].1)
        .work(Work::WORDS[index(next(2))].1)
        .dependence(Dependence::WORDS[index(next(3))].1)
        .reuse(u32::try_from(next(1000)).expect("small"));
    match next(4) {
        0 => request.coherent(),
        1 => request.no_substitute(),
        2 => request.may_spill(),
        _ => request,
    }
}

#[test]
fn no_limit_is_exceeded_and_every_decision_is_pure() {
    let mut next = random(1);
    let devices = all();
    for _ in 0..20_000 {
        let request = anything(&mut next);
        let device = &devices[index(next(9))];
        let fits = |heap: &omniheap_seam::HeapId| {
            let heap = device.heap(*heap).expect("named by the device");
            assert!(request.layout.size <= heap.max_block && request.layout.align <= heap.align);
            let used = request.access != Access::Device || request.writer == Writer::HostPerFrame;
            let lazy = heap.host == HostAccess::Incoherent;
            assert!(!(lazy && used && request.coherence == Coherence::Needed), "{request:?}");
            heap.kind
        };
        let spilled = spill(&request, device);
        let is_host = |heap| fits(heap) == HeapKind::Staging;
        assert!(spilled.as_slice().iter().all(is_host), "host memory only");
        let Ok(placed) = DefaultPolicy.place(&request, device) else { continue };
        assert_eq!(DefaultPolicy.place(&request, device), Ok(placed));
        let _ = placed.heaps.as_slice().iter().map(fits).count();
        let constant = device.constant.expect("all have one");
        let shared = device.shared.expect("all have one");
        let size = request.layout.size;
        assert!(placed.region != Region::Constant || size <= constant.bank.min(constant.max_bind));
        assert!(placed.region != Region::Shared || size <= shared.per_group);
        assert!(placed.region != Region::Constant || request.writer != Writer::Device);
        let other = matches!(placed.reason, Reason::Substitute(_) | Reason::TooLargeFor(_));
        assert!(!other || request.substitution == Substitution::Allowed, "{request:?}");
    }
}

/// The heaps of a device in another order: the same memory is chosen, by its new number.
#[test]
fn the_order_of_a_devices_heaps_does_not_matter_where_kinds_differ() {
    let mut next = random(2);
    for _ in 0..2000 {
        let request = anything(&mut next);
        for device in [h200(), rx_7900(), mi300x(), web()] {
            let mut turned = device.clone();
            turned.heaps.reverse();
            let last = u8::try_from(device.heaps.len() - 1).expect("few");
            let (a, b) =
                (DefaultPolicy.place(&request, &device), DefaultPolicy.place(&request, &turned));
            let told = |placed: &Placement| (placed.region, placed.reason);
            assert_eq!(a.as_ref().map(told), b.as_ref().map(told), "{request:?}");
            let (Ok(a), Ok(b)) = (a, b) else { continue };
            let numbers =
                b.heaps.as_slice().iter().map(|heap| omniheap_seam::HeapId(last - heap.0));
            assert!(numbers.eq(a.heaps.as_slice().iter().copied()), "{request:?}");
        }
    }
}
