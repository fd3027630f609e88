//! The span that a lane freed last. The next request of the same size gets it back as it is.
//!
//! A program that allocates what it has just freed then pays neither for a new hole nor for splitting one. Results do not
//! change: the span is reused only where a search would find the same, and every lock but the fast path's makes it a hole first.
#![forbid(unsafe_code)]
use super::users::User;
use super::{Ask, State, Suballocator};
use crate::sync::{Guard, Mutex};
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

/// The lock of a lane's state.
pub(super) struct StateLock<B: Backend>(Mutex<State<B>>);

impl<B: Backend> StateLock<B> {
    pub(super) fn new(state: State<B>) -> Self {
        Self(Mutex::new(state))
    }

    /// Takes the lock; everything that is free is a hole.
    pub(crate) fn lock(&self) -> Guard<'_, State<B>> {
        let mut state = self.0.lock();
        state.flush_last_freed();
        state
    }

    /// Takes the lock to allocate or to free, and to look at nothing else: the span that was freed last may not be a hole yet.
    #[inline]
    pub(super) fn lock_fast(&self) -> Guard<'_, State<B>> {
        self.0.lock()
    }
}

impl<B: Backend> State<B> {
    /// Makes the span that was freed last a hole.
    #[inline]
    pub(super) fn flush_last_freed(&mut self) {
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

    /// Takes the span that was freed last if it is what is asked for; otherwise it becomes a hole.
    #[inline]
    pub(super) fn take_last_freed(&mut self, ask: Ask, user: User) -> Option<Grant> {
        let last = self.last_freed.as_mut()?;
        let fits = last.now != Now::Live
            && last.grant.span.size == ask.layout.size
            && last.class == ask.class
            && last.user == user
            && ask.layout.align.divides(last.grant.span.offset)
            // Near the high-water mark blocks are kept whole, which only a search can see to.
            && !self.thrift.is_near(self.counts.granted_bytes);
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
        self.flush_last_freed();
        None
    }

    /// Frees a span and returns its size; the general-purpose strategy hears of it when the next one is freed, or asked for.
    #[inline]
    pub(super) fn keep_last_freed(&mut self, key: Key, user: User) -> Result<u64, ErrorKind> {
        if let Some(last_freed) = &mut self.last_freed
            && last_freed.now == Now::Live
            && last_freed.grant.key == key
            && last_freed.user == user
        {
            let last_use = self.users.free(user);
            last_freed.now = if last_freed.last_use == last_use { Now::Known } else { Now::Proven };
            last_freed.last_use = last_use;
            return Ok(last_freed.grant.span.size);
        }
        self.keep_other(key, user).map(|grant| grant.span.size)
    }

    fn keep_other(&mut self, key: Key, user: User) -> Result<Grant, ErrorKind> {
        let Suballocator::General(tlsf) = &mut self.suballocator else {
            let last = self.users.free(user);
            return self.release(key, last);
        };
        let (grant, class) = tlsf.granted(key)?;
        self.flush_last_freed();
        let last_use = self.users.free(user);
        self.last_freed = Some(LastFreed { grant, class, now: Now::Free, user, last_use });
        Ok(grant)
    }
}
