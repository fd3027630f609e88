//! Symbols of loaded code: kernels and variables, by handle and by address.

#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::abi::{Status, SymbolHandle};
use crate::ffi::{OutValue, export};
use crate::knobs::log;

/// Needs of a kernel by its descriptor, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) group: u32,
    pub(crate) private: u32,
    pub(crate) arguments: u32,
}

/// A symbol at its place on a device.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Given for kernels only.
    pub(crate) needs: Option<Needs>,
}

/// Symbols by address, which is their handle too: no two symbols that HIP sees share one.
static SYMBOLS: RwLock<Option<HashMap<u64, Arc<Symbol>>>> = RwLock::new(None);

pub(crate) fn add(symbol: Arc<Symbol>) {
    let mut symbols = SYMBOLS.write().unwrap_or_else(PoisonError::into_inner);
    symbols.get_or_insert_default().insert(symbol.address, symbol);
}

pub(crate) fn remove(address: u64) {
    if let Some(symbols) = SYMBOLS.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        symbols.remove(&address);
    }
}

/// Finds the symbol at an address.
pub(crate) fn find(address: u64) -> Option<Arc<Symbol>> {
    SYMBOLS.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&address).cloned()
}

/// Finds a variable by name; of several modules that have it, any.
pub(crate) fn named(name: &str) -> Option<Arc<Symbol>> {
    let symbols = SYMBOLS.read().unwrap_or_else(PoisonError::into_inner);
    symbols.as_ref()?.values().find(|symbol| symbol.needs.is_none() && symbol.name == name).cloned()
}

export! {
    fn hsa_executable_symbol_get_info(handle: SymbolHandle, attribute: u32, out: OutValue) {
        let symbol = find(handle.0).ok_or(Status::INVALID_EXECUTABLE_SYMBOL)?;
        let narrow = |value: u64| u32::try_from(value).map_err(|_| Status::ERROR);
        match (attribute, symbol.needs) {
            (0, needs) => out.set(u32::from(needs.is_some())), // kind: variable or kernel
            (1, _) => out.set(narrow(symbol.name.len() as u64)?),
            (2, _) => out.text(&symbol.name, symbol.name.len()),
            (9, None) => out.set(narrow(symbol.size)?),
            (21, None) | (22, Some(_)) => out.set(symbol.address),
            (11, Some(needs)) => out.set(needs.arguments),
            (12, Some(_)) => out.set(16_u32),
            (13, Some(needs)) => out.set(needs.group),
            (14, Some(needs)) => out.set(needs.private),
            (15, Some(_)) => out.set(false), // dynamic call stack
            _ => {
                log(|| format!("attribute {attribute} of symbol {} is not known", symbol.name));
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }
}
