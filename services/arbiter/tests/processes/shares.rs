//! Tests of the bytes that each tenant gets.
use crate::support::{Arbiter, MIB, Process, Raw, listen, say};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_arbiter::frame::{Ask, Refusal, Tell, TenantInfo};
use omniheap_arbiter::{ArbiterError, Order, Tenant, order, tenants};
use std::path::Path;
use std::sync::Arc;

/// Takes 1 MiB at a time, as much as it gets, and returns whatever it is asked for.
pub(crate) fn greedy(socket: &Path, _: &str) {
    let tenant = Tenant::shared(socket).expect("a tenant");
    let giver = Arc::downgrade(&tenant);
    let _attending = tenant.on_press(Arc::new(move |bytes| {
        if let Some(tenant) = giver.upgrade() {
            tenant.give(bytes.next_multiple_of(MIB).min(tenant.held()));
        }
    }));
    say("ready");
    listen();
    loop {
        let _ = tenant.take(MIB);
    }
}

/// Says that it holds more than there is, without any device, when it is told to.
pub(crate) fn greets_with_everything(socket: &Path, _: &str) {
    listen();
    let raw = Raw::open(socket);
    assert!(raw.ask(Ask::Hello { held: u64::MAX }));
    match Tell::decode(&raw.hear().expect("an answer")) {
        Ok(Tell::Limits { held, .. }) => say(&format!("{}", held / MIB)),
        other => panic!("{other:?}"),
    }
    listen();
}

pub(crate) fn a_greeting_takes_the_reserve_of_nobody() {
    let policy = "capacity = \"100MiB\"\n[default]\nquota = \"95MiB\"\nreserve = \"10MiB\"\n";
    let arbiter = Arbiter::start("greeting.sock", policy);
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let mut liar = Process::start("greets_with_everything", &arbiter.path, None, "");
    liar.tell("greet");
    assert_eq!(liar.hear(), "90", "what a request would be granted");
    tenant.take(4 * MIB).expect("inside its reserve");
    tenant.take(6 * MIB).expect("inside its reserve");
    liar.kill();
    arbiter.await_tenants(|all| all.len() == 1);
    tenant.take(80 * MIB).expect("it is free again");
}

pub(crate) fn a_greeting_is_believed_as_far_as_the_driver_counts() {
    let process = Arc::new(AtomicU64::new(0));
    let of = Arc::clone(&process);
    let count = move || Some(vec![(u32::try_from(of.load(Ordering::Relaxed)).ok()?, 30 * MIB)]);
    let policy = "capacity = \"100MiB\"\noverhead = \"0\"\n";
    let arbiter = Arbiter::compared("believed.sock", policy, Box::new(count));
    let mut liar = Process::start("greets_with_everything", &arbiter.path, None, "");
    process.store(liar.id(), Ordering::Relaxed);
    liar.tell("greet");
    assert_eq!(liar.hear(), "30");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(70 * MIB).expect("the driver has it");
}

pub(crate) fn a_greeting_of_a_process_that_the_driver_does_not_list_is_a_request() {
    // The driver lists another process alone.
    let count = || Some(vec![(1, 30 * MIB)]);
    let policy = "capacity = \"100MiB\"\noverhead = \"0\"\n";
    let arbiter = Arbiter::compared("unlisted.sock", policy, Box::new(count));
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(20 * MIB).expect("it is free");
    let mut unlisted = Process::start("greets_with_everything", &arbiter.path, None, "");
    unlisted.tell("greet");
    assert_eq!(unlisted.hear(), "80", "what a request would be granted");
    assert!(tenant.take(MIB).is_err(), "what it may have is granted to nobody else");
}

/// Takes 60 MiB, and says when it is asked to that it gave some back.
pub(crate) fn lies(socket: &Path, _: &str) {
    let tenant = Tenant::shared(socket).expect("a tenant");
    let liar = Arc::downgrade(&tenant);
    let _attending = tenant.on_press(Arc::new(move |bytes| {
        if let Some(tenant) = liar.upgrade() {
            tenant.give(bytes);
        }
    }));
    tenant.take(60 * MIB).expect("it is free");
    say("taken");
    loop {
        listen();
        say(&format!("{:?}", tenant.take(MIB)));
    }
}

