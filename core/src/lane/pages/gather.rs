//! Finds the pages for a hole: spare and free ones of this lane, then of other lanes, then new ones of the driver.
#![forbid(unsafe_code)]
use super::take_groups;
use crate::lane::WaitMode;
use crate::lane::users::User;
use crate::lane::{Lane, Suballocator};
use crate::{Backend, ErrorKind, Page, Result, Span};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;

impl<B: Backend> Lane<B> {
    /// Finds `count` pages: spare ones, then pages of holes here, then of other lanes, then new ones.
    pub(super) fn gather(
        &self,
        count: u64,
        page: u64,
        keep: Span,
        others: &[Arc<Self>],
        wait: WaitMode,
    ) -> Result<Vec<Page>> {
        let mut pages = Vec::new();
        match self.gather_into(&mut pages, count, page, keep, others, wait) {
            Ok(()) => Ok(pages),
            Err(error) => {
                if !pages.is_empty() {
                    let in_flight = self.shared.device.in_flight.begin();
                    self.shared.spare.lock().append(&mut pages);
                    in_flight.publish();
                }
                Err(error)
            }
        }
    }

    /// As [`gather`](Self::gather); after an error, `pages` holds those found so far.
    fn gather_into(
        &self,
        pages: &mut Vec<Page>,
        count: u64,
        page: u64,
        keep: Span,
        others: &[Arc<Self>],
        wait: WaitMode,
    ) -> Result<()> {
        let missing = |pages: &Vec<Page>| count - pages.len() as u64;
        self.take_spare(missing(pages), pages);
        if wait == WaitMode::Poll && self.shared.refused.load(Relaxed) {
            self.create_what_is_not_free(pages, missing(pages), page, keep, others)?;
        }
        if missing(pages) > 0 {
            self.surrender(missing(pages) * page, Some(keep), WaitMode::Poll)?;
            self.take_spare(missing(pages), pages);
        }
        for other in others {
            if missing(pages) > 0 && !core::ptr::eq(self, other.as_ref()) {
                other.surrender(missing(pages) * page, None, WaitMode::Poll)?;
                self.take_spare(missing(pages), pages);
            }
        }
        if wait == WaitMode::Block {
            self.gather_patiently(pages, count, page, keep, others)?;
        }
        let mut created = self.create(missing(pages), page, pages);
        if created.as_ref().is_err_and(|error| error.kind().is_out_of_memory()) {
            // The driver has no more: wait for the timeline, and take what its frees left.
            self.surrender(missing(pages) * page, Some(keep), WaitMode::Block)?;
            self.take_spare(missing(pages), pages);
            created = self.create(missing(pages), page, pages);
        }
        created
    }

    /// Creates those of `missing` pages that free pages cannot supply. Doing so first means that no page is unmapped in
    /// vain where the driver has no more memory. Only worth the search after the driver has refused.
    fn create_what_is_not_free(
        &self,
        pages: &mut Vec<Page>,
        missing: u64,
        page: u64,
        keep: Span,
        others: &[Arc<Self>],
    ) -> Result<()> {
        let lacking = || {
            let others = others.iter().map(Arc::as_ref).filter(|lane| !core::ptr::eq(self, *lane));
            let mut left = missing - self.free_pages(missing, page, Some(keep))?;
            for lane in others {
                if left > 0 {
                    left -= lane.free_pages(left, page, None)?;
                }
            }
            Ok(left)
        };
        let created = lacking().and_then(|count| self.create(count, page, pages));
        if created.as_ref().is_err_and(|error| error.kind().is_out_of_memory()) {
            // Frees of the timeline count once it has passed them.
            self.poll_users(WaitMode::Block)?;
            return lacking().and_then(|count| self.create(count, page, pages));
        }
        created
    }

    /// The number of pages that could be unmapped now, at most `most`.
    fn free_pages(&self, most: u64, page: u64, keep: Option<Span>) -> Result<u64> {
        self.poll_users(WaitMode::Poll)?;
        let state = self.state.lock();
        let (Some(pager), Suballocator::General(tlsf)) = (&state.pager, &state.suballocator) else {
            return Ok(0);
        };
        let chosen =
            pager.choose_pages(tlsf, most * page, keep, |last| state.users.may(User::HOST, last));
        Ok(chosen.iter().map(|(_, span)| span.size / page).sum())
    }

    /// Waits for pages that the device may still use, in holes or freed: of this lane, then of those with the most to give.
    fn gather_patiently(
        &self,
        pages: &mut Vec<Page>,
        count: u64,
        page: u64,
        keep: Span,
        others: &[Arc<Self>],
    ) -> Result<()> {
        let free = |lane: &Self| {
            let state = lane.state.lock();
            state.suballocator.free_and_total().0 + state.deferred.bytes()
        };
        let mut lanes: Vec<_> = others.iter().map(|lane| (free(lane), lane.as_ref())).collect();
        lanes.sort_unstable_by_key(|(free, lane)| (!core::ptr::eq(self, *lane), !*free));
        for (free, lane) in lanes {
            let missing = (count - pages.len() as u64) * page;
            if missing > 0 && free >= page {
                let keep = core::ptr::eq(self, lane).then_some(keep);
                lane.retire(WaitMode::Block)?;
                lane.surrender(missing, keep, WaitMode::Block)?;
                self.take_spare(missing / page, pages);
            }
        }
        Ok(())
    }

    fn take_spare(&self, count: u64, pages: &mut Vec<Page>) {
        take_groups(&mut self.shared.spare.lock(), count, pages);
    }

    fn create(&self, count: u64, page: u64, pages: &mut Vec<Page>) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let bytes = count.checked_mul(page).ok_or(ErrorKind::SizeOverflow)?;
        self.shared.claim(bytes)?;
        let heap = self.shared.heap;
        let created = self.shared.device.create_pages(heap, count, page, pages);
        self.shared.refused.store(created.is_err(), Relaxed);
        created.inspect_err(|_| self.shared.release(bytes))?;
        self.shared.note_high();
        self.state.lock().ration.spend(1);
        Ok(())
    }
}
