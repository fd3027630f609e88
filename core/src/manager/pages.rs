//! Whole pages out of holes that are smaller than a page each.
#![forbid(unsafe_code)]
use super::Manager;
use super::error::Rung;
use super::ladder::Taken;
use crate::pool::{Ask, Lane, Patience, Pool};
use crate::{Backend, Result};
use alloc::sync::Arc;

impl<B: Backend> Manager<B> {
    /// Slides live data of a paged pool together, here and there, until its whole free pages are enough for a request.
    ///
    /// Pages are mapped wherever they are needed, so several holes do as well as one. The longest come first, because a
    /// hole of many pages costs the fewest copies for each; then half as long, down to one page.
    pub(super) fn free_pages_by_sliding(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Result<Option<Taken<B>>> {
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
                && let Some(taken) = self.retry(pool, lane, ask, Rung::Defragment)?
            {
                return Ok(Some(taken));
            }
            hole /= 2;
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
