//! Every promise of the backend, on every Vulkan device here, with the validation layer listening.
//!
//! A message from the layer fails the case that caused it. Without a device all cases are ignored, unless
//! `OMNIHEAP_REQUIRE` lists `vulkan`; without the layer they run unwatched, unless it lists `validation`.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking, and clippy sees no test here")]

mod bad_input;
mod bare;
mod endings;
mod families;
mod faults;
mod judged;
mod kernel;
mod launch;
mod memory;
mod model;
mod pages;
mod resources;
mod retire;
mod rig;
#[cfg(unix)]
mod sharing;
mod sleepers;
mod timelines;
mod transfers;
mod twins;

use libtest_mimic::{Arguments, Trial};
use omniheap_vulkan::Vulkan;
use rig::{Case, required, trials};

fn main() {
    watch_queues();
    let mut arguments = Arguments::from_args();
    // Cases watch the driver's budget and fill rings: one at a time.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let cases: Vec<Case> = [
        memory::CASES,
        transfers::CASES,
        kernel::CASES,
        families::CASES,
        launch::CASES,
        timelines::CASES,
        pages::CASES,
        #[cfg(unix)]
        sharing::CASES,
        resources::CASES,
        retire::CASES,
        twins::CASES,
        sleepers::CASES,
        bad_input::CASES,
        endings::CASES,
        model::CASES,
        faults::CASES,
        judged::CASES,
        bare::CASES,
    ]
    .concat();
    let devices = Vulkan::devices().unwrap_or_default();
    let mut list = vec![present(!devices.is_empty()), rig::watched()];
    for (index, device) in devices.iter().enumerate() {
        list.extend(trials(index, &device.name, &cases));
    }
    libtest_mimic::run(&arguments, list).exit();
}

fn present(found: bool) -> Trial {
    let answer = move || if found { Ok(()) } else { Err("no Vulkan device here".into()) };
    Trial::test("a_device_is_present", answer).with_ignored_flag(!found && !required("vulkan"))
}

/// Older validation layers look for hazards between submissions only when told to.
#[expect(unsafe_code, reason = "changes the environment")]
fn watch_queues() {
    let check = "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT";
    // SAFETY: the first thing that `main` does, before any other thread exists.
    unsafe { std::env::set_var("VK_LAYER_ENABLES", check) };
}
