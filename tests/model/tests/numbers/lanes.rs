//! Threads and their lanes: who lends to whom, who is woken, and what a lane does with memory that others hold.
use super::before::asked;
use super::{HEAP, KIB, MIB, device, managed};
use core::time::Duration;
use omniheap_core::{HeapKind, Manager, ManagerConfig, PoolConfig, Request, SpanState, Timelines};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

/// As many lanes as there can be: threads that live at the same time have different ones.
fn many_lanes() -> ManagerConfig {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(64);
    config
}

/// Runs something on another thread.
fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

#[test]
fn a_lane_lends_while_more_than_an_eighth_of_it_is_free() {
    for (free, lends) in [(3, true), (2, false)] {
        let manager = managed(device(64 * MIB), many_lanes());
        let ask = || manager.allocate(&Request::new(256 * KIB)).expect("fits");
        let mut full: Vec<_> = (0..16).map(|_| ask()).collect();
        assert_eq!(manager.totals().reserved_bytes, 4 * MIB);
        full.truncate(16 - free);
        let theirs = elsewhere(ask);
        assert_eq!(theirs.id().lane() == full[0].id().lane(), lends, "{free} of 16 are free");
        assert_eq!(manager.totals().reserved_bytes, if lends { 4 * MIB } else { 8 * MIB });
    }
}

#[test]
fn a_lane_that_borrows_time_and_again_takes_one_block_of_its_own() {
    let manager = managed(device(256 * MIB), many_lanes());
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let first = ask(KIB);
    let lender = first.id().lane();
    let lanes: Vec<u32> = elsewhere(|| (0..2000).map(|_| ask(KIB).id().lane()).collect());
    let borrowed = lanes.iter().take_while(|lane| **lane == lender).count();
    assert!((16..1000).contains(&borrowed), "{borrowed}");
    assert!(lanes[borrowed..].iter().all(|lane| *lane != lender), "it has its own from then on");
    assert_eq!(manager.totals().reserved_bytes, 8 * MIB, "one block for each");
}

/// In a pool that says how large blocks are, a lane that has none does not take one while others have much to lend.
#[test]
fn a_lane_goes_on_borrowing_where_blocks_have_one_size() {
    let mut config = many_lanes();
    config.pool.block = Some(16 * MIB);
    let manager = managed(device(256 * MIB), config);
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let first = ask(KIB);
    let lender = first.id().lane();
    assert!(elsewhere(|| (0..2000).all(|_| ask(KIB).id().lane() == lender)));
    assert_eq!(manager.totals().reserved_bytes, 16 * MIB);
}

/// The lanes of a pool take blocks of its size where all of them together are an eighth of what it holds.
#[test]
fn a_lane_of_a_large_pool_takes_a_block_rather_than_borrow_for_ever() {
    for (blocks, takes) in [(15, false), (16, true)] {
        let mut config = many_lanes();
        config.pool.block = Some(4 * MIB);
        let manager = managed(device(256 * MIB), config);
        let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
        let all: Vec<_> = (0..blocks * 4).map(|_| ask(MIB)).collect();
        let kept: Vec<_> = all.into_iter().step_by(4).collect();
        let lender = kept[0].id().lane();
        let lanes: Vec<u32> = elsewhere(|| (0..2000).map(|_| ask(KIB).id().lane()).collect());
        assert_eq!(lanes[0], lender, "it borrows at first");
        assert_eq!(lanes[1999] != lender, takes, "{blocks} blocks");
    }
}

/// While bytes slide over themselves nobody is shown their place; who asks waits, and is woken when they have arrived.
#[test]
fn who_asks_for_bytes_that_slide_is_woken_when_they_have_arrived() {
    let (copying, copies) = mpsc::channel();
    let copying = Mutex::new(Some(copying));
    let manager = Manager::with_config(
        asked(&device(16 * MIB), move |call| {
            if call.kind == CallKind::Copy
                && let Some(copying) = copying.lock().expect("no panic").take()
            {
                copying.send(()).expect("somebody asks");
                thread::sleep(Duration::from_millis(50)); // Long enough to begin to wait.
            }
            Verdict::Forward
        }),
        ManagerConfig::default().plain(),
    );
    let pool = PoolConfig::new().block(16 * MIB).lanes(1);
    let pool = manager.create_pool(HEAP, pool).expect("valid");
    let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
    let [below, slides, above, _last] = [MIB, 8 * MIB, MIB, 6 * MIB].map(ask);
    let slides = Arc::new(slides);
    drop((below, above));
    let (tell, told) = mpsc::channel();
    let asks = Arc::clone(&slides);
    thread::spawn(move || {
        copies.recv().expect("something slides");
        let offset = asks.binding().span().offset;
        tell.send(offset).expect("it is waited for");
    });
    let large = ask(2 * MIB);
    // The answer never comes where nobody wakes the thread.
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(0));
    let report = manager.report();
    let spans = report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
    assert!(
        spans.map(|span| span.state).all(|state| state == SpanState::Movable),
        "none is pinned"
    );
    drop(large);
}

