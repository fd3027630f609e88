//! Changes of a program, and the trace that it would have with each: computed from labelled allocations.

use super::lives::{self, Life, Point};
use super::names::{Category, Name, Names};
use super::passes::{self, Pass};
use crate::event::{Alignment, StreamId};
use crate::label::LabelId;
use crate::trace::Trace;
use core::fmt;
use std::collections::{BTreeMap, HashSet};

/// A change of the program that made a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Everything in `float32` becomes `bfloat16`.
    Bfloat16,
    /// Parameters of two dimensions and more take these bits an element, and a 16-bit scale for each group of elements.
    Quantized {
        /// Bits of an element.
        bits: u64,
        /// Elements that share a scale; `None` for one scale.
        group: Option<u64>,
    },
    /// Another optimizer keeps its state.
    Optimizer(Optimizer),
    /// Parameters of 16 or 8 bits keep two of four elements, and two bits for each to say which.
    Sparse24,
    /// Everything is kept in one memory layout: no copies between NCHW and NHWC.
    OneLayout,
    /// Each block keeps its output only, and runs forward again before its backward pass.
    CheckpointBlocks,
    /// State of the optimizer is kept in host memory, and updated there.
    OffloadOptimizer,
    /// What each block keeps for its backward pass waits in host memory.
    OffloadActivations,
    /// Parameters, gradients and state are divided among this many ranks; blocks are gathered while they run, one ahead.
    FullyShard(u64),
}

/// An optimizer, for the state that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Optimizer {
    /// Two moments in `float32`.
    AdamW,
    /// Two moments in 8 bits with a `float32` scale for 256 elements; in `float32` below 4,096 elements.
    AdamW8Bit,
    /// Sums of rows and columns in `float32`; one moment for parameters of one dimension.
    Adafactor,
    /// None.
    Sgd,
}

impl Change {
    /// Returns the changes that a table shows; the last is for `ranks` ranks.
    pub fn table(ranks: u64) -> Vec<Self> {
        vec![
            Self::Bfloat16,
            Self::Quantized { bits: 8, group: None },
            Self::Quantized { bits: 8, group: Some(128) },
            Self::Quantized { bits: 4, group: Some(128) },
            Self::Quantized { bits: 4, group: Some(32) },
            Self::Optimizer(Optimizer::AdamW),
            Self::Optimizer(Optimizer::AdamW8Bit),
            Self::Optimizer(Optimizer::Adafactor),
            Self::Optimizer(Optimizer::Sgd),
            Self::Sparse24,
            Self::OneLayout,
            Self::CheckpointBlocks,
            Self::OffloadOptimizer,
            Self::OffloadActivations,
            Self::FullyShard(ranks),
        ]
    }

