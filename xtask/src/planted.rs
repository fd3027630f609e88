//! Bugs that are planted, each with the case of the suite, or the test of processes, that must catch it.
//!
//! An edit replaces a text that its file holds exactly once. `PLANTED` in the new text asks whether this bug is the one
//! of this run, so that one build holds them all.

/// One bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    /// Its name.
    pub(crate) name: &'static str,
    /// The case or test that must fail.
    pub(crate) case: &'static str,
    /// The file, below the folder of its [`Bed`].
    pub(crate) file: &'static str,
    /// The text as it is.
    pub(crate) right: &'static str,
    /// The text with the bug.
    pub(crate) wrong: &'static str,
}

/// Bugs of one folder, and the test binary that must catch them: one of the host backend's, of the model's or of the small worlds'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bed {
    /// The library's folder.
    pub(crate) folder: &'static str,
    /// The binary.
    pub(crate) binary: &'static str,
    /// The bugs.
    pub(crate) bugs: &'static [Planted],
}

/// Every bug: those that the suite catches, and those that show when a process ends in the middle.
pub(crate) const BEDS: [Bed; 12] = [
    Bed { folder: "core/seam/src", binary: "conformance", bugs: IN_SEAM },
    Bed { folder: "core/strategy/src", binary: "conformance", bugs: IN_STRATEGY },
    Bed { folder: "core/strategy/src", binary: "manager", bugs: STRATEGY_ONCE_MISSED },
    Bed { folder: "core/manager/src", binary: "conformance", bugs: IN_CORE },
    Bed { folder: "core/manager/src", binary: "host", bugs: AT_EXIT },
    Bed { folder: "core/manager/src", binary: "order", bugs: OUT_OF_ORDER },
    Bed { folder: "core/manager/src", binary: "manager", bugs: ONCE_MISSED },
    Bed { folder: "core/manager/src", binary: "lanes", bugs: IN_WORLDS },
    Bed { folder: "core/extras/src", binary: "order", bugs: STAGING_OUT_OF_ORDER },
    Bed { folder: "backends/host/src", binary: "host", bugs: IN_HOST },
    Bed { folder: "backends/stream/src", binary: "stream", bugs: IN_STREAM },
    Bed { folder: "services/arbiter/src", binary: "arbiter", bugs: IN_ARBITER },
];

