//! Any bytes, read as one session with a manager on host memory: every call of the public interface, in any order, with
//! contents checked and with a driver that fails when the bytes say so.
use crate::stamp::is_full_of;
use crate::{Store, check_books};
use omniheap_core::{
    Align, Allocation, Backend, Budget, CopyRegion, Error, ErrorKind, HeapId, HeapKind, Limits,
    Manager, ManagerConfig, Pass, Point, PoolConfig, Request, Result, Sleep, TimelineId, Timelines,
    UserPool, Wake,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Live, Plan, Record};
use std::sync::Arc;

/// The device of a session: it can fail, and it remembers what it gave.
pub(crate) type Device = Arc<Fault<Record<Host>>>;

const HEAP: HeapId = HeapId(0);
/// Small, so that shortage is a common state.
const HEAP_SIZE: u64 = 4 << 20;
const PAGE: u64 = 64 << 10;
/// Live allocations at most.
const MOST: usize = 64;
/// Byte that secrets are full of, and nothing else is.
const SECRET: u8 = 255;
/// Number of values that the allocations of a domain are full of, none of which another domain has.
const VALUES: u8 = 120;
/// Bytes that the pool of blocks keeps, and the maximum of the program's own pools.
const MINIMUM: u64 = 128 << 10;
const MAXIMUM: u64 = 1 << 20;

/// One live allocation, and the byte that it is full of.
struct Entry {
    allocation: Allocation<Device>,
    byte: u8,
    domain: usize,
}

/// Reads numbers off the byte string.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    /// Mostly small sizes, some large, a few that can never be.
    fn size(&mut self) -> u64 {
        let (kind, fine) = (self.next(), u64::from(self.next()));
        match kind % 8 {
            0..=2 => fine + 1,
            3..=5 => (fine + 1) << 8,
            6 => (fine + 1) << 13,
            _ => [0, u64::MAX, u64::MAX - 255, HEAP_SIZE, HEAP_SIZE + 1, 1 << 40]
                [usize::from(kind / 8) % 6],
        }
    }
}

/// One session.
struct Session {
    device: Device,
    domains: Vec<Manager<Device>>,
    /// Of the first domain: one of blocks, and one of pages that can sleep.
    pools: [UserPool<Device>; 2],
    timelines: Vec<TimelineId>,
    live: Vec<Entry>,
    faulty: bool,
    written: u8,
}

/// Runs a session and checks every promise on the way; equal bytes give equal sessions.
///
/// # Panics
///
/// Panics when a promise is broken: bytes that changed, a counter that is wrong, something that is left at the end, an
/// error that no fault explains.
pub fn run(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let mut session = Session::new(reader.next());
    while let Some(operation) = reader.byte() {
        session.apply(operation, &mut reader);
    }
    session.end();
}

/// Runs a session over a driver that fails from the first call on, as the first bytes say: one call, a kind for ever, at
/// random, or the whole device; equal bytes give equal sessions.
///
/// # Panics
///
/// As for [`run`]; every error is legal here, and no lost byte is.
pub fn run_with_faults(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let mut session = Session::new(reader.next());
    let (kind, at, pick) = (reader.next(), u64::from(reader.next()), reader.next());
    let plan = match kind % 4 {
        0 => Plan::From(at),
        1 => Plan::Random { per_million: 4096 << (kind / 4 % 6), seed: at },
        2 => Plan::LoseDeviceAt(at),
        _ => Plan::Nth(at),
    };
    session.device.inject(plan, usize::from(pick));
    session.faulty = true;
    while let Some(operation) = reader.byte() {
        // A session of its own plans is what `run` is for.
        if operation % 16 != 14 {
            session.apply(operation, &mut reader);
        }
    }
    session.end();
}

