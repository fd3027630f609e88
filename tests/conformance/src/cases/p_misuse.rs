//! P: freed twice, used after the free, never freed.
use super::{kind, take};
use crate::case::Case;
use crate::world::{World, check_stamp, write_stamp};
use core::fmt;
use omniheap_core::{Backend, ErrorKind, Request};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        a_freed_id_is_stale_every_time proves [124] needs [];
        a_reused_slot_does_not_revive_an_old_id proves [125] needs [];
        an_id_of_another_manager_is_foreign proves [126] needs [];
        what_outlives_its_manager_is_named_and_still_works proves [127] needs [Transfer];
    }
}

fn a_freed_id_is_stale_every_time<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let one = take(&manager, &Request::new(100));
    let id = one.id();
    assert_eq!(manager.check(id), Ok(100));
    one.free();
    let before = manager.totals();
    for _ in 0..100 {
        assert_eq!(kind(manager.check(id)), ErrorKind::Stale);
    }
    assert_eq!(manager.totals(), before);
}

fn a_reused_slot_does_not_revive_an_old_id<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut old = Vec::new();
    for _ in 0..2000 {
        let one = take(&manager, &Request::new(100));
        assert!(!old.contains(&one.id()), "never the same id again");
        old.push(one.id());
    }
    let _live: Vec<_> = (0..50).map(|_| take(&manager, &Request::new(100))).collect();
    assert!(old.iter().all(|id| kind(manager.check(*id)) == ErrorKind::Stale));
}

fn an_id_of_another_manager_is_foreign<B: Backend + 'static>(world: &World<B>) {
    let managers = [(); 3].map(|()| world.manager());
    let live: Vec<_> = managers
        .iter()
        .flat_map(|manager| (0..20).map(|_| take(manager, &Request::new(64))))
        .collect();
    for (at, one) in live.iter().enumerate() {
        for (owner, manager) in managers.iter().enumerate() {
            let answer = manager.check(one.id());
            if owner == at / 20 {
                assert_eq!(answer, Ok(64));
            } else {
                assert_eq!(kind(answer), ErrorKind::Foreign);
            }
        }
    }
}

fn what_outlives_its_manager_is_named_and_still_works<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let one = take(&manager, &Request::new(world.whole(4097)).name("orphan"));
    write_stamp(&one, 1);
    let heard = Listener::default();
    tracing::subscriber::with_default(heard.clone(), || drop(manager));
    let said = heard.0.lock().expect("no panic").join("\n");
    assert!(said.contains("orphan") && said.contains(&one.size().to_string()), "said: {said:?}");
    assert!(stack.inner().live().bytes() > 0, "the memory stays with its owner");
    check_stamp(&one, 1);
    one.free();
    assert_eq!(stack.inner().live().bytes(), 0, "and goes with it");
}

/// Writes down what is warned of.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write;
        let _ = write!(self.0, "{field}={value:?} ");
    }
}
