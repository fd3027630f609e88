//! The span that a lane freed last. The next request of the same size gets it back as it is.
//!
//! A program that allocates what it has just freed then pays neither for a new hole nor for splitting one. Results do not
//! change: the span is reused only where a search would find the same, and whoever looks at holes makes it one first. Other programs
//! pay little: only the span that was taken last is kept.
#![forbid(unsafe_code)]
use super::{Ask, Bytes, Suballocator, User};
use crate::{Backend, Class, ErrorKind};
use omniheap_strategy::{Grant, Key, LastUse};

/// The state of the span that was freed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    /// Free, although it is live to the strategy.
    Free,
    /// As `Free`, and a search would find exactly this span.
    Proven,
    /// As `Proven`, and the strategy knows its last use.
    Known,
    /// Allocated again, and nothing else has changed since.
    Live,
}

/// The span that was freed last.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFreed {
    grant: Grant,
    class: Class,
    now: Now,
    user: User,
    /// Its last use, where it is with the lane.
    last_use: LastUse,
}

impl<B: Backend> Bytes<B> {
    /// Makes the span that was freed last a hole.
    #[inline]
    pub(in crate::lane) fn flush(&mut self) {
        if let Some(last_freed) = self.last_freed {
            self.last_freed = None;
            self.forget(last_freed);
        }
    }

    #[inline]
    fn forget(&mut self, last_freed: LastFreed) {
        if let Suballocator::General(tlsf) = &mut self.suballocator
            && last_freed.now != Now::Live
        {
            let freed = tlsf.free_used(last_freed.grant.key, last_freed.last_use);
            freed.expect("the span freed last is live to its strategy");
        }
    }

    /// Takes the span that was freed last if it is what is asked for; otherwise it becomes a hole. `granted` bytes are in use.
    #[inline]
    pub(in crate::lane) fn take_last_freed(
        &mut self,
        ask: Ask,
        user: User,
        granted: u64,
    ) -> Option<Grant> {
        let last = self.last_freed.as_mut()?;
        let fits = last.now != Now::Live
            && last.grant.span.size == ask.layout.size
            && last.class == ask.class
            && last.user == user
            && ask.layout.align.divides(last.grant.span.offset)
            // Near the high-water mark blocks are kept whole, which only a search can see to.
            && !self.thrift.is_near(granted);
        if let (true, Suballocator::General(tlsf)) = (fits, &mut self.suballocator)
            // A search for as many bytes would find this span, were it a hole.
            && (last.now != Now::Free || tlsf.would_come_back(last.grant.key))
        {
            if last.now != Now::Known {
                tlsf.set_last_use(last.grant.key, last.last_use);
            }
            last.now = Now::Live;
            return Some(last.grant);
        }
        self.flush();
        None
    }

    /// Notes the key of the span that the fast path took last.
    #[inline]
    pub(in crate::lane) const fn set_last_taken(&mut self, key: Key) {
        self.last_taken = key;
    }

    /// Releases a span that a user used last as said, and returns its size. If it was taken last, the general-purpose strategy hears of
    /// it when the next one is freed, or asked for.
    #[inline]
    pub(in crate::lane) fn release_last(
        &mut self,
        key: Key,
        user: User,
        last_use: LastUse,
    ) -> Result<u64, ErrorKind> {
        if let Some(last_freed) = &mut self.last_freed
            && last_freed.now == Now::Live
            && last_freed.grant.key == key
            && last_freed.user == user
        {
            last_freed.now = if last_freed.last_use == last_use { Now::Known } else { Now::Proven };
            last_freed.last_use = last_use;
            return Ok(last_freed.grant.span.size);
        }
        self.flush();
        if key == self.last_taken
            && let Suballocator::General(tlsf) = &self.suballocator
        {
            let (grant, class) = tlsf.granted(key)?;
            self.last_freed = Some(LastFreed { grant, class, now: Now::Free, user, last_use });
            return Ok(grant.span.size);
        }
        self.release(key, last_use).map(|grant| grant.span.size)
    }
}
