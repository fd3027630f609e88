//! Spans of a pool whose places were planned ahead.
#![forbid(unsafe_code)]
use super::lane::State;
use super::slots::SlotId;
use crate::strategy::BlockId;
use crate::{Backend, ErrorKind, Span, TimelineId};

impl<B: Backend> State<B> {
    /// Takes exactly `span` of the lane's only block, which is used in the order of one timeline.
    ///
    /// # Errors
    ///
    /// `Busy` when part of it is live; otherwise as [`TakeSpan::take`](crate::strategy::TakeSpan::take).
    pub(crate) fn take(
        &mut self,
        span: Span,
        timeline: Option<TimelineId>,
    ) -> Result<SlotId, ErrorKind> {
        self.slots.reserve()?;
        let user = self.enter(timeline)?;
        let take = self.divider.as_strategy_mut().as_take().ok_or(ErrorKind::Unsupported)?;
        let grant = take.take(BlockId(0), span)?;
        Ok(self.admit(grant, span.size, user))
    }
}
