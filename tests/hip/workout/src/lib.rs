//! One program that exercises a HIP library and writes down what it answered.
//!
//! The program runs unchanged over AMD's runtime on a device, over AMD's runtime on the stand-in (`tests/hip/standin`),
//! and over the forwarding library (`tests/hip/forward`). Each case is a list of calls; every answer is a line of the
//! output, which holds no address and no time, so that two runs can be compared as text. Beside that there are checks
//! that must hold on every library, such as bytes that come back as they were written: one that fails fails the run.

mod cases;
mod run;

use std::path::Path;

pub use cases::{BUGS, CASES, Case};
use omniheap_hip::sys::{Api, Missing};
pub use run::Outcome;

/// Runs one case over the HIP library at `library`, printing as it goes.
///
/// # Errors
/// Fails when there is no HIP library at `library`.
pub fn run(library: &Path, case: &Case) -> Result<Outcome, Missing> {
    // For good: the library stays loaded anyway, and drivers keep a reference.
    let api = Box::leak(Box::new(Api::load_from(library)?));
    let mut run = run::Run::new(api);
    (case.run)(&mut run);
    Ok(run.finish())
}
