//! The shared suite, on a CUDA device if there is one, and over the stand-in for the driver.
#[path = "device/standin.rs"]
mod standin;

use libtest_mimic::Arguments;
use omniheap_conformance::{LONGEST_HOLD, Rig, trials};
use omniheap_core::{Error, Result};
use omniheap_cuda::Cuda;
use std::{process::ExitCode, sync::Arc};

fn rig() -> Result<Rig<Arc<Cuda>>> {
    Ok(Rig::new(Arc::new(Cuda::open(0)?)).with_gates(LONGEST_HOLD))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut all = match std::env::var(standin::LABEL) {
        Ok(label) => trials(label.leak(), || {
            Ok::<_, Error>(rig()?.without_kernels("the stand-in runs no device code"))
        }),
        Err(_) => trials("cuda", rig),
    };
    // A broken rule of the driver ends the run.
    all.extend(standin::trial(standin::Job { skip: &[], variables: &[("STANDIN_STRICT", "1")] }));
    let ended = libtest_mimic::run(&arguments, all);
    omniheap_conformance::write_results();
    ended.exit_code()
}
