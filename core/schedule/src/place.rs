//! Places for buffers: in order of time, by first fit in other orders, then repaired.

use crate::check::ProblemError;
use crate::classes::Classes;
use crate::first_fit::{descending, first_fit, life, mended};
use crate::model::{Model, peak_of};
use crate::online::{Fit, online};
use crate::problem::{Problem, Spot};
use crate::repair::Repair;
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// Places every buffer, with a low peak; [`validate`](crate::validate()) says whether the places keep to capacities, and to what is fixed.
///
/// # Algorithm
/// Regions are filled in order of cost. What may live in one is placed in order of time, by best fit; then by first fit: the largest first, the
/// largest product of size and life, the longest life. The lowest of these plans is repaired towards the heaviest load: what ends
/// too high goes lower, in place of what is easier to move. What ends behind the capacity then moves on to the next region that suits it.
///
/// # Cost
/// The first places are *O*(n log n). First fit is *O*(k log k) for a buffer that meets k others, and repair as much for each of `steps` at
/// most. After a "yes" of `stop`, which is asked often, the best places so far are the answer. Equal problems get equal places,
/// unless that cuts them short.
///
/// # Errors
/// When [`Problem::check`] does.
pub fn place(
    problem: &Problem,
    steps: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Spot>, ProblemError> {
    problem.check()?;
    let stop = Stop::new(stop);
    let classes = Classes::new(problem);
    let allowed = classes.allowed(problem);
    let suits = |buffer: usize, region: usize| allowed[classes.root(buffer)].contains(region);
    let mut order: Vec<usize> = (0..problem.regions.len()).collect();
    order.sort_by_key(|&region| (problem.regions[region].cost, region));
    let mut spots: Vec<Spot> = (0..problem.buffers.len()).map(|at| unplaced(problem, at)).collect();
    let mut waits: Vec<bool> = alloc::vec![true; spots.len()];
    for (at, &region) in order.iter().enumerate() {
        let capacity = problem.regions[region].capacity.unwrap_or(u64::MAX);
        let model = Model::new(problem, region, |i| waits[i] && suits(i, region));
        let offsets = lowest(&model, steps, &stop);
        for (index, item) in model.item_of.iter().enumerate() {
            let Some(item) = item.map(|item| item as usize) else { continue };
            let is_high = offsets[item] + model.size[item] > capacity;
            if !(is_high && order[at + 1..].iter().any(|&next| suits(index, next))) {
                spots[index] = Spot { region, offset: offsets[item] };
                waits[index] = false;
            }
        }
    }
    Ok(spots)
}

/// Returns the place of a buffer that needs no bytes, or that no region suits together with those that use its bytes.
fn unplaced(problem: &Problem, index: usize) -> Spot {
    let buffer = &problem.buffers[index];
    let own = (0..problem.regions.len()).find(|&region| buffer.regions.contains(region));
    Spot { region: own.unwrap_or(0), offset: buffer.fixed.unwrap_or(0) }
}

/// Returns offsets with a low peak.
fn lowest(model: &Model, steps: u64, stop: &Stop<'_>) -> Vec<u64> {
    let (size, life) = (|i: usize| model.size[i], |i: usize| life(model, i));
    let area = |i: usize| u128::from(size(i)) * u128::from(life(i));
    let orders = [
        descending(model, |i| (u128::from(size(i)), life(i))),
        descending(model, |i| (area(i), size(i))),
        descending(model, |i| (u128::from(life(i)), size(i))),
    ];
    let mut best = mended(model, online(model, Fit::Best));
    for order in &orders {
        if stop.now() {
            break;
        }
        let Some(found) = first_fit(model, order, &model.fixed, stop) else { break };
        if peak_of(model, &found) < peak_of(model, &best) {
            best = found;
        }
    }
    let fixed = model.fixed.iter().zip(&model.size).filter_map(|(at, size)| Some((*at)? + size));
    let floor = model.load.iter().copied().chain(fixed).max().unwrap_or(0);
    let mut repair = Repair::new(model, &best);
    repair.run(floor, steps, &mut Rng::new(1), stop, |lower| best.copy_from_slice(lower));
    best
}

#[cfg(test)]
mod tests;
