//! The shared suite, on whatever CUDA device is here, and over the stand-in for the driver.
#[cfg(unix)]
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
    #[cfg(unix)]
    let trials = match std::env::var(standin::LABEL) {
        Ok(label) => trials(label.leak(), || {
            Ok::<_, Error>(rig()?.without_kernels("the stand-in runs no device code"))
        }),
        Err(_) => {
            let mut trials = trials("cuda", rig);
            trials.push(standin::trial("cuda_standin"));
            trials
        }
    };
    #[cfg(not(unix))]
    let trials = trials("cuda", rig);
    let ended = libtest_mimic::run(&arguments, trials);
    omniheap_conformance::write_results();
    ended.exit_code()
}
