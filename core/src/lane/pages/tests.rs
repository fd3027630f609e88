//! Sheets are taken whole or not at all.
use super::*;
use crate::Align;

const PAGE: u64 = 1 << 21;

fn pages(numbers: &[u64]) -> Vec<Page> {
    numbers.iter().copied().map(Page).collect()
}

/// A lane's table with these pages in one hole at the start of a block.
fn table(numbers: &[u64]) -> (Pager, Tlsf) {
    let mut tlsf = Tlsf::new(Align::ONE);
    let block = tlsf.add_block(64 * PAGE).unwrap();
    let mut pager = Pager::new(&mut tlsf, block, 64 * PAGE, PAGE).unwrap();
    let piece = pager.set_apart(&mut tlsf, numbers.len() as u64 * PAGE, |_| true).unwrap();
    pager.reserve_table(piece.span).unwrap();
    pager.hand_over(piece, &pages(numbers));
    tlsf.free(piece.key).unwrap();
    (pager, tlsf)
}

fn taken(pager: &mut Pager, tlsf: &mut Tlsf, wanted: u64) -> Vec<(u64, u64)> {
    let pieces = pager.take_pages(tlsf, wanted * PAGE, None, |_| true);
    pieces.iter().map(|piece| pager.positions(piece.span)).collect()
}

#[test]
fn a_sheet_that_something_lives_in_stays() {
    let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
    tlsf.carve(pager.block(), Span { offset: PAGE, size: 1 }, Class::Linear).unwrap();
    assert_eq!(taken(&mut pager, &mut tlsf, 100), [(3, 5)]);
    let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
    tlsf.carve(pager.block(), Span { offset: 6 * PAGE, size: 1 }, Class::Linear).unwrap();
    assert_eq!(taken(&mut pager, &mut tlsf, 100), [(0, 4)]);
}

#[test]
fn no_more_is_taken_than_is_wanted() {
    let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
    assert_eq!(taken(&mut pager, &mut tlsf, 3), []);
    assert_eq!(taken(&mut pager, &mut tlsf, 5), [(3, 5)]);
    let (mut pager, mut tlsf) = table(&[1, 2, 3, 4]);
    assert_eq!(taken(&mut pager, &mut tlsf, 3), [(1, 3)]);
}

#[test]
fn spare_sheets_that_are_too_long_are_passed_over() {
    let (mut from, mut to) = (pages(&[1, 1, 1, 2, 2, 2, 2, 3]), Vec::new());
    take_groups(&mut from, 2, &mut to);
    assert_eq!((&from, &to), (&pages(&[1, 1, 1, 2, 2, 2, 2]), &pages(&[3])));
    take_groups(&mut from, 3, &mut to);
    assert_eq!((&from, &to), (&pages(&[2, 2, 2, 2]), &pages(&[3, 1, 1, 1])));
    let (mut from, mut to) = (pages(&[5, 6, 7, 8]), Vec::new());
    take_groups(&mut from, 3, &mut to);
    assert_eq!((from, to), (pages(&[5]), pages(&[6, 7, 8])));
}
