//! Tensors of files that were opened together, and which of them has a name. Names are kept once: files have tens of thousands of them.

use crate::Tensor;
use crate::error::ErrorKind;
use core::hash::BuildHasher;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Tensors by number and by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    tensors: Vec<Tensor>,
    /// Numbers of the tensors, by the hash of their names.
    numbers: HashTable<usize>,
    /// Has a key of its own, so that no file can have names that all collide.
    hasher: DefaultHashBuilder,
}

impl List {
    /// Lists tensors whose names are unique.
    pub(crate) fn of(tensors: Vec<Tensor>) -> Result<Self, ErrorKind> {
        let mut list = Self::default();
        list.extend(tensors).map(|()| list)
    }

    pub(crate) fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    pub(crate) fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }

    /// Returns the number of a tensor.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        self.numbers.find(hash, |&number| self.tensors[number].name == name).copied()
    }

    /// Returns the number of a tensor, which is probably `likely`: most callers ask in the order of the files.
    pub(crate) fn find_near(&self, likely: usize, name: &str) -> Option<usize> {
        let is_there = self.tensors.get(likely).is_some_and(|tensor| tensor.name == name);
        if is_there { Some(likely) } else { self.find(name) }
    }

    /// Adds tensors; refuses a name that is there already, or that C cannot say. The list is of no use then.
    pub(crate) fn extend(&mut self, tensors: Vec<Tensor>) -> Result<(), ErrorKind> {
        let Self { tensors: all, numbers, hasher } = self;
        let first = all.len();
        if first == 0 {
            *all = tensors;
        } else {
            all.extend(tensors);
        }
        let hash = |number: usize| hasher.hash_one(all[number].name.as_str());
        numbers.reserve(all.len() - first, |&number| hash(number));
        for (number, tensor) in all.iter().enumerate().skip(first) {
            if tensor.name.contains('\0') {
                return Err(ErrorKind::ZeroByte(tensor.name.to_string()));
            }
            let is_same = |&other: &usize| all[other].name == tensor.name;
            match numbers.entry(hash(number), is_same, |&other| hash(other)) {
                Entry::Occupied(_) => {
                    return Err(ErrorKind::DuplicateName(tensor.name.to_string()));
                }
                Entry::Vacant(place) => drop(place.insert(number)),
            }
        }
        Ok(())
    }

    /// Returns the wanted tensors; each of them must be there.
    pub(crate) fn pick(self, wanted: &[&str]) -> Result<Vec<Tensor>, ErrorKind> {
        let mut is_wanted = vec![false; self.tensors.len()];
        for &name in wanted {
            let missing = || ErrorKind::MissingTensor(name.into());
            is_wanted[self.find(name).ok_or_else(missing)?] = true;
        }
        let found = self.tensors.into_iter().zip(is_wanted);
        Ok(found.filter_map(|(tensor, is_wanted)| is_wanted.then_some(tensor)).collect())
    }
}
