//! Passes of the caller's own: begun, looked at, decided, started, committed or aborted, and what is refused meanwhile.
use super::*;

const SIZE: usize = 256 << 10;
/// Value of a place that no call may write.
const CANARY: u32 = 77;

fn begin(manager: OmniheapManager) -> OmniheapPass {
    let (budget, mut pass) = (omniheap_budget_default(), OmniheapPass { id: 0 });
    let begun = c!(omniheap_begin_defragment(manager, &raw const budget, &raw mut pass));
    assert_eq!(begun, Status::Ok, "{}", message());
    pass
}

/// The moves of a pass.
fn moves(pass: OmniheapPass) -> Vec<OmniheapMove> {
    let mut count = 0;
    assert_eq!(c!(omniheap_pass_count(pass, &raw mut count)), Status::Ok, "{}", message());
    let one = |which| {
        let mut one = OmniheapMove::default();
        let status = c!(omniheap_pass_move(pass, which, &raw mut one));
        assert_eq!(status, Status::Ok, "{}", message());
        one
    };
    (0..count).map(one).collect()
}

fn commit(pass: OmniheapPass, count: usize) -> (Vec<u32>, OmniheapMoved) {
    let (mut outcomes, mut moved) = (vec![CANARY; count + 1], OmniheapMoved::default());
    let told = outcomes.as_mut_ptr();
    let status = c!(omniheap_pass_commit(pass, told, outcomes.len(), &raw mut moved));
    assert_eq!(status, Status::Ok, "{}", message());
    assert_eq!(outcomes.pop(), Some(CANARY), "one for each move, and no more");
    (outcomes, moved)
}

fn offset(of: OmniheapAllocation) -> u64 {
    let mut place = OmniheapPlace::default();
    assert_eq!(c!(omniheap_place(of, &raw mut place)), Status::Ok, "{}", message());
    place.offset
}

/// A manager whose blocks have little in them: allocations with a number of their own in each byte and as the owner's pointer.
fn scattered() -> (OmniheapManager, Vec<OmniheapAllocation>) {
    let manager = open(0);
    let all = (0..400_usize).map(|number| {
        let user = ptr::without_provenance_mut(number);
        let request = OmniheapRequest { user, ..omniheap_request_default(SIZE as u64) };
        ask(manager, &request).expect("room")
    });
    let (kept, freed): (Vec<_>, Vec<_>) = all.enumerate().partition(|(at, _)| at % 7 == 0);
    freed.iter().for_each(|(_, one)| assert_eq!(omniheap_free(*one), Status::Ok));
    let kept: Vec<_> = kept.into_iter().map(|(_, one)| one).collect();
    for (value, one) in (0_u8..).zip(&kept) {
        assert_eq!(write(*one, &vec![value; SIZE]), Status::Ok);
    }
    (manager, kept)
}

/// Checks the bytes of all but some, frees them, and closes.
fn end(manager: OmniheapManager, kept: &[OmniheapAllocation], gone: &[OmniheapAllocation]) {
    for (value, one) in (0_u8..).zip(kept) {
        if gone.contains(one) {
            assert_eq!(omniheap_free(*one), Status::Stale);
            continue;
        }
        assert!(read(*one, SIZE).iter().all(|byte| *byte == value), "{value}");
        assert_eq!(omniheap_free(*one), Status::Ok);
    }
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
}

/// Checks that moves say what is planned for allocations that were at some offsets.
fn check_planned(planned: &[OmniheapMove], kept: &[OmniheapAllocation], before: &[(u64, u64)]) {
    for one in planned {
        assert_eq!(one.struct_size, size_of::<OmniheapMove>());
        assert_eq!(one.size, SIZE as u64);
        assert!(before.contains(&(one.allocation.id, one.from_offset)), "{one:?}");
        let at = kept.iter().position(|kept| *kept == one.allocation).expect("one of them");
        assert_eq!(one.user.addr(), 7 * at, "the owner's pointer");
        assert!(one.from_address != 0 && one.to_address != one.from_address, "{one:?}");
        assert_eq!((one.from_heap, one.to_heap, one.needs_consent), (0, 0, 0));
    }
}

