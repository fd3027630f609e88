//! Pools that reuse bytes across timelines in order: what is pending reads what it should, whatever is asked for meanwhile.
use super::before::{Asked, asked};
use omniheap_core::{
    Allocation, Budget, CopyRegion, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, Pass,
    Request, Rung, TimelineId, Timelines, Waiting,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

fn thrifty() -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, 4 << 30)).open().expect("a host device");
    let mut config = ManagerConfig::default();
    config.pool.waiting = Waiting::Thrift;
    Manager::with_config(host, config)
}

fn ask(manager: &Manager<Host>, on: TimelineId, size: u64) -> Allocation<Host> {
    manager.allocate(&Request::new(size).on(on)).expect("there is room")
}

/// Copies the first bytes of one allocation to another, when its timeline comes to it.
fn keep(manager: &Manager<Host>, on: TimelineId, from: &Allocation<Host>, to: &Allocation<Host>) {
    let one = CopyRegion { from, from_offset: 0, to, to_offset: 0, size: MIB };
    manager.copy(on, &[one]).expect("both are long enough");
}

fn first_byte(of: &Allocation<Host>) -> u8 {
    let mut seen = vec![0; usize::try_from(MIB).expect("small")];
    of.read(0, &mut seen).expect("in range");
    assert!(seen.iter().all(|byte| *byte == seen[0]), "the bytes are of several writers");
    seen[0]
}

/// Lets a third timeline work for a while, in which the others could have run too early.
fn work_elsewhere(manager: &Manager<Host>) {
    let third = manager.backend().open().expect("another timeline");
    let busy = ask(manager, third, 32 * MIB);
    for value in 0..8 {
        busy.fill(0, 32 * MIB, value).expect("in range");
    }
    assert_eq!(first_byte(&busy), 7);
}

fn held(manager: &Manager<Host>) -> u64 {
    manager.heap_use(HeapId(0)).expect("the heap is there").reserved
}

fn climbs(manager: &Manager<Host>, rung: Rung) -> u64 {
    manager.report().rungs[rung as usize]
}

#[test]
fn a_borrower_writes_only_after_the_lender_has_read() {
    let manager = thrifty();
    let other = manager.backend().open().expect("another timeline");
    let kept = ask(&manager, MAIN, MIB);
    let old = ask(&manager, MAIN, 160 * MIB);
    old.fill(0, MIB, 0xaa).expect("in range");
    let before = held(&manager);
    let hold = manager.backend().hold(MAIN).expect("open");
    keep(&manager, MAIN, &old, &kept);
    drop(old);
    let new = ask(&manager, other, 160 * MIB);
    assert_eq!((held(&manager), climbs(&manager, Rung::Order)), (before, 1), "in order");
    new.fill(0, MIB, 0xbb).expect("in range");
    work_elsewhere(&manager);
    drop(hold);
    assert_eq!((first_byte(&new), first_byte(&kept)), (0xbb, 0xaa));
}

#[test]
fn an_owner_writes_only_after_others_have_read() {
    let manager = thrifty();
    let other = manager.backend().open().expect("another timeline");
    let kept = ask(&manager, other, MIB);
    let old = ask(&manager, MAIN, 160 * MIB);
    old.fill(0, MIB, 0xaa).expect("in range");
    let before = held(&manager);
    // Bytes that the other timeline reads were written: the program orders that itself.
    let epoch = manager.backend().mark(MAIN).expect("open");
    let point = omniheap_core::Point { timeline: MAIN, epoch };
    manager.backend().order(other, point).expect("both are open");
    let hold = manager.backend().hold(other).expect("open");
    old.use_on(other).expect("open");
    keep(&manager, other, &old, &kept);
    drop(old);
    let new = ask(&manager, MAIN, 160 * MIB);
    assert_eq!((held(&manager), climbs(&manager, Rung::Order)), (before, 1), "in order");
    new.fill(0, MIB, 0xbb).expect("in range");
    work_elsewhere(&manager);
    drop(hold);
    assert_eq!((first_byte(&new), first_byte(&kept)), (0xbb, 0xaa));
}

/// Bytes of each stamp.
const STAMP: u64 = 4096;
const STAMPS: u64 = 400;

