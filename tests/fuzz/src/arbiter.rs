//! The arbiter: whatever packets come, from whomever, nothing is granted beyond the device, and frames that are read are written the same.
//!
//! `services/arbiter/tests/corpus.rs` runs the same function on the corpus and on mutations of it, with a stable compiler.

use core::time::Duration;
use omniheap_arbiter::books::{Action, Books, Rules, TenantId};
use omniheap_arbiter::frame::{Ask, Tell};

const CAPACITY: u64 = 1 << 20;

/// A session: a byte that names one of four tenants, a byte of length, and so many bytes of a packet, again and again.
pub fn frames(mut data: &[u8]) {
    let mut books = Books::new(CAPACITY, Duration::from_millis(10), 0);
    for (tenant, weight) in (0..4).zip(1..) {
        let rules = Rules { quota: CAPACITY, reserve: 1 << 10, weight, priority: weight };
        books.join(TenantId(tenant), rules).expect("the reserves fit");
    }
    let (mut now, mut actions) = (Duration::ZERO, Vec::new());
    while let [tenant, length, rest @ ..] = data {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        now += Duration::from_millis(1);
        if let Ok(tell) = Tell::decode(packet) {
            assert_eq!(tell.encode(), packet);
        }
        if let Ok(ask) = Ask::decode(packet) {
            assert_eq!(ask.encode(), packet);
            obey(&mut books, TenantId(u64::from(tenant % 4)), ask, now, &mut actions);
        }
        books.tick(now, &mut actions);
        assert!((0..4).map(|tenant| books.held(TenantId(tenant))).sum::<u64>() <= CAPACITY);
        assert!(books.shares().values().sum::<u64>() <= CAPACITY);
    }
    assert!(actions.iter().all(|action| !matches!(action, Action::Press { bytes: 0, .. })));
}

fn obey(books: &mut Books, from: TenantId, ask: Ask, now: Duration, actions: &mut Vec<Action>) {
    match ask {
        Ask::Take { request, bytes } => books.take(from, request, bytes, now, actions),
        Ask::Give { bytes } => drop(books.give(from, bytes, None, now, actions)),
        Ask::Answer { press } => books.answer(from, press, now, actions),
        Ask::SetQuota { pid, quota } => drop(books.set_quota(TenantId(pid % 4), quota)),
        Ask::Sleep { pid } => drop(books.sleep(TenantId(pid % 4), now, actions)),
        Ask::Publish { contents, .. } => drop(books.publish(from, contents.size)),
        Ask::Detach { publication } => books.unpublish(publication, now, actions),
        Ask::Attach { .. } | Ask::Withdraw { .. } => {}
        Ask::Hello { held } => assert!(books.greet(from, held, None) <= held),
        Ask::List | Ask::ListPublications => {}
    }
}
