//! Pools that a strategy from outside divides: they serve as others do, and a strategy that lies harms only its own requests.
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use omniheap_core::strategy::{BlockId, Grant, Key, Piece, Strategy, TakeSpan, Usage};
use omniheap_core::{
    Align, Allocation, Backend as _, Class, ErrorKind, HeapId, HeapKind, Layout, Manager,
    PoolConfig, Request, Span, StrategyKind, TimelineId, Timelines as _, UserPool,
};
use omniheap_host::{Host, heap};
use omniheap_model::Subject;
use std::sync::Arc;
use std::thread;

const HEAP: HeapId = HeapId(0);
const BLOCK: u64 = 1 << 16;

fn manager() -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, 1 << 24)).open().expect("a host device");
    Manager::new(host)
}

fn config() -> PoolConfig {
    PoolConfig::new().block(BLOCK)
}

/// Fault of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Corruption {
    UnknownBlock,
    PastTheEnd,
    Overflow,
    TooSmall,
    NotAligned,
    OldKey,
    ReservedKey,
    FarBlock,
    SameBlock,
    /// Says of every block that it is empty, and lets it go.
    Empty,
    /// Frees nothing.
    NoFree,
    /// Says of live spans that they are elsewhere.
    Moved,
    /// Takes the next span instead of the one that was named.
    NextSpan,
}

/// A sound strategy that lies about its answers.
#[derive(Debug)]
struct Liar {
    inner: Box<dyn Strategy>,
    corruption: Corruption,
    /// The first grant, which is honest.
    first: Option<Grant>,
}

impl Liar {
    fn spoil(&self, mut grant: Grant) -> Grant {
        let Some(first) = self.first else { return grant };
        match self.corruption {
            Corruption::UnknownBlock => grant.block = BlockId(7),
            Corruption::PastTheEnd => grant.span.offset = BLOCK - 256,
            Corruption::Overflow => grant.span.offset = u64::MAX - 255,
            Corruption::TooSmall => grant.span.size -= 1,
            Corruption::NotAligned => grant.span.offset += 1,
            Corruption::OldKey => grant.key = first.key,
            Corruption::ReservedKey => grant.key = Key::new(u32::MAX, u32::MAX),
            _ => {}
        }
        grant
    }
}

impl Strategy for Liar {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let id = self.inner.add_block(size)?;
        Ok(match (self.first, self.corruption) {
            (Some(_), Corruption::FarBlock) => BlockId(9),
            (Some(_), Corruption::SameBlock) => BlockId(0),
            _ => id,
        })
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if self.corruption == Corruption::Empty { Ok(()) } else { self.inner.remove_block(block) }
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        let grant = self.inner.allocate(layout, class)?;
        let told = self.spoil(grant);
        if told.key != grant.key {
            self.inner.free(grant.key)?;
        }
        self.first.get_or_insert(grant);
        Ok(told)
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        if self.corruption == Corruption::NoFree {
            Err(ErrorKind::Busy)
        } else {
            self.inner.free(key)
        }
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        let mut grant = self.inner.grant(key)?;
        if self.corruption == Corruption::Moved {
            grant.span = Span { offset: BLOCK - 1, size: 1 };
        }
        Ok(grant)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.corruption == Corruption::Empty || self.inner.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.inner.for_each(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        self.inner.validate()
    }

    fn as_take(&mut self) -> Option<&mut dyn TakeSpan> {
        (self.corruption == Corruption::NextSpan).then_some(self)
    }
}

impl TakeSpan for Liar {
    fn take(&mut self, block: BlockId, span: Span) -> Result<Grant, ErrorKind> {
        let inner = self.inner.as_take().ok_or(ErrorKind::Unsupported)?;
        inner.take(block, Span { offset: span.end(), ..span })
    }
}

fn pool(manager: &Manager<Host>, corruption: Corruption) -> UserPool<Host> {
    let make = move |granularity| {
        let inner = Subject::FirstFit.make(granularity);
        Box::new(Liar { inner, corruption, first: None }) as Box<dyn Strategy>
    };
    manager.create_pool_with(HEAP, config(), make).expect("a valid pool")
}

fn write(allocation: &Allocation<Host>, byte: u8) {
    let size = usize::try_from(allocation.size()).expect("small");
    allocation.write(0, &vec![byte; size]).expect("in range");
}

fn holds(allocation: &Allocation<Host>, byte: u8) -> bool {
    let mut seen = vec![0; usize::try_from(allocation.size()).expect("small")];
    allocation.read(0, &mut seen).expect("in range");
    seen.iter().all(|&one| one == byte)
}

