//! Prices for the bytes of each row, the bound that they prove, and choices made by them.

use super::rows::{Pick, Rows};
use crate::stop::Stop;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Rows whose price is set one by one.
const ROUNDS: u32 = 64;
/// Rows between two steps in the direction that they show.
const TURNS: u32 = 4;
/// Steps along the subgradient after that.
const STEPS: u32 = 240;
/// Part of the cost that the bound may be below it: nobody knows costs better.
const NEAR: f64 = 1e-3;
/// Steps between two attempts to make choices from the prices.
const ATTEMPT: u32 = 40;

/// Some picks, one for each activation, and what they cost.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) picked: Vec<usize>,
    pub(super) cost: u64,
}

/// Finds picks that fit and cost less than `below`, and the prices that led to them.
pub(super) fn choose(
    rows: &Rows,
    below: Option<u64>,
    stop: &Stop<'_>,
) -> (Option<Chosen>, Relaxed) {
    let mut relaxed = Relaxed::start(rows, stop);
    let mut best: Option<Chosen> = None;
    let mut attempt = |picked: &[usize]| {
        let limit = best.as_ref().map(|b| b.cost).into_iter().chain(below).min();
        let is_better = |found: &Chosen| limit.is_none_or(|limit| found.cost < limit);
        if let Some(found) = repair(rows, picked.to_vec()).filter(is_better) {
            best = Some(found);
        }
        best.as_ref().map(|b| b.cost)
    };
    attempt(&alloc::vec![0; rows.picks.len()]);
    relaxed.climb(rows, stop, |picked| attempt(picked).or(below));
    (best, relaxed)
}

/// Prices, and the least that any picks cost.
pub(super) struct Relaxed {
    /// Per row: cost of a byte.
    price: Vec<f64>,
    /// The bound of the best prices.
    bound: f64,
    /// The best picks at these prices.
    picked: Vec<usize>,
}

impl Relaxed {
    /// Finds prices that prove a good bound for what is known to cost no more than `known`.
    pub(super) fn new(rows: &Rows, known: u64, stop: &Stop<'_>) -> Self {
        let mut relaxed = Self::start(rows, stop);
        relaxed.climb(rows, stop, |_| Some(known));
        relaxed
    }

    /// Sets the prices of single rows, as far as that goes.
    fn start(rows: &Rows, stop: &Stop<'_>) -> Self {
        let price = alloc::vec![0.0; rows.room.len()];
        let (bound, picked) = evaluate(rows, &price);
        let mut relaxed = Self { price, bound, picked };
        relaxed.ascend(rows, stop);
        relaxed
    }

    /// Returns the bound as a cost: costs are whole numbers.
    #[expect(clippy::cast_possible_truncation, reason = "a bound is no larger than a cost")]
    #[expect(clippy::cast_sign_loss, reason = "it is not negative here")]
    pub(super) fn lower_bound(&self) -> u64 {
        // Rounding in the sums may have lifted it.
        let safe = self.bound * (1.0 - 1e-9) - 1e-6;
        if safe <= 0.0 { 0 } else { safe as u64 + u64::from(safe > (safe as u64) as f64) }
    }

    /// Returns by how much one pick costs more than the best one of its activation, at these prices.
    pub(super) fn values(&self, rows: &Rows) -> Vec<Vec<f64>> {
        let sums = sums(&self.price);
        rows.picks.iter().map(|picks| picks.iter().map(|p| value(p, &sums)).collect()).collect()
    }

    /// Returns what the rows' room is worth.
    pub(super) fn worth(&self, rows: &Rows) -> f64 {
        worth(rows, &self.price)
    }

    /// Sets prices of single rows, each to the best for the others as they are, and goes on in the direction of some such steps:
    /// rows that share activations would take turns for long.
    fn ascend(&mut self, rows: &Rows, stop: &Stop<'_>) {
        let mut before = self.price.clone();
        for round in 1..=ROUNDS {
            if !self.set_one(rows) || stop.now() {
                return;
            }
            if round % TURNS == 0 {
                self.go_on(rows, &before);
                before.clone_from(&self.price);
            }
        }
    }

