//! Memory that is published and attached: by real processes, over real pages.
use crate::support::{Arbiter, MIB, Process, Raw, listen, say};
use omniheap_arbiter::frame::{Ask, Contents, Name, Refusal, Tell};
use omniheap_arbiter::{
    ArbiterError, Arbitrated, Order, ShareError, Tenant, arbitrated, attach, order, publications,
    publish, publish_whole, withdraw as withdraw_own,
};
use omniheap_core::{BlockOffset, ErrorKind, HeapId, TimelineId, Transfer as _};
use omniheap_host::Host;
use omniheap_layers::{Fault, Plan};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

const HEAP: HeapId = HeapId(0);

fn device(socket: &Path) -> (Arbitrated<Host>, Arc<Tenant>) {
    let tenant = Tenant::shared(socket).expect("a tenant");
    (arbitrated(Host::new(), Arc::clone(&tenant)), tenant)
}

/// Bytes that are different everywhere.
struct Weights(u64);

impl Read for Weights {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *bytes {
            *byte = self.0.wrapping_mul(0x9e37_79b9).to_le_bytes()[3];
            self.0 += 1;
        }
        Ok(bytes.len())
    }
}

fn refusal<T>(result: Result<T, ShareError>) -> Option<Refusal> {
    match result {
        Err(ShareError::Arbiter(ArbiterError::Refused(why))) => Some(why),
        _ => None,
    }
}

fn withdraw(arbiter: &Arbiter, name: &str) {
    let name = Name::new(name).expect("a name");
    order(&arbiter.path, Order::Withdraw { name }).expect("it is published");
}

/// Publishes so many MiB, under the name `weights`.
pub(crate) fn publishes(socket: &Path, mib: &str) {
    let (device, _) = device(socket);
    let length = mib.parse::<u64>().expect("a number") * MIB + 5;
    publish(&device, HEAP, "weights", length, &mut Weights(0)).expect("it fits");
    say("published");
    listen();
}

/// Attaches a name, says what it found, and holds it until it is told to go.
pub(crate) fn attaches(socket: &Path, name: &str) {
    let (device, tenant) = device(socket);
    let attached = match attach(&device, HEAP, name) {
        Ok(attached) => attached,
        Err(error) => return say(&error.to_string()),
    };
    let length = attached.length();
    // Across the end of the first piece, and at both ends.
    for at in [0, 256 * MIB - 7, length - 100].into_iter().filter(|at| at + 100 <= length) {
        let (mut found, mut wanted) = ([0; 100], [0; 100]);
        attached.read(at, &mut found).expect("it is memory");
        Weights(at).read_exact(&mut wanted).expect("endless");
        assert_eq!(found, wanted, "{at}");
    }
    let behind = attached.read(length - 1, &mut [0; 2]).map_err(|error| error.kind());
    assert_eq!(behind, Err(ErrorKind::OutOfRange));
    assert!(attached.is_unchanged().expect("it is memory"));
    assert_eq!(tenant.held(), 0, "a second copy costs nothing");
    say("same");
    listen();
    drop(attached);
    say("gone");
    listen();
}