#[test]
fn a_pass_makes_the_moves_that_were_decided() {
    let (manager, kept) = scattered();
    let before: Vec<_> = kept.iter().map(|one| (one.id, offset(*one))).collect();
    let pass = begin(manager);
    let planned = moves(pass);
    assert!(planned.len() > 4, "{}", planned.len());
    check_planned(&planned, &kept, &before);
    let decisions = [
        (0, OMNIHEAP_MOVE_IGNORE, OMNIHEAP_OUTCOME_STAYED),
        (1, OMNIHEAP_MOVE_DESTROY, OMNIHEAP_OUTCOME_FREED),
        (2, OMNIHEAP_MOVE_COPY, OMNIHEAP_OUTCOME_MOVED),
    ];
    for (which, decision, _) in decisions {
        assert_eq!(omniheap_pass_decide(pass, which, decision), Status::Ok, "{}", message());
    }
    let mut ready = CANARY;
    assert_eq!(c!(omniheap_pass_ready(pass, &raw mut ready)), Status::Ok);
    assert_eq!(ready, 0, "nothing was started");
    assert_eq!([(); 2].map(|()| omniheap_pass_start(pass)), [Status::Ok; 2]);
    while ready == 0 {
        assert_eq!(c!(omniheap_pass_ready(pass, &raw mut ready)), Status::Ok);
    }
    let (outcomes, moved) = commit(pass, planned.len());
    assert_eq!(outcomes[..3], decisions.map(|(_, _, outcome)| outcome));
    assert!(outcomes[3..].iter().all(|one| *one == OMNIHEAP_OUTCOME_MOVED), "{outcomes:?}");
    assert_eq!(moved.moves, planned.len() as u64 - 2);
    assert!(moved.returned_bytes > 0, "{moved:?}");
    for (one, outcome) in planned.iter().zip(&outcomes) {
        match *outcome {
            OMNIHEAP_OUTCOME_MOVED => assert_eq!(offset(one.allocation), one.to_offset),
            OMNIHEAP_OUTCOME_STAYED => assert_eq!(offset(one.allocation), one.from_offset),
            _ => {}
        }
    }
    end(manager, &kept, &[planned[1].allocation]);
}

#[test]
fn an_aborted_pass_changes_nothing() {
    for is_started in [false, true] {
        let (manager, kept) = scattered();
        let places: Vec<_> = kept.iter().map(|one| offset(*one)).collect();
        let mut before = OmniheapTotals::default();
        assert_eq!(c!(omniheap_totals(manager, &raw mut before)), Status::Ok);
        let pass = begin(manager);
        assert!(!moves(pass).is_empty());
        if is_started {
            assert_eq!(omniheap_pass_start(pass), Status::Ok);
        }
        assert_eq!(omniheap_pass_abort(pass), Status::Ok, "{}", message());
        assert_eq!(omniheap_pass_abort(pass), Status::Stale);
        assert!(message().contains("the pass was freed, closed or ended"), "{}", message());
        assert_eq!(kept.iter().map(|one| offset(*one)).collect::<Vec<_>>(), places);
        let (mut after, mut moved) = (OmniheapTotals::default(), OmniheapMoved::default());
        assert_eq!(c!(omniheap_totals(manager, &raw mut after)), Status::Ok);
        assert_eq!(c!(omniheap_defragmented(manager, &raw mut moved)), Status::Ok);
        assert_eq!((after.live, after.reserved_bytes), (before.live, before.reserved_bytes));
        assert_eq!((moved.moves, moved.returned_bytes), (0, 0));
        end(manager, &kept, &[]);
    }
}

#[test]
fn what_happens_to_an_allocation_during_a_pass_is_told() {
    let (manager, kept) = scattered();
    let pass = begin(manager);
    let planned = moves(pass);
    let [looked_at, freed, owned] = [0, 1, 2].map(|at: usize| planned[at].allocation);
    assert_eq!(offset(looked_at), planned[0].from_offset);
    assert_eq!(
        std::thread::spawn(move || omniheap_free(freed)).join().expect("no panic"),
        Status::Ok
    );
    assert_eq!(omniheap_pass_decide(pass, 2, OMNIHEAP_MOVE_OWNER_COPIES), Status::Ok);
    let from =
        ptr::with_exposed_provenance::<u8>(usize::try_from(planned[2].from_address).expect("here"));
    let to =
        ptr::with_exposed_provenance_mut(usize::try_from(planned[2].to_address).expect("here"));
    // SAFETY: host memory, of which nothing uses the new place; the places do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, to, SIZE) };
    let (outcomes, moved) = commit(pass, planned.len());
    let expected = [OMNIHEAP_OUTCOME_STAYED, OMNIHEAP_OUTCOME_FREED, OMNIHEAP_OUTCOME_MOVED];
    assert_eq!(outcomes[..3], expected);
    assert_eq!(moved.moves, planned.len() as u64 - 2);
    assert_eq!(offset(owned), planned[2].to_offset);
    end(manager, &kept, &[freed]);
}