    /// Returns the trace that the program would have with this change.
    ///
    /// # Errors
    /// [`NotKnown`] where the labels of `trace` do not say what the change applies to.
    pub fn apply(self, trace: &Trace) -> Result<Trace, NotKnown> {
        let names = Names::new(trace.labels());
        let mut step = Step { lives: lives::of(trace), names: &names };
        match self {
            Self::Bfloat16 => step.halve_floats()?,
            Self::Quantized { bits, group } => step.quantize(bits, group)?,
            Self::Optimizer(optimizer) => step.replace_optimizer(optimizer)?,
            Self::Sparse24 => step.keep_two_of_four()?,
            Self::OneLayout => step.drop_layout_copies()?,
            Self::CheckpointBlocks => step.leave_out_saved(Saved::RunAgain)?,
            Self::OffloadOptimizer => step.drop_optimizer()?,
            Self::OffloadActivations => step.leave_out_saved(Saved::BringBack)?,
            Self::FullyShard(ranks) => step.shard(ranks.max(1))?,
        }
        lives::to_trace(&step.lives, trace).ok_or(NotKnown("live bytes would exceed 64 bits"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bfloat16 => f.write_str("float32 becomes bfloat16"),
            Self::Quantized { bits: 8, group: None } => f.write_str("weights in fp8"),
            Self::Quantized { bits, group: None } => write!(f, "weights in {bits} bits"),
            Self::Quantized { bits: 8, group: Some(group) } => {
                write!(f, "weights in int8, groups of {group}")
            }
            Self::Quantized { bits, group: Some(group) } => {
                write!(f, "weights in {bits} bits, groups of {group}")
            }
            Self::Optimizer(Optimizer::AdamW) => f.write_str("optimizer AdamW"),
            Self::Optimizer(Optimizer::AdamW8Bit) => f.write_str("optimizer AdamW in 8 bits"),
            Self::Optimizer(Optimizer::Adafactor) => f.write_str("optimizer Adafactor"),
            Self::Optimizer(Optimizer::Sgd) => f.write_str("optimizer SGD"),
            Self::Sparse24 => f.write_str("weights 2:4 sparse"),
            Self::OneLayout => f.write_str("one memory layout (NHWC)"),
            Self::CheckpointBlocks => f.write_str("checkpoint each block"),
            Self::OffloadOptimizer => f.write_str("offload the optimizer"),
            Self::OffloadActivations => f.write_str("offload saved activations"),
            Self::FullyShard(ranks) => write!(f, "FSDP over {ranks} ranks"),
        }
    }
}

/// A change whose effect cannot be computed from a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not known from this trace: {0}; record the step with omniheap.torch.record_step")]
pub struct NotKnown(&'static str);

/// What happens to activations that blocks keep for their backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saved {
    /// They are made again, with everything that the forward pass needs beside them.
    RunAgain,
    /// They come back as they were.
    BringBack,
}

/// A step under change.
struct Step<'n> {
    lives: Vec<Life>,
    names: &'n Names,
}

