//! The backend on wgpu's stand-in device and on every device that is here, each case on a device of its own.
//!
//! No device here: its cases are ignored, and fail when `OMNIHEAP_REQUIRE` names `wgpu`. A message of a validation
//! layer fails the run.
#![expect(clippy::cast_possible_truncation, reason = "all sizes here are small")]

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod adopt;
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod own;
#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod adopt {
    pub(crate) const CASES: &[(&str, crate::Check)] = &[];
}
#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
use adopt as own;
mod blocks;
mod bytes;
mod child;
mod descriptions;
mod draw;
mod loss;
mod random;
mod shader;
mod texture;
mod time;
mod validation;

use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_wgpu::Wgpu;
use std::{process::ExitCode, sync::Arc};

/// A device to test on: its name, and how to open it afresh.
#[derive(Clone)]
struct Target {
    label: String,
    open: Arc<dyn Fn() -> Wgpu + Send + Sync>,
}

/// Body of a case.
type Check = fn(&Target);

fn targets() -> Vec<Target> {
    let noop = || Wgpu::open_noop().expect("needs no hardware");
    let mut targets = vec![Target { label: "noop".into(), open: Arc::new(noop) }];
    for (ordinal, info) in Wgpu::devices().into_iter().enumerate() {
        let open = move || Wgpu::open(ordinal).expect("it was listed");
        targets.push(Target { label: format!("{}/{ordinal}", info.name), open: Arc::new(open) });
    }
    targets
}

fn cases() -> Vec<(&'static str, Check)> {
    [
        adopt::CASES,
        own::CASES,
        texture::CASES,
        draw::CASES,
        descriptions::CASES,
        blocks::CASES,
        bytes::CASES,
        time::CASES,
        loss::CASES,
        random::CASES,
        shader::CASES,
    ]
    .concat()
}

fn trial(target: &Target, (name, check): (&'static str, Check)) -> Trial {
    let target = target.clone();
    Trial::test(format!("[{}] {name}", target.label), move || {
        check(&target);
        Ok(())
    })
}

fn absent((name, _): (&'static str, Check)) -> Trial {
    let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|word| word.trim() == "wgpu");
    let name = format!("[no device] {name}");
    Trial::test(name, || Err(Failed::from("OMNIHEAP_REQUIRE names wgpu, and no device is here")))
        .with_ignored_flag(!required)
}

fn main() -> ExitCode {
    validation::listen();
    if child::is_one() {
        return child::run();
    }
    let targets = targets();
    let mut trials: Vec<_> = targets
        .iter()
        .flat_map(|target| cases().into_iter().map(|case| trial(target, case)))
        .collect();
    if targets.len() == 1 {
        trials.extend(cases().into_iter().map(absent));
    }
    let mut arguments = Arguments::from_args();
    // Older validation layers crash where threads make and drop instances (Vulkan-ValidationLayers#4391).
    arguments.test_threads.get_or_insert(1);
    let conclusion = libtest_mimic::run(&arguments, trials);
    let messages = validation::messages();
    for message in &messages {
        eprintln!("validation: {message}");
    }
    if messages.is_empty() { conclusion.exit_code() } else { ExitCode::FAILURE }
}
