//! Sizes of tensors in bytes.

use super::error::Error;
use super::parse::{Constant, Dim, Type};
use std::collections::{BTreeMap, BTreeSet};

/// The name of an element type, as labels have it, and its bits.
const fn element(number: u64) -> Option<(&'static str, u64)> {
    Some(match number {
        1 => ("float32", 32),
        2 => ("uint8", 8),
        3 => ("int8", 8),
        4 => ("uint16", 16),
        5 => ("int16", 16),
        6 => ("int32", 32),
        7 => ("int64", 64),
        9 => ("bool", 8),
        10 => ("float16", 16),
        11 => ("float64", 64),
        12 => ("uint32", 32),
        13 => ("uint64", 64),
        14 => ("complex64", 64),
        15 => ("complex128", 128),
        16 => ("bfloat16", 16),
        17 => ("float8_e4m3fn", 8),
        18 => ("float8_e4m3fnuz", 8),
        19 => ("float8_e5m2", 8),
        20 => ("float8_e5m2fnuz", 8),
        21 => ("uint4", 4),
        22 => ("int4", 4),
        23 => ("float4_e2m1", 4),
        24 => ("float8_e8m0", 8),
        25 => ("uint2", 2),
        26 => ("int2", 2),
        _ => return None,
    })
}

/// A shape whose sizes are all known.
#[derive(Debug, Clone)]
pub(super) struct Sized {
    pub(super) bytes: u64,
    /// Element type, and shape in brackets, as labels have them.
    pub(super) typed: String,
}

/// Sizes that were given for names, and names that were met.
#[derive(Debug)]
pub(super) struct Dims<'a> {
    given: &'a BTreeMap<String, u64>,
    met: BTreeSet<String>,
}

impl<'a> Dims<'a> {
    pub(super) const fn new(given: &'a BTreeMap<String, u64>) -> Self {
        Self { given, met: BTreeSet::new() }
    }

    /// Refuses sizes for names that the model does not have.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Some(dim) = self.given.keys().find(|dim| !self.met.contains(*dim)) else {
            return Ok(());
        };
        let names: Vec<_> = self.met.iter().map(|name| format!("{name:?}")).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::UnknownDim { dim: dim.clone(), known })
    }

    /// Returns the size of a value; `origin` says who makes it.
    pub(super) fn of_value(
        &mut self,
        tensor: &str,
        kind: Option<&Type<'_>>,
        origin: &dyn Fn() -> String,
    ) -> Result<Sized, Error> {
        let missing = || Error::NoShape { tensor: tensor.to_owned(), origin: origin() };
        let (element, dims) = match kind {
            None | Some(Type::Tensor(_, None)) => return Err(missing()),
            Some(Type::Other(why)) => {
                return Err(Error::NoBytes { tensor: tensor.to_owned(), why });
            }
            Some(Type::Tensor(element, Some(dims))) => (*element, dims),
        };
        let mut sizes = Vec::with_capacity(dims.len());
        for dim in dims {
            sizes.push(match *dim {
                Dim::Size(size) => size,
                Dim::Unknown => return Err(missing()),
                Dim::Name(name) => self.named(tensor, name)?,
            });
        }
        sized(tensor, element, &sizes)
    }

    fn named(&mut self, tensor: &str, name: &str) -> Result<i64, Error> {
        if !self.met.contains(name) {
            self.met.insert(name.to_owned());
        }
        let size = self.given.get(name).map(|&size| i64::try_from(size).unwrap_or(i64::MAX));
        let missing = || Error::NoSize { tensor: tensor.to_owned(), dim: name.to_owned() };
        size.ok_or_else(missing)
    }
}

/// Returns the size of a constant.
pub(super) fn of_constant(name: &str, constant: &Constant<'_>) -> Result<Sized, Error> {
    sized(name, constant.element, &constant.dims)
}

fn sized(tensor: &str, number: u64, dims: &[i64]) -> Result<Sized, Error> {
    let wrong = |why| Error::NoBytes { tensor: tensor.to_owned(), why };
    let (name, bits) = element(number).ok_or_else(|| {
        wrong(if number == 8 { "holds texts" } else { "has an unknown element type" })
    })?;
    let mut elements = 1u64;
    for &dim in dims {
        let dim = u64::try_from(dim).map_err(|_| wrong("has a negative dimension"))?;
        elements = elements.checked_mul(dim).ok_or_else(|| wrong("exceeds 64 bits"))?;
    }
    let bits = elements.checked_mul(bits).ok_or_else(|| wrong("exceeds 64 bits"))?;
    let shape: Vec<_> = dims.iter().map(i64::to_string).collect();
    let typed =
        if shape.is_empty() { name.to_owned() } else { format!("{name}[{}]", shape.join("x")) };
    Ok(Sized { bytes: bits.div_ceil(8), typed })
}
