//! The events that omniheap says through `tracing` have the names that `docs/tracing.md` promises.
//!
//! Alone in its process: `tracing` decides for all threads together whether anyone listens to a name, and a thread without a
//! listener that registers at the wrong moment would decide that there is none.
#![expect(clippy::unwrap_used, reason = "a test that is wrong stops where it is wrong")]

use omniheap_core::{
    Backend as _, BlockOffset, Manager, ManagerConfig, PoolConfig, Request, TimelineId,
    Transfer as _,
};
use omniheap_host::Host;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

const PROMISES: &str = include_str!("../../../docs/tracing.md");

/// Keeps the names of what was said, with their fields.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<BTreeSet<String>>>);

impl Heard {
    fn keep(&self, about: &Metadata<'_>) {
        assert_eq!(about.target(), "omniheap");
        for field in about.fields().iter().filter(|field| field.name() != "message") {
            assert!(PROMISES.contains(&format!("`{}`", field.name())), "{field} is not promised");
        }
        self.0.lock().unwrap().insert(about.name().to_owned());
    }
}

impl Subscriber for Heard {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "omniheap"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.keep(span.metadata());
        Id::from_u64(1)
    }
    fn event(&self, event: &Event<'_>) {
        self.keep(event.metadata());
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Writes one byte behind the end of a guarded allocation, and asks.
fn overwrite() {
    let manager = Manager::with_config(Host::new(), ManagerConfig::default().guarded());
    let one = manager.allocate(&Request::new(1000).name("one")).unwrap();
    let binding = one.binding();
    let behind = BlockOffset { block: binding.block(), offset: binding.span().end() };
    manager.backend().write(TimelineId::MAIN, behind, &[7]).unwrap();
    manager.backend().wait_idle().unwrap();
    drop(binding);
    drop(one);
    assert_eq!(manager.overwrites().unwrap().len(), 1);
}

#[test]
fn every_name_is_promised_and_every_promise_is_kept() {
    let heard = Heard::default();
    with_default(heard.clone(), || {
        let manager = Manager::with_config(Host::new(), ManagerConfig::default());
        drop(manager.allocate(&Request::new(3 << 20)).unwrap());
        manager.trim().unwrap();
        let (heap, _) = manager.caps().heap_ids().next().unwrap();
        let small = PoolConfig::new().block(1 << 20).maximum(1 << 20).lanes(1);
        let pool = manager.create_pool(heap, small).unwrap();
        let kept = pool.allocate(&Request::new(600 << 10)).unwrap();
        pool.allocate(&Request::new(600 << 10)).expect_err("it does not fit");
        drop(kept);
        overwrite();
    });
    let names = heard.0.lock().unwrap().clone();
    let promised: BTreeSet<_> = PROMISES
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(names, promised);
}
