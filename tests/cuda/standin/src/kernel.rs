//! Emulated kernels, by name: those of the backend, of its tests, and of the programs here. No device code is executed.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::code::Answer;
use crate::space;

/// Variables of a module: address and bytes by name.
pub(crate) type Symbols = BTreeMap<String, (u64, u64)>;

/// A kernel that can be emulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// Bytes of each of its arguments.
    pub(crate) sizes: &'static [usize],
    run: fn(&Launch) -> Answer,
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) arguments: Vec<u64>,
    pub(crate) threads: u64,
    /// Bytes of shared memory that the launch asked for.
    pub(crate) shared: u64,
    pub(crate) symbols: Arc<Symbols>,
}

impl Launch {
    pub(crate) fn run(&self) -> Answer {
        (self.kernel.run)(self)
    }

    fn argument(&self, index: usize) -> u64 {
        self.arguments[index]
    }
}

/// Finds the emulation of a kernel.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    let (sizes, run): (&[usize], fn(&Launch) -> Answer) = match name {
        "omniheap_compact" => (&[8, 4], compact),
        "omniheap_bank_read" => (&[8, 8, 8], bank_read),
        "omniheap_hold" => (&[8, 8], hold),
        "omniheap_sum_shared" => (&[8, 4], sum_shared),
        "set" => (&[8], |launch| space::write(launch.argument(0), &42u32.to_ne_bytes())),
        "stray" => (&[8], |launch| space::write(launch.argument(0), &1u32.to_ne_bytes())),
        "standin_fill" => (&[8, 4, 8], fill),
        "standin_spin" => (&[8], spin),
        _ => return None,
    };
    Some(Kernel { sizes, run })
}

/// Table of moves (destination, source, bytes: 24 bytes each), and their number.
fn compact(launch: &Launch) -> Answer {
    let table = launch.argument(0);
    for index in 0..launch.argument(1) {
        let entry = space::read(table + 24 * index, 24)?;
        let word =
            |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
        space::copy(word(0), word(8), word(16))?;
    }
    Ok(())
}

/// Destination, offset in the bank, bytes.
fn bank_read(launch: &Launch) -> Answer {
    let bank = launch.symbols.get("omniheap_bank").expect("the module of this kernel has the bank");
    space::copy(launch.argument(0), bank.0 + launch.argument(1), launch.argument(2))
}

/// A word to wait for until it is not 0, and the nanoseconds to wait at most.
fn hold(launch: &Launch) -> Answer {
    let (start, most) = (Instant::now(), Duration::from_nanos(launch.argument(1)));
    while space::read_volatile(launch.argument(0))? == 0 && start.elapsed() < most {
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Destination and a count of words; the sum of the words' numbers, if the launch has the shared bytes.
fn sum_shared(launch: &Launch) -> Answer {
    let words = launch.argument(1);
    let sum = if launch.shared >= 4 * words { words * (words + 1) / 2 } else { 0 };
    let sum = u32::try_from(sum & u64::from(u32::MAX)).expect("masked");
    space::write(launch.argument(0), &sum.to_ne_bytes())
}

/// Destination, value, count of values; no more values than there are threads.
fn fill(launch: &Launch) -> Answer {
    let value = u32::try_from(launch.argument(1)).expect("four bytes were read");
    let count = launch.argument(2).min(launch.threads);
    let bytes = value.to_ne_bytes().repeat(usize::try_from(count).expect("at most the threads"));
    space::write(launch.argument(0), &bytes)
}

/// Nanoseconds to take.
fn spin(launch: &Launch) -> Answer {
    thread::sleep(Duration::from_nanos(launch.argument(0)));
    Ok(())
}
