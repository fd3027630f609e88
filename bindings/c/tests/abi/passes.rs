//! Defragmentation as C asks for it: pass by pass with a callback, and all at once.
use super::*;
use std::collections::HashMap;

/// Events that a callback saw.
#[derive(Default)]
struct Seen {
    moves: u64,
    nameless: u64,
    left: Option<u64>,
    destroyed: Option<u64>,
    /// Offsets of allocations before the pass.
    offsets: HashMap<u64, u64>,
    /// Outcome of each move, in the order of the questions.
    told: Vec<(u64, u32)>,
    /// Moves that begin elsewhere, or in memory that has a number though host memory has none.
    misplaced: u64,
}

impl Seen {
    /// The first two moves were answered otherwise, the rest made; each was told, in the order of the questions.
    fn check_outcomes(&self) {
        assert_eq!(self.told.len() as u64, self.moves, "each is told");
        let (left, destroyed) = (self.left.unwrap_or(0), self.destroyed.unwrap_or(0));
        let first = [(left, OMNIHEAP_OUTCOME_STAYED), (destroyed, OMNIHEAP_OUTCOME_FREED)];
        assert_eq!(self.told[..2], first);
        assert!(self.told[2..].iter().all(|(_, outcome)| *outcome == OMNIHEAP_OUTCOME_MOVED));
    }
}

unsafe extern "C" fn agree(one: *const OmniheapMove, user: *mut c_void) -> u32 {
    // SAFETY: the pass shows a live move.
    let one = unsafe { one.read() };
    // SAFETY: the test passes its own counter.
    let seen = unsafe { user.cast::<Seen>().as_mut() }.expect("not null");
    seen.moves += 1;
    seen.nameless += u64::from(one.allocation.id == 0);
    let is_there = seen.offsets.get(&one.allocation.id) == Some(&one.from_offset);
    seen.misplaced += u64::from(!is_there || (one.from_memory, one.to_memory) != (0, 0));
    if seen.left.is_none() {
        seen.left = Some(one.allocation.id);
        return OMNIHEAP_MOVE_IGNORE;
    }
    if seen.destroyed.is_none() {
        seen.destroyed = Some(one.allocation.id);
        return OMNIHEAP_MOVE_DESTROY;
    }
    OMNIHEAP_MOVE_COPY
}

unsafe extern "C" fn hear(one: *const OmniheapMove, outcome: u32, user: *mut c_void) {
    // SAFETY: the pass shows a move.
    let one = unsafe { one.read() };
    // SAFETY: the test passes its own counter.
    let seen = unsafe { user.cast::<Seen>().as_mut() }.expect("not null");
    if outcome == OMNIHEAP_OUTCOME_MOVED {
        assert_eq!(offset(one.allocation), one.to_offset, "it is there already");
    }
    seen.told.push((one.allocation.id, outcome));
}

fn offset(of: OmniheapAllocation) -> u64 {
    let mut place = OmniheapPlace::default();
    assert_eq!(c!(omniheap_place(of, &raw mut place)), Status::Ok);
    place.offset
}

