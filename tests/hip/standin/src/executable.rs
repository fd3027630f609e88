//! Executables: code objects placed in device memory.

#![expect(unsafe_code, reason = "exports C symbols and calls back into C")]

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::{
    AgentHandle, Answer, ExecutableHandle, LoadedHandle, ReaderHandle, Status, SymbolHandle,
};
use crate::agent::{Agent, Device};
use crate::elf::Image;
use crate::ffi::{In, InText, Out, export};
use crate::knobs::log;
use crate::pool::{DeviceKind, Pool};
use crate::symbol::{self, Needs, Symbol};
use crate::{pages, table};

/// Code that was loaded, and what belongs to it.
#[derive(Debug, Default)]
struct Executable {
    symbols: Vec<Arc<Symbol>>,
    memory: Vec<u64>,
    /// Variables that HIP defines for the code.
    defined: HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct Code {
    readers: HashMap<u64, Arc<Vec<u8>>>,
    executables: HashMap<u64, Executable>,
    last: u64,
}

static CODE: Mutex<Option<Code>> = Mutex::new(None);

/// Runs `work` on the tables.
fn with<T>(work: impl FnOnce(&mut Code) -> T) -> T {
    let mut code: MutexGuard<'_, Option<Code>> =
        CODE.lock().unwrap_or_else(PoisonError::into_inner);
    work(code.get_or_insert_default())
}

impl Code {
    fn handle(&mut self) -> u64 {
        self.last += 0x10;
        self.last
    }

    fn executable(&mut self, handle: ExecutableHandle) -> Result<&mut Executable, Status> {
        self.executables.get_mut(&handle.0).ok_or(Status::INVALID_EXECUTABLE)
    }
}

impl Executable {
    /// Places a code object on a device.
    fn load(&mut self, device: Device, file: &[u8]) -> Answer {
        let wrong = |why| {
            eprintln!("[hsa stand-in] code object refused: {why}");
            Status::INVALID_CODE_OBJECT
        };
        let mut image = Image::read(file).map_err(wrong)?;
        let size = u64::try_from(image.bytes.len()).map_err(|_| Status::INVALID_CODE_OBJECT)?;
        let base = table::allocate(Pool::Device(device, DeviceKind::Coarse), size)?;
        self.memory.push(base);
        image.place(base, |name| self.defined.get(name).copied()).map_err(|why| {
            eprintln!("[hsa stand-in] code object refused: {why}");
            Status::VARIABLE_UNDEFINED
        })?;
        pages::write(base, &image.bytes);
        for found in image.symbols.iter().filter(|symbol| symbol.value != 0) {
            let word = |index: u64| image.word(found.value + 4 * index).map_err(wrong);
            let needs = match found.name.ends_with(".kd") {
                true => Some(Needs { group: word(0)?, private: word(1)?, arguments: word(2)? }),
                false => None,
            };
            let (name, address) = (found.name.clone(), base + found.value);
            log(|| format!("symbol {name} at {address:#x}"));
            self.symbols.push(Arc::new(Symbol { name, address, size: found.size, needs }));
        }
        self.symbols.iter().cloned().for_each(symbol::add);
        Ok(())
    }

    fn unload(self) {
        for symbol in self.symbols {
            symbol::remove(symbol.address);
        }
        for address in self.memory {
            let freed = table::free(address);
            debug_assert_eq!(freed, Ok(()), "only this executable holds it");
        }
    }
}

/// A function of HIP's that takes symbols one by one.
type Visit = unsafe extern "C" fn(ExecutableHandle, SymbolHandle, *mut c_void) -> Status;

export! {
    fn hsa_code_object_reader_create_from_memory(bytes: In<u8>, size: usize, out: Out<ReaderHandle>) {
        let bytes = Arc::new(bytes.bytes(size)?);
        out.set(with(|code| {
            let handle = code.handle();
            code.readers.insert(handle, bytes);
            ReaderHandle(handle)
        }))
    }

    fn hsa_code_object_reader_destroy(handle: ReaderHandle) {
        with(|code| code.readers.remove(&handle.0)).map(drop).ok_or(Status::INVALID_CODE_OBJECT_READER)
    }

    fn hsa_executable_create_alt(_profile: u32, _rounding: u32, _options: *const c_void, out: Out<ExecutableHandle>) {
        out.set(with(|code| {
            let handle = code.handle();
            code.executables.insert(handle, Executable::default());
            ExecutableHandle(handle)
        }))
    }

    fn hsa_executable_destroy(handle: ExecutableHandle) {
        with(|code| code.executables.remove(&handle.0)).map(Executable::unload).ok_or(Status::INVALID_EXECUTABLE)
    }

    fn hsa_executable_agent_global_variable_define(
        handle: ExecutableHandle, _agent: AgentHandle, name: InText, address: u64,
    ) {
        let name = name.get()?;
        with(|code| {
            code.executable(handle)?.defined.insert(name, address);
            Ok(())
        })
    }

    fn hsa_executable_load_agent_code_object(
        handle: ExecutableHandle, agent: AgentHandle, reader: ReaderHandle, _options: *const c_void,
        out: Out<LoadedHandle>,
    ) {
        let device = Agent::find(agent)?.device()?;
        with(|code| {
            let file = code.readers.get(&reader.0).cloned().ok_or(Status::INVALID_CODE_OBJECT_READER)?;
            code.executable(handle)?.load(device, &file)
        })?;
        out.set_if_wanted(LoadedHandle(handle.0));
        Ok(())
    }

    fn hsa_executable_freeze(handle: ExecutableHandle, _options: *const c_void) {
        with(|code| code.executable(handle).map(drop))
    }

    fn hsa_executable_get_symbol_by_name(
        handle: ExecutableHandle, name: InText, _agent: In<AgentHandle>, out: Out<SymbolHandle>,
    ) {
        let name = name.get()?;
        let found = with(|code| {
            let symbols = &code.executable(handle)?.symbols;
            symbols.iter().find(|symbol| symbol.name == name).cloned().ok_or(Status::INVALID_SYMBOL_NAME)
        })?;
        out.set(SymbolHandle(found.address))
    }

    fn hsa_executable_iterate_symbols(handle: ExecutableHandle, visit: Visit, data: *mut c_void) {
        let symbols = with(|code| code.executable(handle).map(|executable| executable.symbols.clone()))?;
        for symbol in symbols {
            // SAFETY: C passed this function to be called with each symbol and with this data, during this call.
            let status = unsafe { visit(handle, SymbolHandle(symbol.address), data) };
            if status != Status::SUCCESS {
                return Err(status);
            }
        }
        Ok(())
    }
}