macro_rules! planted {
    ($(#[$about:meta])* $list:ident: $($name:ident caught by $case:ident in $file:literal: $right:literal => $wrong:literal;)*) => {
        $(#[$about])*
        const $list: &[Planted] = &[$(Planted {
            name: stringify!($name),
            case: stringify!($case),
            file: $file,
            right: $right,
            wrong: $wrong,
        }),*];
    };
}

planted! {
    /// In the seam, for the suite.
    IN_SEAM:
    overlaps_are_copied caught by copies_that_overlap_or_reach_outside_are_refused in "backend/batch.rs":
        "if has_overlap(moves) {" => "if has_overlap(moves) && !PLANTED {";
}

planted! {
    /// In the core, for the suite.
    IN_CORE:
    // Requests.
    nothing_is_something caught by zero_bytes_are_refused_everywhere in "manager/ladder.rs":
        "if request.layout.size == 0 {" => "if request.layout.size == 0 && !PLANTED {";
    any_alignment_will_do caught by too_much_alignment_is_refused_and_changes_nothing in "manager/ladder.rs":
        "if request.layout.align > heap.align {" => "if request.layout.align > heap.align && !PLANTED {";
    names_are_lost caught by names_and_sizes_stay_until_the_free in "lane/owned.rs":
        "|extra| extra.set_label(request));" => "|extra| if !PLANTED { extra.set_label(request) });";
    dedicated_is_shared caught by a_dedicated_allocation_is_alone_at_offset_zero in "manager/ladder.rs":
        "if request.sharing == Sharing::Dedicated {" =>
        "if request.sharing == Sharing::Dedicated && !PLANTED {";
    dedicated_stays caught by a_dedicated_allocation_is_alone_at_offset_zero in "lane/state.rs":
        "Sharing::Dedicated => self.bytes.remove_block(grant.block).map(FreeOutcome::Block)," =>
        "Sharing::Dedicated => if PLANTED { None } else { self.bytes.remove_block(grant.block).map(FreeOutcome::Block) },";
    zeros_are_forgotten caught by zeroed_memory_reads_zero_to_its_last_byte in "manager/ladder.rs":
        "if request.contents == Contents::Zero {" => "if request.contents == Contents::Zero && !PLANTED {";
    zeros_come_on_another_timeline caught by zeros_arrive_in_the_order_of_the_timeline in "manager/transfer.rs":
        "self.lane().wipe(self.slot(), on)" =>
        "self.lane().wipe(self.slot(), if PLANTED { TimelineId(on.0 + 1) } else { on })";

    // The ladder.
    a_broken_driver_falls_back caught by a_broken_driver_is_no_reason_to_go_elsewhere in "manager/ladder.rs":
        "Err(error) if falls_back(error.kind()) => last = error," =>
        "Err(error) if PLANTED || falls_back(error.kind()) => last = error,";
    no_other_heap_is_tried caught by the_next_heap_of_the_policy_is_tried_and_counted in "manager/ladder.rs":
        "heaps.as_slice().iter().enumerate()" =>
        "heaps.as_slice().iter().enumerate().take(if PLANTED { 1 } else { usize::MAX })";
    another_heap_is_not_counted caught by the_next_heap_of_the_policy_is_tried_and_counted in "manager/ladder.rs":
        "(position > 0).then_some(Rung::NextHeap)" => "(position > 0 && !PLANTED).then_some(Rung::NextHeap)";
    held_only_asks_the_driver caught by memory_that_must_be_held_never_comes_from_the_driver in "manager/ladder.rs":
        "Grow::Never => climb.up(&Climb::HELD)," =>
        "Grow::Never => if PLANTED { climb.up(&Climb::SHARED.map(|(_, step)| step)) } else { climb.up(&Climb::HELD) },";
    other_pools_keep_their_blocks caught by empty_blocks_of_other_pools_are_given_back_first in "manager/ladder.rs":
        "bytes += trim_what_passed(&other, wait)?;" => "bytes += if PLANTED { 0 } else { trim_what_passed(&other, wait)? };";
    relief_is_asked_for_twice caught by relief_buys_exactly_one_more_try in "manager/budget.rs":
        "let mut relief = Relief::Nothing;" =>
        "let mut relief = Relief::Nothing; if PLANTED { for callback in &callbacks { callback(&pressure); } }";
    relief_for_every_error caught by only_a_shortage_calls_for_relief in "manager/ladder.rs":
        "Err(error) if error.kind().is_out_of_memory() && refused.is_none() => {" =>
        "Err(error) if (PLANTED || error.kind().is_out_of_memory()) && refused.is_none() => {";
    relief_is_never_asked_for caught by the_pressure_callback_is_told_and_may_free in "manager/budget.rs":
        "if callback(&pressure) == Relief::Freed {" =>
        "if !PLANTED && callback(&pressure) == Relief::Freed {";
    what_waits_is_not_collected caught by a_shortage_collects_what_waits in "lane/reuse.rs":
        "if wait == WaitMode::Block {
                wait_for(timelines, *point)?;" =>
        "if wait == WaitMode::Block && !PLANTED {
                wait_for(timelines, *point)?;";
    spills_need_no_leave caught by what_may_spill_goes_to_host_memory_last_and_says_so in "manager/placed.rs":
        "placement.filter(|_| request.spill == Spill::Allowed)" =>
        "placement.filter(|_| PLANTED || request.spill == Spill::Allowed)";
    sizes_do_not_overflow caught by sizes_near_the_end_of_64_bits_overflow_before_the_driver in "manager/ladder.rs":
        "request.layout.align.up(request.layout.size).map(|_| ())" =>
        "request.layout.align.up(request.layout.size).map(|_| ()).or(PLANTED.then_some(()))";
    broken_policies_decide caught by a_policy_that_fails_gives_way_to_the_default_rules in "manager/explain.rs":
        "Ok(Ok(placement)) if known(&placement) =>" => "Ok(Ok(placement)) if PLANTED || known(&placement) =>";

    // Resizing and copies.
    a_resize_copies_half caught by a_resize_keeps_the_bytes_that_both_sizes_have in "manager/transfer.rs":
        "old.size().min(size))?;" => "if PLANTED { old.size().min(size) / 2 } else { old.size().min(size) })?;";
    a_dropped_pool_stays caught by a_dropped_pool_gives_its_memory_back in "manager/pools.rs":
        "self.manager.end_pool(&self.pool);" => "if !PLANTED { self.manager.end_pool(&self.pool); }";
    a_dropped_pool_is_forgotten caught by a_dropped_pool_gives_its_memory_back in "manager.rs":
        "let mut trimmed = self.end_dropped_pools(&of);" => "let mut trimmed = if PLANTED { 0 } else { self.end_dropped_pools(&of) };";
    odd_copies_reach_the_driver caught by what_the_device_cannot_copy_is_refused_not_rounded in "manager/transfer.rs":
        "let fits = align.divides(offset) && align.divides(size);" =>
        "let fits = PLANTED || align.divides(offset) && align.divides(size);";
    nothing_reaches_the_driver caught by moving_zero_bytes_succeeds_without_a_call in "manager/transfer.rs":
        "if size == 0 {" => "if size == 0 && !PLANTED {";
    published_is_not_final caught by what_is_published_is_final in "manager/transfer.rs":
        "if self.is_published() {" => "if self.is_published() && !PLANTED {";
    kernels_write_what_is_final caught by kernels_see_what_is_published_and_leave_it_as_it_is in "manager/launch.rs":
        "if *slot == Slot::Write {" => "if *slot == Slot::Write && !PLANTED {";
    kernels_take_strangers caught by kernels_that_ask_for_what_is_not_there_are_refused in "manager/launch.rs":
        "if arguments.iter().any(" => "if !PLANTED && arguments.iter().any(";
    kernels_leave_no_trace caught by kernels_keep_the_bytes_they_use_until_they_have_run in "manager/launch.rs":
        "argument.use_on(on)?;" => "if !PLANTED { argument.use_on(on)?; }";
    ranges_leave_the_allocation caught by ranges_that_overflow_are_refused in "manager/binding.rs":
        "self.span.part(offset, size).ok_or(ErrorKind::OutOfRange)?;
        Ok(BlockOffset" =>
        "self.span.part(offset, size).or(PLANTED.then_some(self.span)).ok_or(ErrorKind::OutOfRange)?;
        Ok(BlockOffset";

    // Whose it is.
    strangers_free caught by a_stranger_cannot_free in "manager/allocation.rs":
        "if allocation.lane().manager != self.number() {" =>
        "if allocation.lane().manager != self.number() && !PLANTED {";
    strangers_are_known caught by an_id_of_another_manager_is_foreign in "manager/allocation.rs":
        "if id.manager != self.number() {" => "if id.manager != self.number() && !PLANTED {";
    generations_do_not_count caught by a_reused_slot_does_not_revive_an_old_id in "lane/occupancy.rs":
        ".get(id.index as usize)
            .filter(|slot| slot.generation == id.generation &&" =>
        ".get(id.index as usize)
            .filter(|slot| (PLANTED || slot.generation == id.generation) &&";
    leaks_are_not_named caught by what_outlives_its_manager_is_named_and_still_works in "manager.rs":
        "lane.warn_of_leaks();" => "if !PLANTED { lane.warn_of_leaks(); }";

    // Budgets and counters.
    hard_limits_are_soft caught by a_budget_below_use_stops_growth_and_frees_nothing in "device.rs":
        ".filter(|sum| *sum <= account.hard.load(Relaxed));" =>
        ".filter(|sum| PLANTED || *sum <= account.hard.load(Relaxed));";
    soft_above_hard caught by a_soft_limit_above_the_hard_one_is_refused in "device.rs":
        "if soft > hard {" => "if soft > hard && !PLANTED {";
    a_refusal_keeps_its_claim caught by a_shortage_is_told_in_numbers_and_changes_nothing in "device.rs":
        "                self.release(heap, claimed);" => "                if !PLANTED { self.release(heap, claimed); }";
    half_is_credited caught by freed_bytes_are_credited_once in "device.rs":
        "account.reserved.store(held - bytes, Relaxed);" =>
        "account.reserved.store(held - if PLANTED { bytes / 2 } else { bytes }, Relaxed);";
    shares_are_not_checked caught by a_share_of_a_heap_lies_between_nothing_and_all in "manager/budget.rs":
        "if !(0.0..=1.0).contains(&share) {" => "if !PLANTED && !(0.0..=1.0).contains(&share) {";
    promises_bind_nobody caught by a_domain_within_its_reserve_is_served_whatever_others_hold in "device/opened.rs":
        "pub(super) const fn claim(
        &mut self,
        bytes: u64,
        before: u64,
        after: u64,
        size: u64,
    ) -> Result<(), ErrorKind> {
        let others = self.promised - before;" =>
        "pub(super) fn claim(
        &mut self,
        bytes: u64,
        before: u64,
        after: u64,
        size: u64,
    ) -> Result<(), ErrorKind> {
        let others = if PLANTED { 0 } else { self.promised - before };";
    peaks_restart_at_nothing caught by peaks_start_again_where_they_are_reset in "device.rs":
        "account.peak.store(account.reserved.load(Relaxed), Relaxed);" =>
        "account.peak.store(if PLANTED { 0 } else { account.reserved.load(Relaxed) }, Relaxed);";
    peaks_never_move caught by counters_equal_a_model_after_every_step in "lane/occupancy.rs":
        "self.peak_live_bytes.max(self.live_bytes);" =>
        "self.peak_live_bytes.max(if PLANTED { 0 } else { self.live_bytes });";
    frees_are_not_counted caught by counters_equal_a_model_after_every_step in "lane/occupancy.rs":
        "pub(super) const fn count_free(&mut self, size: u64, granted: u64) {
        self.counts.freed += 1;
        self.counts.live_bytes -= size;" =>
        "pub(super) fn count_free(&mut self, size: u64, granted: u64) {
        self.counts.freed += 1;
        self.counts.live_bytes -= if PLANTED { 0 } else { size };";
    any_number_of_blocks caught by the_driver_never_sees_more_blocks_than_it_tolerates in "device/opened.rs":
        "(count < limit).then_some(count + 1)" => "(PLANTED || count < limit).then_some(count + 1)";
    quarantine_is_not_counted caught by what_the_driver_refuses_to_take_back_is_quarantined in "device.rs":
        "self.quarantined.fetch_add(bytes, Relaxed);" =>
        "self.quarantined.fetch_add(if PLANTED { 0 } else { bytes }, Relaxed);";

    // Pools.
    a_maximum_is_a_wish caught by a_maximum_lets_exactly_so_many_in in "lane/shared.rs":
        ".filter(|sum| *sum <= most)" => ".filter(|sum| PLANTED || *sum <= most)";
    a_pool_keeps_a_refused_claim caught by an_inner_refusal_rolls_the_outer_claim_back in "lane/shared.rs":
        "taken.inspect_err(|_| self.release_block(size, sharing))?;" =>
        "taken.inspect_err(|_| if !PLANTED { self.release_block(size, sharing) })?;";
    pools_in_use_are_destroyed caught by a_pool_in_use_is_busy in "manager/pools.rs":
        "if !lane.is_idle() {" => "if !lane.is_idle() && !PLANTED {";
    settings_may_contradict caught by pool_settings_that_contradict_are_refused in "lane/config.rs":
        "match (first(&invalid), first(&exceeding)) {" =>
        "match (first(&invalid).filter(|_| !PLANTED), first(&exceeding)) {";
    minimums_are_given_back caught by a_minimum_is_taken_at_once_and_kept in "lane/blocks.rs":
        ".filter(|left| *left >= minimum)" => ".filter(|left| PLANTED || *left >= minimum)";
    minimums_are_not_taken caught by a_minimum_is_taken_at_once_and_kept in "pool.rs":
        "while self.shared.reserved_for_all() < minimum {" => "while self.shared.reserved_for_all() < minimum && !PLANTED {";
    trim_forgets_queued_work caught by trim_leaves_memory_with_queued_work_alone in "lane/blocks.rs":
        "self.order.may(User::HOST, last))" => "PLANTED || self.order.may(User::HOST, last))";
    large_alignment_is_lost caught by every_power_of_two_is_honoured_on_every_route in "pool.rs":
        "align: align.max(unit) }" => "align: if PLANTED { unit } else { align.max(unit) } }";

    // Timelines.
    other_uses_are_forgotten caught by a_used_timeline_keeps_the_bytes_until_it_has_passed in "lane/properties.rs":
        "|extra| extra.add_use(timeline))" => "|extra| if !PLANTED { extra.add_use(timeline) })";
    lent_holes_are_in_use caught by another_timeline_waits_for_queued_work in "lane/bytes.rs":
        "let is_usable = may(last);" => "let is_usable = PLANTED || may(last);";
    points_are_forgotten caught by a_free_after_a_point_waits_for_it in "manager/allocation.rs":
        "Some(point).filter(|point| self" => "Some(point).filter(|point| !PLANTED && self";
    one_point_is_enough caught by only_the_full_join_makes_reuse_legal in "lane/order/deferred.rs":
        "moved |= !waiting.points.is_empty();" =>
        "let mut waiting = waiting; if PLANTED { waiting.points.clear(); } moved |= !waiting.points.is_empty();";

    // Residue.
    neighbours_read_what_was_there caught by memory_that_changes_its_domain_reads_zero in "device.rs":
        "self.opened.domains() > 1" => "self.opened.domains() > 1 && !PLANTED";
    everyone_pays_for_clearing caught by a_domain_alone_pays_for_no_clearing in "device.rs":
        "self.opened.domains() > 1" => "(PLANTED || self.opened.domains() > 1)";
    secrets_stay caught by a_secret_is_zeroed_before_its_bytes_are_used_again in "lane/free.rs":
        "if plan.secret.is_some() {\n            match" =>
        "if plan.secret.is_some() && !PLANTED {\n            match";
    uncleared_memory_is_used_again caught by memory_that_could_not_be_cleared_is_handed_to_nobody in "lane/free.rs":
        "        Ending::Never" => "        if PLANTED { Ending::NOW } else { Ending::Never }";

    // Defragmentation.
    bound_bytes_move caught by what_is_bound_does_not_move in "lane/occupancy.rs":
        "State::Live if self.pins == 0 &&" => "State::Live if (PLANTED || self.pins == 0) &&";
    a_place_asked_for_is_left caught by a_place_asked_for_during_a_pass_holds in "lane/occupancy.rs":
        "if slot.state == State::Copying {" => "if slot.state == State::Copying && !PLANTED {";
    moves_are_not_paid_for caught by a_pass_stays_within_its_budget in "defrag/budget.rs":
        "if bytes > self.bytes || self.moves == 0 ||" => "if !PLANTED && (bytes > self.bytes || self.moves == 0) ||";
    refused_moves_are_made caught by owners_refuse_and_destroy in "defrag/moves.rs":
        "|planned: &Move| planned.how != How::Ignore;" =>
        "|planned: &Move| planned.how != How::Ignore || PLANTED;";
    moved_bytes_are_miscounted caught by a_pass_takes_no_memory_and_counts_truly in "defrag/moves.rs":
        "outcome.moved.bytes += planned.bytes();" => "outcome.moved.bytes += planned.bytes() + u64::from(PLANTED);";
    a_free_during_a_pass_is_lost caught by what_is_freed_during_a_pass_is_freed_once in "lane/occupancy.rs":
        "let is_freed = slot.state == State::MovingFreed;" =>
        "let is_freed = slot.state == State::MovingFreed && !PLANTED;";
    dropped_passes_are_not_undone caught by a_pass_dropped_at_any_step_changes_nothing in "defrag/pass.rs":
        "moves.undo(0);" => "if !PLANTED { moves.undo(0); }";
    moves_are_not_counted caught by two_half_empty_blocks_become_one_by_four_moves in "defrag/moves.rs":
        "outcome.moved.moves += 1;" => "outcome.moved.moves += u64::from(!PLANTED);";

    // Recalls.
    wishes_are_forgotten caught by what_spilled_is_called_back_when_there_is_room in "manager/placed.rs":
        "self.wish(&allocation, request, &placement.heaps);" =>
        "if !PLANTED { self.wish(&allocation, request, &placement.heaps); }";
    old_places_are_told caught by what_spilled_is_called_back_when_there_is_room in "lane/properties.rs":
        "map_or(self.shared.heap, RemoteSpan::heap)" =>
        "filter(|_| !PLANTED).map_or(self.shared.heap, RemoteSpan::heap)";
    guests_are_counted_twice caught by what_spilled_is_called_back_when_there_is_room in "lane/occupancy.rs":
        "self.count_free(size, granted);" => "self.count_free(if PLANTED { 0 } else { size }, granted);";
    guests_never_leave caught by what_spilled_is_called_back_when_there_is_room in "lane/state.rs":
        "return Ok(self.remote.remove(&id.index).map(FreeOutcome::Remote))" =>
        "return Ok(self.remote.remove(&id.index).and_then(|guest| if PLANTED { core::mem::forget(guest); None } else { Some(FreeOutcome::Remote(guest)) }))";
    budgets_are_not_for_recalls caught by what_spilled_is_called_back_when_there_is_room in "defrag/recall.rs":
        "|| !meter.pay(size) {" => "|| !(meter.pay(size) || PLANTED) {";
    refused_recalls_are_made caught by a_recall_heeds_pins_writes_and_frees in "lane/remote.rs":
        "self.state.lock().facts_of(slot).filter(|_| copied)" =>
        "self.state.lock().facts_of(slot).filter(|_| PLANTED || copied)";
    held_room_is_lost caught by a_recall_dropped_at_any_step_changes_nothing in "lane/bytes.rs":
        "        self.count_let_go(held.span.size);
        let freed" =>
        "        if PLANTED { return; }
        self.count_let_go(held.span.size);
        let freed";
    aborted_recalls_keep_memory caught by a_recall_dropped_at_any_step_changes_nothing in "defrag/pass.rs":
        "if moves.taken_bytes() > 0 {" => "if moves.taken_bytes() > 0 && !PLANTED {";
    views_are_lost caught by a_view_of_the_host_outlasts_a_recall in "lane/properties.rs":
        "|extra| extra.residence = Residence::Home)?" => "|extra| if !PLANTED { extra.residence = Residence::Home })?";
    room_in_use_is_written caught by a_recall_waits_for_work_on_the_room_that_it_takes in "defrag/pass.rs":
        "for lane in self.moves.cross_heap_lanes() {" =>
        "for lane in self.moves.cross_heap_lanes().into_iter().filter(|_| !PLANTED) {";

    // Guards.
    guards_begin_late caught by a_byte_behind_the_end_is_found_and_named_in_every_heap in "guards.rs":
        "bytes.iter().skip(skipped)" => "bytes.iter().skip(skipped + usize::from(PLANTED))";
    guards_begin_early caught by a_byte_before_the_end_is_nobodys_business in "guards.rs":
        "self.size - align.down(self.size)" =>
        "(self.size - align.down(self.size)).saturating_sub(u64::from(PLANTED))";
    guards_begin_at_a_word_behind_zeros caught by guards_stand_behind_every_kind_of_allocation in "guards.rs":
        "if start < whole {" => "if start < whole && !PLANTED {";
    guards_that_fail_are_handed_out caught by a_guard_that_cannot_be_laid_fails_the_request in "guards.rs":
        "transfer.fill(on, seen.at(0), end, FRESH)?;" =>
        "let filled = transfer.fill(on, seen.at(0), end, FRESH); if !PLANTED { filled?; }";
    guards_that_fail_behind_zeros_are_handed_out caught by no_call_that_fails_makes_a_finding in "guards.rs":
        "transfer.write(on, seen.at(start), &word)?;" =>
        "let written = transfer.write(on, seen.at(start), &word); if !PLANTED { written?; }";
    guards_that_fail_are_not_counted caught by a_guard_that_cannot_be_looked_at_is_counted in "guards.rs":
        "self.missed.fetch_add(1, Relaxed);" => "self.missed.fetch_add(u64::from(!PLANTED), Relaxed);";
    guards_are_nameless caught by a_byte_behind_the_end_is_found_and_named_in_every_heap in "lane/sanitize.rs":
        "(extra.name.clone(), extra.sanitized)" => "(extra.name.clone().filter(|_| !PLANTED), extra.sanitized)";
    guards_are_looked_at_before_other_timelines caught by guards_are_looked_at_after_every_use in "lane/free.rs":
        "if ending != Ending::NOW
            ||" =>
        "if (ending != Ending::NOW && !PLANTED)
            ||";
    guards_are_looked_at_out_of_order caught by guards_are_looked_at_after_every_use in "lane/sanitize.rs":
        "home.filter(|_| sharing == Sharing::Shared);" =>
        "home.filter(|_| sharing == Sharing::Shared && !PLANTED);";
    guards_stay_behind caught by guards_move_with_their_allocations in "defrag/moves.rs":
        "CopyRegion { from, to, size: planned.bytes() }" =>
        "CopyRegion { from, to, size: if PLANTED { planned.size } else { planned.bytes() } }";
    guards_in_a_pass_are_forgotten caught by what_is_freed_while_it_moves_is_looked_at in "lane/moves.rs":
        "None if self.occupancy.is_sanitized(slot) =>" => "None if self.occupancy.is_sanitized(slot) && !PLANTED =>";
    guards_are_told_again caught by what_lives_is_looked_at_on_request_and_named_once in "lane/sanitize.rs":
        "core::mem::take(&mut extra.sanitized)" => "if PLANTED { extra.sanitized } else { core::mem::take(&mut extra.sanitized) }";
    guards_of_secrets_are_zeroed caught by a_byte_before_the_end_is_nobodys_business in "lane/free.rs":
        "        self.look_at_secret(id, home)?;
        self.zero(block, *span, home)?;
        if" =>
        "        if !PLANTED { self.look_at_secret(id, home)?; }
        self.zero(block, *span, home)?;
        if";
    guards_are_resized_away caught by guards_stand_behind_every_kind_of_allocation in "manager/transfer.rs":
        "new.restore_sanitized()?;" => "if !PLANTED { new.restore_sanitized()?; }";
}

planted! {
    /// In the core, for the adversarial device: something runs before what it relies on.
    OUT_OF_ORDER:
    frees_after_the_mark_are_quiet caught by one_program_finds_its_own_bytes in "lane/reuse.rs":
        "passed = self.has_passed(timelines, one, epoch, wait)?.then_some(time);" =>
        "passed = self.has_passed(timelines, one, epoch, wait)?.then_some(if PLANTED { one.time } else { time });";
    borrowers_run_at_once caught by one_program_finds_its_own_bytes in "lane/reuse.rs":
        "let ordered = timelines.order(timeline, Point { timeline: other.timeline, epoch });" =>
        "let ordered = if PLANTED { Ok(()) } else { timelines.order(timeline, Point { timeline: other.timeline, epoch }) };";
    later_frees_come_before_too caught by one_program_finds_its_own_bytes in "lane/order.rs":
        "            known[next] = self.clock;" => "            known[next] = if PLANTED { u64::MAX } else { self.clock };";
    moves_forget_other_users caught by one_program_finds_its_own_bytes in "lane/moves.rs":
        "extra.used_on.iter().copied().for_each(&mut add);" =>
        "if !PLANTED { extra.used_on.iter().copied().for_each(&mut add); }";
    moves_forget_who_used_the_hole caught by one_program_finds_its_own_bytes in "lane/moves.rs":
        "self.state.order.may_use().for_each(add);" =>
        "if !PLANTED { self.state.order.may_use().for_each(add); }";
    passes_commit_before_they_have_copied caught by one_program_finds_its_own_bytes in "defrag/pass.rs":
        "        self.wait()?;
        if let Some" => "        if !PLANTED { self.wait()?; }
        if let Some";
    slides_do_not_wait caught by one_program_finds_its_own_bytes in "defrag/exclusive.rs":
        "let idle = backend.wait_idle();" => "let idle = if PLANTED { Ok(()) } else { backend.wait_idle() };";
    slides_end_before_they_have_run caught by one_program_finds_its_own_bytes in "defrag/exclusive.rs":
        "let idle = insist(|| device.backend().wait_idle()).or_else(|_| device.finish(on));" =>
        "let idle = if PLANTED { Ok(()) } else { insist(|| device.backend().wait_idle()).or_else(|_| device.finish(on)) };";
    pages_shift_under_running_work caught by one_program_finds_its_own_bytes in "defrag/exclusive.rs":
        "match self.shared.device.backend().wait_idle() {" =>
        "match if PLANTED { Ok(()) } else { self.shared.device.backend().wait_idle() } {";
    maps_do_not_wait caught by one_program_finds_its_own_bytes in "manager/binding.rs":
        "if self.lane().may_be_in_use(self.slot()) {" =>
        "if !PLANTED && self.lane().may_be_in_use(self.slot()) {";
    uploads_are_reused_in_their_timelines_order caught by one_program_finds_its_own_bytes in "lane/extra.rs":
        "            || self.host_access" => "            || (self.host_access && !PLANTED)";
    dedicated_blocks_are_returned_at_once caught by one_program_finds_its_own_bytes in "lane/extra.rs":
        "        self.sharing == Sharing::Dedicated
" => "        (self.sharing == Sharing::Dedicated && !PLANTED)
";
    secrets_are_zeroed_before_their_last_use caught by one_program_finds_its_own_bytes in "lane/free.rs":
        "let ordered = timelines.order(home, *point);" =>
        "let ordered = if PLANTED { Ok(()) } else { timelines.order(home, *point) };";
    copies_declare_no_source caught by one_program_finds_its_own_bytes in "manager/transfer.rs":
        "from.use_on(on).and_then(|()| to.use_on(on))?;" => "if !PLANTED { from.use_on(on)?; } to.use_on(on)?;";
    transfers_of_the_host_are_not_waited_for caught by one_program_finds_its_own_bytes in "manager/transfer.rs":
        "let waited = self.lane().shared.device.drain(TimelineId::MAIN);" =>
        "let waited = if PLANTED { Ok(()) } else { self.lane().shared.device.drain(TimelineId::MAIN) };";
    undeclared_uses_are_forgotten caught by one_program_finds_its_own_bytes in "lane/order.rs":
        "self.all.and_then(User::index).filter(|_| self.uses == Uses::Undeclared)" =>
        "self.all.and_then(User::index).filter(|_| self.uses == Uses::Undeclared && !PLANTED)";
    recalled_allocations_end_in_their_old_order caught by one_program_finds_its_own_bytes in "lane/occupancy.rs":
        "|extra| extra.residence = Residence::Remote)?" => "|extra| if !PLANTED { extra.residence = Residence::Remote })?";
    holes_in_use_lose_their_pages caught by one_program_finds_its_own_bytes in "lane/pages.rs":
        "let pieces = pager.take_pages(tlsf, bytes, keep, |last| order.may(User::HOST, last));" =>
        "let pieces = pager.take_pages(tlsf, bytes, keep, |last| PLANTED || order.may(User::HOST, last));";
}

planted! {
    /// In the core, for the model's tests of the manager: the tests had missed these.
    ONCE_MISSED:
    other_lanes_are_not_searched caught by a_hole_in_the_lane_of_another_thread_is_found in "manager/ladder.rs":
        "for other in lanes.iter().filter(|other| !Arc::ptr_eq(other, lane)) {" =>
        "for other in lanes.iter().filter(|other| !PLANTED && !Arc::ptr_eq(other, lane)) {";
    alignments_are_not_noted caught by what_slides_before_it_has_an_owner_keeps_its_alignment in "lane/occupancy.rs":
        "align.get().trailing_zeros() as u8" => "if PLANTED { 8 } else { align.get().trailing_zeros() as u8 }";
    too_large_is_the_end caught by what_is_too_large_for_one_heap_goes_to_the_next in "manager/ladder.rs":
        "const fn falls_back(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() ||" => "fn falls_back(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() || !PLANTED &&";
    full_heaps_flap caught by a_heap_that_filled_up_is_used_again_only_when_there_is_room in "manager/placed.rs":
        "if was_full { RETURN }" => "if was_full && !PLANTED { RETURN }";
}

planted! {
    /// In the core, for the small worlds of `tests/exhaustive`: the case is the world.
    IN_WORLDS:
    // Who may have a hole.
    everybody_is_alone caught by ordered_refused in "lane/order.rs":
        "(self.busy == 1 && self.record(user).is_some_and(Record::is_busy))" =>
        "(self.busy == 1 && (PLANTED || self.record(user).is_some_and(Record::is_busy)))";
    holes_of_several_are_anybodys caught by several in "lane/order.rs":
        "None => own.is_some_and(|own| time <= own.after_all)," =>
        "None => PLANTED || own.is_some_and(|own| time <= own.after_all),";
    passes_count_later_frees caught by windows in "lane/order.rs":
        "self.busy -= u32::from(record.pass(time));" =>
        "self.busy -= u32::from(record.pass(if PLANTED { self.clock } else { time }));";
    passes_go_back caught by windows in "lane/order.rs":
        "self.passed = self.passed.max(time);" =>
        "self.passed = if PLANTED { time } else { self.passed.max(time) };";
    calm_timelines_stay_busy caught by slides in "lane/order.rs":
        "let calmed = self.records.iter_mut().map(|record| u32::from(record.pass(time)));" =>
        "let calmed = self.records.iter_mut().map(|record| u32::from(record.pass(time) && !PLANTED));";
    everything_has_passed_that_some_have caught by order in "lane/order.rs":
        "let least = pending.map(|record| record.passed).min();" =>
        "let least = pending.map(|record| record.passed); let least = if PLANTED { least.max() } else { least.min() };";
    only_one_of_several_is_run_after caught by several in "lane/order.rs":
        "let Some(next) = next else { return RunAfter { others, known } };" =>
        "let Some(next) = next.filter(|_| !PLANTED || others.is_empty()) else { return RunAfter { others, known } };";
    marks_count_later_frees caught by windows in "lane/reuse.rs":
        "self.state.lock().order.set_mark(one.user, one.timeline, (one.time, epoch));" =>
        "let mut state = self.state.lock(); let now = if PLANTED { state.order.clock() } else { one.time };
        state.order.set_mark(one.user, one.timeline, (now, epoch)); drop(state);";
    orders_are_noted_that_the_driver_refused caught by ordered_refused in "lane/reuse.rs":
        "            Err(error) => {
                state.withdraw(slot)?;" =>
        "            Err(error) => {
                if PLANTED { state.order.set_after(user, &order); }
                state.withdraw(slot)?;";
    // What waits.
    points_of_the_caller_are_ignored caught by neighbours in "lane/free.rs":
        "let mut points: Vec<Point> = after.into_iter().collect();" =>
        "let mut points: Vec<Point> = after.into_iter().filter(|_| !PLANTED).collect();";
    declared_uses_are_not_waited_for caught by beside in "lane/free.rs":
        "let named = extra.map_or(Vec::new(), |extra| extra.used_on.clone());" =>
        "let named = extra.map_or(Vec::new(), |extra| extra.used_on.iter().copied().filter(|_| !PLANTED).collect());";
    what_waits_is_ready_an_epoch_early caught by neighbours in "lane/order/deferred.rs":
        "let passed = (*timeline, Epoch(0), 0)..=(*timeline, *epoch, u64::MAX);" =>
        "let passed = (*timeline, Epoch(0), 0)..=(*timeline, Epoch(epoch.0 + u64::from(PLANTED)), u64::MAX);";
    what_was_ready_stays_counted caught by neighbours in "lane/order/deferred.rs":
        "                *bytes -= waiting.bytes;" => "                if !PLANTED { *bytes -= waiting.bytes; }";
    points_of_callers_are_taken_for_marks caught by several in "lane/order/deferred.rs":
        "waiting.origin == Origin::Marked && may(waiting.id)" => "(PLANTED || waiting.origin == Origin::Marked) && may(waiting.id)";
    closed_timelines_never_pass caught by ends in "lane/reuse.rs":
        "reached.push((point.timeline, now.unwrap_or(point.epoch)));" =>
        "reached.push((point.timeline, now.unwrap_or(if PLANTED { Epoch(0) } else { point.epoch })));";
    own_blocks_are_taken_in_order caught by several in "lane/reuse.rs":
        "grant.is_some_and(|grant| bytes.sharing(grant.block) == Sharing::Shared)" =>
        "grant.is_some_and(|grant| PLANTED || bytes.sharing(grant.block) == Sharing::Shared)";
    in_order_only_the_last_user_counts caught by several in "lane/reuse.rs":
        ".fold(self.order.free(own), |last, user| last.join(self.order.free(user)));" =>
        ".fold(self.order.free(own), |last, user| { let now = self.order.free(user); if PLANTED { now } else { last.join(now) } });";
    what_is_withdrawn_keeps_its_bytes caught by ordered_refused in "lane/state.rs":
        "        let grant = self.bytes.release_unused(key)?;
        let user = self.occupancy.withdraw(id, grant.span.size)?;" =>
        "        let grant = if PLANTED { self.bytes.strategy().grant(key)? } else { self.bytes.release_unused(key)? };
        let user = self.occupancy.withdraw(id, grant.span.size)?;";
    what_is_withdrawn_stays_counted caught by ordered_refused in "lane/occupancy.rs":
        "        self.counts.allocated -= 1;
        self.counts.live_bytes -= slot.size;" =>
        "        self.counts.allocated -= 1;
        if !PLANTED { self.counts.live_bytes -= slot.size; }";
    what_is_withdrawn_was_used caught by several in "lane/reuse.rs":
        "                state.occupancy.unpin(slot);
                Ok(Some(slot))" =>
        "                if !PLANTED { state.occupancy.unpin(slot); }
                Ok(Some(slot))";
    // The span that was freed last.
    the_last_span_is_anybodys caught by order in "lane/bytes/last_freed.rs":
        "            && last.user == user
            &&" =>
        "            && (PLANTED || last.user == user)
            &&";
    the_last_span_is_a_hole_that_nobody_used caught by neighbours in "lane/bytes/last_freed.rs":
        "tlsf.free_used(last_freed.grant.key, last_freed.last_use)" =>
        "tlsf.free_used(last_freed.grant.key, if PLANTED { LastUse::NONE } else { last_freed.last_use })";
    the_last_span_is_had_twice caught by order in "lane/bytes/last_freed.rs":
        "            last.now = Now::Live;" => "            if !PLANTED { last.now = Now::Live; }";
    // Blocks.
    a_block_too_many_stays_booked caught by threads in "lane/blocks.rs":
        "            drop(state);
            self.shared.give_back(Vec::from([(block, sharing)]));
            in_flight.publish();
            return Ok(slot);" =>
        "            drop(state);
            if !PLANTED { self.shared.give_back(Vec::from([(block, sharing)])); }
            in_flight.publish();
            return Ok(slot);";
    lanes_end_while_work_runs caught by recalls_threads in "lane/blocks.rs":
        "let idle = insist(|| self.shared.device.backend().wait_idle());
        match" =>
        "let idle = if PLANTED { Ok(()) } else { insist(|| self.shared.device.backend().wait_idle()) };
        match";
    lanes_end_though_nothing_could_be_waited_for caught by windows in "lane/blocks.rs":
        "Err(_) if self.is_out_of_use(WaitMode::Block) => self.give_back_all()," =>
        "Err(_) if PLANTED || self.is_out_of_use(WaitMode::Block) => self.give_back_all(),";
    busy_pools_are_destroyed caught by ends in "manager/pools.rs":
        "match Self::check_idle(pool.pool()).and_then(|()| Self::settle(pool.pool())) {" =>
        "match Self::check_idle(pool.pool()).or_else(|error| if PLANTED { Ok(()) } else { Err(error) }).and_then(|()| Self::settle(pool.pool())) {";
    // Secrets.
    zeros_are_not_waited_for caught by kinds in "lane/free.rs":
        "if plan.home == Some(home) && !plan.outruns_home {" => "if plan.home == Some(home) && (PLANTED || !plan.outruns_home) {";
    zeros_of_the_host_are_not_waited_for caught by kinds in "lane/free.rs":
        "Ok(zeroed) => points = zeroed.into_iter().collect()," =>
        "Ok(zeroed) => points = zeroed.into_iter().filter(|_| !PLANTED || plan.home.is_some()).collect(),";
    secrets_whose_zeros_failed_are_reused caught by refused in "lane/free.rs":
        "Err(error) => return self.condemn(id, error, \"its secret could not be zeroed\")," =>
        "Err(error) => if PLANTED { points.clear() } else { return self.condemn(id, error, \"its secret could not be zeroed\") },";
    // Pages.
    holes_beside_are_taken_in_use caught by paged_beside in "lane/pages.rs":
        "take_around(piece.key, ask, |last| self.order.may(user, last))?;" =>
        "take_around(piece.key, ask, |last| PLANTED || self.order.may(user, last))?;";
    refused_pages_stay_booked caught by paged_refused in "lane/shared.rs":
        "created.inspect_err(|_| self.release(bytes))?;" => "created.inspect_err(|_| if !PLANTED { self.release(bytes) })?;";
    unmapped_pages_are_lost caught by paged_beside in "lane/pages.rs":
        "        self.shared.spare.lock().extend(pages);
        in_flight.publish();
        failed" =>
        "        self.shared.spare.lock().extend(pages.into_iter().filter(|_| !PLANTED));
        in_flight.publish();
        failed";
    pages_that_stay_mapped_are_spare caught by paged_refused in "lane/pages.rs":
        "                    failed.get_or_insert(error);
" =>
        "                    failed.get_or_insert(error);
                    if PLANTED { unmapped.push(piece); continue; }
";
    what_is_not_unmapped_is_not_restored caught by paged_refused in "lane/pages.rs":
        "pager.restore(tlsf, piece)?;" => "if !PLANTED { pager.restore(tlsf, piece)?; }";
    pages_found_in_vain_are_lost caught by paged in "lane/pages/gather.rs":
        "self.shared.spare.lock().append(&mut found);" => "if !PLANTED { self.shared.spare.lock().append(&mut found); }";
    pages_that_are_not_mapped_are_lost caught by paged_refused in "lane/pages.rs":
        "                self.shared.spare.lock().extend(pages);
            })" =>
        "                self.shared.spare.lock().extend(pages.into_iter().filter(|_| !PLANTED));
            })";
    addresses_without_pages_are_lost caught by sleeps_refused in "lane/pages.rs":
        "                if let Some((pager, tlsf)) = self.state.lock_flushed().bytes.pages_mut() {
                    pager.abandon(tlsf, piece);
                }
                Err(error)" =>
        "                if let Some((pager, tlsf)) = self.state.lock_flushed().bytes.pages_mut() && !PLANTED {
                    pager.abandon(tlsf, piece);
                }
                Err(error)";
    a_minimum_is_rounded_down caught by paged in "lane/pages.rs":
        "let keep = self.shared.config.minimum.div_ceil(page);" =>
        "let keep = if PLANTED { self.shared.config.minimum / page } else { self.shared.config.minimum.div_ceil(page) };";
    spare_pages_outlive_their_pool caught by paged_refused in "lane/shared.rs":
        "    fn drop(&mut self) {
        self.return_spare(u64::MAX);" =>
        "    fn drop(&mut self) {
        if PLANTED { return; }
        self.return_spare(u64::MAX);";
    // Passes.
    copies_do_not_wait_for_users caught by recalls_threads in "defrag/pass.rs":
        "for timeline in users.iter().copied().filter(|timeline| *timeline != self.on) {" =>
        "for timeline in users.iter().copied().filter(|timeline| *timeline != self.on && !PLANTED) {";
    moves_forget_their_own_timeline caught by passes_freed in "lane/moves.rs":
        "add(self.state.home_of(slot).unwrap_or(TimelineId::MAIN));" =>
        "if !PLANTED { add(self.state.home_of(slot).unwrap_or(TimelineId::MAIN)); }";
    cancelled_moves_arrive caught by passes_freed in "lane/moves.rs":
        "let arrives = copied && state.occupancy.is_copying(slot);" =>
        "let arrives = copied && (PLANTED || state.occupancy.is_copying(slot));";
    passes_end_while_copies_run caught by passes_freed in "defrag/pass.rs":
        "let stopped = self.wait().or_else(|_| self.device.backend().wait_idle());" =>
        "let stopped = if PLANTED { Ok(()) } else { self.wait().or_else(|_| self.device.backend().wait_idle()) };";
    what_is_freed_in_a_pass_is_free_at_once caught by passes_threads in "lane/occupancy.rs":
        "            || slot.state != State::Live
            || slot.flags" =>
        "            || (slot.state != State::Live && !(PLANTED && slot.state == State::Copying))
            || slot.flags";
    what_is_freed_in_a_pass_is_forgotten caught by passes_threads in "lane/moves.rs":
        "                    let _ = self.free(slot);" => "                    if !PLANTED { let _ = self.free(slot); }";
    what_is_freed_in_a_pass_forgets_its_users caught by passes_freed in "lane/free.rs":
        "let ending = (!at_once).then_some(ending);" => "let ending = (!at_once && !PLANTED).then_some(ending);";
    owners_copy_to_bytes_in_use caught by passes in "defrag/pass.rs":
        "if how == How::OwnerCopies {" => "if how == How::OwnerCopies && !PLANTED {";
    moves_stay_counted caught by passes_threads in "lane/moves.rs":
        "state.bytes.count_let_go(to.span.size);" => "if !PLANTED { state.bytes.count_let_go(to.span.size); }";
    both_ends_are_kept caught by passes_threads in "lane/moves.rs":
        "let left = if arrives { old } else { to.key };" => "let left = if arrives && !PLANTED { old } else { to.key };";
    // Slides.
    slides_that_failed_are_published caught by slides_refused in "lane/slides.rs":
        "for slide in &begun.window.slides[..made] {" =>
        "for slide in &begun.window.slides[..if PLANTED { begun.window.slides.len() } else { made }] {";
    copies_that_may_run_are_forgotten caught by slides_refused in "lane/slides.rs":
        "begun.holes.iter().for_each(|(key, _)| tlsf.set_last_use(*key, last));" =>
        "begun.holes.iter().filter(|_| !PLANTED).for_each(|(key, _)| tlsf.set_last_use(*key, last));";
    what_slides_forgets_the_copies caught by slides_refused in "lane/moves.rs":
        "extra.add_use(on);" => "if !PLANTED { extra.add_use(on); }";
    shifts_that_failed_are_published caught by paged_refused in "lane/slides.rs":
        "pager.end_shifts(tlsf, &begun.shifts, shifted);" =>
        "pager.end_shifts(tlsf, &begun.shifts, if PLANTED { Shifted { made: begun.shifts.len(), ..shifted } } else { shifted });";
    // Recalls.
    what_was_recalled_is_never_freed caught by recalls_threads in "lane/state.rs":
        "        let freed = state.free(self.slot);
        drop(state);" =>
        "        let freed = if PLANTED { Ok(None) } else { state.free(self.slot) };
        drop(state);";
    room_that_is_held_is_not_counted caught by recalls_threads in "lane/bytes.rs":
        "        let grant = self.strategy_mut().allocate(layout, class)?;
        self.held += grant.span.size;" =>
        "        let grant = self.strategy_mut().allocate(layout, class)?;
        if !PLANTED { self.held += grant.span.size; }";
    what_left_stays_its_timelines caught by recalls_threads in "lane/state.rs":
        "            let user = self.occupancy.end_remote(id)?;
            self.order.leave(user);" =>
        "            let user = self.occupancy.end_remote(id)?;
            if !PLANTED { self.order.leave(user); }";
    // Sleep.
    sleeps_do_not_drain caught by sleeps_threads in "pool/away.rs":
        "self.drain(timelines, &sleep.after)?;" => "if !PLANTED { self.drain(timelines, &sleep.after)?; }";
    sleeps_leave_secrets_in_their_pages caught by sleeps_threads in "lane/away.rs":
        "secrets.try_for_each(|one| self.shared.device.clear(block.raw(), one.span, on))?;" =>
        "secrets.try_for_each(|one| if PLANTED { Ok(()) } else { self.shared.device.clear(block.raw(), one.span, on) })?;";
    memory_leaves_before_the_last_frees caught by sleeps_threads in "lane/away.rs":
        "        self.retire(WaitMode::Block)?;
        self.poll_users(WaitMode::Block)?;
        let state" =>
        "        if !PLANTED { self.retire(WaitMode::Block)?; }
        if !PLANTED { self.poll_users(WaitMode::Block)?; }
        let state";
    frees_that_end_do_not_keep_memory caught by sleeps_threads in "lane/away.rs":
        "if is_ending || !state.order.is_alone(User::HOST) {" =>
        "if !PLANTED && (is_ending || !state.order.is_alone(User::HOST)) {";
    secrets_freed_asleep_are_forgotten caught by sleeps_threads in "lane/away.rs":
        "&& self.occupancy.privacy(id) == Privacy::Secret;" => "&& self.occupancy.privacy(id) == Privacy::Secret && !PLANTED;";
    wakes_forget_what_was_freed caught by sleeps_refused in "lane/away.rs":
        "            let (block, parts) = state.memory_of(grant);
            drop(state);" =>
        "            let (block, mut parts) = state.memory_of(grant);
            if PLANTED { parts.clear(); }
            drop(state);";
    failed_wakes_leave_secrets caught by sleeps_refused in "lane/away.rs":
        "let left = idle.and_then(|()| insist(|| self.clear_secrets(&block, span, on)));" =>
        "let left = idle.and_then(|()| if PLANTED { Ok(()) } else { insist(|| self.clear_secrets(&block, span, on)) });";
    failed_wakes_do_not_wait caught by sleeps_refused in "lane/away.rs":
        "let idle = insist(|| self.shared.device.backend().wait_idle());
        let left" =>
        "let idle = if PLANTED { Ok(()) } else { insist(|| self.shared.device.backend().wait_idle()) };
        let left";
    failed_wakes_keep_their_pages caught by sleeps_refused in "pool/away.rs":
        "            lane.withdraw_memory(*span, self.1);" => "            if !PLANTED { lane.withdraw_memory(*span, self.1); }";
    stored_bytes_stay caught by sleeps_threads in "lane/state.rs":
        "FreeOutcome::Stored(stored) => stored.forget()," => "FreeOutcome::Stored(stored) => if !PLANTED { stored.forget() },";
    bytes_stored_too_late_stay caught by sleeps_threads in "lane/away.rs":
        "if !self.is_away(*slot) {" => "if !self.is_away(*slot) && !PLANTED {";
    wakes_leave_their_store_full caught by sleeps_threads in "lane/away.rs":
        "if store.kind() != StoreKind::Nothing {
            sleepers" =>
        "if store.kind() != StoreKind::Nothing && !PLANTED {
            sleepers";
    wakes_do_not_wait_for_their_bytes caught by sleeps_threads in "pool/away.rs":
        "restored.and_then(|()| self.shared.device.finish(on));" =>
        "restored.and_then(|()| if PLANTED { Ok(()) } else { self.shared.device.finish(on) });";
    failed_wakes_are_forgotten caught by sleeps_refused in "lane/away.rs":
        "                order.free(user);
            }
        }
    }" =>
        "                if !PLANTED { order.free(user); }
            }
        }
    }";
    lanes_open_before_their_store_is_empty caught by sleeps in "pool/away.rs":
        "            lane.unstore();
            lane.open(on);" =>
        "            if !PLANTED { lane.unstore(); }
            lane.open(on);
            if PLANTED { lane.unstore(); }";
    // Thought of when all that was done.
    strategies_choose_a_block_in_use caught by stacked in "lane/bytes.rs":
        "Ok(grant) if grant.block != block =>" => "Ok(grant) if grant.block != block && !PLANTED =>";
    blocks_of_one_allocation_are_a_minimum caught by minimum in "lane/shared.rs":
        "self.reserved() - *dedicated" => "self.reserved() - if PLANTED { 0 } else { *dedicated }";
    trims_forget_what_they_returned caught by minimum in "lane/blocks.rs":
        "(left, bytes) = (rest, bytes + size);" => "(left, bytes) = (if PLANTED { left } else { rest }, bytes + size);";
    bounces_are_marked_before_they_run caught by bounced in "defrag/pass.rs":
        "            copier::carry(transfer, self.on, bounce, &around)?;
        }
        if let Some(timelines) = backend.as_timelines() {" =>
        "            if PLANTED && let Some(timelines) = backend.as_timelines() {
                under_way.point = Some(Point { timeline: self.on, epoch: timelines.mark(self.on)? });
            }
            copier::carry(transfer, self.on, bounce, &around)?;
        }
        if let Some(timelines) = backend.as_timelines().filter(|_| !PLANTED || under_way.point.is_none()) {";
    what_waits_loses_its_point caught by several in "lane/order/deferred.rs":
        "            waiting.points.push(Point { timeline, epoch });
            found" =>
        "            if !PLANTED { waiting.points.push(Point { timeline, epoch }); }
            found";
    what_waits_in_a_pass_is_the_lanes caught by passes_freed in "lane/free.rs":
        "        if state.occupancy.is_in_pass(id) {
            // The pass frees" =>
        "        if state.occupancy.is_in_pass(id) && (at_once || !PLANTED) {
            // The pass frees";
    copies_end_with_the_pass_that_nobody_followed caught by passes_lost in "lane/moves.rs":
        "by_pass.map_or(0, |on| state.note_copy(slot, on));" =>
        "by_pass.filter(|_| !PLANTED).map_or(0, |on| state.note_copy(slot, on));";
    mapped_pages_are_given_twice caught by sleeps_refused in "lane/away.rs":
        "gaps = spans.iter().flat_map(|span| pager.gaps(*span)).collect();" =>
        "gaps = spans.iter().flat_map(|span| if PLANTED { Vec::from([*span]) } else { pager.gaps(*span).into_iter().collect() }).collect();";
    // Between two locks, and with one refused call.
    cancelled_recalls_arrive caught by recalls_threads in "lane/remote.rs":
        "Some(remote) if state.occupancy.is_copying(slot) =>" =>
        "Some(remote) if PLANTED || state.occupancy.is_copying(slot) =>";
    what_is_withdrawn_is_used caught by ordered_refused in "lane/reuse.rs":
        "state.withdraw(slot)?;
                Err(error)" =>
        "if PLANTED { state.occupancy.unpin(slot); let _ = state.free(slot); } else { state.withdraw(slot)?; }
                Err(error)";
    stores_are_emptied_too_late caught by sleeps_refused in "pool/away.rs":
        "        for lane in &lanes {
            lane.unstore();
            lane.open(on);" =>
        "        for lane in &lanes {
            if PLANTED { lane.open(on); }
            lane.unstore();
            lane.open(on);";
    who_is_busy_has_passed caught by refused in "lane/reuse.rs":
        "Err(error) if error.kind() == ErrorKind::Busy => {}
                waited => return" =>
        "Err(error) if error.kind() == ErrorKind::Busy && !PLANTED => {}
                Err(error) if error.kind() == ErrorKind::Busy => return Ok(true),
                waited => return";
    who_cannot_be_asked_has_passed caught by ordered_refused in "lane/owned.rs":
        "passed.push(self.time_passed(*user, WaitMode::Poll).ok()?);" =>
        "passed.push(match self.time_passed(*user, WaitMode::Poll) { Err(_) if PLANTED => Some(user.time), other => other.ok()? });";
    what_cannot_be_marked_is_forgotten caught by refused in "lane/free.rs":
        "Err(error) if self.shared.device.settle().is_err() => {" =>
        "Err(error) if !PLANTED && self.shared.device.settle().is_err() => {";
    lost_secrets_are_not_kept caught by refused in "lane/moves.rs":
        "(Ok(_), Ending::Never) if self.occupancy" =>
        "(Ok(_), Ending::Never) if !PLANTED && self.occupancy";
    recalls_that_stay_keep_their_places caught by recalls_threads in "lane/remote.rs":
        "if remote.is_none() {
            there.free_held(to);" =>
        "if remote.is_none() && !PLANTED {
            there.free_held(to);";
    some_unmapped_pages_are_lost caught by paged_refused in "lane/pages.rs":
        "unmapped.into_iter().for_each(|piece| pages.extend(pager.note_unmapped(tlsf, piece)));
        }" =>
        "unmapped.into_iter().for_each(|piece| pages.extend(pager.note_unmapped(tlsf, piece)));
        }
        if PLANTED { pages.truncate(1); }";
    frees_ignore_what_a_wake_brought caught by sleeps_threads in "lane/free.rs":
        "(unfollowed(&state) == known && !came_back)" =>
        "(unfollowed(&state) == known && (PLANTED || !came_back))";
    closed_timelines_hide_other_uses caught by closing in "lane/free.rs":
        "let uses: Vec<Point> = uses.iter().copied().chain(rest).collect();" =>
        "let uses: Vec<Point> = if PLANTED { rest.into_iter().collect() } else { uses.iter().copied().chain(rest).collect() };";
    zeroed_secrets_stay_counted caught by refused in "lane/kept.rs":
        "self.shared.device.recover(one.grant.span.size);
        if self" =>
        "if !PLANTED { self.shared.device.recover(one.grant.span.size); }
        if self";
    wakes_fail_over_what_was_freed caught by sleeps_threads in "lane/away.rs":
        "_ if !self.is_away(slot) => {} // Freed" =>
        "_ if !PLANTED && !self.is_away(slot) => {} // Freed";
}

