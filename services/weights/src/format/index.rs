//! `model.safetensors.index.json`: which shard has which tensor.

use crate::error::{ErrorKind, Fault};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// The longest index that is read.
const MAX_INDEX: u64 = 100_000_000;

/// Tensors by shard.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    pub(crate) fn is_named(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "json")
    }

    pub(crate) fn read(source: &dyn super::Source) -> Result<Self, Fault> {
        let length = source.size();
        if length > MAX_INDEX {
            return Err(ErrorKind::HeaderTooLong { length, limit: MAX_INDEX }.into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        source.read(0, &mut bytes)?;
        let index: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Fault::from(ErrorKind::Header(error.to_string())))?;
        let is_inside = |shard: &str| {
            let mut parts = Path::new(shard).components().peekable();
            parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        match index.weight_map.values().find(|shard| !is_inside(shard)) {
            Some(shard) => Err(ErrorKind::UnsafePath(shard.clone()).into()),
            None => Ok(index),
        }
    }

    /// Returns the shards in order, each with the tensors that the index expects in it.
    pub(crate) fn shards(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut shards = BTreeMap::<_, Vec<_>>::new();
        for (tensor, shard) in &self.weight_map {
            shards.entry(shard.as_str()).or_default().push(tensor.as_str());
        }
        shards
    }
}
