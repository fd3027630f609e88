//! Blocks of their own, and what is given up for them.
use super::error::Rung;
use super::ladder::Taken;
use super::{Manager, Relief};
use crate::pool::{Ask, Lane, Patience, Pool};
use crate::{Backend, ErrorKind, Result, Sharing};
use alloc::sync::Arc;

impl<B: Backend> Manager<B> {
    /// Takes a block for one request alone. Where the driver has none, what pools hold for nobody goes back first.
    pub(super) fn dedicate(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Result<Taken<B>> {
        let size = pool.shared.growth.exact(ask.layout.size).ok_or(ErrorKind::ExceedsLimit)?;
        let take = || {
            let slot = lane.grow(ask, size, Sharing::Dedicated);
            slot.map(|slot| (Arc::clone(lane), slot))
        };
        let refused = match take() {
            Err(error) if error.kind().is_out_of_memory() => error,
            other => return other,
        };
        for (patience, rung) in [(Patience::Look, Rung::Trim), (Patience::Wait, Rung::Wait)] {
            for each in pool.lanes() {
                each.settle(patience)?;
            }
            if self.trim_for(pool)? > 0
                && let Some(taken) = served(take())?
            {
                self.climbed(rung, ask.size, lane.timeline);
                return Ok(taken);
            }
        }
        if self.relieve(pool.shared.heap, ask.size) == Relief::Freed {
            self.trim_for(pool)?;
            if let Some(taken) = served(take())? {
                self.climbed(Rung::Pressure, ask.size, lane.timeline);
                return Ok(taken);
            }
        }
        Err(refused)
    }
}

/// What a try gave, or nothing where memory is still short.
fn served<T>(tried: Result<T>) -> Result<Option<T>> {
    match tried {
        Err(error) if error.kind().is_out_of_memory() => Ok(None),
        other => other.map(Some),
    }
}