impl Session {
    fn new(flags: u8) -> Self {
        let mut device = heap(HeapKind::Device, HEAP_SIZE);
        device.page = Some(Align::of(PAGE));
        let host = Host::builder().heap(device).heap(heap(HeapKind::Staging, HEAP_SIZE));
        let host = host.open().expect("a small device opens");
        let device = Arc::new(Fault::new(Record::new(host)));
        let mut config = ManagerConfig::default();
        config.pool.lanes = Some(1 + u32::from(flags & 1));
        let config = if flags & 2 == 0 { config } else { config.plain() };
        let main = Manager::with_config(Arc::clone(&device), config.clone());
        let mut domains = vec![main];
        if flags & 4 != 0 {
            domains.push(domains[0].domain(config).expect("host memory can be cleared"));
        }
        let pool = PoolConfig::new().maximum(MAXIMUM).lanes(Some(1));
        let pools = [pool.minimum(MINIMUM), pool.sleepable()]
            .map(|config| domains[0].create_pool(HEAP, config).expect("there is room"));
        let lines = device.as_timelines().expect("the host has timelines");
        let timelines = (0..2).map(|_| lines.open().expect("a timeline")).collect();
        Self { device, domains, pools, timelines, live: Vec::new(), faulty: false, written: 0 }
    }

    fn lines(&self) -> &dyn Timelines {
        self.device.as_timelines().expect("the host has timelines")
    }

    /// Checks an error: without a fault only shortage and impossible sizes are legal.
    fn excuse(&self, error: impl Into<Error>, legal: &[ErrorKind]) {
        let kind = error.into().kind();
        assert!(self.faulty || kind.is_out_of_memory() || legal.contains(&kind), "{kind:?}");
    }

    fn apply(&mut self, operation: u8, reader: &mut Reader<'_>) {
        match operation % 16 {
            0..=4 => self.allocate(operation, reader),
            5 | 6 => drop(self.take(reader.next())),
            7 => self.free_after(reader.next()),
            8 => self.use_on(reader),
            9 => self.check(reader.next()),
            10 => self.copy(reader),
            11 => self.resize(reader),
            12 => self.tidy(reader.next()),
            13 => self.limit(reader.next()),
            14 => self.inject(reader),
            _ => self.refuse(reader),
        }
        for manager in &self.domains {
            manager.validate().expect("sound after every call");
        }
        // A walk of everything takes as long as some operations.
        if !self.faulty && operation.is_multiple_of(4) {
            self.check_numbers();
        }
    }

    /// Every number is what the driver's own books and the session's allocations add up to.
    fn check_numbers(&self) {
        for (domain, manager) in self.domains.iter().enumerate() {
            let here = self.live.iter().filter(|entry| entry.domain == domain);
            check_books(manager, &here.map(|entry| &entry.allocation).collect::<Vec<_>>());
        }
        let (record, reports) = (self.device.inner(), self.domains.iter().map(Manager::summary));
        let [calls, blocks, quarantined] = reports.fold([0; 3], |[calls, blocks, kept], report| {
            [calls + report.driver_calls, blocks + report.blocks, kept + report.quarantined_bytes]
        });
        let heaps = [HEAP, HeapId(1)];
        let held = self.domains.iter().flat_map(|manager| heaps.map(|heap| manager.heap_use(heap)));
        let held: u64 = held.map(|told| told.expect("it is there").reserved).sum();
        let live = record.live();
        assert_eq!((held, blocks), (live.bytes(), live.blocks + live.reservations));
        assert_eq!((calls, quarantined), (record.driver_calls(), 0));
        for (pool, minimum) in self.pools.iter().zip([MINIMUM, 0]) {
            assert!((minimum..=MAXIMUM).contains(&pool.reserved()), "{pool:?}");
        }
    }

