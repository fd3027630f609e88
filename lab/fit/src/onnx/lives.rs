//! Walks over a model's nodes in their order, and notes when each tensor is first and last needed.

use super::error::Error;
use super::parse::{Graph, Info, Model, Node, Type};
use super::size::{Dims, Sized, of_constant};
use super::{Kind, Tensor, Tensors, Weight};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Meaning of a name.
#[derive(Debug, Clone, Copy)]
enum Slot {
    /// Lives always, or has no bytes.
    Always,
    /// A tensor, by index.
    Tensor(usize),
}

/// Returns the tensors of a model.
pub(super) fn tensors(model: &Model<'_>, dims: &BTreeMap<String, u64>) -> Result<Tensors, Error> {
    let found = Tensors { tensors: Vec::new(), weights: Vec::new() };
    let mut walk = Walk {
        functions: &model.functions,
        dims: Dims::new(dims),
        found,
        scopes: Vec::new(),
        captured: Vec::new(),
        tick: 0,
    };
    walk.graph(&model.graph, Kind::Output)?;
    walk.dims.check()?;
    Ok(walk.found)
}

struct Walk<'a, 'd> {
    functions: &'d HashSet<(&'a str, &'a str)>,
    dims: Dims<'d>,
    found: Tensors,
    /// Names of the graph and of those around it, innermost last.
    scopes: Vec<HashMap<&'a str, Slot>>,
    /// Tensors that graphs read from those around them.
    captured: Vec<usize>,
    /// The number of the node that runs.
    tick: u64,
}

