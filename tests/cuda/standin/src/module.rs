//! Modules. Only names are read from their images.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::handle;
use crate::kernel::{self, Kernel, Symbols};
use crate::space::{self, Kind, Range};

#[derive(Debug)]
struct Module {
    context: u64,
    names: Vec<String>,
    symbols: Arc<Symbols>,
    functions: Vec<u64>,
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The emulation, for kernels that have one.
    pub(crate) kernel: Option<Kernel>,
    pub(crate) symbols: Arc<Symbols>,
    /// Bytes of shared memory that a launch may ask for.
    pub(crate) shared: i32,
}

#[derive(Debug)]
struct Modules {
    modules: BTreeMap<u64, Module>,
    functions: BTreeMap<u64, Function>,
}

static MODULES: Mutex<Modules> =
    Mutex::new(Modules { modules: BTreeMap::new(), functions: BTreeMap::new() });

fn modules() -> MutexGuard<'static, Modules> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names behind each occurrence of `mark`.
fn names<'a>(image: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    image.split(mark).skip(1).map(|rest| {
        let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        rest.trim_start().chars().take_while(is_of_name).collect()
    })
}

/// Returns the variables that PTX declares: `.const .align 256 .b8 NAME[SIZE]`.
fn variables(image: &str) -> Vec<(String, u64)> {
    let variable = |line: &str| {
        let is_one = [".const", ".global"].iter().any(|kind| line.contains(kind));
        let (_, rest) = line.split_once(".b8 ").filter(|_| is_one)?;
        let (name, rest) = rest.split_once('[')?;
        let (size, _) = rest.split_once(']')?;
        Some((name.trim().to_owned(), size.trim().parse().ok()?))
    };
    image.lines().filter_map(variable).collect()
}

/// Loads an image: PTX, as text.
pub(crate) fn load(image: &str, context: u64, device: u32) -> Answer<u64> {
    if !image.contains(".version") || !image.contains(".target") {
        return Err(Code::INVALID_PTX);
    }
    let mut symbols = Symbols::new();
    let handle = handle::fresh();
    for (name, size) in variables(image) {
        let range = Range::new(size, Kind::Symbol(handle), context, device);
        symbols.insert(name, (space::allocate(range)?, size));
    }
    let names = names(image, ".entry").collect();
    let module = Module { context, names, symbols: Arc::new(symbols), functions: Vec::new() };
    modules().modules.insert(handle, module);
    Ok(handle)
}

impl Modules {
    fn unload(&mut self, module: u64) -> Answer {
        let gone = self.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        for function in gone.functions {
            self.functions.remove(&function);
        }
        gone.symbols.values().for_each(|(address, _)| space::free(*address));
        Ok(())
    }
}

pub(crate) fn unload(module: u64) -> Answer {
    modules().unload(module)
}

/// Forgets the modules of a context.
pub(crate) fn forget(context: u64) {
    let mut modules = modules();
    let of = |(&handle, module): (&u64, &Module)| (module.context == context).then_some(handle);
    let handles: Vec<u64> = modules.modules.iter().filter_map(of).collect();
    for handle in handles {
        let unloaded = modules.unload(handle);
        debug_assert_eq!(unloaded, Ok(()), "it was listed");
    }
}

/// Returns a kernel of a module.
pub(crate) fn function(module: u64, name: &str) -> Answer<u64> {
    let mut modules = modules();
    let found = modules.modules.get_mut(&module).ok_or(Code::INVALID_HANDLE)?;
    if !found.names.iter().any(|known| known == name) {
        return Err(Code::NOT_FOUND);
    }
    let handle = handle::fresh();
    let (kernel, symbols) = (kernel::find(name), Arc::clone(&found.symbols));
    found.functions.push(handle);
    let function = Function { name: name.to_owned(), kernel, symbols, shared: 48 << 10 };
    modules.functions.insert(handle, function);
    Ok(handle)
}

/// Returns address and bytes of a variable of a module.
pub(crate) fn global(module: u64, name: &str) -> Answer<(u64, u64)> {
    let modules = modules();
    let module = modules.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    module.symbols.get(name).copied().ok_or(Code::NOT_FOUND)
}

/// Returns a kernel.
pub(crate) fn get(function: u64) -> Answer<Function> {
    modules().functions.get(&function).cloned().ok_or(Code::INVALID_HANDLE)
}

/// Changes how much shared memory launches of a kernel may ask for.
pub(crate) fn set_shared(function: u64, bytes: i32) -> Answer {
    let mut modules = modules();
    let function = modules.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?;
    function.shared = bytes;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{names, variables};

    #[test]
    fn names_are_found_in_ptx() {
        let image = "\
.version 7.8
.target sm_60
.const .align 256 .b8 bank[65536];
.visible .entry first(
    .param .u64 to)
{ ret; }
.visible .entry second_2() { ret; }";
        assert_eq!(names(image, ".entry").collect::<Vec<_>>(), ["first", "second_2"]);
        assert_eq!(variables(image), [("bank".to_owned(), 65_536)]);
    }
}
