//! Exhaustive search for few activations, bounded by the prices.

use super::choose::{Chosen, Relaxed};
use super::rows::Rows;
use crate::stop::Stop;
use alloc::vec::Vec;

/// Activations that are searched, at most.
const MOST: usize = 200;
/// States of the search, at most.
const STATES: u32 = 100_000;

/// Looks for cheaper picks; also says whether there are none for certain.
pub(super) fn improve(
    rows: &Rows,
    relaxed: &Relaxed,
    found: Chosen,
    stop: &Stop<'_>,
) -> (Chosen, bool) {
    if found.cost == 0 || relaxed.lower_bound() >= found.cost {
        return (found, true);
    }
    if rows.picks.len() > MOST {
        return (found, false);
    }
    let values = relaxed.values(rows);
    let least = |values: &Vec<f64>| values.iter().copied().fold(f64::INFINITY, f64::min);
    let bound = values.iter().map(least).sum::<f64>() - relaxed.worth(rows);
    let mut search = Search {
        rows,
        values,
        is_barred: rows.picks.iter().map(|picks| alloc::vec![false; picks.len()]).collect(),
        fixed: alloc::vec![None; rows.picks.len()],
        slack: rows.room.clone(),
        best: found,
        states: 0,
        is_cut: false,
        stop,
    };
    search.branch(0, bound);
    (search.best, !search.is_cut)
}

struct Search<'a> {
    rows: &'a Rows,
    /// Cost of each pick at the prices.
    values: Vec<Vec<f64>>,
    /// Per pick: ruled out on the way here.
    is_barred: Vec<Vec<bool>>,
    /// Per activation: the pick on the way here; what has none is kept so far.
    fixed: Vec<Option<usize>>,
    slack: Vec<i64>,
    best: Chosen,
    states: u32,
    is_cut: bool,
    stop: &'a Stop<'a>,
}

impl Search<'_> {
    /// Branches over what frees bytes at the fullest row: one of those must be picked.
    fn branch(&mut self, cost: u64, bound: f64) {
        self.states += 1;
        self.is_cut |= self.states >= STATES || self.stop.now();
        if self.is_cut || cost >= self.best.cost || bound > self.best.cost as f64 - 1.0 + 1e-6 {
            return;
        }
        let fullest = self.slack.iter().enumerate().min_by_key(|&(_, slack)| slack);
        let Some((row, lack)) = fullest.map(|(row, slack)| (row, -slack)).filter(|&(_, l)| l > 0)
        else {
            let picked = self.fixed.iter().map(|pick| pick.unwrap_or(0)).collect();
            self.best = Chosen { picked, cost };
            return;
        };
        let options = self.options(row, lack);
        let mut bound = bound;
        for &(index, pick) in &options {
            let least = self.least(index);
            self.take(index, pick, 1);
            self.fixed[index] = Some(pick);
            let price = self.rows.picks[index][pick].cost;
            self.branch(cost.saturating_add(price), bound - least + self.values[index][pick]);
            self.fixed[index] = None;
            self.take(index, pick, -1);
            self.is_barred[index][pick] = true;
            bound += self.least(index) - least;
        }
        for &(index, pick) in &options {
            self.is_barred[index][pick] = false;
        }
    }

    /// Returns the picks that free bytes of a row, the cheapest for what is lacking first.
    fn options(&self, row: usize, lack: i64) -> Vec<(usize, usize)> {
        let mut options = Vec::new();
        for (index, picks) in self.rows.picks.iter().enumerate() {
            for (number, pick) in picks.iter().enumerate() {
                let freed = (-pick.at(row)).min(lack);
                if self.fixed[index].is_none() && !self.is_barred[index][number] && freed > 0 {
                    options.push((pick.cost as f64 / freed as f64, index, number));
                }
            }
        }
        options.sort_by(|a, b| a.0.total_cmp(&b.0));
        options.into_iter().map(|(_, index, number)| (index, number)).collect()
    }

    /// Returns the least value of what an activation may still pick.
    fn least(&self, index: usize) -> f64 {
        let open = self.values[index].iter().zip(&self.is_barred[index]).filter(|(_, b)| !**b);
        open.map(|(value, _)| *value).fold(f64::INFINITY, f64::min)
    }

    fn take(&mut self, index: usize, pick: usize, sign: i64) {
        for part in &self.rows.picks[index][pick].parts {
            self.slack[part.start..part.end].iter_mut().for_each(|s| *s -= sign * part.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