impl Step<'_> {
    fn name(&self, life: &Life) -> &Name {
        self.names.of(life.label)
    }

    /// Returns the numbers of the lives of a category, of which there must be some.
    fn of(&self, category: Category, missing: &'static str) -> Result<Vec<usize>, NotKnown> {
        let is = |number: &usize| self.name(&self.lives[*number]).category == category;
        let found: Vec<_> = (0..self.lives.len()).filter(is).collect();
        if found.is_empty() { Err(NotKnown(missing)) } else { Ok(found) }
    }

    fn parameters(&self) -> Result<Vec<usize>, NotKnown> {
        self.of(Category::Parameter, "no allocation is labelled as a parameter")
    }

    fn halve_floats(&mut self) -> Result<(), NotKnown> {
        let is_typed = |life: &Life| self.name(life).element.is_some();
        if !self.lives.iter().any(is_typed) {
            return Err(NotKnown("no label names an element type"));
        }
        let names = self.names;
        for life in &mut self.lives {
            let element = names.of(life.label).element;
            if element.is_some_and(|element| element.is_float && element.bits == 32) {
                life.size = life.size.div_ceil(2);
            }
        }
        Ok(())
    }

    /// Returns the parameters that are matrices or more, with their bits; biases and norms stay as they are.
    fn matrices(&self) -> Result<Vec<(usize, u64)>, NotKnown> {
        let mut found = Vec::new();
        let mut shaped = false;
        for number in self.parameters()? {
            let Name { element, shape: Some(shape), .. } = self.name(&self.lives[number]) else {
                continue;
            };
            shaped = true;
            if let Some(element) = element.filter(|element| element.is_float && shape.len() > 1) {
                found.push((number, element.bits));
            }
        }
        if shaped { Ok(found) } else { Err(NotKnown("no parameter has a shape in its label")) }
    }

    fn quantize(&mut self, bits: u64, group: Option<u64>) -> Result<(), NotKnown> {
        for (number, before) in self.matrices()? {
            let life = &mut self.lives[number];
            let elements = life.size.saturating_mul(8) / before;
            let scales = 2 * elements.div_ceil(group.unwrap_or(elements).max(1));
            life.size = life.size.min((elements.saturating_mul(bits)).div_ceil(8) + scales);
        }
        Ok(())
    }

    fn keep_two_of_four(&mut self) -> Result<(), NotKnown> {
        for (number, bits) in self.matrices()? {
            if bits <= 16 {
                let life = &mut self.lives[number];
                let elements = life.size.saturating_mul(8) / bits;
                life.size = (elements / 2).saturating_mul(bits + 2).div_ceil(8);
            }
        }
        Ok(())
    }

    /// Gives the whole state of a parameter to the first allocation of it; the others go.
    fn replace_optimizer(&mut self, optimizer: Optimizer) -> Result<(), NotKnown> {
        let mut served = HashSet::new();
        for number in self.optimizer()? {
            let name = self.name(&self.lives[number]);
            let size = match &name.shape {
                Some(shape) if served.insert(name.parent) => state_bytes(optimizer, shape),
                Some(_) => 0,
                None => return Err(NotKnown("state of the optimizer has no shape in its label")),
            };
            self.lives[number].size = size;
        }
        if optimizer == Optimizer::Sgd {
            self.scale_updates(|_| 0);
        }
        Ok(())
    }

    /// Changes what the optimizer's step makes for itself.
    fn scale_updates(&mut self, scale: impl Fn(u64) -> u64) {
        let names = self.names;
        let made = self.lives.iter_mut().filter(|life| {
            let name = names.of(life.label);
            name.is_update && name.category == Category::Temporary
        });
        made.for_each(|life| life.size = scale(life.size));
    }

    fn optimizer(&self) -> Result<Vec<usize>, NotKnown> {
        self.of(Category::Optimizer, "no allocation is labelled as state of an optimizer")
    }

    fn drop_optimizer(&mut self) -> Result<(), NotKnown> {
        for number in self.optimizer()? {
            self.lives[number].size = 0;
        }
        self.scale_updates(|_| 0);
        Ok(())
    }

    fn drop_layout_copies(&mut self) -> Result<(), NotKnown> {
        let is_labelled = |life: &Life| self.name(life).category != Category::Unlabelled;
        if !self.lives.iter().any(is_labelled) {
            return Err(NotKnown("labels do not name operators and categories"));
        }
        let names = self.names;
        let copies = self.lives.iter_mut().filter(|life| names.of(life.label).is_layout_copy);
        copies.for_each(|life| life.size = 0);
        Ok(())
    }

    fn passes(&self) -> Result<Vec<Pass>, NotKnown> {
        let passes = passes::of(&self.lives, self.names);
        if passes.is_empty() {
            Err(NotKnown("no label names a numbered block"))
        } else {
            Ok(passes)
        }
    }

    /// Splits what blocks keep for their backward pass into a life before and a life after the wait.
    fn leave_out_saved(&mut self, saved: Saved) -> Result<(), NotKnown> {
        let passes = self.passes()?;
        let is_output = |life: &Life| self.name(life).is_output;
        if !self.lives.iter().any(is_output) {
            return Err(NotKnown("no label marks the output of a block"));
        }
        for pass in &passes {
            if let Some(backward) = pass.backward_events.clone() {
                self.leave_out(pass, *backward.start(), saved);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, pass: &Pass, back: u32, saved: Saved) {
        let end = *pass.forward_events.end();
        let ranks = ranks(&self.lives, &pass.forward);
        for (&number, &(birth, death)) in pass.forward.iter().zip(&ranks) {
            let life = self.lives[number];
            let again = Life { birth: Point::before(back, birth), ..life };
            let name = self.name(&life);
            if name.category == Category::Activation && !name.is_output && life.survives(back) {
                self.lives[number].death = Some(Point::after(end, 0));
                self.lives.push(again);
            } else if saved == Saved::RunAgain {
                // Made again with the others, and gone when the block has run.
                let death = if life.survives(end + 1) { 2 * ranks.len() } else { death };
                self.lives.push(Life { death: Some(Point::before(back, death)), ..again });
            }
        }
    }

    fn shard(&mut self, ranks: u64) -> Result<(), NotKnown> {
        let parameters = self.parameters()?;
        let passes = self.passes()?;
        let mut blocks = vec![0_u64; self.names.blocks as usize];
        let mut rest = 0_u64;
        for number in parameters {
            let life = self.lives[number];
            match self.name(&life).block {
                Some(block) => {
                    let sum = &mut blocks[block as usize];
                    *sum = sum.saturating_add(life.size);
                }
                None => rest = rest.saturating_add(life.size),
            }
            self.lives[number].size = life.size.div_ceil(ranks);
        }
        let optimizer = self.of(Category::Optimizer, "").unwrap_or_default();
        optimizer.into_iter().for_each(|number| {
            self.lives[number].size = self.lives[number].size.div_ceil(ranks);
        });
        self.scale_updates(|bytes| bytes.div_ceil(ranks));
        self.shard_gradients(&passes, ranks);
        self.gather(&passes, &blocks, rest);
        Ok(())
    }

    /// Gathers each block one pass ahead, and what belongs to no block from the first pass to the last.
    fn gather(&mut self, passes: &[Pass], blocks: &[u64], rest: u64) {
        let mut runs: Vec<(u32, u32, u64)> = Vec::new();
        for pass in passes {
            for events in
                [Some(&pass.forward_events), pass.backward_events.as_ref()].into_iter().flatten()
            {
                runs.push((*events.start(), *events.end(), blocks[pass.block as usize]));
            }
        }
        runs.sort_unstable();
        let last = runs.iter().map(|run| run.1).max().unwrap_or(0);
        let first = runs.first().map_or(0, |run| run.0);
        self.add(Point::before(first, 0), Point::after(last, 3), rest);
        for at in 0..runs.len() {
            let (start, end, bytes) = runs[at];
            let ahead = at.checked_sub(1).map_or(start, |before| runs[before].0);
            self.add(Point::before(ahead, 1), Point::after(end, 3), bytes);
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
            self.add(Point::after(end, 0), Point::after(end, 3), bytes);
        }
    }

    fn add(&mut self, birth: Point, death: Point, size: u64) {
        let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
        self.lives.push(Life { birth, death: Some(death), size, stream, align, label });
    }
}

/// Returns the order of births and deaths of some lives among themselves.
fn ranks(lives: &[Life], numbers: &[usize]) -> Vec<(usize, usize)> {
    let mut points: Vec<(Point, usize, bool)> = Vec::new();
    for (at, &number) in numbers.iter().enumerate() {
        points.push((lives[number].birth, at, true));
        points.extend(lives[number].death.map(|death| (death, at, false)));
    }
    points.sort_unstable();
    let mut ranks = vec![(0, 0); numbers.len()];
    for (rank, (_, at, is_birth)) in points.into_iter().enumerate() {
        if is_birth { ranks[at].0 = rank } else { ranks[at].1 = rank }
    }
    ranks
}

/// Returns the bytes that an optimizer keeps for a parameter.
fn state_bytes(optimizer: Optimizer, shape: &[u64]) -> u64 {
    let elements = shape.iter().fold(1_u64, |product, &size| product.saturating_mul(size));
    match optimizer {
        Optimizer::AdamW => elements.saturating_mul(8),
        Optimizer::AdamW8Bit if elements < 4096 => elements * 8,
        Optimizer::AdamW8Bit => {
            elements.saturating_mul(2).saturating_add(8 * elements.div_ceil(256))
        }
        Optimizer::Adafactor => match shape {
            [.., rows, columns] => {
                let matrices = elements / rows.saturating_mul(*columns).max(1);
                matrices.saturating_mul(rows.saturating_add(*columns)).saturating_mul(4)
            }
            _ => elements.saturating_mul(4),
        },
        Optimizer::Sgd => 0,
    }
}
