//! The constant bank: a small heap whose blocks are runs of units inside a module's `__constant__` symbol.
use crate::{
    caps::BANK_ALIGN,
    driver::Driver,
    module::{Arch, Module, compile, load_ptx},
};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{BuildError, lock};
use std::sync::{Arc, Mutex};

/// The name of the bank's symbol: `unsigned char omniheap_bank[65536]`.
pub const BANK_SYMBOL: &str = "omniheap_bank";

const SOURCE: &str = include_str!("../kernels/constant_bank.cu");
const FALLBACK: &str = include_str!("../kernels/constant_bank.ptx");

/// Bytes of a unit: what a block starts at and is rounded up to.
const UNIT: u64 = BANK_ALIGN.get();
const UNITS: usize = 256;

/// The units in use. Blocks are few and large, so first fit is good enough.
struct Units([bool; UNITS]);

impl Units {
    /// Takes `count` neighbours below `limit`; returns the first.
    fn take(&mut self, count: usize, limit: usize) -> Option<usize> {
        let units = self.0.get_mut(..limit)?;
        let first = units.windows(count).position(|run| run.iter().all(|&is_taken| !is_taken))?;
        units[first..first + count].fill(true);
        Some(first)
    }

    fn give_back(&mut self, first: usize, count: usize) {
        self.0[first..first + count].fill(false);
    }
}

/// Returns the number of units for `bytes`, at least one.
fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).max(1)
}

/// The module, with the bank's address and size.
#[derive(Clone)]
struct Built {
    module: Module,
    address: u64,
    size: u64,
}

struct State {
    built: Option<Built>,
    units: Units,
}

/// The bank, built when it is first needed.
pub(crate) struct Bank {
    driver: Arc<Driver>,
    kernels: Option<String>,
    state: Mutex<State>,
}

impl Bank {
    pub(crate) fn new(driver: &Arc<Driver>, kernels: Option<String>) -> Self {
        let state = Mutex::new(State { built: None, units: Units([false; UNITS]) });
        Self { driver: driver.clone(), kernels, state }
    }

    fn build(&self) -> Result<Module, BuildError> {
        let arch = Arch::of(&self.driver)?;
        let Some(kernels) = &self.kernels else {
            let compiled = compile(&self.driver, arch, SOURCE).and_then(|module| {
                // A compiler may keep the symbol to itself; the prepared image shows it for sure.
                module.global(BANK_SYMBOL)?;
                Ok(module)
            });
            return compiled.or_else(|error| {
                tracing::info!(%error, "the constant bank uses its prepared image");
                load_ptx(&self.driver, FALLBACK)
            });
        };
        compile(&self.driver, arch, &format!("{SOURCE}\n#line 1 \"bank_kernels\"\n{kernels}"))
    }

    fn built(&self, state: &mut State) -> Result<Built, BuildError> {
        if let Some(built) = &state.built {
            return Ok(built.clone());
        }
        let module = self.build()?;
        let (address, size) = module.global(BANK_SYMBOL)?;
        let built = Built { module, address, size };
        state.built = Some(built.clone());
        Ok(built)
    }

    /// Returns the address of `size` bytes that no other block has.
    pub(crate) fn take(&self, size: u64) -> Result<u64> {
        let mut state = lock(&self.state);
        let bank = self.built(&mut state).map_err(|error| {
            tracing::warn!(%error, "the constant bank could not be built");
            error.error()
        })?;
        if bank.size < size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let limit = units(bank.size).min(UNITS);
        let first = state.units.take(units(size), limit).ok_or(ErrorKind::OutOfDeviceMemory)?;
        Ok(bank.address + first as u64 * UNIT)
    }

    /// Returns the module that holds the bank and the kernels that read it.
    pub(crate) fn module(&self) -> Result<Module, BuildError> {
        Ok(self.built(&mut lock(&self.state))?.module)
    }

    /// Returns where an address is in the bank, once it is built.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        lock(&self.state).built.as_ref().map(|bank| address - bank.address)
    }

    pub(crate) fn give_back(&self, address: u64, size: u64) {
        let mut state = lock(&self.state);
        let Some(start) = state.built.as_ref().map(|bank| bank.address) else { return };
        let first = usize::try_from((address - start) / UNIT).expect("`take` gave the address");
        state.units.give_back(first, units(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_once_and_given_back() {
        let mut bank = Units([false; UNITS]);
        assert_eq!(bank.take(2, UNITS), Some(0));
        assert_eq!(bank.take(250, UNITS), Some(2));
        assert_eq!(bank.take(5, UNITS), None, "four are left");
        assert_eq!(bank.take(4, UNITS), Some(252));
        assert_eq!(bank.take(1, UNITS), None);
        bank.give_back(0, 2);
        assert_eq!(bank.take(3, UNITS), None, "two are free");
        assert_eq!(bank.take(1, UNITS), Some(0));
        assert_eq!(bank.take(1, UNITS), Some(1));
        assert_eq!(Units([false; UNITS]).take(3, 2), None, "a smaller bank");
    }

    #[test]
    fn bytes_are_rounded_up_to_units() {
        assert_eq!([1, 256, 257, 65_536].map(units), [1, 1, 2, 256]);
    }
}
