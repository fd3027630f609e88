//! The whole suite, in one line.
use core::convert::Infallible;
use omniheap_conformance::{Account, Rig};
use omniheap_toy_backend::Toy;

omniheap_conformance::conformance! {
    toy => || Ok::<_, Infallible>(Rig::new(Toy::new(512 << 20)).with_account(Account::Exact)),
}