    /// Sets the price of the row that is farthest from where it should be; whether that helped.
    fn set_one(&mut self, rows: &Rows) -> bool {
        let slack = rows.slack(&self.picked);
        let off = |row: &usize| {
            let counts = slack[*row] < 0 || self.price[*row] > 0.0;
            if counts { slack[*row].unsigned_abs() } else { 0 }
        };
        let Some(row) = (0..slack.len()).max_by_key(off).filter(|row| off(row) > 0) else {
            return false;
        };
        let mut price = self.price.clone();
        price[row] = 0.0;
        price[row] = best_price(rows, &price, row);
        self.keep_better(rows, price)
    }

    /// Goes on from the prices in the direction in which they have come, as far as it helps.
    fn go_on(&mut self, rows: &Rows, before: &[f64]) {
        let (from, mut length) = (self.price.clone(), 1.0);
        let at = |length: f64| {
            let moved = from.iter().zip(before).map(|(now, before)| now + length * (now - before));
            moved.map(|price| price.max(0.0)).collect::<Vec<_>>()
        };
        while length < 1e6 && self.keep_better(rows, at(length)) {
            length *= 2.0;
        }
        // The best is between a half and twice of the last that helped.
        for part in [0.5, 0.75, 0.625, 0.875] {
            self.keep_better(rows, at(length * part));
        }
    }

    /// Takes prices that prove more; whether they do.
    fn keep_better(&mut self, rows: &Rows, price: Vec<f64>) -> bool {
        let (bound, picked) = evaluate(rows, &price);
        let is_better = bound > self.bound * (1.0 + 1e-7);
        if is_better {
            *self = Self { price, bound, picked };
        }
        is_better
    }

    /// Follows the subgradient; `attempt` makes choices from picks, and says what the best known cost.
    fn climb(
        &mut self,
        rows: &Rows,
        stop: &Stop<'_>,
        mut attempt: impl FnMut(&[usize]) -> Option<u64>,
    ) {
        let (mut price, mut picked) = (self.price.clone(), self.picked.clone());
        let (mut now, mut scale) = (self.bound, 1.0);
        let mut known = attempt(&picked);
        for step in 1..=STEPS {
            let Some(goal) = known.filter(|_| !stop.now()) else { return };
            let gap = goal as f64 - now;
            if goal as f64 - self.bound < (goal as f64 * NEAR).max(0.5) {
                return;
            }
            let lack: Vec<f64> = rows.slack(&picked).iter().map(|&slack| -(slack as f64)).collect();
            let useful = |(lack, price): (&f64, &f64)| {
                if *lack > 0.0 || *price > 0.0 { lack * lack } else { 0.0 }
            };
            let norm: f64 = lack.iter().zip(&price).map(useful).sum();
            if norm <= 0.0 {
                return;
            }
            let length = scale * gap / norm;
            for (price, lack) in price.iter_mut().zip(&lack) {
                *price = (*price + length * lack).max(0.0);
            }
            (now, picked) = evaluate(rows, &price);
            if now > self.bound {
                self.bound = now;
                self.price.clone_from(&price);
                self.picked.clone_from(&picked);
            } else if step % 10 == 0 {
                scale *= 0.7;
            }
            if step % ATTEMPT == 0 {
                known = attempt(&picked);
            }
        }
    }
}

/// Returns the sum of prices before each row.
fn sums(price: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums = Vec::with_capacity(price.len() + 1);
    sums.push(0.0);
    for price in price {
        sum += price;
        sums.push(sum);
    }
    sums
}

/// Returns what a pick costs with the bytes that it adds.
fn value(pick: &Pick, sums: &[f64]) -> f64 {
    let bytes: f64 =
        pick.parts.iter().map(|p| p.bytes as f64 * (sums[p.end] - sums[p.start])).sum();
    pick.cost as f64 + bytes
}

fn worth(rows: &Rows, price: &[f64]) -> f64 {
    rows.room.iter().zip(price).map(|(&room, price)| room as f64 * price).sum()
}