#[test]
fn a_bad_grant_is_refused_and_taken_back() {
    let lies = [
        Corruption::UnknownBlock,
        Corruption::PastTheEnd,
        Corruption::Overflow,
        Corruption::TooSmall,
        Corruption::NotAligned,
        Corruption::OldKey,
        Corruption::ReservedKey,
    ];
    for corruption in lies {
        let manager = manager();
        let pool = pool(&manager, corruption);
        let first = pool.allocate(&Request::new(1024)).expect("the first answer is honest");
        write(&first, 1);
        let before = manager.totals();
        for _ in 0..200 {
            // More than the block holds, if each refused grant stayed.
            let refused = pool.allocate(&Request::new(1024)).expect_err("a bad grant");
            assert_eq!(refused.kind(), ErrorKind::BadStrategy, "{corruption:?}");
            assert!(refused.to_string().contains("fix the strategy"), "{refused}");
        }
        assert_eq!(manager.totals(), before, "{corruption:?}: nothing changed");
        assert!(holds(&first, 1), "{corruption:?}");
        manager.validate().expect("sound");
        drop(first);
        manager.destroy_pool(pool).map_err(|refused| refused.error).expect("nothing is live");
        assert_eq!(manager.totals().reserved_bytes, 0, "{corruption:?}");
    }
}

#[test]
fn a_block_with_a_bad_id_is_refused_and_returned() {
    for corruption in [Corruption::FarBlock, Corruption::SameBlock] {
        let manager = manager();
        let pool = pool(&manager, corruption);
        let first = pool.allocate(&Request::new(BLOCK)).expect("the first block is honest");
        write(&first, 1);
        let refused = pool.allocate(&Request::new(BLOCK)).expect_err("a second block");
        assert_eq!(refused.kind(), ErrorKind::BadStrategy, "{corruption:?}");
        assert_eq!(pool.reserved(), BLOCK, "{corruption:?}: the driver has the other block again");
        assert!(holds(&first, 1), "{corruption:?}");
    }
}

#[test]
fn a_block_with_live_spans_is_never_returned() {
    let manager = manager();
    let pool = pool(&manager, Corruption::Empty);
    let live = pool.allocate(&Request::new(1024)).expect("fits");
    write(&live, 3);
    assert_eq!(manager.trim().expect("alive"), 0);
    assert_eq!(pool.reserved(), BLOCK);
    assert!(holds(&live, 3));
}

#[test]
fn blocks_are_returned_as_soon_as_nothing_lives_in_them() {
    let manager = manager();
    let make = |granularity| Subject::FirstFit.make(granularity);
    let pool = manager.create_pool_with(HEAP, config(), make).expect("a valid pool");
    for round in 1..4 {
        let live: Vec<_> =
            (0..round).map(|_| pool.allocate(&Request::new(BLOCK - 1024)).expect("fits")).collect();
        assert_eq!(pool.reserved(), round * BLOCK);
        assert_eq!(pool.trim().expect("alive"), 0);
        drop(live);
        assert_eq!(pool.trim().expect("alive"), round * BLOCK);
        assert_eq!((pool.reserved(), manager.totals().reserved_bytes), (0, 0));
    }
}

#[test]
fn an_allocation_stays_where_it_was_granted() {
    let manager = manager();
    let pool = pool(&manager, Corruption::Moved);
    let live = pool.allocate(&Request::new(1024)).expect("fits");
    assert_eq!(live.binding().span(), Span { offset: 0, size: 1024 });
    write(&live, 4);
    assert!(holds(&live, 4));
}

#[test]
fn what_is_not_freed_is_lost_to_everybody_until_the_pool_ends() {
    let manager = manager();
    let pool = pool(&manager, Corruption::NoFree);
    let offsets: Vec<u64> = (0..4)
        .map(|_| {
            let one = pool.allocate(&Request::new(1024)).expect("fits");
            one.binding().span().offset
        })
        .collect();
    assert_eq!(offsets, [0, 1024, 2048, 3072], "nobody gets the bytes again");
    assert_eq!((manager.totals().live, pool.trim().expect("alive")), (0, 0));
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("nobody owns anything");
    assert_eq!(manager.totals().reserved_bytes, 0);
}

