//! Constants that compete for one bank.
use omniheap_core::{
    Align, ErrorKind, HeapKind, Lifetime, Manager, Pattern, Reason, Region, Request, Usage, Writer,
};
use omniheap_extras::{Constant, ConstantHome, allocate_constants, plan_constants};
use omniheap_host::Host;

const KIB: u64 = 1 << 10;

fn table(size: u64, reuse: u32) -> Request<'static> {
    Request::new(size).writer(Writer::HostOnce).pattern(Pattern::Broadcast).reuse(reuse)
}

fn regions(homes: &[ConstantHome]) -> Vec<Option<Region>> {
    let region = |home: &ConstantHome| match home {
        ConstantHome::Memory(placement) => Some(placement.region),
        ConstantHome::Push { .. } => None,
    };
    homes.iter().map(region).collect()
}

#[test]
fn the_bank_goes_to_those_that_gain_most() {
    let manager = Manager::new(Host::new());
    // 64 KiB of bank: the two of 30 KiB gain more together than the one of 50 KiB.
    let wanted = [table(50 * KIB, 3), table(30 * KIB, 3), table(30 * KIB, 3), table(KIB, 50)];
    let plan = plan_constants(&manager, &wanted, 0).expect("placed");
    let (device, constant) = (Some(Region::Device), Some(Region::Constant));
    assert_eq!(regions(&plan.homes), [device, constant, constant, constant]);
    assert_eq!(plan.benefit, plan.bound, "exact");
    let ConstantHome::Memory(lost) = plan.homes[0] else { panic!("in memory") };
    assert_eq!(lost.reason, Reason::Crowded(Region::Constant));
    let made = allocate_constants(&manager, &wanted, 0).expect("all fit somewhere");
    for (made, home) in made.iter().zip(&plan.homes) {
        let (Constant::Memory(made, placed), ConstantHome::Memory(planned)) = (made, home) else {
            panic!("in memory");
        };
        assert_eq!(placed, planned);
        let heap = made.binding().block().heap();
        let kind = manager.caps().heap(heap).expect("exists").kind;
        assert_eq!(kind == HeapKind::Constant, placed.region == Region::Constant);
    }
    // Data that is in the bank already leaves less room.
    let plan = plan_constants(&manager, &wanted[1..2], 0).expect("placed");
    assert_eq!(regions(&plan.homes), [device]);
    drop(made);
    let plan = plan_constants(&manager, &wanted[1..2], 0).expect("placed");
    assert_eq!(regions(&plan.homes), [constant]);
}

#[test]
fn the_smallest_travel_with_the_launch() {
    let manager = Manager::new(Host::new());
    let value = |size| {
        let request = Request::new(size).usage(Usage::Upload).pattern(Pattern::Broadcast);
        request.lifetime(Lifetime::Kernel)
    };
    // Host memory takes 128 bytes with a launch, of which the kernel's own parameters have 12.
    let plan = plan_constants(&manager, &[value(64), value(16), value(80)], 12).expect("placed");
    assert_eq!(plan.homes[1], ConstantHome::Push { offset: 4 });
    assert_eq!(plan.homes[0], ConstantHome::Push { offset: 20 });
    assert_eq!(regions(&plan.homes)[2], Some(Region::Constant), "no room for the largest");
}

#[test]
fn what_travels_with_the_launch_is_aligned_as_it_asks() {
    let manager = Manager::new(Host::new());
    let value = |size, align| {
        let request = Request::new(size).usage(Usage::Upload).pattern(Pattern::Broadcast);
        request.lifetime(Lifetime::Kernel).align(Align::of(align))
    };
    let wanted = [value(4, 4), value(8, 64), value(12, 256), value(16, 32)];
    let plan = plan_constants(&manager, &wanted, 12).expect("placed");
    // Behind 12 bytes of parameters, of which there may be 128 with the constants: at 16, 64, nowhere, 96.
    assert_eq!(plan.homes[0], ConstantHome::Push { offset: 4 });
    assert_eq!(plan.homes[1], ConstantHome::Push { offset: 52 });
    assert!(matches!(plan.homes[2], ConstantHome::Memory(_)), "256 is above all of them");
    assert_eq!(plan.homes[3], ConstantHome::Push { offset: 84 });
}

#[test]
fn who_permits_no_substitute_is_refused() {
    let manager = Manager::new(Host::new());
    let wanted = [table(40 * KIB, 4), table(40 * KIB, 2).no_substitute()];
    let refused = plan_constants(&manager, &wanted, 0).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ExceedsLimit));
    let alone = plan_constants(&manager, &wanted[1..], 0).expect("alone it fits");
    assert_eq!(regions(&alone.homes), [Some(Region::Constant)]);
}