pub(crate) fn who_lies_about_giving_back_is_a_debtor_until_the_driver_agrees() {
    let policy = "capacity = \"100MiB\"\npatience_ms = 50\noverhead = \"8MiB\"\n";
    let (process, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (of, bytes) = (Arc::clone(&process), Arc::clone(&counted));
    let count = move || {
        let pid = u32::try_from(of.load(Ordering::Relaxed)).ok()?;
        Some(vec![(pid, bytes.load(Ordering::Relaxed))])
    };
    let arbiter = Arbiter::compared("lies.sock", policy, Box::new(count));
    let mut liar = Process::start("lies", &arbiter.path, None, "");
    assert_eq!(liar.hear(), "taken");
    process.store(liar.id(), Ordering::Relaxed);
    counted.store(68 * MIB, Ordering::Relaxed); // 8 MiB of it are its context.
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let refused = tenant.take(50 * MIB).expect_err("the driver has no more than before");
    assert!(matches!(refused, ArbiterError::Refused(Refusal::Shortage)), "{refused}");
    let owes = |owed| {
        move |all: &[TenantInfo]| all.iter().any(|it| it.held == 50 * MIB && it.owed == owed)
    };
    arbiter.await_tenants(owes(10 * MIB));
    tenant.take(40 * MIB).expect("so much is really free");
    assert!(tenant.take(MIB).is_err(), "the books say 10 MiB, and the driver knows better");
    // Its time to return them ends.
    let is_debtor = |_| {
        liar.tell("take");
        liar.hear() == "Err(Refused(Debtor))"
    };
    assert!((0..100_000).any(is_debtor));
    counted.store(58 * MIB, Ordering::Relaxed);
    arbiter.await_tenants(owes(0));
    tenant.take(10 * MIB).expect("it was given back in the end");
}

fn held(tenants: &[TenantInfo], uid: u64) -> u64 {
    tenants.iter().find(|tenant| tenant.uid == uid).map_or(0, |tenant| tenant.held)
}

pub(crate) fn three_greedy_tenants_share_by_their_weights() {
    let policy = "capacity = \"600MiB\"\n[tenant.\"uid:2001\"]\nweight = 1\n\
                  [tenant.\"uid:2002\"]\nweight = 2\n[tenant.\"uid:2003\"]\nweight = 3\n";
    let arbiter = Arbiter::start("weights.sock", policy);
    let start = |uid| Process::start("greedy", &arbiter.path, Some(uid), "");
    let mut tenants = [2001, 2002, 2003].map(start);
    tenants.iter_mut().for_each(|tenant| drop(tenant.hear()));
    // One after the other, so that the first has everything when the others come.
    for (index, tenant) in tenants.iter_mut().enumerate() {
        tenant.tell("go");
        arbiter.await_tenants(|all| held(all, 2001 + index as u64) >= 50 * MIB);
    }
    let is_fair = |all: &[TenantInfo]| {
        let shares = [(2001, 100), (2002, 200), (2003, 300)];
        // Two of a hundred, in whole MiB.
        shares.iter().all(|(uid, mib)| held(all, *uid).abs_diff(mib * MIB) <= 2 * mib * MIB / 100)
    };
    arbiter.await_tenants(is_fair);
    // And it stays so.
    for _ in 0..50 {
        let all = arbiter.tenants();
        assert!(is_fair(&all), "{all:?}");
        assert!(all.iter().map(|tenant| tenant.held).sum::<u64>() <= 600 * MIB);
    }
}

pub(crate) fn quotas_are_kept_and_set() {
    let arbiter =
        Arbiter::start("quota.sock", "capacity = \"100MiB\"\n[default]\nquota = \"40MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(40 * MIB).expect("within the quota");
    let refused = tenant.take(1).expect_err("over the quota");
    assert!(matches!(refused, ArbiterError::Refused(Refusal::OverQuota)), "{refused}");
    let pid = std::process::id();
    order(&arbiter.path, Order::SetQuota { pid, quota: 60 * MIB }).expect("the same user");
    tenant.take(20 * MIB).expect("the quota is larger now");
    let wrong = [Order::SetQuota { pid, quota: 101 * MIB }, Order::Sleep { pid: 1 }];
    for wrong in wrong {
        assert!(matches!(order(&arbiter.path, wrong), Err(ArbiterError::Refused(_))), "{wrong:?}");
    }
    assert_eq!(tenant.held(), 60 * MIB);
}

pub(crate) fn orders_of_other_users_are_forbidden() {
    let arbiter = Arbiter::start("orders.sock", "capacity = \"100MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(MIB).expect("it is free");
    let pid = std::process::id().to_string();
    let mut other = Process::start("gives_orders", &arbiter.path, Some(2001), &pid);
    assert_eq!(other.hear(), "Forbidden");
    assert_eq!(tenant.held(), MIB);
}

pub(crate) fn a_process_may_lower_its_own_quota_and_raise_it_to_what_it_was_given() {
    let policy = "capacity = \"100MiB\"\n[default]\nquota = \"40MiB\"\n";
    let arbiter = Arbiter::start("own.sock", policy);
    let pid = std::process::id().to_string();
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let mut other = Process::start("sets_its_quota", &arbiter.path, Some(2001), &pid);
    assert_eq!(other.hear(), "20: Ok, 40: Ok, 41: Forbidden, mine: Forbidden");
    let quota = |pid: u64| {
        let all = tenants(&arbiter.path).expect("it answers");
        all.iter().find(|it| it.pid == pid).map(|it| it.quota)
    };
    assert_eq!(quota(other.id()), Some(40 * MIB));
    let id = u32::try_from(other.id()).expect("a process");
    order(&arbiter.path, Order::SetQuota { pid: id, quota: 30 * MIB }).expect("the same user");
    other.tell("again");
    assert_eq!(other.hear(), "20: Ok, 40: Forbidden, 41: Forbidden, mine: Forbidden");
    assert_eq!(quota(other.id()), Some(20 * MIB));
    drop(tenant);
}

/// Sets its own quota, and that of the process that started it.
pub(crate) fn sets_its_quota(socket: &Path, starter: &str) {
    let _tenant = Tenant::shared(socket).expect("a tenant");
    let (own, starter) = (std::process::id(), starter.parse().expect("a number"));
    let ask = |pid, mib: u64| match order(socket, Order::SetQuota { pid, quota: mib * MIB }) {
        Ok(()) => "Ok".to_owned(),
        Err(ArbiterError::Refused(why)) => format!("{why:?}"),
        Err(other) => other.to_string(),
    };
    for _ in 0..2 {
        let own = [20, 40, 41].map(|mib| format!("{mib}: {}", ask(own, mib)));
        say(&format!("{}, mine: {}", own.join(", "), ask(starter, 1)));
        listen();
    }
}

/// Gives an order that it may not give.
pub(crate) fn gives_orders(socket: &Path, pid: &str) {
    match order(socket, Order::Sleep { pid: pid.parse().expect("a number") }) {
        Err(ArbiterError::Refused(why)) => say(&format!("{why:?}")),
        other => say(&format!("{other:?}")),
    }
}

pub(crate) fn sleep_presses_for_everything_and_a_press_reaches_the_callback() {
    let arbiter = Arbiter::start("sleep.sock", "capacity = \"100MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let asked = Arc::new(AtomicU64::new(0));
    let (seen, giver) = (Arc::clone(&asked), Arc::downgrade(&tenant));
    let attending = tenant.on_press(Arc::new(move |bytes| {
        seen.fetch_add(bytes, Ordering::Relaxed);
        giver.upgrade().expect("it is there").give(bytes);
    }));
    tenant.take(30 * MIB).expect("it is free");
    order(&arbiter.path, Order::Sleep { pid: std::process::id() }).expect("a tenant");
    arbiter.await_tenants(|all| all.iter().all(|tenant| tenant.held == 0));
    assert_eq!((asked.load(Ordering::Relaxed), tenant.held()), (30 * MIB, 0));
    drop(attending);
}
