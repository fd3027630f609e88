//! A plan: the place of every buffer, and its proven quality.

use crate::bound::{Certificate, Step, load_profile};
use crate::{Problem, Spot};
use alloc::vec::Vec;

/// Proven quality of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The plan fits, and no plan has a lower peak.
    Optimal,
    /// The plan fits; its peak is at most `gap` bytes above the best there is.
    Feasible {
        /// Peak less lower bound, in bytes.
        gap: u64,
    },
    /// No plan that fits was found, and none was excluded.
    Undecided {
        /// Bytes by which this plan passes its capacities; 0 when it breaks another rule, as with fixed buffers of several
        /// regions that overlap.
        excess: u64,
    },
    /// No plan fits, and here is why. The spots say where buffers would go if there were more room.
    Infeasible {
        /// The evidence.
        certificate: Certificate,
    },
}

/// One region's share of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Highest end of a buffer, in bytes.
    pub peak: u64,
    /// No placement of these buffers in this region has a lower peak.
    pub lower_bound: u64,
}

/// An answer to a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Place of each buffer, by index.
    pub spots: Vec<Spot>,
    /// Usage of each region.
    pub usage: Vec<Usage>,
    /// Proven quality.
    pub status: Status,
    /// Search states looked at, for logs.
    pub nodes: u64,
}

impl Plan {
    /// Returns the peak of all regions together, in bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.usage.iter().map(|u| u.peak).sum()
    }

    /// Returns the lower bound of all regions together, in bytes.
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        self.usage.iter().map(|u| u.lower_bound).sum()
    }

    /// Returns whether the plan may be used.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self.status, Status::Optimal | Status::Feasible { .. })
    }

    /// Computes the bytes alive over time.
    #[must_use]
    pub fn profile(&self, problem: &Problem) -> Vec<Step> {
        load_profile(problem)
    }
}
