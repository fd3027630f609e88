//! The span that a lane freed last: whoever asks for as many bytes next gets it as it is.
//!
//! A program that allocates what it has just freed pays neither for making a hole nor for dividing one. Nobody sees a
//! difference: the span is given only where a search would find the same, and every lock but that of the fast path puts it back
//! among the holes first.
#![forbid(unsafe_code)]
use super::lane::{Ask, Divider, State};
use super::users::User;
use crate::strategy::{Grant, Key, LastUse};
use crate::sync::{Guard, Mutex};
use crate::{Backend, Class, ErrorKind};

/// Where a warm span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// With the lane: free, though the strategy takes it for live.
    Here,
    /// With the lane, and nothing happened since a search would have found it.
    Proven,
    /// Live again, and nothing else happened since.
    Out,
}

/// The span that was freed last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warm {
    grant: Grant,
    class: Class,
    whereabouts: Whereabouts,
    user: User,
    /// Its last use, where it is with the lane.
    last_use: LastUse,
}

/// The lock of a lane's state.
pub(crate) struct StateLock<B: Backend>(Mutex<State<B>>);

impl<B: Backend> StateLock<B> {
    pub(super) fn new(state: State<B>) -> Self {
        Self(Mutex::new(state))
    }

    /// Takes the lock; everything that is free is a hole.
    pub(crate) fn lock(&self) -> Guard<'_, State<B>> {
        let mut state = self.0.lock();
        state.cool();
        state
    }

    /// Takes the lock to allocate or to free, and to look at nothing else: one span may be warm.
    #[inline]
    pub(crate) fn lock_warm(&self) -> Guard<'_, State<B>> {
        self.0.lock()
    }
}

impl<B: Backend> State<B> {
    /// Puts the warm span back among the holes.
    #[inline]
    pub(super) fn cool(&mut self) {
        if let Some(warm) = self.warm {
            self.warm = None;
            self.forget(warm);
        }
    }

    fn forget(&mut self, warm: Warm) {
        if let Divider::General(tlsf) = &mut self.divider
            && warm.whereabouts != Whereabouts::Out
        {
            let freed = tlsf.free_used(warm.grant.key, warm.last_use);
            freed.expect("a warm span is live to its strategy");
        }
    }

    /// The warm span, where it is what is asked for; where it is not, it is a hole again.
    #[inline]
    pub(super) fn take_warm(&mut self, ask: Ask, user: User) -> Option<Grant> {
        let warm = self.warm?;
        let Warm { grant, class, whereabouts, .. } = warm;
        debug_assert!(
            ask.layout.align.divides(grant.span.offset),
            "more than the unit goes slowly"
        );
        let fits = whereabouts != Whereabouts::Out
            && grant.span.size == ask.layout.size
            && class == ask.class
            && user == warm.user
            // Near the high-water mark blocks are kept whole, which only a search can see to.
            && !self.thrift.is_on(self.counts.granted_bytes)
            && (whereabouts == Whereabouts::Proven || self.would_find(grant));
        if fits {
            self.warm = Some(Warm { whereabouts: Whereabouts::Out, ..warm });
            if let Divider::General(tlsf) = &mut self.divider {
                tlsf.set_last_use(grant.key, warm.last_use);
            }
            return Some(grant);
        }
        self.cool();
        None
    }

    /// Whether a search for as many bytes as a span has would find that span, were it a hole.
    fn would_find(&self, grant: Grant) -> bool {
        matches!(&self.divider, Divider::General(tlsf) if tlsf.would_come_back(grant.key))
    }

    /// Frees a span; the general-purpose strategy hears of it when the next one is freed, or asked for.
    #[inline]
    pub(super) fn keep_warm(&mut self, key: Key, user: User) -> Result<Grant, ErrorKind> {
        if let Some(warm) = &mut self.warm
            && warm.whereabouts == Whereabouts::Out
            && warm.grant.key == key
            && warm.user == user
        {
            warm.whereabouts = Whereabouts::Proven;
            warm.last_use = self.users.free(user);
            return Ok(warm.grant);
        }
        self.keep_other(key, user)
    }

    fn keep_other(&mut self, key: Key, user: User) -> Result<Grant, ErrorKind> {
        let Divider::General(tlsf) = &mut self.divider else {
            let last = self.users.free(user);
            return self.release(key, last);
        };
        let (grant, class) = tlsf.granted(key)?;
        self.cool();
        let last_use = self.users.free(user);
        self.warm = Some(Warm { grant, class, whereabouts: Whereabouts::Here, user, last_use });
        Ok(grant)
    }
}
