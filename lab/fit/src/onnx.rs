//! ONNX models, for inference: which tensors live when, and how large they are. Nothing of a model's data is read.
//!
//! A tensor lives from the node that writes it to the last one that reads it, and no node writes into what it reads. Inputs live from the
//! start, outputs to the end. Weights (initializers and `Constant`s) are told apart: they live always. The graphs inside of `If`, `Loop` and
//! `Scan` run one after the other, once; what they read from outside lives until their node ends.

mod error;
mod lives;
mod parse;
mod size;
mod wire;

use core::ops::Range;
pub use error::Error;
use omniheap_trace::{Alignment, Builder, ErrorKind, LabelId, Limits, Source, StreamId, Trace};
use std::collections::BTreeMap;

/// Role of a tensor in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Given to the graph.
    Input,
    /// Made by a node, and read by others.
    Activation,
    /// Returned by the graph.
    Output,
}

/// A tensor that lives for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Role in the graph.
    pub kind: Kind,
    /// Operator that makes it; empty for an input.
    pub operator: String,
    /// Element type and shape, such as `float32[8x64]`.
    pub typed: String,
    /// Bytes; not 0.
    pub bytes: u64,
    /// From the node that writes it to after the last that reads it; a node is a tick.
    pub live: Range<u64>,
}

/// A tensor that lives always.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weight {
    /// Its name.
    pub name: String,
    /// Element type and shape.
    pub typed: String,
    /// Bytes; not 0.
    pub bytes: u64,
}

/// The tensors of a model.
///
/// # Examples
/// ```
/// use omniheap_fit::onnx::{Error, Tensors};
/// let error = Tensors::read(b"no model", &Default::default()).unwrap_err();
/// assert!(matches!(error, Error::Malformed { .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensors {
    /// Tensors that are given, made and returned, in the order in which nodes name them.
    pub tensors: Vec<Tensor>,
    /// Tensors that live always.
    pub weights: Vec<Weight>,
}

impl Tensors {
    /// Reads a model. `dims` are the sizes of dimensions that have names.
    ///
    /// # Errors
    /// The fault of the model, or what is missing in it, and what to do about it.
    pub fn read(bytes: &[u8], dims: &BTreeMap<String, u64>) -> Result<Self, Error> {
        lives::tensors(&parse::model(bytes)?, dims)
    }

    /// Returns the bytes of all weights together.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.iter().fold(0, |sum, weight| sum.saturating_add(weight.bytes))
    }

    /// Returns the requests of a run of the model; weights come first, and stay.
    ///
    /// # Errors
    /// More allocations or bytes than a trace can hold.
    pub fn trace(&self, limits: &Limits) -> Result<Trace, ErrorKind> {
        let mut script = Script { builder: Builder::new(Source::Onnx, limits), next: 0 };
        for weight in &self.weights {
            let label = script.label("parameter", &weight.name, &weight.typed)?;
            script.allocate(weight.bytes, label)?;
        }
        let mut starts: Vec<_> = self.tensors.iter().collect();
        starts.sort_by_key(|tensor| tensor.live.start);
        let mut ends: Vec<(u64, u64)> = Vec::with_capacity(starts.len());
        ends.extend(starts.iter().zip(script.next..).map(|(tensor, raw)| (tensor.live.end, raw)));
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        for tensor in starts {
            while let Some((end, raw)) = ends.next_if(|&(end, _)| end <= tensor.live.start) {
                script.free(end, raw)?;
            }
            script.builder.at(tensor.live.start)?;
            let label = match tensor.kind {
                Kind::Input => script.label("input", &tensor.name, &tensor.typed)?,
                _ => script.label(
                    "activation",
                    &tensor.name,
                    &format!("{} {}", tensor.operator, tensor.typed),
                )?,
            };
            script.allocate(tensor.bytes, label)?;
        }
        for (end, raw) in ends {
            script.free(end, raw)?;
        }
        Ok(script.builder.finish())
    }
}

/// Writes requests.
struct Script {
    builder: Builder,
    next: u64,
}

impl Script {
    /// Returns the label `category/a/b/c rest` for a name such as `/a/b/c` or `a.b.c`.
    fn label(&mut self, category: &str, name: &str, rest: &str) -> Result<LabelId, ErrorKind> {
        let mut above = self.builder.label(LabelId::NONE, category)?;
        let mut parts: Vec<_> = name.split(['/', '.']).filter(|part| !part.is_empty()).collect();
        let last = parts.pop().unwrap_or("tensor");
        for part in parts {
            above = self.builder.label(above, part)?;
        }
        self.builder.label(above, &format!("{last} {rest}"))
    }

    fn allocate(&mut self, bytes: u64, label: LabelId) -> Result<(), ErrorKind> {
        let id = self.builder.allocate(self.next, bytes, StreamId(0), Alignment::UNKNOWN)?;
        self.next += 1;
        self.builder.set_label(id, label)
    }

    fn free(&mut self, time: u64, raw: u64) -> Result<(), ErrorKind> {
        self.builder.at(time)?;
        self.builder.free_completed(raw, None, StreamId(0))
    }
}
