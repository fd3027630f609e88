//! Changes of a program, and the trace that it would have with each: computed from labelled allocations.

use super::lives::{self, Life, Point};
use super::names::{Category, Name, Names};
use super::passes::{self, Pass};
use core::fmt;
use omniheap_trace::Trace;
use std::collections::HashSet;

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
    /// Activations that a block keeps for its backward pass wait in host memory.
    OffloadActivations,
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
    /// Returns the changes that a table shows.
    pub fn table() -> Vec<Self> {
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
        }
    }
}

/// A change whose effect cannot be computed from a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not known from this trace: {0}; record the step with omniheap.fit.record_step")]
pub struct NotKnown(&'static str);

/// Treatment of activations that blocks keep for their backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saved {
    /// Made again, with everything that the forward pass needs beside them.
    RunAgain,
    /// Brought back as they were.
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
                None => {
                    return Err(NotKnown("state of the optimizer has no shape in its label"));
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizers_keep_what_their_papers_say() {
        let bytes = |optimizer| {
            [&[7_u64][..], &[6, 5], &[3, 1, 1], &[2, 8, 512]]
                .map(|shape| state_bytes(optimizer, shape))
        };
        assert_eq!(bytes(Optimizer::AdamW), [56, 240, 24, 65_536]);
        assert_eq!(bytes(Optimizer::AdamW8Bit), [56, 240, 24, 2 * 8192 + 8 * 32]);
        assert_eq!(bytes(Optimizer::Adafactor), [28, 44, 24, 2 * 520 * 4]);
        assert_eq!(bytes(Optimizer::Sgd), [0; 4]);
    }
}
