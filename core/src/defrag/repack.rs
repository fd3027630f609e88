//! Packing pages anew: what nothing else can empty goes side by side into fresh pages.
#![forbid(unsafe_code)]
use super::book::{Booking, Presence};
use super::budget::Purse;
use super::pack::pack;
use super::plan::Resident;
use super::trips::{TOGETHER, Trips};
use crate::pool::LaneState;
use crate::strategy::Grant;
use crate::{Backend, Class, Span};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Acquire;

/// Pages that are packed in one pass at most: so many are needed beside those that become free.
const MOST_PAGES: u64 = 128;
/// Pages for which it is tried at least, where the driver has no more.
const LEAST_PAGES: u64 = 2;

impl<B: Backend> Booking<B> {
    /// Books moves out of pages whose holes add up, into fresh pages. Where the driver has no memory for as many, fewer
    /// are packed.
    pub(super) fn pack_pages(&mut self, purse: &mut Purse, trips: &mut Trips<B>) {
        let Some(page) = self.lane.shared.page() else { return };
        let mut pages = MOST_PAGES;
        while pages >= LEAST_PAGES && !purse.is_late() {
            let residents = self.to_pack(page, pages * page);
            if residents.is_empty() {
                return;
            }
            let bytes: u64 = residents.iter().map(|one| one.span.size).sum();
            let before = self.lane.shared.reserved();
            match self.lane.take_dock(bytes.next_multiple_of(page)) {
                Ok(dock) => {
                    trips.taken_bytes += self.lane.shared.reserved().saturating_sub(before);
                    return self.move_into(dock, &residents, purse, trips);
                }
                Err(error) if error.kind().is_out_of_memory() => pages /= 2,
                Err(_) => return,
            }
        }
    }

    /// What is packed together, so that the strictest alignment comes first: then nothing is lost between two.
    fn to_pack(&self, page: u64, most: u64) -> Vec<Resident> {
        let regions = &self.survey.regions;
        let chosen = pack(regions, page, most).into_iter().flat_map(|range| &regions[range]);
        let linear = |one: &&Resident| one.class == Class::Linear;
        let mut residents: Vec<Resident> =
            chosen.flat_map(|region| &region.residents).filter(linear).copied().collect();
        residents.sort_unstable_by_key(|one| (u64::MAX - one.align.get(), one.span.offset));
        // What lies in two pages was noted with both.
        residents.dedup_by_key(|one| one.span.offset);
        residents
    }

    /// Books moves into held pages, and gives back what is left of them.
    fn move_into(
        &self,
        dock: Grant,
        residents: &[Resident],
        purse: &mut Purse,
        trips: &mut Trips<B>,
    ) {
        let lane = Arc::clone(&self.lane);
        let mut dock = Some(dock);
        for few in residents.chunks(TOGETHER) {
            let mut state = lane.state.lock();
            if lane.shared.unsettled.load(Acquire) > self.own() {
                break;
            }
            for resident in few {
                if !matches!(state.look_at(resident), Presence::Free) {
                    continue;
                }
                if !purse.pay(resident.span.size) {
                    break;
                }
                match state.berth(&mut dock, resident) {
                    Some(to) => trips.set_out(&mut state, resident, to),
                    None => purse.refund(resident.span.size),
                }
            }
        }
        if let Some(rest) = dock {
            lane.state.lock().let_off(rest);
        }
    }
}

impl<B: Backend> LaneState<B> {
    /// Takes the start of held pages for an allocation; `None` where it does not fit.
    fn berth(&mut self, dock: &mut Option<Grant>, resident: &Resident) -> Option<Grant> {
        let (whole, size) = ((*dock)?, resident.span.size);
        let start = resident.align.up(whole.span.offset)?;
        let end = start.checked_add(size).filter(|end| *end <= whole.span.end())?;
        let tlsf = self.divider.general()?;
        let mut place = whole;
        if start > whole.span.offset {
            place = tlsf.split(whole.key, start - whole.span.offset).ok()?;
            *dock = Some(place);
            let gap =
                Grant { span: Span { size: start - whole.span.offset, ..whole.span }, ..whole };
            self.let_off(gap);
        }
        let tlsf = self.divider.general()?;
        *dock = if end < whole.span.end() { Some(tlsf.split(place.key, size).ok()?) } else { None };
        place.span.size = size;
        self.held_bytes -= size;
        Some(place)
    }

    /// Frees what was held.
    fn let_off(&mut self, held: Grant) {
        self.held_bytes -= held.span.size;
        let freed = self.divider.free(held.key);
        debug_assert!(freed.is_ok(), "held until now");
    }
}
