//! Planner options: effort limits and progress callbacks.

use crate::stop::Stop;
use core::fmt;

/// Progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The region that is worked on.
    pub region: usize,
    /// Peak of the best plan for it, in bytes.
    pub peak: u64,
    /// Proven lower bound, in bytes.
    pub lower_bound: u64,
    /// Search states looked at.
    pub nodes: u64,
}

/// Planner options. By default the search runs until a plan is proven optimal or `effort` is spent.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Chooses among equally good ways; one seed gives one plan, unless a deadline or `stop` cuts it short.
    pub seed: u64,
    /// Search states to look at, at most.
    pub effort: u64,
    /// Asked often; a yes ends the search with the best plan so far.
    pub stop: Option<&'a dyn Fn() -> bool>,
    /// Told about the first plan, every better one, and every better bound.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// Ends the search with the best plan so far. A limit behind the end of the clock, such as `Duration::MAX`, is none.
    #[cfg(feature = "std")]
    pub time_limit: Option<core::time::Duration>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            seed: 1,
            effort: 1_000_000,
            stop: None,
            progress: None,
            #[cfg(feature = "std")]
            time_limit: None,
        }
    }
}

impl Options<'_> {
    /// Does some work that is to stop at the time limit, counted from now, or when the caller says so.
    pub(crate) fn timed<T>(&self, work: impl FnOnce(&Stop<'_>) -> T) -> T {
        #[cfg(feature = "std")]
        let deadline =
            self.time_limit.and_then(|limit| std::time::Instant::now().checked_add(limit));
        let ask = || {
            #[cfg(feature = "std")]
            if deadline.is_some_and(|d| std::time::Instant::now() >= d) {
                return true;
            }
            self.stop.is_some_and(|stop| stop())
        };
        work(&Stop::new(&ask))
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("effort", &self.effort)
            .finish_non_exhaustive()
    }
}