/// Way in which one thread gives memory back.
#[derive(Clone, Copy, Debug)]
enum Carries {
    /// A trim of an empty block.
    Block,
    /// A free of what has a block of its own.
    Dedicated,
    /// As `Dedicated`, for what was freed before and waited for a timeline.
    Retired,
    /// A trim of pages, which are unmapped.
    Pages,
    /// As `Pages`, once they are spare and go to the driver.
    Spare,
}

/// Another thread has most of the memory in its hands, on the way to the driver, while a request is refused.
#[test]
fn who_is_refused_gets_what_another_thread_is_giving_back() {
    use Carries::{Block, Dedicated, Pages, Retired, Spare};
    for carries in [Block, Dedicated, Retired, Pages, Spare] {
        let host = device(16 * MIB);
        let carrying = Arc::new(Carrying::default());
        let hook = Arc::clone(&carrying);
        let device = asked(&host, move |call| {
            hook.look(call.kind, carries);
            Verdict::Forward
        });
        let mut config = many_lanes();
        config.pool.paged = matches!(carries, Pages | Spare);
        let manager = Manager::with_config(device, config);
        let line = host.open().expect("another timeline");
        let request = Request::new(12 * MIB);
        let held = match carries {
            Block | Pages | Spare => {
                drop(manager.allocate(&request).expect("fits"));
                None
            }
            Dedicated => Some(manager.allocate(&request.dedicated()).expect("fits")),
            Retired => {
                let one = manager.allocate(&request.dedicated()).expect("fits");
                one.use_on(line).expect("it is open");
                drop(one);
                None
            }
        };
        thread::scope(|scope| {
            carrying.begin();
            let carrier = scope.spawn(|| match carries {
                Block | Pages | Spare => drop(manager.trim().expect("alive")),
                Dedicated => drop(held),
                Retired => drop(manager.retire().expect("alive")),
            });
            carrying.wait_until_it_carries();
            let asked = manager.allocate(&request);
            assert!(asked.is_ok(), "{carries:?}: {asked:?}");
            carrier.join().expect("no panic");
        });
    }
}

/// Keeps a call that gives memory back from being made until the driver was asked for some.
#[derive(Debug, Default)]
struct Carrying {
    /// Progress: a call is to be kept, it is kept, somebody was refused meanwhile.
    stage: Mutex<u8>,
    changed: Condvar,
}

impl Carrying {
    fn set(&self, stage: u8) {
        *self.stage.lock().expect("no panic") = stage;
        self.changed.notify_all();
    }

    fn begin(&self) {
        self.set(1);
    }

    fn wait_for(&self, stage: u8) {
        let now = self.stage.lock().expect("no panic");
        let is_before = |now: &mut u8| *now < stage;
        let longest = Duration::from_secs(120); // It comes, or nobody calls the driver any more.
        drop(self.changed.wait_timeout_while(now, longest, is_before).expect("no panic"));
    }

    fn wait_until_it_carries(&self) {
        self.wait_for(2);
    }

    fn look(&self, kind: CallKind, carries: Carries) {
        let is_spare = matches!(carries, Carries::Spare);
        let stage = *self.stage.lock().expect("no panic");
        match kind {
            CallKind::Free | CallKind::UnmapPages | CallKind::Destroy
                if stage == 1 && is_spare == (kind == CallKind::Destroy) =>
            {
                self.set(2);
                self.wait_for(3);
                // Long enough for the other request to be refused everywhere.
                thread::sleep(Duration::from_millis(100));
            }
            CallKind::Allocate | CallKind::Create if stage == 2 => self.set(3),
            _ => {}
        }
    }
}

/// Bytes that a timeline frees and gets back again and again: a view of them waits for its work of every round.
#[test]
fn a_view_waits_for_the_last_owner_of_its_bytes() {
    let host = Host::builder().heap(heap(HeapKind::Unified, 16 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let held: Arc<Mutex<Option<omniheap_host::Hold>>> = Arc::default();
    let let_go = Arc::clone(&held);
    let device = asked(&host, move |call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            drop(let_go.lock().expect("no panic").take());
        }
        Verdict::Forward
    });
    let mut config = many_lanes();
    config.pool.lanes = Some(1);
    let manager = Manager::with_config(device, config);
    let line = host.open().expect("another timeline");
    let ask = || manager.allocate(&Request::new(64 * KIB).on(line)).expect("fits");
    let place = ask().binding().span();
    for round in 0..4 {
        (0..round).for_each(|_| drop(ask()));
        *held.lock().expect("no panic") = Some(host.hold(line).expect("it is open"));
        drop(ask());
        let one = ask();
        assert_eq!(one.binding().span(), place, "the same bytes");
        let view = one.map().expect("the host sees it");
        assert!(held.lock().expect("no panic").is_none(), "round {round}: it did not wait");
        drop(view);
        drop(one);
    }
    // Beside them are bytes that nobody has used.
    let (old, _between) = (ask(), ask());
    *held.lock().expect("no panic") = Some(host.hold(line).expect("it is open"));
    drop(old);
    let fresh = manager.allocate(&Request::new(MIB).on(line)).expect("fits");
    drop(fresh.map().expect("the host sees it"));
    assert!(held.lock().expect("no panic").take().is_some(), "it waited for nothing");
}
