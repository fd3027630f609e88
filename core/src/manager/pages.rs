//! Whole pages out of holes that are smaller than a page each.
#![forbid(unsafe_code)]
use super::Manager;
use super::ladder::{Climb, Taken};
use crate::pool::{Ask, Lane, Patience, Pool};
use crate::{Backend, Result};

impl<B: Backend> Manager<B> {
    /// Slides live data of a paged pool together, here and there, until its whole free pages are enough for a request.
    ///
    /// Pages are mapped wherever they are needed, so several holes do as well as one. The longest come first, because a
    /// hole of many pages costs the fewest copies for each; then half as long, down to one page.
    pub(super) fn free_pages_by_sliding(
        &self,
        climb: &mut Climb<'_, B>,
    ) -> Result<Option<Taken<B>>> {
        let (pool, ask) = (climb.pool, climb.ask);
        let Some(page) = pool.shared.page() else { return Ok(None) };
        let lanes = pool.lanes();
        let mut hole = ask.layout.size / 2;
        while hole >= page / 2 {
            let mut gained = 0;
            for each in &lanes {
                let wanted = ask.layout.size.saturating_sub(gained);
                gained += self.pages_from(each, hole.max(page), wanted, ask)?;
            }
            if gained > 0
                && let Some((_, taken)) = climb.retry()?
            {
                return Ok(Some(taken));
            }
            hole /= 2;
        }
        Ok(None)
    }

    /// Closes the runs of a pool, so that slides can join holes that lay on both sides of one; whether there were any.
    pub(super) fn close_runs(&self, pool: &Pool<B>, ask: Ask) -> Result<bool> {
        let (own, mut closed) = (ask.unsettled(pool.shared.unit), false);
        for lane in pool.lanes() {
            closed |= self.slide(|| lane.close_runs(own))?;
        }
        Ok(closed)
    }

    /// Serves a request from a hole behind everything else and the pages that can still be had: what is not a whole page is
    /// of use to it only there.
    pub(super) fn lengthen_last_hole(&self, climb: &mut Climb<'_, B>) -> Result<Option<Taken<B>>> {
        let (pool, ask) = (climb.pool, climb.ask);
        let Some(page) = pool.shared.page() else { return Ok(None) };
        let own = ask.unsettled(pool.shared.unit);
        let rest = (ask.layout.size - 1) % page + 1;
        for size in [rest, u64::MAX] {
            if self.slide(|| climb.lane.lay_hole_last(size, own))?
                && let Some((_, taken)) = climb.retry()?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Joins holes of a lane to ones of at least `hole` bytes, and frees their pages, until those are `wanted` bytes; says
    /// how many bytes they are.
    fn pages_from(&self, lane: &Lane<B>, hole: u64, wanted: u64, ask: Ask) -> Result<u64> {
        let own = ask.unsettled(lane.shared.unit);
        let mut gained = 0;
        while gained < wanted && self.slide(|| lane.join_holes(hole, own))? {
            // All of them: what was made as one goes as one, and may be more than is wanted.
            gained += lane.surrender(u64::MAX, None, Patience::Wait)?;
        }
        Ok(gained)
    }
}