impl<'a> Walk<'a, '_> {
    /// Runs a graph. What it returns is an `output`, and lives to its end.
    fn graph(&mut self, graph: &Graph<'a>, output: Kind) -> Result<(), Error> {
        self.scopes.push(HashMap::new());
        self.constants(graph)?;
        let types = types(graph);
        for input in &graph.inputs {
            self.input(input)?;
        }
        for node in &graph.nodes {
            self.node(node, &types)?;
        }
        let end = self.tick.max(1);
        for each in &graph.outputs {
            let slot = self.find(each.name).ok_or_else(|| Error::Unwritten {
                tensor: each.name.to_owned(),
                node: "the end of the graph".to_owned(),
            })?;
            if let Slot::Tensor(index) = slot {
                let tensor = &mut self.found.tensors[index];
                tensor.live.end = tensor.live.end.max(end);
                if tensor.kind == Kind::Activation {
                    tensor.kind = output;
                }
            }
        }
        self.scopes.pop();
        Ok(())
    }

    fn constants(&mut self, graph: &Graph<'a>) -> Result<(), Error> {
        for constant in &graph.constants {
            let sized = of_constant(constant.name, constant)?;
            self.weight(constant.name, sized)?;
        }
        for [values, indices] in &graph.sparse {
            let mut sized = of_constant(values.name, values)?;
            let bytes = of_constant(values.name, indices)?.bytes;
            sized.bytes = sized.bytes.checked_add(bytes).ok_or_else(|| Error::NoBytes {
                tensor: values.name.to_owned(),
                why: "exceeds 64 bits",
            })?;
            self.weight(values.name, sized)?;
        }
        Ok(())
    }

    fn weight(&mut self, name: &'a str, sized: Sized) -> Result<(), Error> {
        self.define(name, Slot::Always)?;
        if sized.bytes > 0 {
            let Sized { bytes, typed } = sized;
            self.found.weights.push(Weight { name: name.to_owned(), typed, bytes });
        }
        Ok(())
    }

    fn input(&mut self, input: &Info<'a>) -> Result<(), Error> {
        // Older models list their weights as inputs too.
        let here = self.scopes.last().and_then(|scope| scope.get(input.name));
        if matches!(here, Some(Slot::Always)) {
            return Ok(());
        }
        let origin = || "an input".to_owned();
        let sized = self.dims.of_value(input.name, input.kind.as_ref(), &origin)?;
        self.tensor(input.name, Kind::Input, "", sized, self.tick)
    }

    fn node(&mut self, node: &Node<'a>, types: &HashMap<&'a str, &Type<'a>>) -> Result<(), Error> {
        if self.functions.contains(&(node.domain, node.operator)) {
            return Err(Error::Function { node: shown(node) });
        }
        let start = self.tick;
        let mut needed = Vec::new();
        for name in node.inputs.iter().filter(|name| !name.is_empty()) {
            let slot = self.find(name).ok_or_else(|| Error::Unwritten {
                tensor: (*name).to_owned(),
                node: shown(node),
            })?;
            needed.extend(index(slot));
        }
        if node.operator == "Constant" && self.returns_weight(node, types)? {
            return Ok(());
        }
        let (before, first) = (self.captured.len(), self.found.tensors.len());
        for graph in &node.graphs {
            self.graph(graph, Kind::Activation)?;
        }
        // The node may run its graphs again: what they read from outside of it lives until it ends.
        needed.extend(self.captured[before..].iter().filter(|&&index| index < first));
        if self.scopes.len() == 1 {
            self.captured.clear();
        }
        for index in needed {
            self.until(index, self.tick + 1);
        }
        for name in node.outputs.iter().filter(|name| !name.is_empty()) {
            let origin = || format!("from {}", shown(node));
            let sized = self.dims.of_value(name, types.get(name).copied(), &origin)?;
            self.tensor(name, Kind::Activation, node.operator, sized, start)?;
        }
        self.tick += 1;
        Ok(())
    }

    /// Takes what a `Constant` returns as a weight; whether its value is a tensor.
    fn returns_weight(
        &mut self,
        node: &Node<'a>,
        types: &HashMap<&'a str, &Type<'a>>,
    ) -> Result<bool, Error> {
        let [name] = node.outputs[..] else { return Ok(false) };
        let sized = match &node.value {
            Some(value) => of_constant(name, value)?,
            None => {
                let origin = || format!("from {}", shown(node));
                self.dims.of_value(name, types.get(name).copied(), &origin)?
            }
        };
        self.weight(name, sized).map(|()| true)
    }

    fn tensor(
        &mut self,
        name: &'a str,
        kind: Kind,
        operator: &str,
        sized: Sized,
        start: u64,
    ) -> Result<(), Error> {
        let Sized { bytes, typed } = sized;
        if bytes == 0 {
            return self.define(name, Slot::Always);
        }
        self.define(name, Slot::Tensor(self.found.tensors.len()))?;
        let live = start..self.tick + 1;
        let (name, operator) = (name.to_owned(), operator.to_owned());
        self.found.tensors.push(Tensor { name, kind, operator, typed, bytes, live });
        Ok(())
    }

    fn define(&mut self, name: &'a str, slot: Slot) -> Result<(), Error> {
        let before = self.scopes.last_mut().and_then(|scope| scope.insert(name, slot));
        match before {
            None => Ok(()),
            Some(_) => Err(Error::WrittenTwice { tensor: name.to_owned() }),
        }
    }

    /// Returns what a name stands for, here or in the graphs around.
    fn find(&mut self, name: &str) -> Option<Slot> {
        let depth = self.scopes.iter().rposition(|scope| scope.contains_key(name))?;
        let slot = *self.scopes[depth].get(name)?;
        if depth + 1 < self.scopes.len() {
            self.captured.extend(index(slot));
        }
        Some(slot)
    }

    fn until(&mut self, index: usize, end: u64) {
        let live = &mut self.found.tensors[index].live;
        live.end = live.end.max(end);
    }
}

const fn index(slot: Slot) -> Option<usize> {
    match slot {
        Slot::Always => None,
        Slot::Tensor(index) => Some(index),
    }
}

/// Returns the types of a graph's values, by name.
fn types<'g, 'a>(graph: &'g Graph<'a>) -> HashMap<&'a str, &'g Type<'a>> {
    let all = graph.infos.iter().chain(&graph.inputs).chain(&graph.outputs);
    let mut types = HashMap::new();
    for info in all {
        let Some(kind) = &info.kind else { continue };
        // One list may know a shape that another does not.
        let is_known = !matches!(kind, Type::Tensor(_, None));
        if is_known || !types.contains_key(info.name) {
            types.insert(info.name, kind);
        }
    }
    types
}

/// Returns a node for people.
fn shown(node: &Node<'_>) -> String {
    let name = [node.name, node.outputs.first().copied().unwrap_or_default()];
    let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or("without a name");
    format!("node {name:?} ({})", node.operator)
}
