//! The containers of a pickle, and how to look into them.

use super::Keys;
use super::cell::{Cell, Value};
use crate::tight;

/// A dictionary: which keys it has, and where their values start, in the order of the keys.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dict {
    keys: u32,
    start: u32,
}

/// All containers of a pickle.
#[derive(Debug)]
pub(crate) struct Data<'a> {
    pub(super) input: &'a [u8],
    names: Keys,
    pub(super) lists: Vec<Vec<Cell>>,
    pub(super) dicts: Vec<Dict>,
    /// Values of all dictionaries.
    pub(super) values: Vec<Cell>,
}

impl<'a> Data<'a> {
    /// No containers yet.
    pub(super) fn new(input: &'a [u8], names: Keys) -> Self {
        debug_assert!(names.len() <= 32, "a dictionary's keys are 32 bits");
        Self { input, names, lists: Vec::new(), dicts: Vec::new(), values: Vec::new() }
    }

    /// Returns the text of `cell`, where it is text and valid UTF-8.
    pub(crate) fn text(&self, cell: Cell) -> Option<&'a str> {
        let Value::Text(start, length) = cell.value() else { return None };
        core::str::from_utf8(&self.input[start..start + length]).ok()
    }

    /// Returns the elements of `cell`, where it is a list or tuple.
    pub(crate) fn list(&self, cell: Cell) -> Option<&[Cell]> {
        let Value::List(index) = cell.value() else { return None };
        Some(&self.lists[index as usize])
    }

    /// Returns the value of the key with number `key`, where `cell` is a dictionary that has it.
    pub(crate) fn get(&self, cell: Cell, key: usize) -> Option<Cell> {
        let Value::Dict(index) = cell.value() else { return None };
        let dict = self.dicts[index as usize];
        if dict.keys >> key & 1 == 0 {
            return None;
        }
        let rank = (dict.keys & ((1 << key) - 1)).count_ones();
        Some(self.values[(dict.start + rank) as usize])
    }

    /// Returns the number under `key` of a dictionary.
    pub(crate) fn int(&self, cell: Cell, key: usize) -> Option<i64> {
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
    pub(super) fn set_items(&mut self, index: u32, pairs: &[Cell]) {
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

pub(super) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("the budget keeps every table below 2^32 entries")
}
