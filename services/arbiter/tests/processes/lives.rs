//! Processes that end, hang, stop and come back; arbiters too.
use crate::support::{Arbiter, MIB, Process, Raw, listen, often, path, say, stop};
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_arbiter::frame::{Ask, Tell};
use omniheap_arbiter::{ArbiterError, Policy, Server, Tenant, tenants};
use std::path::Path;

/// Frames that a tenant may send, with the answer that it waits for after each.
const SCRIPT: [Ask; 7] = [
    Ask::Hello { held: 0 },
    Ask::Take { request: 1, bytes: 60 * MIB },
    Ask::Take { request: 2, bytes: 40 * MIB },
    Ask::Give { bytes: 50 * MIB },
    Ask::List,
    Ask::Answer { press: 99 },
    Ask::Take { request: 3, bytes: 10 * MIB },
];

/// Sends the first frames of the script, waits for the answers of some of them, and stays.
pub(crate) fn sends_some_frames(socket: &Path, count: &str) {
    let raw = Raw::open(socket);
    let count: usize = count.parse().expect("a number");
    for ask in &SCRIPT[..count] {
        assert!(raw.ask(*ask), "the arbiter is there");
        if matches!(ask, Ask::Hello { .. } | Ask::Take { .. } | Ask::List) {
            assert!(raw.hear().is_some(), "an answer");
        }
    }
    say("sent");
    listen();
}

pub(crate) fn a_kill_after_every_message_leaves_nothing_behind() {
    let arbiter = Arbiter::start("kill.sock", "capacity = \"100MiB\"\n");
    for count in 0..=SCRIPT.len() {
        let mut process =
            Process::start("sends_some_frames", &arbiter.path, None, &count.to_string());
        assert_eq!(process.hear(), "sent");
        process.kill();
        // This process has been a tenant too since the first round.
        arbiter.await_tenants(|all| all.iter().all(|it| it.pid == u64::from(std::process::id())));
        let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
        tenant.take(100 * MIB).expect("all of it can be granted again");
        tenant.give(100 * MIB);
    }
}

/// Takes everything and stays.
pub(crate) fn takes_everything(socket: &Path, _: &str) {
    let tenant = Tenant::shared(socket).expect("a tenant");
    tenant.take(100 * MIB).expect("it is free");
    say("taken");
    listen();
}

pub(crate) fn after_kill_9_everything_is_grantable_every_time() {
    let arbiter = Arbiter::start("kill9.sock", "capacity = \"100MiB\"\n");
    for _ in 0..often("OMNIHEAP_KILLS", 40) {
        let mut process = Process::start("takes_everything", &arbiter.path, None, "");
        assert_eq!(process.hear(), "taken");
        assert_eq!(arbiter.tenants()[0].held, 100 * MIB);
        process.kill();
        arbiter.await_tenants(<[_]>::is_empty);
    }
}

pub(crate) fn a_connection_that_ends_does_not_free_what_the_process_holds() {
    let arbiter = Arbiter::start("close.sock", "capacity = \"100MiB\"\n");
    let raw = Raw::open(&arbiter.path);
    assert!(raw.ask(Ask::Hello { held: 0 }) && raw.hear().is_some());
    assert!(raw.ask(Ask::Take { request: 1, bytes: 70 * MIB }) && raw.hear().is_some());
    drop(raw);
    arbiter.await_tenants(|all| all.len() == 1 && all[0].connected == 0 && all[0].held == 70 * MIB);
    // The process comes back and says what it holds.
    let raw = Raw::open(&arbiter.path);
    assert!(raw.ask(Ask::Hello { held: 30 * MIB }) && raw.hear().is_some());
    arbiter.await_tenants(|all| all.len() == 1 && all[0].connected == 1 && all[0].held == 30 * MIB);
}

pub(crate) fn who_comes_back_is_welcome_before_all_of_its_former_frames_are_read() {
    let place = path("back.sock");
    let policy = Policy::parse("capacity = \"100MiB\"\n", None).expect("a policy");
    let mut server = Server::bind(&place, policy, None).expect("a socket");
    // All of it is there before the arbiter reads anything.
    let former = Raw::open(&place);
    assert!(former.ask(Ask::Hello { held: 0 }));
    assert!(former.ask(Ask::Take { request: 1, bytes: 50 * MIB }));
    assert!((0..40).all(|_| former.ask(Ask::Give { bytes: MIB })));
    drop(former);
    let raw = Raw::open(&place);
    assert!(raw.ask(Ask::Hello { held: 10 * MIB }));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopped = || stop.load(Ordering::Relaxed);
        scope.spawn(move || server.run(stopped).expect("it serves"));
        let heard = Tell::decode(&raw.hear().expect("an answer"));
        let all = tenants(&place);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(heard, Ok(Tell::Limits { .. })), "{heard:?}");
        let all = all.expect("the arbiter answers");
        assert_eq!((all.len(), all[0].held, all[0].connected), (1, 10 * MIB, 1));
    });
}