/// Returns the bound that prices prove, and the best picks at them.
fn evaluate(rows: &Rows, price: &[f64]) -> (f64, Vec<usize>) {
    let sums = sums(price);
    let mut bound = -worth(rows, price);
    let mut picked = Vec::with_capacity(rows.picks.len());
    for picks in &rows.picks {
        let (mut least, mut best) = (f64::INFINITY, 0);
        for (number, pick) in picks.iter().enumerate() {
            let value = value(pick, &sums);
            if value < least {
                (least, best) = (value, number);
            }
        }
        bound += least;
        picked.push(best);
    }
    (bound, picked)
}

/// Returns the best price of a row, which is 0 now, for the prices of the others: the least at which its room suffices.
fn best_price(rows: &Rows, price: &[f64], row: usize) -> f64 {
    let sums = sums(price);
    let here = rows.picks.iter().map(|picks| {
        let pair = |pick: &Pick| (value(pick, &sums), pick.at(row) as f64);
        picks.iter().map(pair).collect::<Vec<_>>()
    });
    let here: Vec<Vec<(f64, f64)>> = here.filter(|p| p.iter().any(|pair| pair.1 != 0.0)).collect();
    let suffices = |at: f64| {
        let added = here.iter().map(|pairs| {
            let at = |pair: &(f64, f64)| (pair.0 + at * pair.1, pair.1);
            pairs.iter().map(at).min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
        });
        added.flatten().map(|pair| pair.1).sum::<f64>() <= rows.room[row] as f64
    };
    let (mut low, mut high) = (0.0, 1e-9);
    while !suffices(high) {
        if high > 1e30 {
            return 0.0;
        }
        (low, high) = (high, high * 4.0);
    }
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if suffices(middle) { high = middle } else { low = middle }
    }
    high
}

/// Makes picks fit at little cost, and then as cheap as they can be one by one.
fn repair(rows: &Rows, picked: Vec<usize>) -> Option<Chosen> {
    let mut draft = Draft { slack: Slack::new(rows.slack(&picked)), rows, picked };
    while let Some(row) = draft.slack.most_lacking() {
        draft.relieve(row)?;
    }
    draft.polish();
    let costs = draft.picked.iter().zip(&rows.picks).map(|(&pick, picks)| picks[pick].cost);
    let cost = costs.fold(0u64, u64::saturating_add);
    Some(Chosen { picked: draft.picked, cost })
}

/// The room that is left in each row, and the least of each run of rows.
struct Slack {
    rows: Vec<i64>,
    least: Vec<i64>,
}

/// Rows in a run.
const RUN: usize = 64;

impl Slack {
    fn new(rows: Vec<i64>) -> Self {
        let least = rows.chunks(RUN).map(|run| run.iter().copied().min().unwrap_or(0)).collect();
        Self { rows, least }
    }

    /// Returns the row that lacks most bytes.
    fn most_lacking(&self) -> Option<usize> {
        let (run, &least) = self.least.iter().enumerate().min_by_key(|&(_, least)| least)?;
        let inside = self.rows[run * RUN..].iter().take(RUN).position(|&slack| slack == least)?;
        (least < 0).then_some(run * RUN + inside)
    }

    /// Returns whether each of the rows has room for more bytes.
    fn has(&self, start: usize, end: usize, bytes: i64) -> bool {
        let (mut row, enough) = (start, |slack: &i64| *slack >= bytes);
        while row < end {
            let next = (row / RUN + 1) * RUN;
            let is_whole = row % RUN == 0 && next <= end;
            let fits = is_whole && enough(&self.least[row / RUN]);
            if !fits && !self.rows[row..next.min(end)].iter().all(enough) {
                return false;
            }
            row = next;
        }
        true
    }

    fn add(&mut self, start: usize, end: usize, bytes: i64) {
        self.rows[start..end].iter_mut().for_each(|slack| *slack += bytes);
        for run in start / RUN..end.div_ceil(RUN) {
            let inside = self.rows[run * RUN..].iter().take(RUN);
            self.least[run] = inside.copied().min().unwrap_or(0);
        }
    }
}

