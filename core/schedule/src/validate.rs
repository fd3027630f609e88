//! Checks a plan by sweeping over time; shares no code with the planner.

use crate::problem::{Problem, Spot};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Error in a plan. Buffers are named by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// There is not one spot for each buffer.
    Count {
        /// Their number.
        spots: usize,
    },
    /// A buffer is in a region that is not there or that it may not use.
    Region {
        /// The buffer.
        buffer: usize,
    },
    /// A buffer is not aligned.
    Align {
        /// The buffer.
        buffer: usize,
    },
    /// A buffer is not at its fixed offset.
    Fixed {
        /// The buffer.
        buffer: usize,
    },
    /// A buffer ends behind its region.
    Capacity {
        /// The buffer.
        buffer: usize,
    },
    /// Two buffers that use the same bytes are apart.
    Alias {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
    },
    /// Two buffers that are alive together, or must be separate, overlap.
    Overlap {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { spots } => write!(f, "{spots} spots are not one for each buffer"),
            Self::Region { buffer } => write!(f, "buffer {buffer} is in a region it may not use"),
            Self::Align { buffer } => write!(f, "buffer {buffer} is not aligned"),
            Self::Fixed { buffer } => write!(f, "buffer {buffer} is not at its fixed offset"),
            Self::Capacity { buffer } => write!(f, "buffer {buffer} ends behind its region"),
            Self::Alias { a, b } => {
                write!(f, "buffers {a} and {b} use the same bytes but are apart")
            }
            Self::Overlap { a, b } => write!(f, "buffers {a} and {b} overlap"),
        }
    }
}

impl core::error::Error for Flaw {}

/// Checks that a plan may be used.
///
/// # Algorithm
/// Sweeps over time and keeps the bytes in use of each region in an ordered map; a buffer that starts looks at its
/// neighbours there. Buffers of one alias class may overlap each other.
///
/// # Cost
/// O(n log n), and O(p) for p pairs.
///
/// # Errors
/// The first flaw found.
pub fn validate(problem: &Problem, spots: &[Spot]) -> Result<(), Flaw> {
    if spots.len() != problem.buffers.len() {
        return Err(Flaw::Count { spots: spots.len() });
    }
    for (buffer, spot) in spots.iter().enumerate() {
        check_spot(problem, buffer, *spot)?;
    }
    let needed = |i: usize| problem.buffers[i].needs_bytes();
    let class = classes(problem);
    let mut first: Vec<Option<usize>> = alloc::vec![None; class.len()];
    for b in (0..class.len()).filter(|&b| needed(b)) {
        let a = *first[class[b]].get_or_insert(b);
        if spots[a] != spots[b] {
            return Err(Flaw::Alias { a, b });
        }
    }
    for &(a, b) in problem.separate.iter().filter(|&&(a, b)| needed(a) && needed(b)) {
        let end = |i: usize| spots[i].offset + problem.buffers[i].size;
        let meet = spots[a].region == spots[b].region
            && spots[a].offset < end(b)
            && spots[b].offset < end(a);
        if meet && class[a] != class[b] {
            return Err(Flaw::Overlap { a, b });
        }
    }
    sweep(problem, spots, &class)
}

fn check_spot(problem: &Problem, buffer: usize, spot: Spot) -> Result<(), Flaw> {
    let b = &problem.buffers[buffer];
    let Some(region) = problem.regions.get(spot.region).filter(|_| b.regions.contains(spot.region))
    else {
        return Err(Flaw::Region { buffer });
    };
    if !b.needs_bytes() {
        return Ok(());
    }
    if !spot.offset.is_multiple_of(b.align) || !spot.offset.is_multiple_of(region.align) {
        return Err(Flaw::Align { buffer });
    }
    if b.fixed.is_some_and(|f| f != spot.offset) {
        return Err(Flaw::Fixed { buffer });
    }
    let end = spot.offset.checked_add(b.size).ok_or(Flaw::Capacity { buffer })?;
    if region.capacity.is_some_and(|c| end > c) { Err(Flaw::Capacity { buffer }) } else { Ok(()) }
}

/// Returns the first buffer of each buffer's alias class.
fn classes(problem: &Problem) -> Vec<usize> {
    let mut up: Vec<usize> = (0..problem.buffers.len()).collect();
    let top = |up: &mut Vec<usize>, mut i: usize| {
        while up[i] != i {
            up[i] = up[up[i]];
            i = up[i];
        }
        i
    };
    for &(a, b) in &problem.aliases {
        let (a, b) = (top(&mut up, a), top(&mut up, b));
        up[a.max(b)] = a.min(b);
    }
    (0..up.len()).map(|i| top(&mut up, i)).collect()
}

/// Bytes in use: from region and start of the bytes to the buffers there, all of one class.
type InUse = BTreeMap<(usize, u64), Vec<usize>>;

fn sweep(problem: &Problem, spots: &[Spot], class: &[usize]) -> Result<(), Flaw> {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, buffer) in problem.buffers.iter().enumerate().filter(|(_, b)| b.size > 0) {
        for span in buffer.intervals() {
            events.push((span.start, true, index));
            events.push((span.end, false, index));
        }
    }
    // Ends sort before starts, so bytes may be handed over within a tick.
    events.sort_unstable();
    let mut used = InUse::new();
    for (_, starts, index) in events {
        let key = (spots[index].region, spots[index].offset);
        if starts {
            if let Some(other) = in_way(problem, spots, class, &used, index) {
                return Err(Flaw::Overlap { a: other, b: index });
            }
            used.entry(key).or_default().push(index);
        } else if let Some(users) = used.get_mut(&key) {
            users.retain(|&user| user != index);
            if users.is_empty() {
                used.remove(&key);
            }
        }
    }
    Ok(())
}

/// Returns a buffer of another class that uses bytes of this one.
fn in_way(
    problem: &Problem,
    spots: &[Spot],
    class: &[usize],
    used: &InUse,
    index: usize,
) -> Option<usize> {
    let Spot { region, offset } = spots[index];
    let behind = offset + problem.buffers[index].size;
    // Different classes in use are disjoint, so the nearest one that starts before the end decides; one class is in one
    // place.
    let mut before = used.range((region, 0)..(region, behind)).rev();
    let other = before.find(|(_, users)| class[users[0]] != class[index])?;
    other.1.iter().copied().find(|&user| other.0.1 + problem.buffers[user].size > offset)
}