    fn allocate(&mut self, operation: u8, reader: &mut Reader<'_>) {
        if self.live.len() >= MOST {
            return;
        }
        let (flags, size) = (reader.next(), reader.size());
        let domain = usize::from(operation / 16) % self.domains.len();
        let mut request = Request::new(size);
        if flags & 3 != 0 {
            request = request.on(self.timelines[usize::from(flags & 1)]);
        }
        if flags & 12 == 12 {
            request = request.name("named").align(Align::of(4096));
        }
        request = match flags >> 4 {
            1 => request.dedicated(),
            2 => request.zeroed(),
            3 => request.secret(),
            4 => request.pinned(),
            5 => request.no_grow(),
            6 => request.heap(HeapId(1)),
            7..=9 => request.may_spill(),
            _ => request,
        };
        let legal = [ErrorKind::ZeroSize, ErrorKind::SizeOverflow, ErrorKind::ExceedsLimit];
        let (allocated, domain) = match flags >> 4 {
            kind @ (10 | 11) => (self.pools[usize::from(kind) - 10].allocate(&request), 0),
            _ => (self.domains[domain].allocate(&request), domain),
        };
        match allocated {
            Ok(allocation) => {
                assert!(size > 0 && allocation.size() == size);
                self.check_fresh(&allocation, flags >> 4, domain);
                let byte = if flags >> 4 == 3 { SECRET } else { self.value(domain) };
                self.admit(allocation, byte, domain);
            }
            Err(error) => self.excuse(error, &legal),
        }
    }

    /// A new allocation lies in a heap that its kind of request may have, and holds nothing of others.
    fn check_fresh(&self, allocation: &Allocation<Device>, kind: u8, domain: usize) {
        let may = match kind {
            6 => [HeapId(1)].as_slice(),
            7..=9 => &[HEAP, HeapId(1)],
            _ => &[HEAP],
        };
        assert!(may.contains(&allocation.heap()), "it is in {:?}", allocation.heap());
        match kind {
            2 => self.expect(allocation, 0),
            _ => self.expect_clean(allocation, domain),
        }
    }

    /// The next value of a domain.
    fn value(&mut self, domain: usize) -> u8 {
        self.written = (self.written + 1) % VALUES;
        1 + self.written + VALUES * u8::try_from(domain).expect("two domains")
    }

    /// Fills a new allocation and keeps it; one that cannot be filled is freed.
    fn admit(&mut self, allocation: Allocation<Device>, byte: u8, domain: usize) {
        match allocation.fill(0, allocation.size(), byte) {
            Ok(()) => self.live.push(Entry { allocation, byte, domain }),
            Err(error) => self.excuse(error, &[]),
        }
    }

    /// Nothing of a secret is in fresh memory, and nothing of another domain.
    fn expect_clean(&self, allocation: &Allocation<Device>, domain: usize) {
        let mut found = vec![0; usize::try_from(allocation.size()).expect("it fits the heap")];
        match allocation.read(0, &mut found) {
            Ok(()) => {
                let own = VALUES * u8::try_from(domain).expect("two domains");
                let may = |byte: u8| byte == 0 || (own + 1..=own + VALUES).contains(&byte);
                assert!(found.iter().all(|byte| may(*byte)), "somebody's bytes were left");
            }
            Err(error) => self.excuse(error, &[]),
        }
    }

    fn expect(&self, allocation: &Allocation<Device>, byte: u8) {
        let mut found = vec![!byte; usize::try_from(allocation.size()).expect("it fits the heap")];
        match allocation.read(0, &mut found) {
            Ok(()) => assert!(is_full_of(byte, &found), "bytes were lost"),
            Err(error) => self.excuse(error, &[]),
        }
    }

    fn index(&self, pick: u8) -> Option<usize> {
        usize::from(pick).checked_rem(self.live.len())
    }

    /// Takes an allocation out of the session, its bytes checked for the last time.
    fn take(&mut self, pick: u8) -> Option<Allocation<Device>> {
        let at = self.index(pick)?;
        self.check(pick);
        Some(self.live.swap_remove(at).allocation)
    }

    fn check(&self, pick: u8) {
        if let Some(at) = self.index(pick) {
            self.expect(&self.live[at].allocation, self.live[at].byte);
        }
    }