#[test]
fn a_pass_keeps_its_manager_open_until_it_ends() {
    let (manager, kept) = scattered();
    let pass = begin(manager);
    kept.iter().for_each(|one| assert_eq!(omniheap_free(*one), Status::Ok));
    let closed = std::thread::spawn(move || (omniheap_close(manager), message()));
    let (status, said) = closed.join().expect("no panic");
    assert_eq!(status, Status::Busy);
    assert!(said.contains("passes") && said.contains("end them first"), "{said}");
    let (outcomes, _) = commit(pass, moves(pass).len());
    assert!(outcomes.iter().all(|one| *one == OMNIHEAP_OUTCOME_FREED), "{outcomes:?}");
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (manager, kept) = scattered();
    let pass = begin(manager);
    let planned = moves(pass);
    let none = planned.len();
    assert_eq!(omniheap_pass_decide(pass, none, OMNIHEAP_MOVE_COPY), Status::OutOfRange);
    assert!(message().contains(&format!("the pass has {none} moves")), "{}", message());
    let mut one = OmniheapMove::default();
    assert_eq!(c!(omniheap_pass_move(pass, usize::MAX, &raw mut one)), Status::OutOfRange);
    assert_eq!(omniheap_pass_decide(pass, 0, OMNIHEAP_MOVE_DESTROY + 1), Status::InvalidArgument);
    assert!(message().contains("pass one of OMNIHEAP_MOVE_…"), "{}", message());
    let mut outcomes = vec![CANARY; none];
    let short = |told, count, moved| c!(omniheap_pass_commit(pass, told, count, moved));
    let mut moved = OmniheapMoved::default();
    assert_eq!(short(outcomes.as_mut_ptr(), none - 1, &raw mut moved), Status::ShortBuffer);
    assert_eq!(short(outcomes.as_mut_ptr(), usize::MAX, &raw mut moved), Status::SizeOverflow);
    assert_eq!(short(outcomes.as_mut_ptr(), none, ptr::null_mut()), Status::NullArgument);
    moved.struct_size = 1;
    assert_eq!(short(outcomes.as_mut_ptr(), none, &raw mut moved), Status::InvalidArgument);
    assert!(outcomes.iter().all(|one| *one == CANARY));
    assert_eq!(omniheap_pass_start(pass), Status::Ok);
    assert_eq!(omniheap_pass_decide(pass, 0, OMNIHEAP_MOVE_DESTROY), Status::Busy);
    assert!(message().contains("decide before omniheap_pass_start"), "{}", message());
    let (outcomes, _) = commit(pass, none);
    assert!(outcomes.iter().all(|one| *one == OMNIHEAP_OUTCOME_MOVED), "{outcomes:?}");
    end(manager, &kept, &[]);
}

#[test]
fn handles_and_pointers_of_passes_are_checked() {
    let manager = open(0);
    let budget = omniheap_budget_default();
    let (mut pass, mut count, mut ready) = (OmniheapPass { id: 0 }, 0_usize, 0_u32);
    for wrong in [0, manager.id, u64::MAX] {
        let wrong = OmniheapPass { id: wrong };
        let (mut one, mut moved) = (OmniheapMove::default(), OmniheapMoved::default());
        let refused = [
            c!(omniheap_pass_count(wrong, &raw mut count)),
            c!(omniheap_pass_move(wrong, 0, &raw mut one)),
            omniheap_pass_decide(wrong, 0, OMNIHEAP_MOVE_COPY),
            omniheap_pass_start(wrong),
            c!(omniheap_pass_ready(wrong, &raw mut ready)),
            c!(omniheap_pass_commit(wrong, ptr::null_mut(), 0, &raw mut moved)),
            omniheap_pass_abort(wrong),
        ];
        assert_eq!(refused, [Status::Stale; 7]);
    }
    let (nothing, to) = (ptr::null_mut(), &raw mut pass);
    assert_eq!(c!(omniheap_begin_defragment(manager, ptr::null(), to)), Status::NullArgument);
    assert_eq!(
        c!(omniheap_begin_defragment(manager, &raw const budget, nothing)),
        Status::NullArgument
    );
    let short = OmniheapBudget { struct_size: 8, ..budget };
    assert_eq!(c!(omniheap_begin_recall(manager, &raw const short, to)), Status::InvalidArgument);
    assert_eq!(pass.id, 0);
    let nothing_to_gain = begin(manager);
    assert_eq!(c!(omniheap_pass_count(nothing_to_gain, ptr::null_mut())), Status::NullArgument);
    assert_eq!(c!(omniheap_pass_ready(nothing_to_gain, ptr::null_mut())), Status::NullArgument);
    assert_eq!(moves(nothing_to_gain).len(), 0);
    assert_eq!(commit(nothing_to_gain, 0), (vec![], OmniheapMoved::default()));
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
}

