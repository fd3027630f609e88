//! The containers of a pickle, and how to look into them.

use crate::cell::{Cell, Value};
use crate::{Keys, tight};

/// A dictionary: which keys it has, and where their values start, in the order of the keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dict {
    keys: u32,
    start: u32,
}

/// All containers of a pickle.
#[derive(Debug)]
pub struct Data<'a> {
    pub(crate) input: &'a [u8],
    names: &'static [&'static str],
    pub(crate) lists: Vec<Vec<Cell>>,
    pub(crate) dicts: Vec<Dict>,
    /// Values of all dictionaries.
    pub(crate) values: Vec<Cell>,
}

impl<'a> Data<'a> {
    /// No containers yet.
    pub(crate) fn new(input: &'a [u8], keys: Keys) -> Self {
        let names = match keys {
            Keys::Only(names) => names,
            Keys::All => &[],
        };
        debug_assert!(names.len() <= 32, "a dictionary's keys are 32 bits");
        Self { input, names, lists: Vec::new(), dicts: Vec::new(), values: Vec::new() }
    }

    /// Returns the text of `cell`, where it is text and valid UTF-8.
    #[must_use]
    pub fn text(&self, cell: Cell) -> Option<&'a str> {
        let Value::Text(start, length) = cell.value() else { return None };
        core::str::from_utf8(&self.input[start..start + length]).ok()
    }

    /// Returns the elements of `cell`, where it is a list or tuple.
    #[must_use]
    pub fn list(&self, cell: Cell) -> Option<&[Cell]> {
        let Value::List(index) = cell.value() else { return None };
        Some(&self.lists[index as usize])
    }

    /// Returns keys and values in turn, where `cell` is a dictionary of [`Keys::All`].
    #[must_use]
    pub fn pairs(&self, cell: Cell) -> Option<&[Cell]> {
        let Value::Pairs(index) = cell.value() else { return None };
        Some(&self.lists[index as usize])
    }

    /// Returns the position of the global and its arguments, where `cell` is a call.
    #[must_use]
    pub fn call(&self, cell: Cell) -> Option<(usize, &[Cell])> {
        let Value::Call(index) = cell.value() else { return None };
        let (global, arguments) = self.lists[index as usize].split_first()?;
        let Value::Global(global) = global.value() else { return None };
        Some((global as usize, arguments))
    }

    /// Returns the parts of a persistent id, where `cell` is one.
    #[must_use]
    pub fn persistent(&self, cell: Cell) -> Option<&[Cell]> {
        let Value::Persistent(index) = cell.value() else { return None };
        Some(&self.lists[index as usize])
    }

    /// Returns the value of the key with number `key`, where `cell` is a dictionary that has it.
    #[must_use]
    pub fn get(&self, cell: Cell, key: usize) -> Option<Cell> {
        let Value::Dict(index) = cell.value() else { return None };
        let dict = self.dicts[index as usize];
        if dict.keys >> key & 1 == 0 {
            return None;
        }
        let rank = (dict.keys & ((1 << key) - 1)).count_ones();
        Some(self.values[(dict.start + rank) as usize])
    }

    /// Returns the number under `key` of a dictionary.
    #[must_use]
    pub fn int(&self, cell: Cell, key: usize) -> Option<i64> {
        match self.get(cell, key)?.value() {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    fn name_of(&self, cell: Cell) -> Option<usize> {
        let Value::Text(start, length) = cell.value() else { return None };
        let text = &self.input[start..start + length];
        self.names.iter().position(|name| name.as_bytes() == text)
    }

    /// Adds pairs to a dictionary; later ones win. Unknown keys are dropped.
    pub(crate) fn set_items(&mut self, index: u32, pairs: &[Cell]) {
        let dict = self.dicts[index as usize];
        let mut slots = [None; 32];
        let mut rank = dict.start as usize;
        for (key, slot) in slots.iter_mut().enumerate() {
            if dict.keys >> key & 1 == 1 {
                *slot = Some(self.values[rank]);
                rank += 1;
            }
        }
        for pair in pairs.chunks_exact(2) {
            if let Some(key) = self.name_of(pair[0]) {
                slots[key] = Some(pair[1]);
            }
        }
        let start = index_u32(self.values.len());
        let mut keys = 0;
        for (key, slot) in slots.iter().enumerate() {
            if let Some(cell) = slot {
                keys |= 1 << key;
                tight::push(&mut self.values, *cell);
            }
        }
        self.dicts[index as usize] = Dict { keys, start };
    }
}

pub(crate) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("the budget keeps every table below 2^32 entries")
}
