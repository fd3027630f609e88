//! Lower bounds, and the evidence for them.

use crate::model::Model;
use crate::problem::Problem;
use alloc::vec::Vec;
use core::fmt;

/// Bytes alive from `start` until the next step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// First tick.
    pub start: u64,
    /// Bytes alive, each alias class counted once.
    pub bytes: u64,
}

/// Computes the bytes alive over time, over all regions.
///
/// # Cost
/// O(n log n).
#[must_use]
pub fn load_profile(problem: &Problem) -> Vec<Step> {
    let model = Model::new(problem, 0, |_| true);
    let real = model.ticks.len().saturating_sub(1);
    let mut steps: Vec<Step> =
        (0..real).map(|s| Step { start: model.ticks[s], bytes: model.load[s] }).collect();
    if let Some(&end) = model.ticks.last() {
        steps.push(Step { start: end, bytes: 0 });
    }
    steps.dedup_by_key(|s| s.bytes);
    steps
}

/// Why nothing fits, in a form that can be checked by hand or with [`verify`](Certificate::verify).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Certificate {
    /// These buffers are needed at once and are too large together.
    Load {
        /// The tick at which all of them are alive; `None` for a pair that must not share bytes.
        at: Option<u64>,
        /// The buffers, one of each alias class.
        buffers: Vec<usize>,
        /// Sum of their sizes.
        bytes: u64,
        /// What there is.
        capacity: u64,
    },
    /// A buffer is fixed where the region ends.
    FixedOutside {
        /// The buffer.
        buffer: usize,
        /// Where it would end.
        end: u64,
        /// What there is.
        capacity: u64,
    },
    /// Two buffers are fixed on the same bytes at the same time, or use the same bytes but are fixed apart.
    FixedClash {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
    },
    /// The exact search tried everything.
    Exhausted {
        /// The least capacity that is not excluded.
        at_least: u64,
        /// What there is.
        capacity: u64,
        /// States that were looked at.
        nodes: u64,
    },
}

impl Certificate {
    /// Checks the certificate against the problem, without the planner.
    ///
    /// An exhausted search cannot be checked without repeating it, so it never verifies.
    #[must_use]
    pub fn verify(&self, problem: &Problem) -> bool {
        match self {
            Self::Load { at: Some(tick), buffers, bytes, capacity } => {
                let alive = |&i: &usize| {
                    problem
                        .buffers
                        .get(i)
                        .is_some_and(|b| b.intervals().any(|s| s.start <= *tick && *tick < s.end))
                };
                bytes > capacity && buffers.iter().all(alive) && sums_to(problem, buffers, *bytes)
            }
            Self::Load { at: None, buffers, bytes, capacity } => {
                let [a, b] = buffers[..] else { return false };
                let listed = problem.separate.iter().any(|&p| p == (a, b) || p == (b, a));
                bytes > capacity && listed && sums_to(problem, buffers, *bytes)
            }
            Self::FixedOutside { buffer, end, capacity } => {
                problem.buffers.get(*buffer).is_some_and(|b| {
                    end > capacity && b.fixed.and_then(|f| f.checked_add(b.size)) == Some(*end)
                })
            }
            Self::FixedClash { a, b } => fixed_clash(problem, *a, *b),
            Self::Exhausted { .. } => false,
        }
    }
}

/// Checks a sum of sizes; no two of the buffers may use the same bytes.
fn sums_to(problem: &Problem, buffers: &[usize], bytes: u64) -> bool {
    let roots = crate::model::roots(problem);
    let mut classes: Vec<usize> = buffers.iter().filter_map(|&i| roots.get(i).copied()).collect();
    classes.sort_unstable();
    classes.dedup();
    let sum =
        buffers.iter().try_fold(0u64, |sum, &i| sum.checked_add(problem.buffers.get(i)?.size));
    classes.len() == buffers.len() && sum == Some(bytes)
}

