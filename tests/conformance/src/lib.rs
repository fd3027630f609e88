//! The promises every backend makes, as runnable cases.
//!
//! A backend is right when it passes. Its whole test file is one line:
//!
//! ```no_run
//! // No run: a test binary has this as its `main`.
//! # use omniheap_conformance::Rig;
//! # use omniheap_host::Host;
//! omniheap_conformance::conformance! { host => || Ok::<_, String>(Rig::new(Host::new())) }
//! ```
//!
//! [`run()`] is the same list for programs. What cases may use is in [`World`]; what each behaviour means and how to
//! read the verdict is in `docs/conformance.md`.
mod case;
mod cases;
mod elsewhere;
mod expect;
pub mod faults;
mod first_fit;
mod gates;
mod kept;
mod look;
mod results;
mod rig;
mod rng;
mod run;
pub mod soak;
mod spares;
mod world;

#[doc(hidden)]
pub use libtest_mimic;

pub use case::{Case, Need};
pub use elsewhere::ELSEWHERE;
pub use gates::LONGEST_HOLD;
pub use look::Look;
pub use results::{CaseResult, Outcome, Results};
pub use rig::{Account, Guards, Held, Rig};
pub use rng::{Rng, mix, stamp};
pub use run::{Progress, run, seed, trials, write_results};
pub use spares::{Lease, Spares};
pub use world::{LIMIT, Mode, Stack, World};

/// Every case, for one type of backend.
#[must_use]
pub fn cases<B: omniheap_core::Backend + 'static>() -> Vec<Case<B>> {
    cases::all()
}

/// Declares a test binary: `conformance! { mine => || Mine::open().map(Rig::new) }`.
///
/// Each label names a device; the closure opens it afresh for every case, or says why it is not here. An absent device
/// is reported as ignored, unless `OMNIHEAP_REQUIRE` names its label. With `OMNIHEAP_RESULTS` set to a folder, the
/// results of each label are written there as JSON.
#[macro_export]
macro_rules! conformance {
    ($($label:ident => $open:expr),+ $(,)?) => {
        fn main() {
            let args = $crate::libtest_mimic::Arguments::from_args();
            let mut trials = Vec::new();
            $(trials.extend($crate::trials(stringify!($label), $open));)+
            let conclusion = $crate::libtest_mimic::run(&args, trials);
            $crate::write_results();
            conclusion.exit();
        }
    };
}