pub(crate) fn published_memory_outlives_its_publisher_and_is_there_once() {
    let arbiter = Arbiter::start("publish.sock", "capacity = \"512MiB\"\n");
    let mut publisher = Process::start("publishes", &arbiter.path, None, "300");
    assert_eq!(publisher.hear(), "published");
    arbiter.await_tenants(|all| all.iter().all(|it| it.held == 0));
    publisher.kill();
    arbiter.await_tenants(<[_]>::is_empty);
    let start = |_| Process::start("attaches", &arbiter.path, None, "weights");
    let mut readers = [0, 1].map(start);
    readers.iter_mut().for_each(|reader| assert_eq!(reader.hear(), "same"));
    let listed = || publications(&arbiter.path).expect("the arbiter answers");
    assert_eq!((listed().len(), listed()[0].name.as_str()), (1, "weights"));
    assert_eq!((listed()[0].attached, listed()[0].withdrawn), (2, 0));
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    tenant.take(200 * MIB).expect("beside what is published");
    tenant.take(100 * MIB).expect_err("published bytes are held by nobody, and not free");
    withdraw(&arbiter, "weights");
    let late = Process::start("attaches", &arbiter.path, None, "weights").hear();
    assert!(late.contains("nothing is published"), "{late}");
    assert_eq!((listed()[0].attached, listed()[0].withdrawn), (2, 1));
    tenant.take(100 * MIB).expect_err("two have it attached");
    readers[0].tell("let it go");
    assert_eq!(readers[0].hear(), "gone");
    tenant.take(100 * MIB).expect_err("one has it attached");
    readers[1].kill();
    let free = |_| {
        thread::sleep(core::time::Duration::from_millis(2));
        tenant.take(312 * MIB).is_ok()
    };
    assert!((0..60_000).any(free), "all of it is free again");
    assert!(listed().is_empty());
}

/// Begins to publish and never ends.
pub(crate) fn publishes_half(socket: &Path, _: &str) {
    struct Half(u64);
    impl Read for Half {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.0 > 8 * MIB {
                say("halfway");
                listen();
            }
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
    }
    let (device, _) = device(socket);
    let _ = publish(&device, HEAP, "half", 32 * MIB, &mut Half(0));
}

pub(crate) fn a_publisher_that_is_killed_halfway_leaves_nothing() {
    let arbiter = Arbiter::start("half.sock", "capacity = \"64MiB\"\n");
    let mut publisher = Process::start("publishes_half", &arbiter.path, None, "");
    assert_eq!(publisher.hear(), "halfway");
    arbiter.await_tenants(|all| all.len() == 1 && all[0].held == 32 * MIB);
    publisher.kill();
    arbiter.await_tenants(<[_]>::is_empty);
    let (device, tenant) = device(&arbiter.path);
    assert_eq!(refusal(attach(&device, HEAP, "half")), Some(Refusal::NotPublished));
    tenant.take(64 * MIB).expect("everything is free");
}

pub(crate) fn what_cannot_be_published_changes_nothing() {
    let arbiter = Arbiter::start("unpublished.sock", "capacity = \"64MiB\"\n");
    let (device, tenant) = device(&arbiter.path);
    tenant.take(20 * MIB).expect("it is free");
    let ask = |name: &str, length| publish(&device, HEAP, name, length, &mut Weights(0));
    assert!(matches!(ask("a/b", MIB), Err(ShareError::Name(_))));
    assert!(matches!(ask("", MIB), Err(ShareError::Name(_))));
    assert!(
        matches!(ask("none", 0), Err(ShareError::Device(it)) if it.kind() == ErrorKind::ZeroSize)
    );
    assert!(matches!(ask("endless", u64::MAX), Err(ShareError::Device(_))));
    assert_eq!(refusal(ask("large", 65 * MIB)), Some(Refusal::Never));
    ask("taken", MIB).expect("it fits");
    assert_eq!(refusal(ask("taken", MIB)), Some(Refusal::Published));
    let short = publish(&device, HEAP, "short", 9 * MIB, &mut Weights(0).take(5 * MIB));
    assert!(matches!(short, Err(ShareError::Source(_))), "{short:?}");
    let heap = publish(&device, HeapId(200), "heap", MIB, &mut Weights(0));
    assert!(matches!(heap, Err(ShareError::Device(it)) if it.kind() == ErrorKind::NoSuchHeap));
    let alone = arbitrated(Host::new(), None);
    assert!(matches!(attach(&alone, HEAP, "taken"), Err(ShareError::NoArbiter)));
    assert_eq!(tenant.held(), 20 * MIB, "what failed is given back once");
    arbiter.await_tenants(|all| all[0].held == 20 * MIB);
    withdraw(&arbiter, "taken");
    tenant.take(44 * MIB).expect("everything else is free");
}