fn fixed_clash(problem: &Problem, a: usize, b: usize) -> bool {
    let (Some(x), Some(y)) = (problem.buffers.get(a), problem.buffers.get(b)) else { return false };
    let (Some(f), Some(g)) = (x.fixed, y.fixed) else { return false };
    let roots = crate::model::roots(problem);
    if roots[a] == roots[b] {
        return f != g;
    }
    let together = x.intervals().any(|s| y.intervals().any(|t| s.overlaps(t)));
    let apart = problem.separate.iter().any(|&p| p == (a, b) || p == (b, a));
    (together || apart) && f < g + y.size && g < f + x.size
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { at: Some(tick), buffers, bytes, capacity } => write!(
                f,
                "at tick {tick} {} buffers need {bytes} bytes together, {} more than the capacity of {capacity}",
                buffers.len(),
                bytes - capacity
            ),
            Self::Load { at: None, buffers, bytes, capacity } => write!(
                f,
                "buffers {buffers:?} must not share bytes and need {bytes} together, {} more than the capacity of {capacity}",
                bytes - capacity
            ),
            Self::FixedOutside { buffer, end, capacity } => {
                write!(
                    f,
                    "buffer {buffer} is fixed so that it ends at {end}, behind the capacity of {capacity}"
                )
            }
            Self::FixedClash { a, b } => {
                write!(f, "buffers {a} and {b} are fixed at offsets that exclude each other")
            }
            Self::Exhausted { at_least, capacity, nodes } => write!(
                f,
                "no placement fits {capacity} bytes: the search tried everything ({nodes} states); at least {at_least} are needed"
            ),
        }
    }
}

/// The largest load of a model, with the section where it is.
pub(crate) fn heaviest(model: &Model) -> (u64, usize) {
    let load = model.sure_load();
    let found = load.iter().enumerate().max_by_key(|&(s, &load)| (load, usize::MAX - s));
    found.map_or((0, 0), |(s, &load)| (load, s))
}

/// The lower bound of a model: the largest load, or the highest end of a fixed item.
pub(crate) fn lower_bound(model: &Model) -> u64 {
    let fixed = (0..model.len()).filter_map(|i| model.fixed[i].map(|f| f + model.size[i])).max();
    heaviest(model).0.max(fixed.unwrap_or(0))
}

/// The evidence that a model needs more than `capacity`, if its load or its fixed items say so.
pub(crate) fn refute(
    problem: &Problem,
    model: &Model,
    capacity: Option<u64>,
) -> Option<Certificate> {
    if let Some(clash) = clash(problem, model) {
        return Some(clash);
    }
    let capacity = capacity?;
    let outside =
        |i: usize| problem.buffers[i].fixed.map_or(0, |f| f + problem.buffers[i].size) > capacity;
    if let Some(buffer) =
        (0..problem.buffers.len()).find(|&i| model.item_of[i].is_some() && outside(i))
    {
        let end = problem.buffers[buffer].fixed.map_or(0, |f| f + problem.buffers[buffer].size);
        return Some(Certificate::FixedOutside { buffer, end, capacity });
    }
    let (bytes, section) = heaviest(model);
    if bytes <= capacity {
        return None;
    }
    let tick = (section + 1 < model.ticks.len()).then(|| model.ticks[section]);
    let buffers = match tick {
        Some(tick) => alive(problem, model, tick),
        None => too_large_apart(problem, model, capacity)?,
    };
    let bytes = buffers.iter().map(|&i| problem.buffers[i].size).sum();
    Some(Certificate::Load { at: tick, buffers, bytes, capacity })
}

/// One buffer for each item that is live at a tick: the largest of its class that is.
fn alive(problem: &Problem, model: &Model, tick: u64) -> Vec<usize> {
    let mut best: Vec<Option<usize>> = alloc::vec![None; model.len()];
    for (index, item) in model.item_of.iter().enumerate() {
        let Some(item) = item.map(|i| i as usize) else { continue };
        let buffer = &problem.buffers[index];
        let live = buffer.intervals().any(|s| s.start <= tick && tick < s.end);
        if live && best[item].is_none_or(|b| problem.buffers[b].size < buffer.size) {
            best[item] = Some(index);
        }
    }
    best.into_iter().flatten().collect()
}

/// A pair that must be separate and is too large together.
fn too_large_apart(problem: &Problem, model: &Model, capacity: u64) -> Option<Vec<usize>> {
    let here = |i: usize| model.item_of[i].is_some();
    let large = |&&(a, b): &&(usize, usize)| {
        here(a) && here(b) && problem.buffers[a].size + problem.buffers[b].size > capacity
    };
    problem.separate.iter().find(large).map(|&(a, b)| alloc::vec![a, b])
}

fn clash(problem: &Problem, model: &Model) -> Option<Certificate> {
    let fixed: Vec<usize> = (0..problem.buffers.len())
        .filter(|&i| model.item_of[i].is_some() && problem.buffers[i].fixed.is_some())
        .collect();
    for (at, &a) in fixed.iter().enumerate() {
        for &b in &fixed[..at] {
            if fixed_clash(problem, b, a) {
                return Some(Certificate::FixedClash { a: b, b: a });
            }
        }
    }
    None
}
