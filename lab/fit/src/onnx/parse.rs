//! Fields of a model that give the sizes and the users of its tensors. Everything else, data too, is skipped.

use super::error::Error;
use super::wire::{Value, Wire};
use std::collections::HashSet;

/// Nodes, tensors and descriptions of values in a file, together.
const MOST_PARTS: usize = 8_000_000;
/// The least bytes of one of them that means something: with a name, and an operator or a type.
const PART_BYTES: usize = 8;
/// Graphs inside graphs.
const MOST_DEPTH: usize = 32;

/// The size of a dimension.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dim<'a> {
    Size(i64),
    Name(&'a str),
    Unknown,
}

/// The type of a value.
#[derive(Debug, Clone)]
pub(super) enum Type<'a> {
    /// An element type, and dimensions if they are known.
    Tensor(u64, Option<Vec<Dim<'a>>>),
    /// Description of a type that is no tensor.
    Other(&'static str),
}

/// A value and its type.
#[derive(Debug)]
pub(super) struct Info<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Option<Type<'a>>,
}

/// A constant tensor.
#[derive(Debug, Default, Clone)]
pub(super) struct Constant<'a> {
    pub(super) name: &'a str,
    pub(super) element: u64,
    pub(super) dims: Vec<i64>,
}

/// A call of an operator.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) name: &'a str,
    pub(super) operator: &'a str,
    pub(super) domain: &'a str,
    /// Graphs that `If`, `Loop` and `Scan` run.
    pub(super) graphs: Vec<Graph<'a>>,
    /// Value that `Constant` returns, where that is a tensor.
    pub(super) value: Option<Constant<'a>>,
}

/// Nodes in the order in which they run.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) constants: Vec<Constant<'a>>,
    /// Values and indices; the name is that of the values.
    pub(super) sparse: Vec<[Constant<'a>; 2]>,
    pub(super) inputs: Vec<Info<'a>>,
    pub(super) outputs: Vec<Info<'a>>,
    pub(super) infos: Vec<Info<'a>>,
}

/// A model.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) graph: Graph<'a>,
    /// Domains and names of its own functions.
    pub(super) functions: HashSet<(&'a str, &'a str)>,
}

/// Reads a model.
pub(super) fn model(bytes: &[u8]) -> Result<Model<'_>, Error> {
    let (mut wire, mut parser) = (
        Wire::new(bytes),
        Parser { parts: 0, most: MOST_PARTS.min(bytes.len() / PART_BYTES), depth: 0 },
    );
    let (mut graph, mut functions) = (None, HashSet::new());
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (7, Value::Bytes(inner)) if graph.is_none() => graph = Some(parser.graph(inner)?),
            (7, _) => return Err(wire.wrong()),
            (25, Value::Bytes(inner)) => {
                functions.insert(function(inner)?);
            }
            _ => {}
        }
    }
    graph.map(|graph| Model { graph, functions }).ok_or(Error::NoGraph)
}

/// Returns the domain and the name of a function.
fn function(mut wire: Wire<'_>) -> Result<(&str, &str), Error> {
    let (mut domain, mut name) = ("", "");
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Bytes(text)) => name = text.text()?,
            (10, Value::Bytes(text)) => domain = text.text()?,
            _ => {}
        }
    }
    Ok((domain, name))
}

/// Counts what a file holds, because its parts take more memory than its bytes.
struct Parser {
    parts: usize,
    /// What a file of this size can hold.
    most: usize,
    depth: usize,
}

impl Parser {
    fn count(&mut self) -> Result<(), Error> {
        self.parts += 1;
        let limit = self.most;
        if self.parts > limit {
            let what = match limit {
                MOST_PARTS => "nodes and tensors",
                _ => "nodes and tensors, which is more than a file of this size can hold",
            };
            return Err(Error::OverLimit { what, limit });
        }
        Ok(())
    }