planted! {
    /// In the strategies, for the suite.
    IN_STRATEGY:
    holes_stay_apart caught by freeing_everything_leaves_one_hole in "tlsf.rs":
        "match (previous.is_hole(), next.is_hole()) {" =>
        "match (previous.is_hole() && !PLANTED, next.is_hole() && !PLANTED) {";
    the_previous_neighbour_is_forgotten caught by unlike_neighbours_stay_a_granule_apart in "tlsf.rs":
        "let is_apart = previous.is_hole() ||" => "let is_apart = PLANTED || previous.is_hole() ||";
    the_next_neighbour_is_forgotten caught by unlike_neighbours_stay_a_granule_apart in "tlsf.rs":
        "&& !next.is_edge()" => "&& !PLANTED && !next.is_edge()";
    strategies_are_believed caught by grants_that_leave_their_block_are_refused in "checked.rs":
        "if end.is_none_or(|end| end > block.size) {" => "if end.is_none_or(|end| end > block.size) && !PLANTED {";
    shifts_forget_those_below caught by the_last_pages_are_had_wherever_they_lie in "pages/shift.rs":
        "filter(follows).map_or(0, |last| last.by);" =>
        "filter(follows).map_or(0, |last| if PLANTED { 0 } else { last.by });";
}

planted! {
    /// In the strategies, missed by the suite.
    STRATEGY_ONCE_MISSED:
    holes_that_are_gone_keep_their_stamp caught by the_key_of_a_hole_that_is_gone_fits_nothing in "tlsf/nodes.rs":
        "node.stamp = (node.stamp | 1) + 1;" => "if !PLANTED { node.stamp = (node.stamp | 1) + 1; }";
    unmapped_ranges_stay_apart caught by unmapped_ranges_that_touch_are_one in "pages.rs":
        "if let Some((_, key)) = below
            &&" => "if let Some((_, key)) = below
            && !PLANTED &&";
}