pub(crate) fn a_stopped_tenant_becomes_a_debtor_and_the_other_one_hears_so() {
    let arbiter = Arbiter::start("stop.sock", "capacity = \"100MiB\"\npatience_ms = 50\n");
    let mut process = Process::start("takes_everything", &arbiter.path, None, "");
    assert_eq!(process.hear(), "taken");
    stop(process.id());
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let refused = tenant.take(10 * MIB).expect_err("nobody returns anything");
    assert!(matches!(refused, ArbiterError::Refused(_)), "{refused}");
    let all = arbiter.tenants();
    let stopped = all.iter().find(|it| it.pid == process.id()).expect("it is a tenant still");
    assert_eq!((stopped.held, stopped.owed), (100 * MIB, 10 * MIB));
    process.kill();
    arbiter.await_tenants(|all| all.len() == 1);
    tenant.take(100 * MIB).expect("it is free again");
    tenant.give(100 * MIB);
}

pub(crate) fn debtors_are_ended_where_the_policy_says_so() {
    let policy = "capacity = \"100MiB\"\npatience_ms = 50\nend_debtors = true\n";
    let arbiter = Arbiter::start("end.sock", policy);
    let mut process = Process::start("takes_everything", &arbiter.path, None, "");
    assert_eq!(process.hear(), "taken");
    stop(process.id());
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    // The request may be refused before the process is gone; then there is room.
    let _ = tenant.take(10 * MIB);
    arbiter.await_tenants(|all| all.len() == 1);
    tenant.take(50 * MIB).expect("the debtor is gone");
}

pub(crate) fn tenants_outlive_their_arbiter_and_the_next_one_learns_what_they_hold() {
    let arbiter = Arbiter::start("restart.sock", "capacity = \"100MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(60 * MIB).expect("it is free");
    drop(arbiter);
    tenant.give(10 * MIB);
    assert!(tenant.take(1).is_err(), "nobody can say yes");
    let arbiter = Arbiter::start("restart.sock", "capacity = \"100MiB\"\n");
    tenant.take(20 * MIB).expect("it is free");
    assert_eq!((tenant.held(), arbiter.tenants()[0].held), (70 * MIB, 70 * MIB));
    assert!(tenant.take(31 * MIB).is_err(), "what is held counts");
}

pub(crate) fn stale_sockets_are_replaced_and_living_arbiters_are_not() {
    let place = path("stale.sock");
    let policy = || Policy::equal(MIB);
    // A socket file whose arbiter was killed.
    drop(std::os::unix::net::UnixDatagram::bind(&place).expect("a socket"));
    let first = Server::bind(&place, policy(), None).expect("the stale file is replaced");
    assert!(matches!(Server::bind(&place, policy(), None), Err(ArbiterError::Served(_))));
    drop(first);
    assert!(!place.exists(), "an arbiter that ends leaves no socket");
    std::fs::write(&place, "precious").expect("a file");
    assert!(matches!(Server::bind(&place, policy(), None), Err(ArbiterError::Occupied(_))));
    assert_eq!(std::fs::read(&place).expect("it is there"), b"precious");
    let nowhere = Tenant::shared(&path("nobody.sock")).expect_err("nobody listens");
    assert!(nowhere.to_string().contains("omniheap serve"), "{nowhere}");
}

pub(crate) fn the_socket_is_for_its_user_alone_or_for_a_group() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let place = path("mode.sock");
    let mode = || std::fs::metadata(&place).expect("a socket").permissions().mode() & 0o777;
    let server = Server::bind(&place, Policy::equal(MIB), None).expect("a socket");
    assert_eq!(mode(), 0o600);
    drop(server);
    let group = rustix::process::getegid().as_raw();
    let server = Server::bind(&place, Policy::equal(MIB), Some(group)).expect("a socket");
    assert_eq!((mode(), std::fs::metadata(&place).expect("a socket").gid()), (0o660, group));
    drop(server);
}

pub(crate) fn a_grant_is_a_grant() {
    // The script above is only as good as its answers.
    let arbiter = Arbiter::start("grant.sock", "capacity = \"100MiB\"\n");
    let raw = Raw::open(&arbiter.path);
    let mut heard = Vec::new();
    for ask in &SCRIPT[..3] {
        assert!(raw.ask(*ask));
        heard.push(Tell::decode(&raw.hear().expect("an answer")).expect("a frame"));
    }
    assert_eq!(heard[1..], [Tell::Grant { request: 1 }, Tell::Grant { request: 2 }]);
}
