//! Infeasibility certificates, checked by hand.

use omniheap_plan::{Buffer, Certificate, Options, Problem, ProblemError, Region, Status, solve};

fn certificate(problem: &Problem) -> Certificate {
    match solve(problem, &Options::default()).expect("it makes sense").status {
        Status::Infeasible { certificate } => certificate,
        other => panic!("{other:?}"),
    }
}

/// Checks a load certificate with nothing but the problem's own numbers.
fn check_load(problem: &Problem, certificate: &Certificate) {
    let Certificate::Load { at: Some(tick), buffers, bytes, capacity } = certificate else {
        panic!("{certificate:?}")
    };
    let mut unique = buffers.clone();
    unique.dedup();
    assert_eq!(unique.len(), buffers.len());
    let mut sum = 0;
    for &i in buffers {
        let b = &problem.buffers[i];
        assert!(b.live.start <= *tick && *tick < b.live.end, "buffer {i} is not alive at {tick}");
        assert!(
            !b.gaps.iter().any(|g| g.start <= *tick && *tick < g.end),
            "buffer {i} is not needed at {tick}"
        );
        sum += b.size;
    }
    assert_eq!(sum, *bytes);
    assert!(sum > *capacity);
    assert!(certificate.verify(problem));
}

#[test]
fn too_much_at_once_names_the_tick_and_the_buffers() {
    let mut problem = Problem::new(Region::bounded(9));
    problem.push(Buffer::new(5, 0, 4).gap(1, 2));
    problem.push(Buffer::new(5, 3, 8));
    problem.push(Buffer::new(2, 1, 3));
    let found = certificate(&problem);
    check_load(&problem, &found);
    assert!(found.to_string().contains("1 more than the capacity of 9"), "{found}");
}

#[test]
fn one_byte_is_too_much_where_there_is_none_and_no_byte_is_not() {
    let mut problem = Problem::new(Region::bounded(0));
    problem.push(Buffer::new(0, 1, 3));
    let plan = solve(&problem, &Options::default()).expect("it makes sense");
    assert_eq!((plan.peak(), plan.lower_bound(), plan.fits()), (0, 0, true));
    problem.push(Buffer::new(1, 5, 6));
    let found = certificate(&problem);
    check_load(&problem, &found);
}

#[test]
fn a_forged_certificate_does_not_verify() {
    let mut problem = Problem::new(Region::bounded(9));
    problem.push(Buffer::new(5, 0, 4));
    problem.push(Buffer::new(5, 4, 8));
    let forged = |at, buffers: Vec<usize>, bytes| Certificate::Load {
        at: Some(at),
        buffers,
        bytes,
        capacity: 9,
    };
    assert!(!forged(4, vec![0, 1], 10).verify(&problem));
    assert!(!forged(3, vec![0, 0], 10).verify(&problem));
    assert!(!forged(3, vec![0], 10).verify(&problem));
    assert!(!Certificate::FixedClash { a: 0, b: 1 }.verify(&problem));
    let outside = |buffer, end, capacity| {
        let mut problem = Problem::new(Region::bounded(16));
        problem.push(Buffer::new(8, 3, 8).fixed(12));
        problem.push(Buffer::new(0, 3, 8).fixed(20));
        problem.push(Buffer::new(4, 3, 8).fixed(12));
        Certificate::FixedOutside { buffer, end, capacity }.verify(&problem)
    };
    assert!(outside(0, 20, 16));
    assert!(!outside(0, 21, 16) && !outside(0, 19, 16) && !outside(0, 20, 15));
    assert!(!outside(0, 20, 20), "it ends there");
    assert!(!outside(1, 20, 16), "it needs no bytes");
    assert!(!outside(2, 16, 16) && !outside(3, 20, 16));
    let clash = |fixed: [Option<u64>; 2]| {
        let mut problem = Problem::new(Region::bounded(16));
        for at in fixed {
            problem.push(Buffer { fixed: at, ..Buffer::new(8, 0, 4) });
        }
        problem.aliases.push((0, 1));
        Certificate::FixedClash { a: 0, b: 1 }.verify(&problem)
    };
    assert!(clash([Some(0), Some(8)]), "aliases lie in one place");
    assert!(!clash([Some(8), Some(8)]) && !clash([Some(8), None]) && !clash([None, None]));
}

