//! Tables and properties of the rules.
mod bank;
mod devices;
mod layout;

use super::*;
use crate::{Align, ErrorKind};
use devices::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn table(size: u64, pattern: Pattern, reuse: u32) -> Request<'static> {
    Request::new(size).writer(Writer::HostOnce).pattern(pattern).reuse(reuse)
}

#[test]
fn every_request_goes_where_the_table_says() {
    use Region::{Constant, Device, Shared, Staging, Unified};
    let filter = table(KIB, Pattern::Broadcast, 100);
    let palette = table(4 * KIB, Pattern::Gathered, 64);
    let weights = table(16 * KIB, Pattern::Broadcast, 100);
    let once = table(4 * KIB, Pattern::Gathered, 1);
    let tile = Request::new(8 * KIB).pattern(Pattern::Tiled).reuse(16);
    let large = table(16 * MIB, Pattern::Broadcast, 1);
    let frame = Request::upload(MIB);
    let often = Request::upload(512 * MIB).reuse(4);
    let back = Request::read_back(MIB);
    let both = Request::new(MIB).access(Access::Both);
    let plain = Request::new(MIB);
    // One row for each request, one column for each device.
    let rows: [(&str, Request<'_>, [Region; 7]); 11] = [
        ("weights", weights, [Shared, Shared, Shared, Shared, Shared, Shared, Shared]),
        ("filter", filter, [Constant, Constant, Constant, Constant, Constant, Constant, Constant]),
        ("palette", palette, [Shared, Shared, Shared, Shared, Shared, Shared, Shared]),
        ("once", once, [Device, Device, Device, Device, Unified, Unified, Device]),
        ("tile", tile, [Shared, Shared, Shared, Shared, Shared, Shared, Shared]),
        ("large", large, [Device, Constant, Device, Device, Constant, Unified, Device]),
        ("frame", frame, [Staging, Staging, Unified, Unified, Unified, Unified, Staging]),
        ("often", often, [Device, Device, Unified, Device, Unified, Unified, Device]),
        ("back", back, [Staging, Staging, Staging, Staging, Unified, Unified, Staging]),
        ("both", both, [Unified, Unified, Unified, Unified, Unified, Unified, Staging]),
        ("plain", plain, [Device, Device, Device, Device, Unified, Unified, Device]),
    ];
    let devices =
        [h200(), rx_7900(), rtx_4090(), small_window(), intel_integrated(), phone(), web()];
    for (name, request, regions) in rows {
        for (device, region) in devices.iter().zip(regions) {
            let placement = DefaultPolicy.place(&request, device).expect("it fits");
            assert_eq!(placement.region, region, "{name} on {}", device.device.name);
        }
    }
}

#[test]
fn a_substitute_is_named_and_can_be_forbidden() {
    let large = table(16 * MIB, Pattern::Broadcast, 1);
    let placed = DefaultPolicy.place(&large, &h200()).expect("device memory");
    assert_eq!(placed.reason, Reason::TooLargeFor(Region::Constant));
    let kind = |request: &Request<'_>, caps: &crate::Caps| {
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
    let verdicts = judge(&Request::new(KIB), &web(), &Profile::ASSUMED, Region::Device);
    let refusals: Vec<_> = verdicts.iter().filter_map(|verdict| verdict.refusal).collect();
    assert!(refusals.contains(&Refusal::Missing), "no unified memory there");
    assert!(refusals.contains(&Refusal::ReadOnly), "kernels write it");
}

#[test]
fn a_measurement_changes_the_decision() {
    let filter = table(KIB, Pattern::Broadcast, 100);
    let slow = Cost { constant: 120, shared: 120, stage: 200 };
    let profile = Profile::ASSUMED.with(Pattern::Broadcast, TableSize::of(KIB), slow);
    let measured = MeasuredPolicy { profile };
    assert_eq!(measured.place(&filter, &h200()).expect("fits").region, Region::Device);
    let larger = table(4 * KIB, Pattern::Broadcast, 100);
    assert_eq!(measured.place(&larger, &h200()).expect("fits").region, Region::Shared);
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

#[test]
fn no_limit_is_exceeded_and_every_decision_is_pure() {
    let mut next = random(1);
    let devices =
        [h200(), rx_7900(), rtx_4090(), small_window(), intel_integrated(), phone(), web()];
    for _ in 0..20_000 {
        let patterns = [Pattern::Broadcast, Pattern::Coalesced, Pattern::Gathered, Pattern::Tiled];
        let most = 1 << (1 + next(30));
        let request = Request::new(1 + next(most))
            .align(Align::of(1 << next(8)))
            .writer([Writer::Device, Writer::HostOnce, Writer::HostPerFrame][index(next(3))])
            .access([Access::Device, Access::Host, Access::Both][index(next(3))])
            .pattern(patterns[index(next(4))])
            .reuse(u32::try_from(next(1000)).expect("small"));
        let device = &devices[index(next(7))];
        let Ok(placed) = DefaultPolicy.place(&request, device) else { continue };
        assert_eq!(DefaultPolicy.place(&request, device), Ok(placed));
        for heap in placed.heaps.as_slice() {
            let heap = device.heap(*heap).expect("named by the device");
            assert!(request.layout.size <= heap.max_block && request.layout.align <= heap.align);
        }
        let constant = device.constant.expect("all have one");
        let shared = device.shared.expect("all have one");
        let size = request.layout.size;
        assert!(placed.region != Region::Constant || size <= constant.bank.min(constant.max_bind));
        assert!(placed.region != Region::Shared || size <= shared.per_group);
        assert!(placed.region != Region::Constant || request.writer != Writer::Device);
    }
}
