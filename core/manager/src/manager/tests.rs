//! Tests of the snapshots that defragmentation takes of a lane, against the live allocations and the report, which
//! walks the lane otherwise.
use super::{Allocation, Manager, ManagerConfig};
use crate::defrag::Budget;
use crate::event::{AllocationId, Event, Observer};
use crate::lane::{BlockReport, Consent, Lane, Resident, Scan, SlotsByBlock, Snapshot, SpanState};
use crate::{Align, ErrorKind, HeapKind, Mobility, Privacy, Request, Span};
use alloc::{sync::Arc, vec, vec::Vec};
use omniheap_host::{Host, heap};
use omniheap_strategy::{BlockId, moves};

type Extent = moves::Extent<Resident>;

const KIB: u64 = 1 << 10;
const PAGE: u64 = 64 * KIB;

fn manager(mut config: ManagerConfig) -> Manager<Host> {
    let mut about = heap(HeapKind::Device, 1 << 30);
    about.page = Some(Align::of(PAGE));
    let host = Host::builder().heap(about).open().expect("a host device");
    config.pool.lanes = Some(1);
    Manager::with_config(host, config)
}

/// Allocations of which some were freed and some may not move; more than one slice of a scan.
fn live(manager: &Manager<Host>, seed: u64) -> Vec<Allocation<Host>> {
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let allocate = |_| {
        let size = (1 + below(40)) * [KIB, KIB, 8 * KIB][usize::try_from(below(3)).expect("small")];
        let request = Request::new(size);
        let request = if below(12) == 0 { request.pinned() } else { request };
        manager.allocate(&request).expect("it fits")
    };
    let mut live: Vec<_> = (0..5000).map(allocate).collect();
    live.retain(|_| below(10) < 6);
    live
}

fn seen(lane: &Arc<Lane<Host>>) -> (Snapshot, SlotsByBlock) {
    let (mut snapshot, mut slots) = (lane.snapshot(), SlotsByBlock::default());
    let mut scan = Scan::with_holes();
    while !lane.scan(&mut scan, &mut snapshot, &mut slots, Consent::Given) {}
    (snapshot, slots)
}

fn spans(block: &BlockReport, state: SpanState) -> Vec<Span> {
    block.live.iter().filter(|one| one.state == state).map(|one| one.span).collect()
}

fn bytes(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.size).sum()
}

/// An extent of a block, as the report has it.
fn of_block(number: u64, block: &BlockReport) -> Extent {
    let [movable, pinned] =
        [SpanState::Movable, SpanState::Pinned].map(|state| spans(block, state));
    Extent {
        live: bytes(&movable) + bytes(&pinned),
        stays: !pinned.is_empty(),
        movable: movable.len() as u64,
        free: bytes(&block.holes),
        largest_hole: block.holes.iter().map(|hole| hole.size).max().unwrap_or(0),
        ..Extent::new(number, block.size)
    }
}

#[test]
fn a_snapshot_of_blocks_is_what_lives_in_them() {
    let manager = manager(ManagerConfig::default().plain());
    let live = live(&manager, 1);
    let [lane] = &manager.all_pools()[0].lanes()[..] else { panic!("one lane") };
    let (snapshot, slots) = seen(lane);
    let blocks: Vec<_> =
        lane.block_reports().into_iter().filter(|one| !one.live.is_empty()).collect();
    assert!(blocks.len() > 4 && live.len() > 2500, "{} blocks", blocks.len());
    let known: Vec<_> = (0..).zip(&blocks).map(|(number, block)| of_block(number, block)).collect();
    assert_eq!(snapshot.extents, known);
    for (number, block) in (0..).zip(&blocks) {
        let mut inside = lane.look_into(BlockId(number), &slots, Consent::Given, true);
        inside.residents.sort_unstable_by_key(|one| one.span.offset);
        let residents: Vec<_> = inside.residents.iter().map(|one| one.span).collect();
        assert_eq!(residents, spans(block, SpanState::Movable));
        assert_eq!(inside.held, !spans(block, SpanState::Pinned).is_empty());
        assert!(inside.holes.iter().map(|(_, hole)| *hole).eq(block.holes.iter().copied()));
        let all = u64::from(number)..=u64::from(number);
        let span = block.live[0].span;
        assert_eq!(snapshot.touched(BlockId(number), span), all);
        assert_eq!(snapshot.find(u64::from(number)), Some(number as usize));
    }
    drop(live);
}

