//! What one rank of several holds: estimates from the trace of the whole program.

use super::change::{NotKnown, Sharding, Step};
use super::lives::{Life, Point};
use super::names::Category;
use super::passes::Pass;
use crate::event::{Alignment, StreamId};
use crate::label::LabelId;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;

impl Step<'_> {
    /// Changes the step to what one of `ranks` ranks holds.
    pub(super) fn shard(&mut self, how: Sharding, ranks: u64, ahead: u64) -> Result<(), NotKnown> {
        match how {
            Sharding::Full | Sharding::GradOp => self.divide(how, ranks, ahead)?,
            Sharding::Zero1 => {
                self.add_buckets()?;
                self.divide_state(ranks)?;
            }
            Sharding::Ddp => self.add_buckets()?,
        }
        Ok(())
    }

    fn divide(&mut self, how: Sharding, ranks: u64, ahead: u64) -> Result<(), NotKnown> {
        let parameters = self.parameters()?;
        let passes = self.passes()?;
        let mut blocks = vec![0_u64; self.names.blocks as usize];
        let mut rest = 0_u64;
        for number in parameters {
            let life = self.lives[number];
            let sum = match self.name(&life).block {
                Some(block) => &mut blocks[block as usize],
                None => &mut rest,
            };
            *sum = sum.saturating_add(life.size);
            self.lives[number].size = life.size.div_ceil(ranks);
        }
        // A program that only infers has none.
        let _ = self.divide_state(ranks);
        self.shard_gradients(&passes, ranks);
        self.gather(&runs(&passes, &blocks, how), ahead, rest);
        Ok(())
    }

    fn divide_state(&mut self, ranks: u64) -> Result<(), NotKnown> {
        let missing = "no allocation is labelled as state of an optimizer";
        for number in self.of(Category::Optimizer, missing)? {
            self.lives[number].size = self.lives[number].size.div_ceil(ranks);
        }
        self.scale_updates(|bytes| bytes.div_ceil(ranks));
        Ok(())
    }

    /// Adds a copy of all gradients, from when the parameters are there to the end.
    fn add_buckets(&mut self) -> Result<(), NotKnown> {
        self.of(Category::Gradient, "no allocation is labelled as a gradient")?;
        let parameters = self.parameters()?;
        let last = parameters.iter().map(|&number| self.lives[number].birth.event).max();
        let sizes = parameters.iter().map(|&number| self.lives[number].size);
        let size = sizes.fold(0, u64::saturating_add);
        self.add(Point::after(last.unwrap_or(0), 0), None, size);
        Ok(())
    }

    /// Gathers blocks so many runs ahead, and what belongs to no block from the first run to the last.
    fn gather(&mut self, runs: &[Run], ahead: u64, rest: u64) {
        let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        let last = runs.iter().map(|run| *run.events.end()).max().unwrap_or(0);
        let first = runs.first().map_or(0, |run| *run.events.start());
        self.add(Point::before(first, 0), Some(Point::after(last, 3)), rest);
        for (at, run) in runs.iter().enumerate() {
            let begin = *runs[at.saturating_sub(ahead)].events.start();
            self.add(Point::before(begin, 1), Some(Point::after(*run.events.end(), 3)), run.bytes);
        }
    }

    /// Reduces the gradients of each block when its backward pass ends: from then on a rank has its share.
    fn shard_gradients(&mut self, passes: &[Pass], ranks: u64) {
        let ends =
            passes.iter().filter_map(|pass| Some((pass, *pass.backward_events.as_ref()?.end())));
        let ends: Vec<_> = ends.map(|(pass, end)| (pass.block, end)).collect();
        let mut reduced = BTreeMap::<u32, u64>::new();
        for number in self.of(Category::Gradient, "").unwrap_or_default() {
            let life = self.lives[number];
            let block = self.name(&life).block;
            let is_own = |&&(other, end): &&(u32, u32)| {
                block.is_none_or(|block| block == other) && end >= life.birth.event
            };
            let own = ends.iter().filter(is_own).map(|&(_, end)| end);
            // What belongs to no block is reduced when all have run.
            let end = if block.is_some() { own.min() } else { own.max() };
            let Some(end) = end.filter(|end| life.survives(end + 1)) else { continue };
            let sum = reduced.entry(end).or_default();
            *sum = sum.saturating_add(life.size);
            self.lives[number].death = Some(Point::after(end, 2));
            let (birth, size) = (Point::after(end, 1), life.size.div_ceil(ranks));
            self.lives.push(Life { birth, size, ..life });
        }
        // The reduction reads the gradients from one buffer.
        for (end, bytes) in reduced {
            self.add(Point::after(end, 0), Some(Point::after(end, 3)), bytes);
        }
    }

    fn add(&mut self, birth: Point, death: Option<Point>, size: u64) {
        let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
        self.lives.push(Life { birth, death, size, stream, align, label });
    }
}

/// A span in which a block is gathered.
struct Run {
    events: RangeInclusive<u32>,
    bytes: u64,
}

/// Returns the spans in which blocks are needed, by their beginning.
fn runs(passes: &[Pass], blocks: &[u64], how: Sharding) -> Vec<Run> {
    let mut runs = Vec::new();
    for pass in passes {
        let bytes = blocks[pass.block as usize];
        match (&pass.backward_events, how) {
            (Some(backward), Sharding::GradOp) => {
                let events = *pass.forward_events.start()..=*backward.end();
                runs.push(Run { events, bytes });
            }
            (backward, _) => {
                let both = [Some(&pass.forward_events), backward.as_ref()];
                let run = |events: &RangeInclusive<u32>| Run { events: events.clone(), bytes };
                runs.extend(both.into_iter().flatten().map(run));
            }
        }
    }
    runs.sort_unstable_by_key(|run| (*run.events.start(), *run.events.end()));
    runs
}
