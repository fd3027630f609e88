//! Spans that the caller names.
#![forbid(unsafe_code)]
use super::lane::{Miss, State};
use super::slots::SlotId;
use crate::strategy::BlockId;
use crate::{Backend, ErrorKind, Span, TimelineId};

impl<B: Backend> State<B> {
    /// Takes exactly `span` of the lane's first block.
    ///
    /// # Errors
    ///
    /// `InUse` when the bytes may still be used by another timeline; otherwise as
    /// [`TakeSpan::take`](crate::strategy::TakeSpan::take), and `Unsupported` where the strategy does not take spans.
    pub(crate) fn take(
        &mut self,
        span: Span,
        timeline: Option<TimelineId>,
    ) -> Result<SlotId, Miss> {
        self.slots.reserve().map_err(Miss::Refused)?;
        let user = self.enter(timeline).map_err(Miss::Refused)?;
        let last = self.blocks.first().and_then(Option::as_ref).map(|held| held.last_use);
        if let Some(last) = last.filter(|last| !self.users.may(user, *last)) {
            return Err(Miss::InUse(last));
        }
        let take = self.divider.as_strategy_mut().as_take();
        let take = take.ok_or(Miss::Refused(ErrorKind::Unsupported))?;
        let grant = take.take(BlockId(0), span).map_err(Miss::Refused)?;
        Ok(self.admit(grant, span.size, user))
    }
}
