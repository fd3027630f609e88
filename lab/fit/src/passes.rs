//! Forward and backward passes of each block.

use super::lives::Life;
use super::names::{Category, Names};
use core::ops::RangeInclusive;

/// One forward pass of a block, and the backward pass that belongs to it. In numbers of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) block: u32,
    /// Lives born in the forward pass, by number.
    pub(super) forward: Vec<usize>,
    /// First and last birth of the forward pass.
    pub(super) forward_events: RangeInclusive<u32>,
    /// First and last birth of the backward pass.
    pub(super) backward_events: Option<RangeInclusive<u32>>,
}

/// Returns the passes of all blocks, by the beginning of their forward pass.
pub(super) fn of(lives: &[Life], names: &Names) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let mut last: Vec<Option<usize>> = vec![None; names.blocks as usize];
    for (number, life) in lives.iter().enumerate() {
        let name = names.of(life.label);
        // Parameters and their state are made outside of the pass whose name they have.
        if !matches!(name.category, Category::Activation | Category::Temporary | Category::Gradient)
        {
            continue;
        }
        let Some(block) = name.block else { continue };
        let event = life.birth.event;
        let open = last[block as usize].map(|at| &mut passes[at]);
        let is_backward = name.is_backward || name.category == Category::Gradient;
        match (open, is_backward) {
            (Some(pass), true) => {
                let start = pass.backward_events.as_ref().map_or(event, |events| *events.start());
                pass.backward_events = Some(start..=event);
            }
            // A backward pass whose forward pass was not recorded has nothing to change.
            (None, true) => {}
            (Some(pass), false) if pass.backward_events.is_none() => {
                pass.forward.push(number);
                pass.forward_events = *pass.forward_events.start()..=event;
            }
            (_, false) => {
                last[block as usize] = Some(passes.len());
                let (forward, forward_events) = (vec![number], event..=event);
                passes.push(Pass { block, forward, forward_events, backward_events: None });
            }
        }
    }
    passes
}
