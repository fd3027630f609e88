//! Problems that the planner once answered wrongly.

use omniheap_plan::{
    Buffer, Certificate, Options, Plan, Problem, Region, RegionSet, Status, csv, solve, validate,
};

fn plan(problem: &Problem) -> Plan {
    solve(problem, &Options::default()).expect("it makes sense")
}

/// Plans what cannot be, and checks the evidence.
fn refuted(problem: &Problem) -> Certificate {
    match plan(problem).status {
        Status::Infeasible { certificate } => {
            assert!(certificate.verify(problem), "{certificate:?}");
            certificate
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gap_may_cover_a_whole_life() {
    let mut problem = Problem::new(Region::bounded(4));
    let never = problem.push(Buffer::new(9, 2, 8).gap(2, 8));
    let apart = problem.push(Buffer::new(4, 0, 3));
    problem.push(Buffer::new(4, 3, 5).gap(3, 4).gap(4, 5));
    problem.separate.push((never, apart));
    let plan = plan(&problem);
    assert_eq!((&plan.status, plan.peak()), (&Status::Optimal, 4));
    validate(&problem, &plan.spots).expect("what is never needed is in nobody's way");
    let mut spots = plan.spots;
    spots[never].offset = u64::MAX - 1;
    validate(&problem, &spots).expect("nor does its place matter");
}

#[test]
fn an_alias_of_a_fixed_buffer_is_fixed() {
    let mut problem = Problem::new(Region::unbounded());
    let fixed = problem.push(Buffer::new(4, 0, 2).fixed(0));
    let alias = problem.push(Buffer::new(4, 2, 5));
    let other = problem.push(Buffer::new(4, 4, 6).fixed(2));
    problem.aliases.push((fixed, alias));
    assert_eq!(refuted(&problem), Certificate::FixedClash { a: alias, b: other });
    // The larger alias ends behind the capacity.
    let mut problem = Problem::new(Region::bounded(12));
    let fixed = problem.push(Buffer::new(4, 0, 2).fixed(8));
    let alias = problem.push(Buffer::new(8, 2, 5));
    problem.aliases.push((fixed, alias));
    let outside = Certificate::FixedOutside { buffer: alias, end: 16, capacity: 12 };
    assert_eq!(refuted(&problem), outside);
}

#[test]
fn a_fixed_clash_in_one_of_several_regions_is_not_a_plan() {
    let region = Region { capacity: Some(16), align: 1, cost: 0 };
    let mut problem = Problem { regions: vec![region; 2], ..Problem::new(region) };
    problem.push(Buffer::new(8, 0, 4).fixed(0));
    problem.push(Buffer::new(8, 2, 6).fixed(4));
    let apart = plan(&problem);
    assert!(apart.fits(), "one of them moves to the other region: {:?}", apart.status);
    validate(&problem, &apart.spots).expect("it is valid");
    for buffer in &mut problem.buffers {
        buffer.regions = RegionSet::only(1);
    }
    assert_eq!(refuted(&problem), Certificate::FixedClash { a: 0, b: 1 });
    // Three do not fit two regions, which no certificate says yet; what is said is not false.
    problem.push(Buffer::new(8, 2, 6).fixed(4));
    for buffer in &mut problem.buffers {
        buffer.regions = RegionSet::ALL;
    }
    let stuck = plan(&problem);
    assert_eq!(stuck.status, Status::Undecided { excess: 0 });
    assert!(stuck.lower_bound() <= stuck.peak());
}

#[test]
fn aliases_without_a_region_in_common_do_not_fit() {
    let mut problem = Problem::new(Region::unbounded());
    problem.regions.push(Region::unbounded());
    let a = problem.push(Buffer::new(4, 0, 2).within(RegionSet::only(0)));
    let b = problem.push(Buffer::new(4, 2, 4).within(RegionSet::only(1)));
    problem.aliases.push((a, b));
    assert_eq!(refuted(&problem), Certificate::NoRegion { buffer: a });
    problem.aliases.clear();
    for buffer in [a, b] {
        assert!(!Certificate::NoRegion { buffer }.verify(&problem), "{buffer} has one");
    }
}

#[test]
fn a_fixed_offset_off_its_regions_alignment_does_not_fit() {
    let mut problem = Problem::new(Region { align: 8, ..Region::unbounded() });
    problem.push(Buffer::new(4, 0, 2).fixed(4));
    assert_eq!(refuted(&problem), Certificate::NoRegion { buffer: 0 });
    // With another region to go to, it goes there.
    problem.regions.push(Region { align: 4, cost: 9, ..Region::unbounded() });
    let moved = plan(&problem);
    assert!(moved.fits());
    assert_eq!(moved.spots[0].region, 1);
}

#[test]
fn an_end_column_is_inclusive_as_in_minimalloc() {
    let table = csv::read("buffer_id,start,end,size,gaps\na,0,2,4,\nb,2,9,4,4-5\n", None)
        .expect("it is well formed");
    let [a, b] = &table.problem.buffers[..] else { panic!("two buffers") };
    assert_eq!((a.live.start, a.live.end), (0, 3));
    assert_eq!((b.live.end, b.gaps[0].start, b.gaps[0].end), (10, 4, 6));
    assert_eq!(plan(&table.problem).peak(), 8, "both are alive at tick 2");
    let same = csv::read("id,begin,upper,size\na,0,2,4\nb,2,9,4\n", None).expect("well formed");
    assert_eq!(plan(&same.problem).peak(), 4, "upper is exclusive");
}