#[test]
fn what_spilled_is_recalled_by_a_pass() {
    let manager = open(0);
    let spill =
        OmniheapRequest { flags: OMNIHEAP_MAY_SPILL, ..omniheap_request_default(SIZE as u64) };
    assert_eq!(omniheap_set_budget(manager, 0, 0, 0), Status::Ok, "the first heap is full");
    let spilled: Vec<_> = (0..3).map(|_| ask(manager, &spill).expect("host memory")).collect();
    for (value, one) in (0_u8..).zip(&spilled) {
        assert_eq!(write(*one, &vec![value; SIZE]), Status::Ok);
    }
    assert_eq!(omniheap_set_budget(manager, 0, u64::MAX, u64::MAX), Status::Ok);
    let (budget, mut pass) = (omniheap_budget_default(), OmniheapPass { id: 0 });
    let begun = c!(omniheap_begin_recall(manager, &raw const budget, &raw mut pass));
    assert_eq!(begun, Status::Ok, "{}", message());
    let planned = moves(pass);
    assert_eq!(planned.len(), 3);
    assert!(planned.iter().all(|one| one.from_heap != 0 && one.to_heap == 0), "{planned:?}");
    let (outcomes, moved) = commit(pass, 3);
    assert_eq!((outcomes, moved.moves), (vec![OMNIHEAP_OUTCOME_MOVED; 3], 3));
    end(manager, &spilled, &[]);
}

#[test]
fn an_owners_pointer_comes_back() {
    let manager = open(0);
    let first = ptr::without_provenance_mut(41);
    let request = OmniheapRequest { user: first, ..omniheap_request_default(64) };
    let made = ask(manager, &request).expect("small");
    let user = || {
        let mut user = ptr::null_mut();
        assert_eq!(c!(omniheap_user(made, &raw mut user)), Status::Ok);
        user
    };
    assert_eq!(user(), first);
    assert_eq!(omniheap_set_user(made, ptr::null_mut()), Status::Ok);
    assert_eq!(user(), ptr::null_mut());
    assert_eq!(c!(omniheap_user(made, ptr::null_mut())), Status::NullArgument);
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_set_user(made, first), Status::Stale);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn threads_share_a_pass_until_one_of_them_ends_it() {
    for is_committed in [false, true] {
        let (manager, kept) = scattered();
        let pass = begin(manager);
        let count = moves(pass).len();
        let look = move || {
            let (mut one, mut ready, mut looks) = (OmniheapMove::default(), 0, 0_u64);
            loop {
                let told = [
                    c!(omniheap_pass_move(pass, 0, &raw mut one)),
                    omniheap_pass_decide(pass, 0, OMNIHEAP_MOVE_IGNORE),
                    c!(omniheap_pass_ready(pass, &raw mut ready)),
                ];
                assert!(
                    told.iter().all(|one| matches!(one, Status::Ok | Status::Stale)),
                    "{told:?}"
                );
                if told[2] == Status::Stale {
                    return looks;
                }
                looks += 1;
            }
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(look)).collect();
        if is_committed {
            let _ = commit(pass, count);
        } else {
            assert_eq!(omniheap_pass_abort(pass), Status::Ok, "{}", message());
        }
        for thread in threads {
            let _ = thread.join().expect("no panic");
        }
        end(manager, &kept, &[]);
    }
}