/// A program on three timelines: what it stamps is copied away, by the owner or by another timeline, before it is freed.
struct Program {
    manager: Manager<Host>,
    timelines: [TimelineId; 3],
    live: Vec<(Allocation<Host>, TimelineId, u8)>,
    copies: Allocation<Host>,
    expected: Vec<u8>,
    seed: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        let manager = thrifty();
        let open = || manager.backend().open().expect("another timeline");
        let timelines = [MAIN, open(), open()];
        let copies = ask(&manager, MAIN, STAMPS * STAMP);
        Self { manager, timelines, live: Vec::new(), copies, expected: Vec::new(), seed }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }

    fn timeline(&mut self) -> TimelineId {
        let at = self.random(3);
        self.timelines[usize::try_from(at).expect("below three")]
    }

    fn allocate(&mut self) {
        let (size, on) = ((8 + self.random(88)) * MIB, self.timeline());
        let stamp = 1 + self.random(255).to_le_bytes()[0] % 255;
        let made = ask(&self.manager, on, size);
        made.fill(0, STAMP, stamp).expect("in range");
        self.live.push((made, on, stamp));
    }

    /// Copies a stamp away when a timeline comes to it.
    fn copy(&mut self, from: &Allocation<Host>, on: TimelineId, stamp: u8) {
        let to_offset = self.expected.len() as u64 * STAMP;
        let one = CopyRegion { from, from_offset: 0, to: &self.copies, to_offset, size: STAMP };
        self.manager.copy(on, &[one]).expect("both are long enough");
        self.expected.push(stamp);
    }

    fn free(&mut self) {
        let at = self.random(self.live.len() as u64);
        let (old, on, stamp) = self.live.swap_remove(usize::try_from(at).expect("in the list"));
        self.copy(&old, on, stamp);
        let other = self.timeline();
        if other != on {
            // Bytes that another timeline reads were written: the program orders that itself.
            let epoch = self.manager.backend().mark(on).expect("open");
            let point = omniheap_core::Point { timeline: on, epoch };
            self.manager.backend().order(other, point).expect("both are open");
            old.use_on(other).expect("open");
            self.copy(&old, other, stamp);
        }
    }

    /// Lets a timeline lag behind for a moment.
    fn lag(&mut self) -> std::thread::JoinHandle<()> {
        let on = self.timeline();
        let hold = self.manager.backend().hold(on).expect("open");
        std::thread::spawn(move || {
            std::thread::sleep(core::time::Duration::from_millis(2));
            drop(hold);
        })
    }

    fn check(&self) {
        self.timelines.iter().for_each(|on| {
            let epoch = self.manager.backend().mark(*on).expect("open");
            let point = omniheap_core::Point { timeline: *on, epoch };
            self.manager.backend().wait(point).expect("open");
        });
        for (at, stamp) in (0u64..).zip(&self.expected) {
            let mut seen = vec![0; usize::try_from(STAMP).expect("small")];
            self.copies.read(at * STAMP, &mut seen).expect("in range");
            assert!(seen.iter().all(|byte| byte == stamp), "copy {at} read what came later");
        }
    }
}

#[test]
fn whatever_is_pending_reads_what_was_written_for_it() {
    let mut in_order = 0;
    for seed in 1..=12 {
        let mut program = Program::new(seed);
        let mut lags = Vec::new();
        while (program.expected.len() as u64) + 2 < STAMPS {
            if program.random(16) == 0 {
                lags.push(program.lag());
            }
            match program.live.len() {
                0..2 => program.allocate(),
                6.. => program.free(),
                _ if program.random(2) == 0 => program.allocate(),
                _ => program.free(),
            }
        }
        lags.into_iter().for_each(|lag| lag.join().expect("it only waits"));
        program.check();
        in_order += climbs(&program.manager, Rung::Order);
    }
    assert!(in_order > 100, "{in_order}");
}

type Shared<T> = Arc<Mutex<Option<T>>>;

/// A device on which a pass begins in the middle of the first order between timelines, which is then refused.
fn refusing(
    host: &Arc<Host>,
    manager: &Shared<Manager<Asked>>,
    pass: &Shared<Pass<Asked>>,
) -> Asked {
    let (manager, pass) = (Arc::clone(manager), Arc::clone(pass));
    asked(host, move |call| {
        if call.kind != CallKind::Order {
            return Verdict::Forward;
        }
        let Some(manager) = manager.lock().expect("no panic").take() else {
            return Verdict::Forward;
        };
        let begun = manager.begin_defragment(&Budget::new()).expect("alive");
        *pass.lock().expect("no panic") = Some(begun);
        Verdict::Refuse(ErrorKind::OutOfHostMemory.into())
    })
}

/// The bytes belong to nobody while the driver is asked: a pass that moved them would lose them when they are given back.
#[test]
fn a_pass_leaves_bytes_alone_that_may_be_given_back() {
    let host = Host::builder().heap(heap(HeapKind::Device, 4 << 30)).open().expect("a device");
    let (host, other) = (Arc::new(host), TimelineId(1));
    let (shared, pass) = (Shared::default(), Shared::default());
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.block) = (Some(1), Some(128 * MIB));
    let manager = Manager::with_config(refusing(&host, &shared, &pass), config);
    assert_eq!(host.open().expect("another timeline"), other);
    let hold = host.hold(other).expect("open");
    let on = |timeline, size: u64| {
        manager.allocate(&Request::new(size * MIB).on(timeline)).expect("there is room")
    };
    // Two blocks; all their holes are in use by the other timeline.
    let (kept, hole) = (on(other, 72), on(other, 56));
    let (small, little) = (on(other, 32), on(other, 16));
    drop(hole);
    drop(on(other, 80));
    drop(small);
    *shared.lock().expect("no panic") = Some(manager.clone());
    let taken = on(MAIN, 32);
    let pass = pass.lock().expect("no panic").take().expect("an order was asked for");
    drop(hold);
    pass.commit().expect("alive");
    drop((kept, little, taken));
    manager.retire().expect("alive");
    assert_eq!(manager.report().totals.live, 0);
}
