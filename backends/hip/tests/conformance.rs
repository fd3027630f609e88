//! The shared suite, on whatever HIP device is here, and over AMD's own runtimes and the HSA stand-in.
#[path = "device/rig.rs"]
mod amd;
#[path = "device/emulate.rs"]
mod emulate;
#[path = "../../stream/tests/device/hold.rs"]
mod hold;
mod own {
    pub(crate) use omniheap_hip::{Argument, Block, Hip as Device, Kernel, Launch};
}

use amd::Job;
use core::time::Duration;
use libtest_mimic::Arguments;
use omniheap_hip::Hip;
use std::process::ExitCode;

/// Longer than any case holds a timeline.
const HOLD: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Loads the runtime, and with it the stand-in where there is one.
    let is_here = Hip::count() > 0 || amd::is_device_required();
    emulate::register();
    let mut trials = Vec::new();
    if is_here || !amd::is_required() {
        trials.extend(omniheap_conformance::trials("hip", || hold::rig(HOLD)));
    }
    // Enough memory for offsets beyond 32 bits, and a hardware queue for every stream: those that share one wait for each
    // other's holds.
    let variables = &[("OMNIHEAP_HSA_VRAM", "8589934592"), ("GPU_MAX_HW_QUEUES", "16")];
    let skip = &[
        ("::kernels_", "the stand-in runs no device code"),
        (
            "constants_that_do_not_fit_go_to_device_memory",
            "AMD's constants are limited to 2 GiB, which is more than the suite lets a case take",
        ),
    ];
    let all = Job { name: "conformance", case: None, variables, fault: None, skip };
    trials.extend(amd::trials(&[all]));
    libtest_mimic::run(&arguments, trials).exit_code()
}