#[test]
fn sums_that_fit_and_alignments_that_are_others_do_not_verify() {
    let verifies = |own: u64, capacity| {
        let mut problem = Problem::new(Region::bounded(capacity));
        (0..2).for_each(|_| _ = problem.push(Buffer::new(5, 0, 4).align(own)));
        (0..2).for_each(|_| _ = problem.push(Buffer::new(1, 6, 8).align(8)));
        let (buffers, at) = (vec![0, 1], 3);
        let load =
            Certificate::Load { at: Some(at), buffers: buffers.clone(), bytes: 10, capacity };
        let padded = Certificate::Padded { at, align: 8, buffers, bytes: 13, capacity };
        [load, padded].map(|certificate| certificate.verify(&problem))
    };
    assert_eq!(verifies(8, 9), [true, true]);
    assert_eq!(verifies(8, 10), [false, true], "ten bytes fit ten");
    assert_eq!(verifies(8, 13), [false, false]);
    assert_eq!(verifies(1, 12), [false, false], "only those that live later are aligned");
}

#[test]
fn unequal_aliases_never_give_a_false_proof() {
    let mut problem = Problem::new(Region::bounded(10));
    let a = problem.push(Buffer::new(10, 0, 1));
    let b = problem.push(Buffer::new(2, 1, 5));
    problem.push(Buffer::new(8, 2, 5));
    problem.aliases.push((a, b));
    // The problem fits: the small alias at 0, the third buffer above it.
    let plan = solve(&problem, &Options::default()).expect("it makes sense");
    assert!(!matches!(plan.status, Status::Infeasible { .. }), "{:?}", plan.status);
}

#[test]
fn fixed_buffers_that_clash_or_stick_out_are_named() {
    let mut problem = Problem::new(Region::bounded(16));
    problem.push(Buffer::new(8, 0, 4).fixed(0));
    problem.push(Buffer::new(8, 3, 8).fixed(4));
    assert_eq!(certificate(&problem), Certificate::FixedClash { a: 0, b: 1 });
    assert!(certificate(&problem).verify(&problem));
    problem.buffers[1].fixed = Some(12);
    assert_eq!(
        certificate(&problem),
        Certificate::FixedOutside { buffer: 1, end: 20, capacity: 16 }
    );
    assert!(certificate(&problem).verify(&problem));
}

#[test]
fn a_separate_pair_that_is_too_large_is_named() {
    let mut problem = Problem::new(Region::bounded(9));
    problem.push(Buffer::new(5, 0, 2));
    problem.push(Buffer::new(5, 4, 8));
    problem.separate.push((1, 0));
    let found = certificate(&problem);
    assert!(
        matches!(&found, Certificate::Load { at: None, .. }) && found.verify(&problem),
        "{found:?}"
    );
}

#[test]
fn senseless_problems_are_refused_with_what_to_change() {
    let base = || Problem::new(Region::unbounded());
    let with = |buffer: Buffer| {
        let mut problem = base();
        problem.push(buffer);
        solve(&problem, &Options::default()).expect_err("it makes no sense")
    };
    assert_eq!(with(Buffer::new(1, 4, 4)), ProblemError::Lifetime { buffer: 0 });
    assert_eq!(with(Buffer::new(1, 0, 4).align(0)), ProblemError::Align { buffer: 0 });
    assert_eq!(with(Buffer::new(1, 0, 4).gap(3, 5)), ProblemError::Gap { buffer: 0 });
    assert_eq!(with(Buffer::new(1, 0, 4).gap(2, 2)), ProblemError::Gap { buffer: 0 });
    assert_eq!(
        with(Buffer::new(1, 0, 4).align(4).fixed(2)),
        ProblemError::FixedAlign { buffer: 0 }
    );
    assert_eq!(with(Buffer::new(u64::MAX, 0, 4)), ProblemError::Overflow { buffer: 0 });
    // A quarter of all numbers, for the buffer and its alignment.
    let most = u64::MAX / 4 - 1;
    assert_eq!(with(Buffer::new(most + 1, 0, 4)), ProblemError::Overflow { buffer: 0 });
    let mut largest = base();
    largest.push(Buffer::new(most, 0, 4));
    assert_eq!(solve(&largest, &Options::default()).expect("it is large").peak(), most);
    assert_eq!(with(Buffer::new(1, 0, 4).fixed(u64::MAX)), ProblemError::Overflow { buffer: 0 });
    let mut pair = base();
    pair.push(Buffer::new(1, 0, 4));
    pair.separate.push((0, 1));
    assert_eq!(
        solve(&pair, &Options::default()).expect_err("no such buffer"),
        ProblemError::Pair { a: 0, b: 1 }
    );
    let mut none = base();
    none.regions.clear();
    assert_eq!(
        solve(&none, &Options::default()).expect_err("no region"),
        ProblemError::RegionCount { count: 0 }
    );
}
