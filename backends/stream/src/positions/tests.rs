use super::*;

fn kind(result: Result<()>) -> core::result::Result<(), ErrorKind> {
    result.map_err(|error| error.kind())
}

#[test]
fn positions_know_what_is_mapped() {
    let positions = Positions::new(10, 130).expect("small");
    positions.map(62, &[Page(7); 5], |_| Ok(())).expect("unmapped");
    assert_eq!(kind(positions.require_mapped(620, 50)), Ok(()));
    assert_eq!(kind(positions.require_mapped(625, 1)), Ok(()));
    assert_eq!(kind(positions.require_mapped(619, 2)), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(positions.require_mapped(669, 2)), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(positions.require_mapped(5, 0)), Ok(()));
    assert!(positions.is_any_mapped());
    positions.unmap(62, 5, |_, _, count| (count, Ok(()))).expect("mapped");
    assert!(!positions.is_any_mapped());
}

#[test]
fn positions_know_the_page_groups_that_were_mapped_there() {
    let positions = Positions::new(10, 130).expect("small");
    let mut mapped = lock(&positions.mapped);
    let [one, two, three] = [Page(1), Page(2), Page(3)];
    mapped.map(60, &[one, two, two, two, three, three]);
    assert_eq!(mapped.groups(60, 6), [1, 3, 2]);
    mapped.unmap(61, 3);
    mapped.map(61, &[three, two, one]);
    assert_eq!(mapped.groups(60, 6), [1, 1, 1, 1, 2]);
    assert_eq!((mapped.before(66), mapped.before(67), mapped.before(60)), (6, 0, 0));
}

#[test]
fn positions_outside_the_block_are_refused() {
    let positions = Positions::new(10, 130).expect("small");
    let map = |first, count: usize| kind(positions.map(first, &vec![Page(1); count], |_| Ok(())));
    assert_eq!(map(129, 1), Ok(()));
    assert_eq!(map(130, 1), Err(ErrorKind::OutOfRange));
    assert_eq!(map(u64::MAX, 2), Err(ErrorKind::OutOfRange));
    assert_eq!(
        kind(positions.unmap(130, 1, |_, _, count| (count, Ok(())))),
        Err(ErrorKind::OutOfRange)
    );
}

#[test]
fn what_did_not_happen_is_not_noted() {
    let positions = Positions::new(10, 130).expect("small");
    let failed = || Err(ErrorKind::Driver.into());
    assert_eq!(kind(positions.map(3, &[Page(1)], |_| failed())), Err(ErrorKind::Driver));
    assert!(!positions.is_any_mapped());
    positions.map(3, &[Page(1), Page(2)], |_| Ok(())).expect("unmapped");
    assert_eq!(kind(positions.map(4, &[Page(3)], |_| Ok(()))), Err(ErrorKind::Busy));
    assert_eq!(kind(positions.unmap(3, 2, |_, _, _| (1, failed()))), Err(ErrorKind::Driver));
    assert_eq!(kind(positions.require_mapped(30, 1)), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(positions.require_mapped(40, 10)), Ok(()), "the second one is still there");
    assert_eq!(kind(positions.map(3, &[Page(3)], |_| Ok(()))), Err(ErrorKind::Busy));
}

#[test]
fn what_was_unmapped_half_way_is_unmapped_further() {
    let positions = Positions::new(10, 130).expect("small");
    let pages = [1, 1, 2, 2, 2, 3].map(Page);
    positions.map(3, &pages, |_| Ok(())).expect("unmapped");
    let failed = |done: u64| move |_: &Mapped, _, _| (done, Err(ErrorKind::Driver.into()));
    assert_eq!(kind(positions.unmap(3, 5, failed(2))), Err(ErrorKind::Driver));
    assert_eq!(kind(positions.unmap(3, 5, failed(0))), Err(ErrorKind::Driver));
    assert_eq!(lock(&positions.mapped).before(9), 4, "those that are there");
    let rest = |mapped: &Mapped, first, count| {
        assert_eq!((first, count, mapped.groups(first, count)), (5, 4, vec![3, 1]));
        (count, Ok(()))
    };
    positions.unmap(3, 6, rest).expect("the driver has recovered");
    assert!(!positions.is_any_mapped());
    positions.map(3, &pages, |_| Ok(())).expect("nothing is left of it");
    assert_eq!(kind(positions.require_mapped(30, 60)), Ok(()));
}