fn send_with(raw: &Raw, ask: Ask, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(&raw.0, &[IoSlice::new(&ask.encode())], &mut control, SendFlags::empty())
        .expect("sent");
}

fn answer(raw: &Raw) -> Tell {
    Tell::decode(&raw.hear().expect("an answer")).expect("a frame")
}

pub(crate) fn wrong_publications_are_refused_and_their_descriptors_closed() {
    let arbiter = Arbiter::start("descriptor.sock", "capacity = \"64MiB\"\n");
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let (raw, name) = (Raw::open(&arbiter.path), Name::new("no-memory").expect("a name"));
    let one = Contents { digest: [0; 4], device: [0; 2], length: MIB, size: MIB, piece: MIB };
    let two = Contents { piece: MIB / 2, ..one };
    let descriptors = [near.as_fd()];
    send_with(&raw, Ask::Publish { name, contents: one }, &descriptors);
    assert!(matches!(answer(&raw), Tell::Refuse { why: Refusal::NoTenant, .. }));
    let (device, tenant) = device(&arbiter.path);
    for (contents, why) in [(one, Refusal::Contradiction), (two, Refusal::Contradiction)] {
        send_with(&raw, Ask::Publish { name, contents }, &descriptors);
        assert!(matches!(answer(&raw), Tell::Refuse { why: said, .. } if said == why));
    }
    tenant.take(MIB).expect("it is free");
    send_with(&raw, Ask::Publish { name, contents: one }, &descriptors);
    assert_eq!(answer(&raw), Tell::Done, "the arbiter cannot know what a descriptor is");
    assert!(raw.ask(Ask::Detach { publication: 0 }));
    assert!(
        matches!(answer(&raw), Tell::Refuse { why: Refusal::Contradiction, .. }),
        "not attached"
    );
    let wrong = attach(&device, HEAP, "no-memory");
    assert!(
        matches!(&wrong, Err(ShareError::Device(it)) if it.kind() == ErrorKind::Foreign),
        "{wrong:?}"
    );
    assert!(raw.ask(Ask::Detach { publication: u64::MAX }));
    assert!(matches!(answer(&raw), Tell::Refuse { why: Refusal::NotPublished, .. }));
    withdraw(&arbiter, "no-memory");
    drop(near);
    let mut far = far;
    assert_eq!(Read::read(&mut far, &mut [0]).expect("the end"), 0, "nobody has it open");
}

pub(crate) fn descriptors_and_bytes_of_a_user_are_bounded() {
    let policy = "capacity = \"64MiB\"\n[default]\nquota = \"8MiB\"\n";
    let arbiter = Arbiter::start("bounded.sock", policy);
    let (device, tenant) = device(&arbiter.path);
    let ask = |name: &str, length| publish(&device, HEAP, name, length, &mut Weights(0));
    ask("first", 5 * MIB).expect("it fits");
    assert_eq!(refusal(ask("second", 4 * MIB)), Some(Refusal::OverQuota));
    let many: Vec<_> = (0..70).map(|at| ask(&format!("n{at}"), 1)).collect();
    let refused = many.into_iter().find_map(refusal);
    assert!(matches!(refused, Some(Refusal::TooMany)), "{refused:?}");
    assert_eq!(tenant.held(), 0);
}

pub(crate) fn bytes_that_were_published_whole_have_one_address() {
    let arbiter = Arbiter::start("whole.sock", "capacity = \"512MiB\"\n");
    let (device, _) = device(&arbiter.path);
    let device = Arc::new(device);
    publish_whole(&device, HEAP, "whole", 300 * MIB, &mut Weights(0)).expect("it fits");
    let attached = attach(Arc::clone(&device), HEAP, "whole").expect("it is published");
    assert_eq!(attached.blocks().len(), 1);
    assert!(attached.address().is_some());
    let (mut found, mut wanted) = ([0; 100], [0; 100]);
    attached.read(256 * MIB - 7, &mut found).expect("it is memory");
    Weights(256 * MIB - 7).read_exact(&mut wanted).expect("endless");
    assert_eq!(found, wanted);
    publish(&device, HEAP, "pieces", 3, &mut Weights(0)).expect("it fits");
    for length in [0, u64::MAX, u64::MAX - (8 << 20)] {
        let refused = publish_whole(&device, HEAP, "never", length, &mut Weights(0));
        assert!(matches!(refused, Err(ShareError::Device(_))), "{length}: {refused:?}");
    }
    drop(attached);
    withdraw_own(&device, "whole").expect("it is ours");
    assert_eq!(refusal(withdraw_own(&device, "whole")), Some(Refusal::NotPublished));
    assert!(matches!(withdraw_own(&device, "a/b"), Err(ShareError::Name(_))));
}

