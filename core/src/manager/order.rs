//! Serving a request from bytes that other timelines may still use, by running after them.
use super::Manager;
use super::ladder::Taken;
use crate::Backend;
use crate::event::Rung;
use crate::pool::{Ask, Lane, Pool};
use alloc::sync::Arc;

impl<B: Backend> Manager<B> {
    /// Takes a span from what was freed and may still be in use, where the pool would otherwise hold much more than was ever
    /// live: the request's timeline runs after those that use it. Nobody waits, and nothing is mapped.
    ///
    /// A device that cannot order its timelines now is no reason to fail: the pool grows then.
    pub(super) fn take_in_order(
        &self,
        pool: &Pool<B>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Option<Taken<B>> {
        ask.timeline?;
        let mut lanes = pool.lanes();
        if !lane.should_order(ask.layout.size, &lanes) {
            return None;
        }
        lanes.sort_by_key(|each| !Arc::ptr_eq(each, lane));
        for each in lanes {
            if let Ok(Some(slot)) = each.take_in_order(ask) {
                self.climbed(Rung::Lend, ask.size, ask.timeline);
                return Some((each, slot));
            }
            if each.retire_in_order() > 0
                && let Ok(Some(slot)) = each.take_in_order(ask)
            {
                self.climbed(Rung::Retire, ask.size, ask.timeline);
                return Some((each, slot));
            }
        }
        None
    }
}
