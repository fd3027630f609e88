//! Requests while the host itself has no memory to spare: refused in words, and nothing has changed.
use super::before::asked;
use super::{MOST, REFUSED};
use omniheap_core::strategy::{Strategy, Tlsf};
use omniheap_core::{
    Align, Allocation, Class, Defragmentation, ErrorKind, HeapKind, Layout, Manager, ManagerConfig,
    Request, TimelineId, Timelines,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex};

const KIB: u64 = 1 << 10;

/// Every other one of as many allocations as fit, each with its number in it.
fn scattered(manager: &Manager<Host>) -> Vec<(u32, Allocation<Host>)> {
    let ask = |number: u32| Some((number, manager.allocate(&Request::new(4 * KIB)).ok()?));
    let mut live: Vec<_> = (0..).map_while(ask).collect();
    live.retain(|(number, _)| number % 2 == 0);
    for (number, one) in &live {
        one.write(0, &number.to_le_bytes()).expect("in range");
    }
    live
}

#[test]
fn data_is_not_moved_where_the_host_has_no_memory_for_the_plan() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open().expect("a device");
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    let live = scattered(&manager);
    assert!(live.len() >= 8000, "{} pieces are worth a plan", live.len());
    let request = Request::new(1024 * KIB);
    // Down to plans that are refused piece by piece.
    for most in [64 << 10, 16 << 10, 4 << 10] {
        MOST.set(most);
        let refused = manager.allocate(&request).map(drop).map_err(|error| error.kind());
        MOST.set(usize::MAX);
        assert_eq!(refused, Err(ErrorKind::OutOfHostMemory), "with at most {most} bytes");
        assert_eq!(manager.validate(), Ok(()));
    }
    drop(manager.allocate(&request).expect("there is room, and memory for the plan"));
    for (number, one) in &live {
        let mut seen = [0; 4];
        one.read(0, &mut seen).expect("in range");
        assert_eq!(u32::from_le_bytes(seen), *number);
    }
}

#[test]
fn a_request_is_refused_where_the_host_has_no_memory_for_its_record() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open().expect("a device");
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(1);
    let manager = Manager::with_config(host, config);
    drop(manager.allocate(&Request::new(64 << 20)).expect("one block"));
    let mut live = Vec::with_capacity(12_000);
    let mut refused = 0;
    for most in [256, 1 << 10, 4 << 10, 64 << 10, 1 << 20] {
        MOST.set(most);
        let failed = loop {
            match manager.allocate(&Request::new(4 * KIB).no_grow()) {
                Ok(one) if live.len() < live.capacity() => live.push(one),
                Ok(_) => break None,
                Err(error) => break Some(error.kind()),
            }
        };
        MOST.set(usize::MAX);
        refused += u64::from(failed == Some(ErrorKind::OutOfHostMemory));
        assert!(
            failed.is_none_or(|kind| kind.is_out_of_memory() || kind == ErrorKind::OutOfHostMemory)
        );
        assert_eq!((manager.validate(), manager.totals().live), (Ok(()), live.len() as u64));
        drop(manager.allocate(&Request::new(4 * KIB)));
    }
    assert!(refused >= 2, "{refused} times the host had no memory");
}

/// Each call of a request for host memory fails once, whatever it is for.
#[test]
fn one_refusal_of_the_host_ends_no_program_and_is_forgotten() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open();
        let mut config = config;
        config.pool.lanes = Some(1);
        let manager = Manager::with_config(host.expect("a device"), config);
        drop(manager.allocate(&Request::new(32 << 20)).expect("one block"));
        let (mut live, mut refused) = (Vec::with_capacity(2000), 0);
        let request = Request::new(4 * KIB).no_grow();
        while live.len() < 2000 {
            for call in 1..4 {
                REFUSED.set(call);
                let served = manager.allocate(&request);
                refused += u64::from(REFUSED.replace(0) == 0);
                let kind = served.map(drop).map_err(|error| error.kind());
                assert!(matches!(kind, Ok(()) | Err(ErrorKind::OutOfHostMemory)), "{kind:?}");
            }
            live.push(manager.allocate(&request).expect("the host has memory again"));
        }
        assert!(refused > 8, "{refused} calls were refused");
        assert_eq!((manager.validate(), manager.totals().live), (Ok(()), 2000));
    }
}

#[test]
fn pages_of_a_request_without_a_record_are_free_again() {
    let host = Host::builder().heap(heap(HeapKind::Device, 8 << 30)).open().expect("a device");
    let (host, held) = (Arc::new(host), Arc::new(Mutex::new(None)));
    let let_go = Arc::clone(&held);
    let device = asked(&host, move |call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            drop(let_go.lock().expect("no panic").take());
        }
        Verdict::Forward
    });
    let mut config = ManagerConfig::default();
    (config.pool.lanes, config.defragmentation) = (Some(1), Defragmentation::Off);
    let manager = Manager::with_config(device, config);
    let other = host.open().expect("another timeline");
    let request = Request::new(2 << 20).on(TimelineId::MAIN);
    let mut live = Vec::with_capacity(4096);
    for most in [16 << 10, 32 << 10, 64 << 10] {
        // A hole that the other timeline uses: requests take care of the holes beside their pages.
        let hole = manager.allocate(&request.on(other)).expect("there is room");
        *held.lock().expect("no panic") = Some(host.hold(other).expect("it is open"));
        drop(hole);
        MOST.set(most);
        let refused = loop {
            match manager.allocate(&request) {
                Ok(one) if live.len() < live.capacity() => live.push(one),
                other => break other.map(drop).map_err(|error| error.kind()),
            }
        };
        MOST.set(usize::MAX);
        assert_eq!((manager.validate(), manager.totals().live), (Ok(()), live.len() as u64));
        assert!(refused.is_err(), "{} requests with at most {most} bytes", live.len());
    }
}

/// Slides are published once their bytes were copied: there is no way back, whatever others have taken meanwhile.
#[test]
fn slides_are_published_where_the_host_has_no_memory() {
    let (piece, other) = (Layout::new(256), Layout::new(1024));
    for slides in [1, 20, 200] {
        let mut tlsf = Tlsf::new(Align::ONE);
        tlsf.add_block(64 << 20).expect("a block");
        let mut take = |layout| tlsf.allocate(layout, Class::Linear).expect("there is room").key;
        let live: Vec<_> = (0..slides).map(|_| [(); 3].map(|()| take(piece))).collect();
        // Each slide leaves a part of the hole before it, and nothing is free behind it.
        for [below, ..] in &live {
            tlsf.free(*below).expect("live");
        }
        tlsf.pledge(live.len()).expect("there is host memory");
        MOST.set(0);
        let refused = loop {
            if let Err(kind) = tlsf.allocate(other, Class::Linear) {
                break kind;
            }
        };
        tlsf.redeem(live.len());
        let mut places = (0..).zip(&live);
        let slid = places
            .try_for_each(|(at, [_, above, _])| tlsf.slide_to(*above, at * 768 + 64).map(drop));
        MOST.set(usize::MAX);
        assert_eq!(refused, ErrorKind::OutOfHostMemory);
        assert!(slid.is_ok(), "{slides} slides: {slid:?}");
        tlsf.validate().expect("sound");
    }
}
