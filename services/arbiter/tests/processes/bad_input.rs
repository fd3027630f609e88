//! Processes that are no tenants, or want to be none.
use crate::support::{Arbiter, MIB, Process, Raw, say};
use omniheap_arbiter::frame::{Ask, Refusal, Tell, VERSION};
use omniheap_arbiter::{Tenant, tenants};
use std::io::IoSlice;
use std::path::Path;

/// After each of these, the arbiter serves others as before.
fn serves(arbiter: &Arbiter) {
    assert!(tenants(&arbiter.path).is_ok());
}

pub(crate) fn wrong_packets_end_their_connection_and_nothing_else() {
    let arbiter = Arbiter::start("wrong.sock", "capacity = \"100MiB\"\n");
    let mut version = Ask::Hello { held: 0 }.encode();
    version[4] = 1;
    let half = Ask::Take { request: 1, bytes: 1 }.encode()[..12].to_vec();
    let (long, other) = (vec![0; 65 << 10], Tell::Done.encode());
    let raw = Raw::open(&arbiter.path);
    assert!(raw.send(&version));
    let answer = raw.hear().expect("an older program learns the version");
    assert_eq!(answer[4..6], VERSION.to_le_bytes());
    assert_eq!(raw.hear(), None, "and no more");
    serves(&arbiter);
    for packet in [half, long, other, b"GET / HTTP/1.1".to_vec()] {
        let raw = Raw::open(&arbiter.path);
        assert!(raw.send(&packet));
        assert_eq!(raw.hear(), None, "{packet:?}");
        serves(&arbiter);
    }
}

fn refusal(raw: &Raw) -> Refusal {
    match Tell::decode(&raw.hear().expect("an answer")).expect("a frame") {
        Tell::Refuse { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn contradictions_are_refused_and_change_nothing() {
    let arbiter = Arbiter::start("contradict.sock", "capacity = \"100MiB\"\n");
    let raw = Raw::open(&arbiter.path);
    assert!(raw.ask(Ask::Take { request: 1, bytes: 1 }));
    assert_eq!(refusal(&raw), Refusal::NoTenant, "nobody said hello");
    assert!(raw.ask(Ask::Hello { held: 0 }) && raw.hear().is_some());
    for (ask, why) in [
        (Ask::Hello { held: 5 }, Refusal::Contradiction),
        (Ask::Take { request: 2, bytes: u64::MAX }, Refusal::Never),
        (Ask::Take { request: 3, bytes: 0 }, Refusal::Contradiction),
        (Ask::Give { bytes: 1 }, Refusal::Contradiction),
        (Ask::Sleep { pid: u64::MAX }, Refusal::NoTenant),
    ] {
        assert!(raw.ask(ask));
        assert_eq!(refusal(&raw), why, "{ask:?}");
    }
    assert_eq!(arbiter.tenants()[0].held, 0);
    let second = Raw::open(&arbiter.path);
    assert!(second.ask(Ask::Hello { held: 0 }));
    assert_eq!(refusal(&second), Refusal::TooMany, "a process is one tenant");
}

pub(crate) fn many_connections_and_slow_readers_do_not_stop_the_others() {
    let arbiter = Arbiter::start("many.sock", "capacity = \"100MiB\"\n");
    let idle: Vec<Raw> = (0..150).map(|_| Raw::open(&arbiter.path)).collect();
    serves(&arbiter);
    // Asks without end and never reads an answer.
    let deaf = &idle[0];
    let packet = Ask::List.encode();
    for _ in 0..20_000 {
        if !deaf.send(&packet) {
            break;
        }
    }
    serves(&arbiter);
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(MIB).expect("it is free");
}

/// Opens more connections than an arbiter has room for. A process of its own: the tests beside it need descriptors too.
pub(crate) fn floods(_: &Path, _: &str) {
    let arbiter = Arbiter::start("flood.sock", "capacity = \"100MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let mut open = Vec::new();
    for turn in 0..10_000 {
        let raw = Raw::open(&arbiter.path);
        if turn < 210 {
            open.push(raw);
        } else if turn % 100 == 0 {
            let _ = raw.ask(Ask::List);
            assert_eq!(raw.hear(), None, "there is no room for so many");
        }
    }
    tenant.take(MIB).expect("who was there before is served");
    drop(open);
    while tenants(&arbiter.path).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(arbiter.tenants()[0].held, MIB);
    say("served");
}

pub(crate) fn ten_thousand_connections_keep_no_tenant_out() {
    let mut process = Process::start("floods", Path::new(""), None, "");
    assert_eq!(process.hear(), "served");
}

pub(crate) fn descriptors_that_come_with_a_frame_are_closed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let arbiter = Arbiter::start("descriptors.sock", "capacity = \"100MiB\"\n");
    let raw = Raw::open(&arbiter.path);
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [std::os::fd::AsFd::as_fd(&near)];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let hello = Ask::Hello { held: 0 }.encode();
    sendmsg(&raw.0, &[IoSlice::new(&hello)], &mut control, SendFlags::empty()).expect("sent");
    assert!(matches!(Tell::decode(&raw.hear().expect("an answer")), Ok(Tell::Limits { .. })));
    drop(near);
    let mut far = far;
    assert_eq!(std::io::Read::read(&mut far, &mut [0]).expect("the end"), 0, "nobody has it open");
}
