//! Who used the bytes of a hole last, and when.
use core::fmt;

/// Who used bytes last and when it let go of them: a number for each user, and a time that the caller counts.
///
/// The general strategy keeps one for each hole, so that a pool can tell which holes a stream may have at once. Users are
/// numbered from 1; number 0 is nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LastUse(u64);

/// Bits of the time.
const TIME: u32 = 48;
/// Stands for more than one user.
const SEVERAL: u16 = u16::MAX;

impl LastUse {
    /// Nobody uses the bytes.
    pub const NONE: Self = Self(0);

    /// Anybody may use the bytes, at any time.
    pub const SEVERAL: Self = Self(u64::MAX);

    /// The highest number that a user may have.
    pub const MOST_USERS: u16 = SEVERAL - 1;

    /// A user that let go of the bytes at a time; times above 2^48 are cut.
    #[must_use]
    pub const fn new(user: u16, time: u64) -> Self {
        Self((user as u64) << TIME | time & ((1 << TIME) - 1))
    }

    /// The only user; `None` where there were several. Number 0 is nobody.
    #[inline]
    #[must_use]
    pub const fn user(self) -> Option<u16> {
        let user = (self.0 >> TIME) as u16;
        if user == SEVERAL { None } else { Some(user) }
    }

    /// When the last of them let go.
    #[inline]
    #[must_use]
    pub const fn time(self) -> u64 {
        self.0 & ((1 << TIME) - 1)
    }

    /// That of two neighbours together.
    #[inline]
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        if self.0 == 0 || self.0 == other.0 {
            return other;
        }
        if other.0 == 0 {
            return self;
        }
        let time = if self.time() > other.time() { self.time() } else { other.time() };
        let user = if self.0 >> TIME == other.0 >> TIME { self.0 >> TIME } else { SEVERAL as u64 };
        Self(user << TIME | time)
    }
}

impl fmt::Debug for LastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user() {
            Some(0) => f.write_str("nobody"),
            Some(user) => write!(f, "{user} at {}", self.time()),
            None => write!(f, "several at {}", self.time()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_the_later_time_and_all_users() {
        let [a, b, c] = [LastUse::new(1, 5), LastUse::new(1, 9), LastUse::new(2, 7)];
        assert_eq!((a.join(b), b.join(a)), (b, b));
        assert_eq!((a.join(LastUse::NONE), LastUse::NONE.join(a)), (a, a));
        let both = b.join(c);
        assert_eq!((both, both.user(), both.time()), (c.join(b), None, 9));
        assert_eq!((both.join(a).user(), both.join(LastUse::new(3, 11)).time()), (None, 11));
        assert_eq!(LastUse::NONE.user(), Some(0));
    }
}
