//! The shared suite, on whatever HIP device is here, and over AMD's own runtimes and the HSA stand-in.
#[path = "device/rig.rs"]
mod amd;
#[path = "device/emulate.rs"]
mod emulate;

use amd::{Job, LABEL};
use libtest_mimic::Arguments;
use omniheap_conformance::{LONGEST_HOLD, Rig};
use omniheap_core::{Error, Result};
use omniheap_hip::Hip;
use std::{process::ExitCode, sync::Arc};

fn rig() -> Result<Rig<Arc<Hip>>> {
    Ok(Rig::new(Arc::new(Hip::open(0)?)).with_gates(LONGEST_HOLD))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Loads the runtime, and with it the stand-in where there is one.
    let is_here = Hip::count() > 0 || amd::is_device_required();
    emulate::register();
    let mut trials = Vec::new();
    if is_here || !amd::is_required() {
        match std::env::var(LABEL) {
            Ok(label) => trials.extend(omniheap_conformance::trials(label.leak(), || {
                Ok::<_, Error>(rig()?.without_kernels("the stand-in runs no device code"))
            })),
            Err(_) => trials.extend(omniheap_conformance::trials("hip", rig)),
        }
    }
    // Enough memory for offsets beyond 32 bits, and a hardware queue for every stream: those that share one wait for each
    // other's holds.
    let variables = &[("OMNIHEAP_HSA_VRAM", "8589934592"), ("GPU_MAX_HW_QUEUES", "16")];
    let all = Job { name: "conformance", case: None, variables, fault: None, skip: &[] };
    trials.extend(amd::trials(&[all]));
    let ended = libtest_mimic::run(&arguments, trials);
    omniheap_conformance::write_results();
    ended.exit_code()
}
