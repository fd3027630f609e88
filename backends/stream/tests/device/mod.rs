//! The cases that every backend over streams passes, whichever it is: the backend's own test includes them with `#[path]`.
//!
//! A backend's module `own` provides its types under common names, and the differences between vendors.
use crate::own::{Device, NAME};
use libtest_mimic::{Completion, Failed, Trial};
use support::Need;

/// One promise: its name, what it needs, and how it is checked.
pub(crate) type Case = (&'static str, Need, fn(&Device));

/// Names each function once, so that name and check cannot drift apart.
macro_rules! cases {
    ($($need:ident: $($name:ident),* $(,)?;)*) => {
        pub(crate) const CASES: &[crate::shared::Case] =
            &[$($((stringify!($name), crate::shared::support::Need::$need, $name)),*),*];
    };
}

mod compact;
mod export;
mod kernels;
mod memory;
mod misuse;
mod pages;
pub(crate) mod process;
pub(crate) mod support;
mod teardown;
mod time;
mod transfer;

/// Returns every shared case.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let all = [
        memory::CASES,
        transfer::CASES,
        compact::CASES,
        time::CASES,
        pages::CASES,
        export::CASES,
        process::CASES,
        misuse::CASES,
        teardown::CASES,
        kernels::CASES,
    ];
    all.into_iter().flatten().copied()
}

/// Returns whether an absent device or feature is a failure.
pub(crate) fn is_required() -> bool {
    let names = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    names.split(',').any(|name| name.trim() == NAME)
}

/// Returns a case on a device of its own.
pub(crate) fn trial(case: Case) -> Trial {
    Trial::ignorable_test(case.0, move || run(case))
}

fn run((name, need, check): Case) -> Result<Completion, Failed> {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return Err(format!("{name}: no device: {error}").into()),
    };
    if let Some(reason) = need.missing(&device) {
        if is_required() {
            return Err(format!("{name}: {reason}").into());
        }
        return Ok(Completion::ignored_with(reason));
    }
    check(&device);
    Ok(Completion::Completed)
}
