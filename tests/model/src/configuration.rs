//! Any bytes, read as the settings of a manager and of a pool: they are refused with an error, or they work.
use crate::session::Device;
use omniheap_core::{
    Align, ErrorKind, HeapId, HeapKind, Layout, Limits, Manager, ManagerConfig, PoolConfig,
    Request, StrategyKind, Uses, Waiting,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Live, Record};
use std::sync::Arc;

/// Small, so that many settings ask for too much.
const HEAP_SIZE: u64 = 1 << 20;
/// Allocations made of each pool.
const COUNT: usize = 8;

/// Reads numbers off the bytes; zeros after their end.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Sizes of every magnitude, and those at which arithmetic ends.
    fn number(&mut self) -> u64 {
        let (kind, fine) = (self.next(), u64::from(self.next()));
        match kind % 8 {
            0 => fine,
            1..=4 => fine << (u32::from(kind / 8) % 14),
            5 => fine << (u32::from(kind / 8) + 20),
            6 => u64::MAX - fine,
            _ => [0, 1, HEAP_SIZE - 1, HEAP_SIZE, HEAP_SIZE + 1, 1 << 63, u64::MAX]
                [usize::from(kind / 8) % 7],
        }
    }

    fn align(&mut self) -> Align {
        Align::of(1 << (self.next() % 64))
    }

    fn strategy(&mut self) -> StrategyKind {
        match self.next() % 8 {
            0..=2 => StrategyKind::General,
            3 => StrategyKind::Buddy(self.number()),
            4 => StrategyKind::Slab(Layout { size: self.number(), align: self.align() }),
            5 => StrategyKind::Stack,
            6 => StrategyKind::Ring,
            _ => StrategyKind::Bump,
        }
    }

    fn pool(&mut self) -> PoolConfig {
        let strategy = self.strategy();
        let flags = self.next();
        let mut config = PoolConfig::new()
            .strategy(strategy)
            .minimum(if flags & 1 == 0 { 0 } else { self.number() })
            .maximum(if flags & 2 == 0 { u64::MAX } else { self.number() })
            .block((flags & 4 != 0).then(|| self.number()))
            .waiting(if flags & 32 == 0 { Waiting::LastResort } else { Waiting::Thrift })
            .uses(if flags & 64 == 0 { Uses::Declared } else { Uses::Undeclared })
            .lanes((flags & 16 != 0).then(|| u32::from(self.next())));
        config.paged = flags & 8 != 0;
        config
    }
}

/// Makes a manager and a pool with such settings and uses both; equal bytes give equal settings.
///
/// # Panics
///
/// Panics when a promise is broken: a panic inside, an error that does not fit, an allocation that is too small or
/// misplaced, a pool above its maximum, something that is left at the end.
pub fn run(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let mut device = heap(HeapKind::Device, HEAP_SIZE);
    device.page = (reader.next() & 1 != 0).then(|| Align::of(64 << 10));
    let host = Host::builder().heap(device).open().expect("a small device opens");
    let device: Device = Arc::new(Fault::new(Record::new(host)));
    let mut config = ManagerConfig::default();
    config.unit = Align::of(1 << (reader.next() % 16));
    config.pool.lanes = Some(1 + u32::from(reader.next() % 4));
    config.pool.paged = reader.next() & 1 != 0;
    let manager = Manager::with_config(Arc::clone(&device), config);
    while !reader.0.is_empty() {
        use_pool(&manager, &mut reader);
        manager.validate().expect("sound after every pool");
    }
    let budget = (reader.number(), reader.number());
    let taken = manager.set_budget(HeapId(0), Limits { soft: budget.0, hard: budget.1 });
    assert_eq!(taken.is_ok(), budget.0 <= budget.1, "soft above hard is refused, and nothing else");
    drop(manager);
    assert_eq!(device.inner().live(), Live::default(), "memory was left");
}

fn use_pool(manager: &Manager<Device>, reader: &mut Reader<'_>) {
    let config = reader.pool();
    let (size, align) = (reader.number(), reader.align());
    let pool = match manager.create_pool(HeapId(0), config) {
        Ok(pool) => pool,
        Err(error) => return refused(error.kind(), config),
    };
    // Pages come when they are needed.
    assert!(config.paged || pool.reserved() >= config.minimum, "{config:?}");
    assert!(pool.reserved() <= config.maximum, "{config:?}");
    let mut live = Vec::new();
    for _ in 0..COUNT {
        match pool.allocate(&Request::new(size).align(align)) {
            Ok(one) => {
                assert!(one.size() == size && size > 0, "{config:?}");
                let binding = one.binding();
                assert!(binding.span().size >= size && binding.span().end() <= HEAP_SIZE);
                assert_eq!(binding.span().offset % align.get().min(4096), 0, "{config:?}");
                drop(binding);
                live.push(one);
            }
            Err(_) => break,
        }
        assert!(pool.reserved() <= config.maximum, "{config:?}");
    }
    // Last in, first out: what every strategy takes.
    while live.pop().is_some() {}
    let _ = manager.retire();
    let ended = manager.destroy_pool(pool);
    assert!(ended.is_ok(), "an empty pool ends: {config:?}");
}

/// Checks the reason why a pool was refused.
fn refused(kind: ErrorKind, config: PoolConfig) {
    use ErrorKind::{ExceedsLimit, InvalidConfig, SizeOverflow};
    let fits =
        kind.is_out_of_memory() || matches!(kind, InvalidConfig | ExceedsLimit | SizeOverflow);
    assert!(fits, "{kind:?} for {config:?}");
}
