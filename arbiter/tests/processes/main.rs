//! The arbiter with real processes: this program starts itself again as its tenants.
#![cfg(target_os = "linux")]
mod bad_input;
mod lives;
mod memory;
mod shares;
mod support;