/// Picks that are being changed.
struct Draft<'a> {
    rows: &'a Rows,
    picked: Vec<usize>,
    slack: Slack,
}

impl Draft<'_> {
    /// Frees bytes of a row at the least cost for each until it lacks none; `None` when nothing frees any.
    fn relieve(&mut self, row: usize) -> Option<()> {
        let lack = -self.slack.rows[row];
        let all = self.rows.picks.iter().enumerate();
        let changes = all.flat_map(|(index, picks)| (0..picks.len()).map(move |n| (index, n)));
        let ranked = changes.filter_map(|(index, n)| Some((self.rank(row, index, n)?, index, n)));
        let mut heap: BinaryHeap<_> = ranked.map(Reverse).collect();
        while let Some(Reverse((rank, index, pick))) = heap.pop() {
            // A change is worth less where little is lacking, or its activation has changed.
            let Some(now) = self.rank(row, index, pick) else { continue };
            let picks = &self.rows.picks[index];
            if now > rank {
                heap.push(Reverse((now, index, pick)));
            } else if self.is_allowed(&picks[self.picked[index]], &picks[pick]) {
                self.change(index, pick);
            }
            if self.slack.rows[row] >= 0 {
                return Some(());
            }
        }
        // A change that was not allowed may be by now.
        (-self.slack.rows[row] < lack).then_some(())
    }

    /// Returns the cost of each byte that a change frees in a row and that is lacking there, as a number of the same order.
    fn rank(&self, row: usize, index: usize, pick: usize) -> Option<i64> {
        let (now, next) =
            (&self.rows.picks[index][self.picked[index]], &self.rows.picks[index][pick]);
        let freed = (now.at(row) - next.at(row)).min(-self.slack.rows[row]);
        let bits = ((next.cost as f64 - now.cost as f64) / freed as f64).to_bits().cast_signed();
        // Negative numbers have their bits in reverse order.
        (freed > 0).then_some(if bits < 0 { bits ^ i64::MAX } else { bits })
    }

    /// Returns whether no row lacks bytes, or lacks more, because of a change.
    fn is_allowed(&self, now: &Pick, next: &Pick) -> bool {
        let ends = now.parts.iter().chain(&next.parts).flat_map(|p| [p.start, p.end]);
        let mut edges: Vec<usize> = ends.collect();
        edges.sort_unstable();
        edges.windows(2).all(|edge| {
            let added = next.at(edge[0]) - now.at(edge[0]);
            added <= 0 || self.slack.has(edge[0], edge[1], added)
        })
    }

    fn change(&mut self, index: usize, pick: usize) {
        let picks = &self.rows.picks[index];
        for part in &picks[self.picked[index]].parts {
            self.slack.add(part.start, part.end, part.bytes);
        }
        for part in &picks[pick].parts {
            self.slack.add(part.start, part.end, -part.bytes);
        }
        self.picked[index] = pick;
    }

    /// Takes cheaper picks where they fit, the most expensive ones first.
    fn polish(&mut self) {
        let mut order: Vec<usize> = (0..self.picked.len()).collect();
        let cost = |index: usize| self.rows.picks[index][self.picked[index]].cost;
        order.sort_by_key(|&index| Reverse(cost(index)));
        for index in order {
            let picks = &self.rows.picks[index];
            let now = &picks[self.picked[index]];
            let cheaper = picks.iter().enumerate().filter(|(_, pick)| pick.cost < now.cost);
            let mut cheaper: Vec<(u64, usize)> = cheaper.map(|(n, pick)| (pick.cost, n)).collect();
            cheaper.sort_unstable();
            let fits = cheaper.into_iter().find(|&(_, n)| self.is_allowed(now, &picks[n]));
            if let Some((_, pick)) = fits {
                self.change(index, pick);
            }
        }
    }
}

#[cfg(test)]
pub(super) use tests::{cheapest as cheapest_of_all, random as random_rows};
#[cfg(test)]
mod tests;