#[test]
fn each_lane_gets_a_strategy_of_its_own() {
    let (manager, made) = (manager(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&made);
    let make = move |granularity: Align| {
        count.fetch_add(1, Relaxed);
        Subject::FirstFit.make(granularity)
    };
    let config = config().lanes(4);
    let pool = manager.create_pool_with(HEAP, config, make).expect("a valid pool");
    thread::scope(|scope| {
        for byte in 1..=8 {
            let pool = &pool;
            scope.spawn(move || {
                let mut live: Vec<Allocation<Host>> = Vec::new();
                for turn in 0..300_usize {
                    let one =
                        pool.allocate(&Request::new(64 + (turn % 7) as u64 * 300)).expect("fits");
                    write(&one, byte);
                    live.push(one);
                    if live.len() > 20 {
                        assert!(holds(&live.swap_remove(turn % 20), byte));
                    }
                }
                assert!(live.iter().all(|one| holds(one, byte)));
            });
        }
    });
    assert!((2..=4).contains(&made.load(Relaxed)), "{made:?}");
    manager.validate().expect("sound");
    manager.defragment().expect("alive");
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("nothing is live");
}

#[test]
fn the_kind_of_an_own_strategy_needs_the_strategy() {
    let config = config().strategy(StrategyKind::Custom);
    let refused = manager().create_pool(HEAP, config).expect_err("there is no strategy");
    assert_eq!(refused.kind(), ErrorKind::InvalidConfig);
    let paged = config.paged();
    let refused =
        manager().create_pool_with(HEAP, paged, |granularity| Subject::FirstFit.make(granularity));
    assert_eq!(refused.expect_err("pages need the general one").kind(), ErrorKind::InvalidConfig);
}

/// A pool of one block whose spans the caller names.
fn exact_pool(manager: &Manager<Host>) -> UserPool<Host> {
    let config = config().minimum(BLOCK).maximum(BLOCK);
    let make = |granularity| Subject::Exact.make(granularity);
    manager.create_pool_with(HEAP, config, make).expect("a valid pool")
}

#[test]
fn a_span_is_taken_where_it_was_named() {
    let manager = manager();
    let pool = exact_pool(&manager);
    let first = pool.take_span(4096, &Request::new(1000).name("weights")).expect("free");
    assert_eq!(first.binding().span(), Span { offset: 4096, size: 1000 });
    first.fill(0, 1000, 0xEE).expect("in range");
    let refused = |offset, request: &Request<'_>| {
        pool.take_span(offset, request).expect_err("it cannot be taken").kind()
    };
    let before = manager.totals();
    assert_eq!(refused(5095, &Request::new(1)), ErrorKind::Busy);
    assert_eq!(refused(BLOCK - 1, &Request::new(2)), ErrorKind::OutOfRange);
    assert_eq!(refused(u64::MAX, &Request::new(2)), ErrorKind::OutOfRange);
    assert_eq!(refused(0, &Request::new(0)), ErrorKind::ZeroSize);
    assert_eq!(refused(8, &Request::new(1).align(Align::of(16))), ErrorKind::Misaligned);
    assert_eq!(refused(0, &Request::new(1).align(Align::of(1 << 40))), ErrorKind::InvalidAlignment);
    assert_eq!(refused(0, &Request::new(1).dedicated()), ErrorKind::Unsupported);
    assert_eq!(refused(0, &Request::new(1).class(Class::Tiled)), ErrorKind::Unsupported);
    assert_eq!(manager.totals(), before);
    assert!(!pool.is_idle().expect("alive"));
    drop(first);
    assert!(pool.is_idle().expect("alive"));
    let again = pool.take_span(4096, &Request::new(500).zeroed()).expect("free again");
    assert!(holds(&again, 0));
    manager.validate().expect("sound");
}

#[test]
fn spans_are_taken_only_where_the_pool_can() {
    let manager = manager();
    let honest = |config, subject: Subject| {
        let make = move |granularity| subject.make(granularity);
        let pool = manager.create_pool_with(HEAP, config, make).expect("a valid pool");
        pool.take_span(0, &Request::new(1)).map(drop).map_err(|error| error.kind())
    };
    let primed = config().minimum(BLOCK);
    assert_eq!(honest(primed, Subject::Exact), Ok(()));
    assert_eq!(honest(primed, Subject::FirstFit), Err(ErrorKind::Unsupported));
    let lanes = primed.lanes(2);
    assert_eq!(honest(lanes, Subject::Exact), Err(ErrorKind::Unsupported));
    assert_eq!(honest(config(), Subject::Exact), Err(ErrorKind::Stale), "there is no block");
    let general = manager.create_pool(HEAP, primed.lanes(1));
    let refused = general.expect("a valid pool").take_span(0, &Request::new(1));
    assert_eq!(refused.expect_err("it places by itself").kind(), ErrorKind::Unsupported);
}

#[test]
fn a_strategy_that_takes_another_span_is_refused() {
    let manager = manager();
    let make = |granularity| {
        let inner = Subject::Exact.make(granularity);
        Box::new(Liar { inner, corruption: Corruption::NextSpan, first: None }) as Box<dyn Strategy>
    };
    let config = config().minimum(BLOCK);
    let pool = manager.create_pool_with(HEAP, config, make).expect("a valid pool");
    for _ in 0..2 {
        let refused = pool.take_span(0, &Request::new(64)).expect_err("another span");
        assert_eq!(refused.kind(), ErrorKind::BadStrategy);
    }
    assert!(pool.is_idle().expect("alive"));
    manager.validate().expect("sound");
}

#[test]
fn a_span_that_another_timeline_may_still_use_is_not_taken() {
    let manager = manager();
    let pool = exact_pool(&manager);
    let other = manager.backend().open().expect("a timeline");
    let on = |timeline| Request::new(4096).on(timeline);
    let first = pool.take_span(0, &on(other)).expect("free");
    let hold = manager.backend().hold(other).expect("a known timeline");
    drop(first);
    let refused = pool.take_span(0, &on(TimelineId::MAIN)).expect_err("it may be in use");
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(pool.take_span(0, &on(other)).expect("in its own order"));
    drop(hold);
    manager.backend().wait_idle().expect("alive");
    drop(pool.take_span(0, &on(TimelineId::MAIN)).expect("it has passed"));
    let unknown = pool.take_span(0, &on(TimelineId(77))).expect_err("no such timeline");
    assert_eq!(unknown.kind(), ErrorKind::NoSuchTimeline);
}