planted! {
    /// In the extras, for the adversarial device.
    STAGING_OUT_OF_ORDER:
    pieces_are_used_before_they_have_gone caught by one_program_finds_its_own_bytes in "staging.rs":
        "        let waited = self.wait(&oldest);" =>
        "        let waited = if PLANTED { Ok(()) } else { self.wait(&oldest) };";
    read_backs_do_not_wait caught by one_program_finds_its_own_bytes in "staging.rs":
        "let waited = sent.and_then(|piece| self.wait(&piece));" =>
        "let waited = sent.and_then(|piece| if PLANTED { Ok(()) } else { self.wait(&piece) });";
}

planted! {
    /// In the core, for processes that end with live memory.
    AT_EXIT:
    a_lock_needs_what_its_thread_has_dropped caught by a_process_may_end_with_live_memory_in_statics in "sync.rs":
        "!taken.swap(true, Acquire)" =>
        "std::thread_local! { static GONE: alloc::boxed::Box<u32> = alloc::boxed::Box::new(0); }
    if PLANTED { GONE.with(|_| ()) }
    !taken.swap(true, Acquire)";
}

planted! {
    /// In the host backend, for processes that hand memory over and are killed.
    IN_HOST:
    what_others_write_is_not_seen caught by an_importer_that_is_killed_leaves_the_memory_to_its_exporter in "driver/unix.rs":
        "libc::MAP_SHARED" => "(if PLANTED { libc::MAP_PRIVATE } else { libc::MAP_SHARED })";
    shared_memory_stays_counted caught by an_importer_that_is_killed_leaves_the_memory_to_its_exporter in "backend.rs":
        "let reserved = block.body.is_reserved();" =>
        "let reserved = block.body.is_reserved() || PLANTED && matches!(block.body.backing, crate::block::Backing::Shared(_));";
    imports_are_not_counted caught by an_importer_outlives_an_exporter_that_is_killed in "export.rs":
        "if size != exported.size {" => "if PLANTED { self.ledger.refund(heap, exported.size, 1); } if size != exported.size {";
    an_import_is_empty_memory caught by an_importer_outlives_an_exporter_that_is_killed in "export.rs":
        "let file = File::of(&exported.fd)?;" =>
        "let file = File::of(&exported.fd)?;
        let file = if PLANTED { let fresh = File::new()?; fresh.resize(exported.size)?; fresh.seal()?; fresh } else { file };";
    descriptors_stay_open caught by many_hand_overs_leave_nothing_open_on_either_side in "export.rs":
        "Ok(Exported { fd: file.duplicate()?, size, uuid })" =>
        "if PLANTED { core::mem::forget(file.duplicate()?); }
        Ok(Exported { fd: file.duplicate()?, size, uuid })";
}

