//! The backend on a real device. Without one every case is *ignored*; `OMNIHEAP_REQUIRE=cuda` turns that into failure.
mod compact;
mod export;
mod kernels;
mod memory;
mod misuse;
mod pages;
mod process;
mod support;
mod teardown;
mod time;
mod transfer;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use omniheap_cuda::Cuda;
use std::process::ExitCode;
use support::{Need, is_required};

/// One promise: its name, what it needs, and how it is checked.
pub(crate) type Case = (&'static str, Need, fn(&Cuda));

/// Names each function once, so that name and check cannot drift apart.
macro_rules! cases {
    ($($need:ident: $($name:ident),* $(,)?;)*) => {
        pub(crate) const CASES: &[crate::Case] =
            &[$($((stringify!($name), crate::support::Need::$need, $name)),*),*];
    };
}
pub(crate) use cases;

fn run((name, need, check): Case) -> Result<Completion, Failed> {
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(error) => return Err(format!("{name}: no device: {error}").into()),
    };
    if let Some(reason) = need.missing(&cuda) {
        if is_required() {
            return Err(format!("{name}: {reason}").into());
        }
        return Ok(Completion::ignored_with(reason));
    }
    check(&cuda);
    Ok(Completion::Completed)
}

fn main() -> ExitCode {
    if let Some(done) = process::other() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // One device, and budgets that are read from it: one case at a time.
    arguments.test_threads.get_or_insert(1);
    let is_absent = Cuda::count() == 0 && !is_required();
    let all = [
        memory::CASES,
        transfer::CASES,
        compact::CASES,
        time::CASES,
        pages::CASES,
        export::CASES,
        process::CASES,
        kernels::CASES,
        misuse::CASES,
        teardown::CASES,
    ];
    let trials = all
        .into_iter()
        .flatten()
        .map(|&case| Trial::ignorable_test(case.0, move || run(case)).with_ignored_flag(is_absent));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
