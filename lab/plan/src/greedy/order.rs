//! The rules by which greedy algorithms prefer one item to another.

use crate::first_fit::{descending, life};
use crate::model::Model;
use alloc::vec::Vec;

/// A rule that ranks items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The longest life first, the larger of equals.
    Life,
    /// The largest first, the longer-lived of equals.
    Size,
    /// The largest product of size and life first.
    Area,
    /// Items that meet the highest load first, the longer-lived of equals.
    Load,
}

impl Rule {
    /// Lists the items from best to worst.
    pub(crate) fn order(self, model: &Model) -> Vec<u32> {
        let size = |i: usize| model.size[i];
        let life = |i: usize| life(model, i);
        match self {
            Self::Life => descending(model, |i| (life(i), size(i))),
            Self::Size => descending(model, |i| (size(i), life(i))),
            Self::Area => {
                descending(model, |i| (u128::from(size(i)) * u128::from(life(i)), size(i)))
            }
            Self::Load => {
                let peaks = peaks(model);
                descending(model, |i| (peaks[i], life(i)))
            }
        }
    }
}

/// Returns the highest load that each item meets.
pub(crate) fn peaks(model: &Model) -> Vec<u64> {
    let table = Table::new(&model.load);
    (0..model.len())
        .map(|i| model.runs(i).iter().map(|&(a, b)| table.most(a, b)).max().unwrap_or(0))
        .collect()
}

/// Answers "the most in a range": blocks of 64 sections and their maxima in a sparse table.
struct Table<'a> {
    values: &'a [u64],
    levels: Vec<Vec<u64>>,
}

impl<'a> Table<'a> {
    fn new(values: &'a [u64]) -> Self {
        let mut levels = alloc::vec![values.chunks(64).map(most_of).collect::<Vec<_>>()];
        while levels[levels.len() - 1].len() > 1 << (levels.len() - 1) {
            let last = &levels[levels.len() - 1];
            let step = 1 << (levels.len() - 1);
            let next = (0..last.len() - step).map(|i| last[i].max(last[i + step])).collect();
            levels.push(next);
        }
        Self { values, levels }
    }

    fn most(&self, from: u32, to: u32) -> u64 {
        let (from, to) = (from as usize, to as usize);
        let (first, last) = (from.div_ceil(64), to / 64);
        if first >= last {
            return most_of(&self.values[from..to]);
        }
        let level = (last - first).ilog2() as usize;
        let row = &self.levels[level];
        let inner = row[first].max(row[last - (1 << level)]);
        inner.max(most_of(&self.values[from..first * 64])).max(most_of(&self.values[last * 64..to]))
    }
}

fn most_of(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0)
}