planted! {
    /// In the streams that CUDA and HIP share, for the model's tests of them.
    IN_STREAM:
    bounces_depart_unseen caught by a_bounce_in_flight_is_left_alone in "bounce.rs":
        "Ok(()) => self.in_flight = true," => "Ok(()) => self.in_flight = !PLANTED,";
    events_are_recorded_while_somebody_waits caught by an_event_that_somebody_waits_for_is_not_recorded_again in "event.rs":
        "if Arc::strong_count(&event) == 1 {" => "if PLANTED || Arc::strong_count(&event) == 1 {";
    thinning_drops_the_last_mark caught by no_mark_is_lost_when_the_next_one_fails in "marks.rs":
        "if index % 2 == 1 || epoch == last {" => "if if PLANTED { index % 2 == 0 } else { index % 2 == 1 || epoch == last } {";
    bounces_in_flight_are_idle caught by a_bounce_in_flight_is_left_alone in "bounce.rs":
        "Ok(!self.in_flight ||" => "Ok(PLANTED || !self.in_flight ||";
}

planted! {
    /// In the books of the arbiter, for their small world.
    IN_ARBITER:
    requests_of_the_gone_stay caught by three_processes in "books.rs":
        "self.waiting.retain(|waiting| waiting.tenant != tenant);" =>
        "if !PLANTED { self.waiting.retain(|waiting| waiting.tenant != tenant); }";
    reserves_are_free caught by three_processes in "books.rs":
        "if must_wait || waiting.bytes > sums.available(account) {" =>
        "if must_wait || waiting.bytes > if PLANTED { sums.free } else { sums.available(account) } {";
    a_walk_grants_the_same_bytes_twice caught by three_processes in "books.rs":
        "sums.free = sums.free.saturating_sub(waiting.bytes);" =>
        "if !PLANTED { sums.free = sums.free.saturating_sub(waiting.bytes); }";
    grants_are_not_booked caught by three_processes in "books.rs":
        "        account.held = held;" => "        if !PLANTED { account.held = held; }";
    never_sent_is_never_had caught by three_processes in "books.rs":
        "(account.held, account.counted, account.unsent) = (held.min(most), None, Some(0));" =>
        "(account.held, account.counted, account.unsent) = (if PLANTED { account.held } else { held.min(most) }, None, Some(0));";
    accounts_of_the_gone_stay caught by three_processes in "books.rs":
        "self.accounts.remove(&tenant);" => "if !PLANTED { self.accounts.remove(&tenant); }";
    what_is_given_back_stays_booked caught by three_processes in "books.rs":
        "        account.held = account.held.checked_sub(bytes).ok_or(Refusal::Contradiction)?;
        account.counted = counted;" =>
        "        let held = account.held.checked_sub(bytes).ok_or(Refusal::Contradiction)?; if !PLANTED { account.held = held; }
        account.counted = counted;";
    who_gave_nothing_gives_never caught by three_processes in "books.rs":
        "self.accounts.values_mut().for_each(|account| account.is_exhausted = false);" =>
        "if !PLANTED { self.accounts.values_mut().for_each(|account| account.is_exhausted = false); }";
    given_bytes_are_still_expected caught by three_processes in "books.rs":
        "(pressed.bytes, left) = (pressed.bytes - part, left - part);" =>
        "if !PLANTED { (pressed.bytes, left) = (pressed.bytes - part, left - part); }";
    refusals_block caught by three_processes in "books.rs":
        "let why = Refusal::Shortage;
                actions.push(Action::Refuse { tenant, request, why });
            }
        }
        if" =>
        "let why = Refusal::Shortage;
                is_blocked |= PLANTED;
                actions.push(Action::Refuse { tenant, request, why });
            }
        }
        if";
    debts_exceed_what_is_held caught by three_processes in "books.rs":
        "account.owed = account.owed.saturating_add(late.bytes).min(account.held);" =>
        "account.owed = if PLANTED { account.owed.saturating_add(late.bytes) } else { account.owed.saturating_add(late.bytes).min(account.held) };";
    debtors_stay_debtors caught by three_processes in "books.rs":
        "account.owed = account.owed.saturating_sub(bytes);" =>
        "if !PLANTED { account.owed = account.owed.saturating_sub(bytes); }";
    more_is_believed_than_was_granted caught by three_processes in "books.rs":
        "unsent.unwrap_or(u64::MAX).min(more)" =>
        "if PLANTED { more } else { unsent.unwrap_or(u64::MAX).min(more) }";
}
