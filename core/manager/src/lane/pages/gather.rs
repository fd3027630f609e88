//! Finds the pages for a hole: spare and free ones of this lane, then of other lanes, then new ones of the driver.
#![forbid(unsafe_code)]
use crate::lane::order::User;
use crate::lane::reuse::WaitMode;
use crate::lane::state::Lane;
use crate::{Backend, Page, Result, Span};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_strategy::pages::take_groups;

/// The search for the pages of one hole.
struct Gathering<'a, B: Backend> {
    lane: &'a Lane<B>,
    /// All lanes of the pool.
    lanes: &'a [Arc<Lane<B>>],
    /// The size of a page.
    page: u64,
    /// The addresses that get the pages: holes that touch them stay as they are.
    target: Span,
    /// Pages that are wanted.
    count: u64,
    found: Vec<Page>,
}

impl<B: Backend> Lane<B> {
    /// Finds `count` pages for the addresses of `target`: spare ones, then pages of holes here, then of other lanes, then new
    /// ones.
    pub(super) fn gather(
        &self,
        count: u64,
        page: u64,
        target: Span,
        lanes: &[Arc<Self>],
        wait: WaitMode,
    ) -> Result<Vec<Page>> {
        let found = Vec::new();
        let mut gathering = Gathering { lane: self, lanes, page, target, count, found };
        let gathered = gathering.run(wait);
        let mut found = gathering.found;
        if gathered.is_err() && !found.is_empty() {
            let in_flight = self.shared.device.in_flight.begin();
            self.shared.spare.lock().append(&mut found);
            in_flight.publish();
        }
        gathered.map(|()| found)
    }

    /// Returns the number of pages that could be unmapped now, at most `most`.
    fn free_pages(&self, most: u64, page: u64, keep: Option<Span>) -> Result<u64> {
        self.poll_users(WaitMode::Poll)?;
        let state = self.state.lock_flushed();
        let Some((pager, tlsf)) = state.bytes.pages() else { return Ok(0) };
        let chosen =
            pager.choose_pages(tlsf, most * page, keep, |last| state.order.may(User::HOST, last));
        Ok(chosen.iter().map(|(_, span)| span.size / page).sum())
    }

    /// Returns the bytes in holes, and those that were freed and wait.
    fn free_or_deferred(&self) -> u64 {
        let state = self.state.lock_flushed();
        state.bytes.free_and_total().0 + state.order.deferred_bytes()
    }
}

impl<'a, B: Backend> Gathering<'a, B> {
    fn missing(&self) -> u64 {
        self.count - self.found.len() as u64
    }

    fn others(&self) -> impl Iterator<Item = &'a Lane<B>> + use<'a, B> {
        let own = self.lane;
        self.lanes.iter().map(Arc::as_ref).filter(move |lane| !core::ptr::eq(own, *lane))
    }

    /// Finds all pages. After an error, `found` has those found so far.
    fn run(&mut self, wait: WaitMode) -> Result<()> {
        self.take_spare();
        if wait == WaitMode::Poll && self.lane.shared.refused.load(Relaxed) {
            self.create_what_is_not_free()?;
        }
        self.take_from(self.lane, WaitMode::Poll)?;
        for other in self.others() {
            self.take_from(other, WaitMode::Poll)?;
        }
        if wait == WaitMode::Block {
            self.wait_for_lanes()?;
        }
        let created = self.create(self.missing());
        if !is_out_of_memory(&created) {
            return created;
        }
        // The driver has no more: wait for the timelines, and take what their frees left.
        self.take_from(self.lane, WaitMode::Block)?;
        self.create(self.missing())
    }

    /// Takes pages of a lane's holes, as far as some are missing.
    fn take_from(&mut self, lane: &Lane<B>, wait: WaitMode) -> Result<()> {
        if self.missing() > 0 {
            let keep = core::ptr::eq(self.lane, lane).then_some(self.target);
            lane.surrender(self.missing() * self.page, keep, wait)?;
            self.take_spare();
        }
        Ok(())
    }

    /// Creates those of the missing pages that free pages cannot supply. Doing so first means that no page is unmapped in
    /// vain where the driver has no more memory. Only worth the search after the driver has refused.
    fn create_what_is_not_free(&mut self) -> Result<()> {
        let created = self.lacking().and_then(|count| self.create(count));
        if !is_out_of_memory(&created) {
            return created;
        }
        // Frees of the timelines count once they have passed.
        self.lane.poll_users(WaitMode::Block)?;
        self.lacking().and_then(|count| self.create(count))
    }

    /// Returns how many of the missing pages no free page can supply.
    fn lacking(&self) -> Result<u64> {
        let missing = self.missing();
        let mut left = missing - self.lane.free_pages(missing, self.page, Some(self.target))?;
        for lane in self.others() {
            if left > 0 {
                left -= lane.free_pages(left, self.page, None)?;
            }
        }
        Ok(left)
    }

    /// Waits for pages that the device may still use, in holes or freed: of this lane, then of those with the most to give.
    fn wait_for_lanes(&mut self) -> Result<()> {
        let lanes = self.lanes.iter().map(|lane| (lane.free_or_deferred(), lane.as_ref()));
        let mut lanes: Vec<_> = lanes.collect();
        lanes.sort_unstable_by_key(|(free, lane)| (!core::ptr::eq(self.lane, *lane), !*free));
        for (free, lane) in lanes {
            if self.missing() > 0 && free >= self.page {
                lane.retire(WaitMode::Block)?;
                self.take_from(lane, WaitMode::Block)?;
            }
        }
        Ok(())
    }

    fn take_spare(&mut self) {
        let missing = self.missing();
        take_groups(&mut self.lane.shared.spare.lock(), missing, &mut self.found);
    }

    /// Takes new pages from the driver.
    fn create(&mut self, count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let shared = &self.lane.shared;
        let created = shared.take_pages(count, self.page, &mut self.found);
        shared.refused.store(created.is_err(), Relaxed);
        created?;
        self.lane.state.lock().bytes.spend(1);
        Ok(())
    }
}

fn is_out_of_memory(created: &Result<()>) -> bool {
    created.as_ref().is_err_and(|error| error.kind().is_out_of_memory())
}
