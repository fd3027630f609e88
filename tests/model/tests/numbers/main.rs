//! Tests of everything that managers count, report and tell, and of limits that are exact.
//!
//! All of it on one kind of device, because each kind builds the manager anew.
#[path = "../manager/before.rs"]
mod before;
mod fresh;
mod frugal;
mod lanes;
mod limits;
mod observed;
mod passes;
mod reused;
mod slides;
mod survived;

use before::{Asked, asked};
use core::ops::Deref;
use omniheap_core::{HeapId, HeapKind, Manager, ManagerConfig};
use omniheap_host::{Host, heap};
use omniheap_layers::Verdict;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const HEAP: HeapId = HeapId(0);

fn device(size: u64) -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device"))
}

fn one_lane(mut config: ManagerConfig) -> ManagerConfig {
    config.pool.lanes = Some(1);
    config
}

fn plain() -> ManagerConfig {
    one_lane(ManagerConfig::default().plain())
}

/// A manager that has quarantined nothing at the end of its test. Tests in which it does on purpose make their own.
struct Managed(Manager<Asked>);

impl Deref for Managed {
    type Target = Manager<Asked>;

    fn deref(&self) -> &Manager<Asked> {
        &self.0
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.0.report().quarantined_bytes, 0, "nobody can have these bytes again");
        }
    }
}

/// A manager of a device that refuses nothing.
fn managed(host: impl Into<Arc<Host>>, config: ManagerConfig) -> Managed {
    Managed(Manager::with_config(asked(&host.into(), |_| Verdict::Forward), config))
}
