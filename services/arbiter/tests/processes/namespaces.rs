//! Processes in process namespaces of their own, as containers have them, and folders of other machines.
use crate::support::{Arbiter, MIB, Process, listen, path, remote_folder, say, stop};
use omniheap_arbiter::frame::Refusal;
use omniheap_arbiter::{ArbiterError, Policy, Server, Tenant, tenants};
use std::path::Path;

/// Takes so many MiB as the first process of its namespace, and stays.
pub(crate) fn takes_apart(socket: &Path, mib: &str) {
    assert_eq!(std::process::id(), 1, "a namespace of its own");
    let tenant = Tenant::shared(socket).expect("a tenant");
    tenant.take(mib.parse::<u64>().expect("a number") * MIB).expect("it is free");
    say("taken");
    listen();
}

pub(crate) fn tenants_in_containers_are_told_apart_and_their_end_is_seen() {
    let arbiter = Arbiter::start("apart.sock", "capacity = \"100MiB\"\n");
    let start = |mib| Process::start_apart("takes_apart", &arbiter.path, mib);
    let mut processes = ["30", "50"].map(start);
    processes.iter_mut().for_each(|process| assert_eq!(process.hear(), "taken"));
    let mut all = arbiter.tenants();
    all.sort_by_key(|it| it.held);
    assert_eq!(all.iter().map(|it| it.held / MIB).collect::<Vec<_>>(), [30, 50]);
    // Both are number 1 to themselves, and are known here by the numbers that this namespace has for them.
    assert!(all[0].pid != all[1].pid && all.iter().all(|it| it.pid > 1), "{all:?}");
    let known = |pid| std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    assert!(all.iter().all(|it| known(it.pid).contains(&format!("NSpid:\t{}\t1", it.pid))));
    let [first, _second] = &mut processes;
    first.kill();
    arbiter.await_tenants(|all| all.len() == 1 && all[0].held == 50 * MIB);
}

pub(crate) fn debtors_in_containers_are_ended_where_the_policy_says_so() {
    let policy = "capacity = \"100MiB\"\npatience_ms = 50\nend_debtors = true\n";
    let arbiter = Arbiter::start("apart-end.sock", policy);
    let mut process = Process::start_apart("takes_apart", &arbiter.path, "100");
    assert_eq!(process.hear(), "taken");
    stop(arbiter.tenants()[0].pid);
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    // The request may be refused before the process is gone; then there is room.
    let _ = tenant.take(10 * MIB);
    arbiter.await_tenants(|all| all.len() == 1);
    tenant.take(50 * MIB).expect("the debtor is gone");
}

/// Serves until the test ends, in a namespace of its own.
pub(crate) fn serves_apart(socket: &Path, _: &str) {
    let mut server = Server::bind(socket, Policy::equal(MIB), None).expect("a socket");
    std::thread::spawn(move || server.run(|| false));
    say("serving");
    listen();
}

pub(crate) fn an_arbiter_that_cannot_see_a_process_says_so() {
    let socket = path("unseen.sock");
    let mut arbiter = Process::start_apart("serves_apart", &socket, "");
    assert_eq!(arbiter.hear(), "serving");
    let refused = Tenant::shared(&socket).expect_err("nobody would see the end of this process");
    assert!(matches!(refused, ArbiterError::Refused(Refusal::Unseen)), "{refused}");
    assert!(refused.to_string().contains("hostPID"), "{refused}");
    assert_eq!(tenants(&socket).expect("whoever may connect may look").len(), 0);
}

pub(crate) fn a_socket_on_a_network_file_system_is_refused() {
    let folder = remote_folder().expect("ignored without one");
    let socket = folder.join(format!("omniheap-{}.sock", std::process::id()));
    let refused = Server::bind(&socket, Policy::equal(MIB), None).expect_err("others see it");
    assert!(matches!(refused, ArbiterError::Remote(_)), "{refused}");
    assert!(!socket.exists() && !socket.with_extension("sock.lock").exists());
}