    fn graph<'a>(&mut self, mut wire: Wire<'a>) -> Result<Graph<'a>, Error> {
        if self.depth == MOST_DEPTH {
            return Err(Error::OverLimit { what: "graphs inside graphs", limit: MOST_DEPTH });
        }
        self.depth += 1;
        let mut graph = Graph::default();
        while let Some((field, value)) = wire.next()? {
            let Value::Bytes(inner) = value else { continue };
            if matches!(field, 1 | 5 | 11 | 12 | 13 | 15) {
                self.count()?;
            }
            match field {
                1 => graph.nodes.push(self.node(inner)?),
                5 => graph.constants.push(constant(inner)?),
                11 => graph.inputs.push(info(inner)?),
                12 => graph.outputs.push(info(inner)?),
                13 => graph.infos.push(info(inner)?),
                15 => graph.sparse.push(sparse(inner)?),
                _ => {}
            }
        }
        self.depth -= 1;
        Ok(graph)
    }

    fn node<'a>(&mut self, mut wire: Wire<'a>) -> Result<Node<'a>, Error> {
        let mut node = Node::default();
        while let Some((field, value)) = wire.next()? {
            let Value::Bytes(inner) = value else { continue };
            match field {
                1 => node.inputs.push(inner.text()?),
                2 => node.outputs.push(inner.text()?),
                3 => node.name = inner.text()?,
                4 => node.operator = inner.text()?,
                5 => self.attribute(inner, &mut node)?,
                7 => node.domain = inner.text()?,
                _ => {}
            }
        }
        Ok(node)
    }

    fn attribute<'a>(&mut self, mut wire: Wire<'a>, node: &mut Node<'a>) -> Result<(), Error> {
        while let Some((field, value)) = wire.next()? {
            match (field, value) {
                (5, Value::Bytes(inner)) => node.value = Some(constant(inner)?),
                (6 | 11, Value::Bytes(inner)) => {
                    self.count()?;
                    node.graphs.push(self.graph(inner)?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn sparse(mut wire: Wire<'_>) -> Result<[Constant<'_>; 2], Error> {
    let mut parts = [Constant::default(), Constant::default()];
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Bytes(inner)) => parts[0] = constant(inner)?,
            (2, Value::Bytes(inner)) => parts[1] = constant(inner)?,
            _ => {}
        }
    }
    Ok(parts)
}

fn constant(mut wire: Wire<'_>) -> Result<Constant<'_>, Error> {
    let mut found = Constant::default();
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Number(size)) => found.dims.push(size.cast_signed()),
            (1, Value::Bytes(mut packed)) => {
                while let Some(size) = packed.next_number()? {
                    found.dims.push(size.cast_signed());
                }
            }
            (2, Value::Number(element)) => found.element = element,
            (8, Value::Bytes(text)) => found.name = text.text()?,
            _ => {}
        }
    }
    Ok(found)
}

fn info(mut wire: Wire<'_>) -> Result<Info<'_>, Error> {
    let mut found = Info { name: "", kind: None };
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Bytes(text)) => found.name = text.text()?,
            (2, Value::Bytes(inner)) => found.kind = kind(inner)?,
            _ => {}
        }
    }
    Ok(found)
}

fn kind(mut wire: Wire<'_>) -> Result<Option<Type<'_>>, Error> {
    let mut found = None;
    while let Some((field, value)) = wire.next()? {
        let Value::Bytes(inner) = value else { continue };
        found = match field {
            1 => Some(tensor(inner)?),
            4 => Some(Type::Other("is a sequence")),
            5 => Some(Type::Other("is a map")),
            8 => Some(Type::Other("is a sparse tensor that a node makes")),
            9 => Some(Type::Other("is optional")),
            _ => found,
        };
    }
    Ok(found)
}

fn tensor(mut wire: Wire<'_>) -> Result<Type<'_>, Error> {
    let (mut element, mut shape) = (0, None);
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Number(number)) => element = number,
            (2, Value::Bytes(inner)) => shape = Some(dims(inner)?),
            _ => {}
        }
    }
    Ok(Type::Tensor(element, shape))
}

fn dims(mut wire: Wire<'_>) -> Result<Vec<Dim<'_>>, Error> {
    let mut dims = Vec::new();
    while let Some((field, value)) = wire.next()? {
        if let (1, Value::Bytes(inner)) = (field, value) {
            dims.push(dim(inner)?);
        }
    }
    Ok(dims)
}

fn dim(mut wire: Wire<'_>) -> Result<Dim<'_>, Error> {
    let mut dim = Dim::Unknown;
    while let Some((field, value)) = wire.next()? {
        match (field, value) {
            (1, Value::Number(size)) => dim = Dim::Size(size.cast_signed()),
            (2, Value::Bytes(text)) => {
                let name = Some(text.text()?).filter(|name| !name.is_empty());
                dim = name.map_or(Dim::Unknown, Dim::Name);
            }
            _ => {}
        }
    }
    Ok(dim)
}