#[test]
fn a_pass_asks_about_moves_and_keeps_the_bytes() {
    let manager = open(0);
    const SIZE: usize = 256 << 10;
    let request = omniheap_request_default(SIZE as u64);
    let all: Vec<_> = (0..400).map(|_| ask(manager, &request).expect("room")).collect();
    let kept: Vec<_> = all.iter().step_by(7).copied().collect();
    for (value, one) in (0_u8..).zip(&kept) {
        assert_eq!(write(*one, &vec![value; SIZE]), Status::Ok);
    }
    for one in all.iter().filter(|one| !kept.contains(one)) {
        assert_eq!(omniheap_free(*one), Status::Ok);
    }
    let (mut seen, mut moved) = (Seen::default(), OmniheapMoved::default());
    seen.offsets = kept.iter().map(|one| (one.id, offset(*one))).collect();
    let budget = omniheap_budget_default();
    let (user, to) = ((&raw mut seen).cast(), &raw mut moved);
    let status =
        c!(omniheap_defragment_pass(manager, &raw const budget, Some(agree), Some(hear), user, to));
    assert_eq!(status, Status::Ok, "{}", message());
    assert!(seen.moves > 2 && seen.nameless == 0, "every move has a handle");
    assert_eq!(seen.misplaced, 0, "every move begins where its allocation was");
    assert_eq!(moved.moves, seen.moves - 2, "one was left where it is, one was destroyed");
    seen.check_outcomes();
    let mut all = OmniheapMoved::default();
    // SAFETY: the manager is open, and the sums may be written.
    assert_eq!(unsafe { omniheap_defragmented(manager, &raw mut all) }, Status::Ok);
    assert_eq!(all, moved, "there was one pass");
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
    assert_eq!(sums.live, kept.len() as u64 - 1, "what was destroyed is free");
    for (value, one) in (0_u8..).zip(&kept) {
        if seen.destroyed == Some(one.id) {
            assert_eq!(omniheap_free(*one), Status::Stale, "the pass freed it");
            continue;
        }
        assert!(read(*one, SIZE).iter().all(|byte| *byte == value), "the bytes moved along");
        assert_eq!(omniheap_free(*one), Status::Ok);
    }
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn what_packing_took_and_gave_back_is_told() {
    let manager = open(1);
    let mut number = 1_u64;
    let all = (0..400).map(|_| {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ask(manager, &omniheap_request_default((64 << 10) + (number >> 44))).expect("room")
    });
    let all: Vec<_> = all.collect();
    let free = |third: usize| {
        all.iter()
            .skip(third)
            .step_by(3)
            .for_each(|one| assert_eq!(omniheap_free(*one), Status::Ok));
    };
    free(0);
    let (mut bytes, mut moved) = (0, OmniheapMoved::default());
    assert_eq!(c!(omniheap_defragment(manager, &raw mut bytes)), Status::Ok, "{}", message());
    assert_eq!(c!(omniheap_defragmented(manager, &raw mut moved)), Status::Ok);
    assert!(moved.taken_bytes > 0, "holes that add up were packed: {moved:?}");
    assert!(bytes >= moved.returned_bytes - moved.taken_bytes, "{bytes} of {moved:?}");
    free(1);
    free(2);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn what_spilled_is_called_back() {
    let manager = open(0);
    const SIZE: usize = 256 << 10;
    let mut request = omniheap_request_default(SIZE as u64);
    request.flags = OMNIHEAP_MAY_SPILL;
    assert_eq!(omniheap_set_budget(manager, 0, 0, 0), Status::Ok, "the first heap is full");
    let spilled: Vec<_> = (0..3).map(|_| ask(manager, &request).expect("host memory")).collect();
    for (value, one) in (1_u8..).zip(&spilled) {
        assert_eq!(write(*one, &vec![value; SIZE]), Status::Ok);
    }
    let recall = |seen: &mut Seen| {
        let (budget, mut moved) = (omniheap_budget_default(), OmniheapMoved::default());
        let (user, moved_at) = ((&raw mut *seen).cast(), &raw mut moved);
        let status =
            c!(omniheap_recall_pass(manager, &raw const budget, Some(agree), None, user, moved_at));
        assert_eq!(status, Status::Ok, "{}", message());
        moved
    };
    let mut seen = Seen::default();
    assert_eq!((recall(&mut seen).moves, seen.moves), (0, 0), "there is no room");
    assert_eq!(omniheap_set_budget(manager, 0, u64::MAX, u64::MAX), Status::Ok);
    assert_eq!((recall(&mut seen).moves, seen.moves), (1, 3), "one was left, one destroyed");
    let mut about = OmniheapTotals::default();
    assert_eq!(c!(omniheap_totals(manager, &raw mut about)), Status::Ok);
    assert_eq!(about.live, 2);
    for (value, one) in (1_u8..).zip(&spilled) {
        if seen.destroyed != Some(one.id) {
            assert!(read(*one, SIZE).iter().all(|byte| *byte == value), "the bytes came along");
            assert_eq!(omniheap_free(*one), Status::Ok);
        }
    }
    assert_eq!(omniheap_close(manager), Status::Ok);
}

/// A manager with settings; `None` where they are refused.
fn opened(config: &OmniheapConfig) -> Option<OmniheapManager> {
    let mut manager = OmniheapManager { id: 0 };
    match c!(omniheap_open(c"host".as_ptr(), 0, config, &raw mut manager)) {
        Status::Ok => Some(manager),
        status => {
            assert_eq!((status, manager.id), (Status::InvalidArgument, 0), "{}", message());
            None
        }
    }
}

/// Steps until there is nothing to do; what was moved.
fn steps(manager: OmniheapManager) -> OmniheapMoved {
    let (mut all, mut one) = (OmniheapMoved::default(), OmniheapMoved::default());
    loop {
        let mut step = 77;
        let status = c!(omniheap_step(manager, &raw mut step, &raw mut one));
        assert_eq!(status, Status::Ok, "{}", message());
        assert!(step == OMNIHEAP_STEP_COMMITTED || one == OmniheapMoved::default(), "{one:?}");
        (all.moves, all.returned_bytes) =
            (all.moves + one.moves, all.returned_bytes + one.returned_bytes);
        assert!(one.moves <= 5, "{one:?}");
        if step == OMNIHEAP_STEP_IDLE {
            return all;
        }
    }
}

#[test]
fn a_step_moves_a_little_where_the_manager_works_in_the_background() {
    let step = OmniheapBudget { moves: 5, ..omniheap_budget_default() };
    let usual = OmniheapConfig { paged: 0, ..omniheap_config_default() };
    let defragmentation = OMNIHEAP_DEFRAGMENTATION_BACKGROUND;
    let background = OmniheapConfig { defragmentation, step: &raw const step, ..usual };
    for (config, moves) in [(usual, false), (background, true)] {
        let manager = opened(&config).expect("they make sense");
        let request = omniheap_request_default(256 << 10);
        let all: Vec<_> = (0..400).map(|_| ask(manager, &request).expect("room")).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.iter().enumerate().partition(|(at, _)| at % 7 == 0);
        freed.iter().for_each(|(_, one)| assert_eq!(omniheap_free(**one), Status::Ok));
        let moved = steps(manager);
        assert_eq!(moved.moves > 5 && moved.returned_bytes > 0, moves, "{moved:?}");
        let mut number = 0;
        assert_eq!(
            c!(omniheap_step(manager, &raw mut number, ptr::null_mut())),
            Status::NullArgument
        );
        let mut sums = OmniheapMoved::default();
        assert_eq!(
            c!(omniheap_step(manager, ptr::null_mut(), &raw mut sums)),
            Status::NullArgument
        );
        kept.iter().for_each(|(_, one)| assert_eq!(omniheap_free(**one), Status::Ok));
        assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
    }
}

#[test]
fn background_moves_between_percentages_that_make_sense() {
    let defragmentation = OMNIHEAP_DEFRAGMENTATION_BACKGROUND;
    let usual = OmniheapConfig { defragmentation, ..omniheap_config_default() };
    for (begin_above, end_below, is_taken) in [
        (0, 0, true),
        (50, 20, true),
        (100, 100, true),
        (5, 0, false),
        (0, 30, false),
        (101, 1, false),
        (300, 1, false),
    ] {
        let made = opened(&OmniheapConfig { begin_above, end_below, ..usual });
        assert_eq!(made.is_some(), is_taken, "{begin_above} {end_below}");
        made.into_iter().for_each(|manager| assert_eq!(omniheap_close(manager), Status::Ok));
    }
    assert!(opened(&OmniheapConfig { defragmentation: 3, ..usual }).is_none());
    let wrong = OmniheapBudget { struct_size: 1, ..omniheap_budget_default() };
    assert!(opened(&OmniheapConfig { step: &raw const wrong, ..usual }).is_none());
}