#[test]
fn a_snapshot_of_pages_is_what_lives_in_them() {
    let manager = manager(ManagerConfig::default());
    let live = live(&manager, 2);
    let [lane] = &manager.all_pools()[0].lanes()[..] else { panic!("one lane") };
    let (snapshot, _) = seen(lane);
    let [block] = &lane.block_reports()[..] else { panic!("one range of addresses") };
    let [movable, pinned] =
        [SpanState::Movable, SpanState::Pinned].map(|state| spans(block, state));
    assert_eq!(movable.len() + pinned.len(), live.len());
    assert!(snapshot.is_paged() && snapshot.extents.len() > 100);
    let apart = snapshot.extents.windows(2);
    let mut apart = apart.map(|two| two[0].number + two[0].size / PAGE <= two[1].number);
    assert!(apart.all(|apart| apart), "extents are in order");
    snapshot.extents.iter().for_each(|extent| check_pages(extent, &movable, &pinned));
    movable.iter().chain(&pinned).for_each(|span| check_touched(&snapshot, *span));
    drop(live);
}

/// The bytes of an extent of pages.
const fn place(extent: &Extent) -> Span {
    Span { offset: extent.number * PAGE, size: extent.size }
}

/// Compares an extent of pages with what touches it.
fn check_pages(extent: &Extent, movable: &[Span], pinned: &[Span]) {
    let here = place(extent);
    let touching = |spans: &[Span]| -> Vec<Span> {
        spans.iter().copied().filter(|span| span.overlaps(here)).collect()
    };
    let (moves, stays) = (touching(movable), touching(pinned));
    let begins = moves.iter().filter(|span| span.offset >= here.offset);
    let ends = moves.iter().filter(|span| span.end() <= here.end());
    let mut residents: Vec<_> = extent.residents.iter().map(|one| one.span).collect();
    residents.sort_unstable_by_key(|span| span.offset);
    assert_eq!(residents, moves);
    let known = [
        bytes(&moves) + bytes(&stays),
        moves.len() as u64,
        begins.map(|span| span.size).sum(),
        ends.map(|span| span.size).sum(),
    ];
    assert_eq!([extent.live, extent.movable, extent.begins, extent.ends], known);
    assert_eq!(extent.stays, !stays.is_empty());
}

/// Compares the extents that a span is said to touch with those that it does.
fn check_touched(snapshot: &Snapshot, span: Span) {
    let mut touched = snapshot.touched(BlockId(0), span);
    let mut found = vec![];
    while let Some(at) = snapshot.next(&mut touched) {
        found.push(at.expect("what lives has an extent"));
    }
    let known = snapshot.extents.iter().enumerate();
    let known = known.filter(|(_, extent)| span.overlaps(place(extent)));
    assert!(known.map(|(at, _)| at).eq(found), "{span:?}");
}

/// Hears of frees.
#[derive(Debug, Default)]
struct Freed(std::sync::Mutex<Vec<AllocationId>>);

impl Observer for Freed {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Free { id, .. } = event {
            self.0.lock().expect("no panic").push(*id);
        }
    }
}

/// No pass begins between the look at a hole and the request's wishes: a program relies on where it was shown its bytes.
#[test]
fn the_lowest_hole_is_a_secrets_under_one_lock() {
    let manager = manager(ManagerConfig::default().plain());
    let _live = live(&manager, 2);
    let pools = manager.all_pools();
    let [lane] = &pools[0].lanes()[..] else { panic!("one lane") };
    let request = Request::new(KIB).secret();
    let ask = pools[0].ask(&request).expect("valid");
    let (slot, ()) = lane.find_lowest_hole(ask, &request, |_, _| Some(())).expect("there is room");
    let (like, ..) = lane.request_like(slot, KIB).expect("it is live");
    assert_eq!((like.mobility, like.privacy), (Mobility::Pinned, Privacy::Secret));
}

/// A pass begins between the lock under which a secret gets its bytes and the one under which it becomes a secret.
#[test]
fn a_secret_gets_no_bytes_that_a_pass_copies() {
    let freed = Arc::new(Freed::default());
    let observer = Arc::clone(&freed) as Arc<dyn Observer>;
    let manager = manager(ManagerConfig::default().plain().observed(observer));
    let _live = live(&manager, 2);
    let pools = manager.all_pools();
    let [lane] = &pools[0].lanes()[..] else { panic!("one lane") };
    let request = Request::new(KIB).secret();
    let mut taken = Vec::new();
    let mut pass = loop {
        // Until one lies where a pass finds it worth a move.
        let ask = pools[0].ask(&request).expect("valid");
        taken.push(lane.find_any_hole(ask).expect("there is room"));
        let pass = manager.begin_defragment(&Budget::new()).expect("alive");
        let last = taken.last().map(|slot| lane.id_of(*slot));
        if pass.moves().any(|one| Some(one.allocation()) == last) {
            break pass;
        }
    };
    pass.start().expect("alive");
    let (secret, before) = (taken.pop().expect("one"), manager.totals().live);
    assert_eq!(lane.set_properties(secret, &request), Err(ErrorKind::Busy));
    pass.commit().expect("alive");
    assert_eq!(manager.totals().live, before - 1, "the pass has freed it");
    let told = freed.0.lock().expect("no panic");
    assert!(!told.contains(&lane.id_of(secret)), "nobody was told that it was made");
    for slot in taken {
        assert_eq!(lane.set_properties(slot, &request), Ok(()));
    }
}