    fn free_after(&mut self, pick: u8) {
        let timeline = self.timelines[usize::from(pick) % 2];
        let marked = self.lines().mark(timeline);
        match (marked, self.take(pick)) {
            (Ok(epoch), Some(allocation)) => allocation.free_after(Point { timeline, epoch }),
            (Err(error), _) => self.excuse(error, &[]),
            (Ok(_), None) => {}
        }
    }

    fn use_on(&mut self, reader: &mut Reader<'_>) {
        let timeline = self.timelines[usize::from(reader.next()) % 2];
        if let Some(at) = self.index(reader.next())
            && let Err(error) = self.live[at].allocation.use_on(timeline)
        {
            self.excuse(error, &[]);
        }
    }

    fn copy(&mut self, reader: &mut Reader<'_>) {
        let (Some(from), Some(to)) = (self.index(reader.next()), self.index(reader.next())) else {
            return;
        };
        let on = self.timelines[usize::from(reader.next()) % 2];
        let (source, target) = (&self.live[from], &self.live[to]);
        let size = source.allocation.size();
        if source.byte == SECRET {
            return; // Who copies a secret makes it public.
        }
        let fits = from != to && size == target.allocation.size() && source.domain == target.domain;
        let copy = CopyRegion {
            from: &source.allocation,
            from_offset: 0,
            to: &target.allocation,
            to_offset: 0,
            size,
        };
        // Callers order timelines among themselves; this one waits before and after.
        self.device.inner().wait_idle().expect("the host's work ends");
        match self.domains[source.domain].copy(on, &[copy]) {
            Ok(()) => {
                assert!(fits || size < target.allocation.size(), "this must be refused");
                self.device.inner().wait_idle().expect("the host's work ends");
                let (byte, whole) = (source.byte, size == target.allocation.size());
                self.live[to].byte = byte;
                if !whole {
                    drop(self.live.swap_remove(to)); // Two bytes in one allocation: nothing to check it by.
                }
            }
            Err(error) => {
                self.excuse(
                    error,
                    &[ErrorKind::Overlap, ErrorKind::OutOfRange, ErrorKind::Foreign],
                );
            }
        }
    }

    fn resize(&mut self, reader: &mut Reader<'_>) {
        let (pick, size) = (reader.next(), reader.size());
        let Some(at) = self.index(pick) else { return };
        let Entry { allocation, byte, domain } = self.live.swap_remove(at);
        let old = allocation.size();
        let legal = [ErrorKind::ZeroSize, ErrorKind::SizeOverflow, ErrorKind::ExceedsLimit];
        let allocation = match self.domains[domain].resize(allocation, size) {
            Ok(resized) => {
                let more = size.saturating_sub(old);
                if more > 0
                    && let Err(error) = resized.fill(old, more, byte)
                {
                    return self.excuse(error, &[]);
                }
                resized
            }
            Err(refused) => {
                self.excuse(refused.error, &legal);
                refused.given
            }
        };
        self.live.push(Entry { allocation, byte, domain });
    }

    fn tidy(&self, pick: u8) {
        for manager in &self.domains {
            let done = match pick % 9 {
                0 => manager.trim().map(drop),
                1 => manager.retire().map(drop),
                2 => manager.defragment().map(drop),
                3 => self.pass(manager, pick).map(drop),
                4 if pick > 127 => {
                    manager.begin_recall(&Budget::new()).and_then(Pass::commit).map(drop)
                }
                4 => manager.begin_defragment(&Budget::new()).and_then(Pass::commit).map(drop),
                5 => manager.step().map(drop),
                6 => self.pools.iter().try_for_each(|pool| pool.trim().map(drop)),
                7 => return self.sleep(),
                _ => self.device.wait_idle(),
            };
            done.unwrap_or_else(|error| self.excuse(error, &[]));
        }
    }