pub(crate) fn bytes_that_somebody_changed_are_found() {
    let arbiter = Arbiter::start("changed.sock", "capacity = \"64MiB\"\n");
    let (device, _) = device(&arbiter.path);
    publish(&device, HEAP, "weights", 9 * MIB, &mut Weights(0)).expect("it fits");
    let attached = attach(&device, HEAP, "weights").expect("it is published");
    assert!(attached.is_unchanged().expect("it is memory"));
    let place = BlockOffset { block: &attached.blocks()[0], offset: 8 * MIB + 3 };
    device.inner().write(TimelineId::MAIN, place, &[1, 2, 3]).expect("whoever has it can");
    assert!(!attached.is_unchanged().expect("it is memory"));
}

/// Every driver call fails once; nothing stays booked that is not published.
pub(crate) fn a_driver_that_fails_while_publishing_leaves_the_books_right() {
    let arbiter = Arbiter::start("failing.sock", "capacity = \"64MiB\"\n");
    let tenant = Tenant::shared(&arbiter.path).expect("a tenant");
    let mut failed = 0;
    for at in 0..24 {
        let device = arbitrated(Fault::new(Host::new()), Arc::clone(&tenant));
        device.inner().inject(Plan::Nth(at), 0);
        let published = publish(&device, HEAP, "weights", 9 * MIB, &mut Weights(0));
        let attached = attach(&device, HEAP, "weights").map(drop);
        failed += usize::from(published.is_err()) + usize::from(attached.is_err());
        assert_eq!(tenant.held(), 0, "{at}");
        if published.is_ok() {
            withdraw(&arbiter, "weights");
        }
        let whole = |_| {
            thread::sleep(core::time::Duration::from_millis(1));
            tenant.take(64 * MIB).is_ok()
        };
        assert!((0..60_000).any(whole), "{at}: everything is free again");
        tenant.give(64 * MIB);
    }
    assert!(failed > 5, "{failed}");
}

pub(crate) fn only_the_user_and_those_the_policy_names_attach() {
    let policy = "capacity = \"64MiB\"\n[tenant.\"uid:2002\"]\nmay_attach = [\"wei*\"]\n\
                  [tenant.\"uid:2003\"]\nmay_attach = [\"other-*\"]\n";
    let arbiter = Arbiter::start("users.sock", policy);
    let mut publisher = Process::start("publishes", &arbiter.path, Some(2001), "3");
    assert_eq!(publisher.hear(), "published");
    let hear = |uid| Process::start("attaches", &arbiter.path, Some(uid), "weights").hear();
    assert_eq!((hear(2001), hear(2002)), ("same".into(), "same".into()));
    for uid in [2003, 2004] {
        assert!(hear(uid).contains("nothing is published"));
    }
    let mut other = Process::start("withdraws", &arbiter.path, Some(2002), "weights");
    assert!(other.hear().contains("nothing is published"), "others do not end it");
    let mut own = Process::start("withdraws", &arbiter.path, Some(2001), "weights");
    assert_eq!(own.hear(), "withdrawn");
}

/// Withdraws a name.
pub(crate) fn withdraws(socket: &Path, name: &str) {
    let name = Name::new(name).expect("a name");
    match order(socket, Order::Withdraw { name }) {
        Ok(()) => say("withdrawn"),
        Err(error) => say(&error.to_string()),
    }
}
