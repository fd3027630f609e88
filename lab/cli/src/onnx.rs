//! ONNX models, as `plan` and `fit` read them.
use crate::text::read_bytes;
use omniheap::Align;
use omniheap::trace::{Limits, Trace};
use omniheap_cli::Failure;
use omniheap_fit::onnx::Tensors;
use omniheap_plan::csv::Table;
use omniheap_plan::{Buffer, Problem, Region};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Protocol buffers cannot be longer.
const LONGEST_FILE: u64 = 1 << 31;

/// Sizes of dimensions that have names.
#[derive(clap::Args, Debug)]
pub(super) struct Dims {
    /// Size of a named dimension of an .onnx model; repeat it for each
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<(String, u64)>,
}

impl Dims {
    /// Refuses sizes where no model is that has names.
    pub(super) fn refuse_unless_model(&self) -> Result<(), Failure> {
        match self.dims.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Failure::input(format!("--dim {name} is for an .onnx model; leave it out")))
            }
        }
    }

    fn map(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let mut map = BTreeMap::new();
        for (name, size) in &self.dims {
            if map.insert(name.clone(), *size).is_some() {
                return Err(Failure::input(format!("--dim {name} is given twice; say one size")));
            }
        }
        Ok(map)
    }
}

fn parse_dim(text: &str) -> Result<(String, u64), String> {
    // A name may be an expression such as `2*batch`.
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let parsed = parts.and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    let parsed = parsed.filter(|&(_, size)| size > 0);
    parsed.ok_or_else(|| "expected a name and a size of 1 or more, such as batch=8".into())
}

/// Returns whether a file is called as models are.
pub(super) fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("onnx"))
}

/// Reads a model.
pub(super) fn read(path: &Path, dims: &Dims) -> Result<Tensors, Failure> {
    let (shown, dims) = (path.display(), dims.map()?);
    let bytes = read_bytes(path, LONGEST_FILE, "save its weights as external data")?;
    let wrong = |error| Failure::input(format!("{shown}: {error}"));
    let tensors = Tensors::read(&bytes, &dims).map_err(wrong)?;
    if tensors.tensors.is_empty() {
        return Err(Failure::input(format!("{shown}: no node of it makes a tensor; name a model")));
    }
    Ok(tensors)
}

/// Returns the requests of a run of the model.
pub(super) fn trace(path: &Path, dims: &Dims) -> Result<Trace, Failure> {
    let trace = read(path, dims)?.trace(&Limits::default());
    trace.map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

/// Returns the tensors as buffers; ids are their names.
pub(super) fn table(tensors: &Tensors, align: Align) -> Table {
    let mut problem = Problem::new(Region::unbounded());
    let (mut names, mut taken) = (Vec::new(), HashSet::new());
    for (number, tensor) in tensors.tensors.iter().enumerate() {
        let buffer = Buffer::new(tensor.bytes, tensor.live.start, tensor.live.end);
        problem.buffers.push(buffer.align(align.get()));
        // Graphs inside of others may use a name again, and a table has no commas in its ids.
        let name = tensor.name.replace(|c: char| c == ',' || c == '"' || c.is_control(), " ");
        let name = Some(name).filter(|name| taken.insert(name.clone()));
        names.push(name.unwrap_or_else(|| format!("{number} {}", tensor.operator)));
    }
    Table::unplaced(problem, names)
}