    /// Sends a pool to sleep, and wakes it where that worked.
    fn sleep(&self) {
        let (store, pool) = (Arc::new(Store::default()), &self.pools[1]);
        match pool.sleep(&Sleep::to(Arc::<Store>::clone(&store))) {
            Ok(_) => {
                assert_eq!(pool.reserved(), 0, "who sleeps needs no memory");
                self.wake();
                assert!(self.faulty || store.kept().is_empty(), "bytes were left in the store");
            }
            Err(error) => self.excuse(error.error(), &[ErrorKind::Busy]),
        }
    }

    /// Wakes a pool that may be asleep; its memory is there, but a budget may have become smaller.
    fn wake(&self) {
        let pool = &self.pools[1];
        if pool.wake(&Wake::all()).is_err() {
            let limits = Limits { soft: u64::MAX, hard: u64::MAX };
            self.domains[0].set_budget(HEAP, limits).expect("it is no limit");
            match pool.wake(&Wake::all()) {
                Err(error) if error.kind() != ErrorKind::AlreadyAwake => self.excuse(error, &[]),
                _ => {}
            }
        }
    }

    /// A pass of a few moves that is dropped on its way.
    fn pass(&self, manager: &Manager<Device>, pick: u8) -> Result<(), Error> {
        let budget = Budget::new().moves(4);
        let mut pass = match pick & 64 {
            0 => manager.begin_defragment(&budget)?,
            _ => manager.begin_recall(&budget)?,
        };
        if pick > 127 { pass.start() } else { Ok(()) }
    }

    fn limit(&self, pick: u8) {
        let hard = if pick.is_multiple_of(4) { u64::from(pick) << 14 } else { u64::MAX };
        let manager = &self.domains[usize::from(pick) % self.domains.len()];
        manager.set_budget(HEAP, Limits { soft: hard / 2, hard }).expect("soft below hard");
        assert!(manager.set_budget(HEAP, Limits { soft: 2, hard: 1 }).is_err());
    }

    fn inject(&mut self, reader: &mut Reader<'_>) {
        let (kind, at, pick) = (reader.next(), u64::from(reader.next()), reader.next());
        let plan = match kind % 4 {
            0 => Plan::Nth(at),
            1 => Plan::NthThenOk { at, times: 2 },
            2 => Plan::Pair(at, at + u64::from(pick)),
            _ => Plan::Never,
        };
        self.device.inject(plan, usize::from(pick % 2));
        self.faulty |= plan != Plan::Never;
    }

    /// Checks requests that must be refused, whatever the state.
    fn refuse(&self, reader: &mut Reader<'_>) {
        let Some(at) = self.index(reader.next()) else { return };
        let entry = &self.live[at];
        let size = entry.allocation.size();
        assert!(entry.allocation.write(size, &[0]).is_err());
        assert!(entry.allocation.fill(u64::MAX, 2, 0).is_err());
        assert!(entry.allocation.fill(1, size, 0).is_err());
        let id = entry.allocation.id();
        assert_eq!(self.domains[entry.domain].check(id), Ok(size));
        let stranger = &self.domains[(entry.domain + 1) % self.domains.len()];
        assert!(self.domains.len() == 1 || stranger.check(id).is_err());
    }

    fn end(mut self) {
        self.device.inject(Plan::Never, 0);
        self.wake();
        for at in 0..self.live.len() {
            self.check(u8::try_from(at).expect("few"));
        }
        self.live.clear();
        self.device.wait_idle().expect("the host's work ends");
        let Self { device, mut domains, pools, faulty, .. } = self;
        for pool in pools {
            let ended = domains[0].destroy_pool(pool);
            assert!(faulty || ended.is_ok(), "an empty pool ends: {ended:?}");
        }
        for manager in &domains {
            manager.trim().expect("nothing is in use");
            manager.validate().expect("sound at the end");
            assert!(faulty || manager.totals().live == 0, "something was left");
        }
        domains.clear();
        assert!(faulty || device.inner().live() == Live::default(), "memory was left");
    }
}
