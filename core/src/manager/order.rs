//! Serving a request from bytes that other timelines may still use, by running after them.
use super::Manager;
use super::error::Rung;
use super::ladder::Taken;
use crate::Backend;
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
        let timeline = lane.timeline?;
        let lanes = pool.lanes();
        if !lane.would_waste(ask.layout.size, &lanes) {
            return None;
        }
        if lane.retire_in_order().is_ok_and(|retired| retired > 0)
            && let Ok(slot) = lane.state.lock().allocate_anyhow(ask)
        {
            self.climbed(Rung::Retire, ask.size, lane.timeline);
            return Some((Arc::clone(lane), slot));
        }
        let others = lanes.iter().filter(|other| !Arc::ptr_eq(other, lane));
        let lent = others.filter(|_| lane.may_borrow()).find_map(|other| {
            let lend = || other.lend_in_order(ask, timeline).ok().flatten();
            // A lane whose holes do not fit takes back what waits, running after others itself, and looks again.
            let slot = lend().or_else(|| match other.retire_in_order_for_others() {
                Ok(1..) => lend(),
                _ => None,
            })?;
            Some((Arc::clone(other), slot))
        })?;
        self.climbed(Rung::Lend, ask.size, lane.timeline);
        Some(lent)
    }
}
