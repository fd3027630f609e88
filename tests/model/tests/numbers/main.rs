//! What managers count, report and tell, and limits that are exact.
//!
//! All of it on one kind of device, because each kind builds the manager anew.
#[path = "../manager/before.rs"]
mod before;
mod frugal;
mod lanes;
mod limits;
mod observed;
mod passes;
mod reused;
mod slides;
mod survived;

use before::{Asked, asked};
use omniheap_core::{Manager, ManagerConfig};
use omniheap_host::Host;
use omniheap_layers::Verdict;
use std::sync::Arc;

/// A manager of a device that refuses nothing.
fn managed(host: impl Into<Arc<Host>>, config: ManagerConfig) -> Manager<Asked> {
    Manager::with_config(asked(&host.into(), |_| Verdict::Forward), config)
}
