//! Tests of the probes that a request's kernels resemble, and of the region that follows.
use super::*;

/// Returns the region of a table with these costs.
fn region(profile: Profile, request: &Request<'_>) -> Region {
    MeasuredPolicy { profile }.place(request, &h200()).expect("it fits").region
}

#[test]
fn every_request_resembles_a_probe() {
    for (word, pattern) in Pattern::WORDS {
        for (_, work) in Work::WORDS {
            for (_, dependence) in Dependence::WORDS {
                let request = Request::new(KIB).pattern(*pattern);
                let request = request.work(*work).dependence(*dependence);
                assert!(Probe::like(&request).count() > 0, "{word}");
            }
        }
    }
    for (word, probe) in Probe::WORDS {
        let request = Request::new(KIB).pattern(probe.pattern());
        assert!(Probe::like(&request).any(|like| like == *probe), "{word}");
    }
}

#[test]
fn what_a_request_says_leaves_fewer_probes() {
    use Dependence::{Chained, Independent};
    let like = |request: Request<'_>| Probe::like(&request).collect::<Vec<_>>();
    let of = |pattern| Request::new(KIB).pattern(pattern);
    let broadcast = of(Pattern::Broadcast);
    assert_eq!(like(broadcast), [Probe::Whole, Probe::Unrolled, Probe::Busy]);
    assert_eq!(like(broadcast.work(Work::Light)), [Probe::Whole, Probe::Unrolled]);
    let gathered = of(Pattern::Gathered);
    assert_eq!(like(gathered), [Probe::Lanes, Probe::Codes, Probe::Hops]);
    assert_eq!(like(gathered.dependence(Independent)), [Probe::Lanes, Probe::Codes]);
    assert_eq!(like(gathered.work(Work::Light).dependence(Chained)), [Probe::Hops]);
    let fields = of(Pattern::Fields).work(Work::Light).dependence(Independent);
    assert_eq!(like(fields), like(gathered), "whatever they say");
}

#[test]
fn constants_that_are_operands_pay_where_there_is_little_to_compute() {
    let light = Cost { constant: 50, shared: 56, stage: 0 };
    let busy = Cost { constant: 140, shared: 75, stage: 0 };
    let profile = with(Profile::ASSUMED, Pattern::Broadcast, 6 * KIB, light);
    let profile = profile.with(Probe::Busy, TableSize::of(6 * KIB), busy);
    let request = table(5 * KIB, Pattern::Broadcast, 1000);
    assert_eq!(region(profile, &request.work(Work::Light)), Region::Constant);
    assert_eq!(region(profile, &request), Region::Shared);
}

#[test]
fn the_built_in_numbers_tell_light_work_from_any() {
    let at = |caps: &omniheap_seam::Caps, request: &Request<'_>| {
        DefaultPolicy.place(request, caps).expect("it fits").region
    };
    let looped = table(9 * KIB / 2, Pattern::Broadcast, 1000);
    let ranges = rtx_4090();
    assert_eq!(at(&ranges, &looped.work(Work::Light)), Region::Constant);
    assert_eq!(at(&ranges, &looped), Region::Shared);
    assert_eq!(at(&h200(), &looped.work(Work::Light)), Region::Shared, "a bank of 2 KiB at first");
    let numbers = table(40 * KIB, Pattern::Gathered, 4).work(Work::Light);
    let alone = numbers.dependence(Dependence::Independent);
    assert_eq!(at(&ranges, &alone), Region::Shared);
    assert_eq!(at(&ranges, &numbers.dependence(Dependence::Chained)), Region::Device);
    assert_eq!(at(&ranges, &alone.pattern(Pattern::Fields)), Region::Device);
}

#[test]
fn reads_that_wait_for_each_other_want_many_groups() {
    // Shared memory that leaves room for few groups: widest for reads on their own, slow where each waits.
    let size = TableSize::of(40 * KIB);
    let cost = |shared| Cost { constant: 900, shared, stage: 40 };
    let profile = Profile::ASSUMED.with(Probe::Codes, size, cost(67));
    let profile = profile.with(Probe::Hops, size, cost(230)).with(Probe::Lanes, size, cost(320));
    let request = table(40 * KIB, Pattern::Gathered, 4).work(Work::Light);
    assert_eq!(region(profile, &request.dependence(Dependence::Independent)), Region::Shared);
    assert_eq!(region(profile, &request.dependence(Dependence::Chained)), Region::Device);
    assert_eq!(region(profile, &request), Region::Device);
}

#[test]
fn a_kernels_own_bytes_stand_beside_its_constants() {
    let good = Cost { constant: 40, shared: 60, stage: 0 };
    let bad = Cost { constant: 90, shared: 60, stage: 0 };
    let request = |size| table(size, Pattern::Broadcast, 100);
    for (size, reached, beyond) in [(KIB + 128, 2 * KIB, 3 * KIB), (5 * KIB, 6 * KIB, 8 * KIB)] {
        let all = TableSize::ALL.into_iter();
        let fast = all.fold(Profile::ASSUMED, |profile, class| {
            with(profile, Pattern::Broadcast, class.most(), good)
        });
        assert_eq!(region(fast, &request(size)), Region::Constant);
        let slow = |at| with(fast, Pattern::Broadcast, at, bad);
        assert_eq!(region(slow(reached), &request(size)), Region::Shared, "{size}");
        assert_eq!(region(slow(beyond), &request(size)), Region::Constant, "{size}");
    }
}
