//! Times ten thousand moves in one batch, beside one driver copy of as many bytes and one call per move.
//!
//! A byte counts once. *Device* is the time between events around a batch that waits behind other work, so that the host's
//! part is over when it begins; reading the table is included. *Whole* is an idle device's time, the host's part included.
//! Ends with an error where there is no device.
#![expect(unsafe_code, reason = "calls the driver")]
use core::{error::Error, ptr};
use cudarc::driver::sys::{self, CUevent, CUstream};
use omniheap_core::{Backend, BlockOffset, HeapId, Move, Result, TimelineId, Transfer};
use omniheap_cuda::{Block, Cuda};
use omniheap_stream::COMPACTION;
use std::time::Instant;

const PREPARED: &str = include_str!("../kernels/compact.ptx");
const MAIN: TimelineId = TimelineId::MAIN;
const MOVES: u64 = 10_000;
const ROUNDS: u32 = 12;

fn event() -> CUevent {
    let mut event = ptr::null_mut();
    // SAFETY: `event` is a valid out-pointer and a context is current.
    let code = unsafe { sys::cuEventCreate(&raw mut event, 0) };
    assert_eq!(code as u32, 0, "cuEventCreate");
    event
}

/// A device that can be kept busy.
struct Bench {
    cuda: Cuda,
    stream: CUstream,
    busy: Block,
}

impl Bench {
    /// Seconds on the device and in all, the best of a few rounds.
    fn best(&self, mut work: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
        let device = self.time(Some(&self.busy), &mut work)?.0;
        Ok((device, self.time(None, &mut work)?.1))
    }

    /// Seconds between events and in all, behind a fill of `busy` where there is one.
    fn time(
        &self,
        busy: Option<&Block>,
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<(f64, f64)> {
        let stream = self.stream;
        let (start, end) = (event(), event());
        let (mut device, mut whole) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            if let Some(block) = busy {
                self.cuda.fill(MAIN, BlockOffset { block, offset: 0 }, block.size(), 1)?;
            }
            let clock = Instant::now();
            // SAFETY: event and stream live until the end.
            let _ = unsafe { sys::cuEventRecord(start, stream) };
            work()?;
            // SAFETY: as above.
            let _ = unsafe { sys::cuEventRecord(end, stream) };
            // SAFETY: recorded just above.
            let _ = unsafe { sys::cuEventSynchronize(end) };
            whole = whole.min(clock.elapsed().as_secs_f64());
            let mut milliseconds = 0.0;
            // SAFETY: both have finished.
            let _ = unsafe { sys::cuEventElapsedTime(&raw mut milliseconds, start, end) };
            device = device.min(f64::from(milliseconds) / 1e3);
        }
        Ok((device, whole))
    }
}

/// A move's size by its number.
type SizeOf = fn(u64) -> u64;

const KINDS: [(&str, SizeOf); 5] = [
    ("4 KiB", |_| 4 << 10),
    ("64 KiB", |_| 64 << 10),
    ("1 MiB", |_| 1 << 20),
    // Whole kilobytes from one to 255, in no order.
    ("mixed", |number| (number.wrapping_mul(0x9E37_79B9) % 255 + 1) << 10),
    ("mixed, odd", |number| ((number.wrapping_mul(0x9E37_79B9) % 255 + 1) << 10) - 3),
];

fn places(size_of: SizeOf) -> (Vec<(u64, u64, u64)>, u64) {
    let mut end = 0;
    let mut places: Vec<_> = (0..MOVES)
        .map(|number| {
            let (size, start) = (size_of(number), end);
            end += size.next_multiple_of(4);
            (start, start, size)
        })
        .collect();
    // Destinations without a gap, sources in another order.
    places.sort_by_key(|place| place.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut start = 0;
    for place in &mut places {
        place.1 = start;
        start += place.2.next_multiple_of(4);
    }
    (places, end)
}

fn measure(bench: &Bench, name: &str, size_of: SizeOf) -> Result<()> {
    let cuda = &bench.cuda;
    let (places, length) = places(size_of);
    let bytes: u64 = places.iter().map(|place| place.2).sum();
    let (from, to) = (cuda.allocate(HeapId(0), length)?, cuda.allocate(HeapId(0), length)?);
    let one = |(start, end, size): &(u64, u64, u64)| Move {
        from: BlockOffset { block: &from, offset: *start },
        to: BlockOffset { block: &to, offset: *end },
        size: *size,
    };
    let moves: Vec<Move<'_, Block>> = places.iter().map(one).collect();
    cuda.fill(MAIN, moves[0].from, 1, 0)?;
    let whole = [Move {
        size: length,
        from: BlockOffset { block: &from, offset: 0 },
        to: BlockOffset { block: &to, offset: 0 },
    }];
    let (plain, _) = bench.best(|| cuda.copy(MAIN, &whole))?;
    let (device, all) = bench.best(|| cuda.copy(MAIN, &moves))?;
    // Batches of one are what a driver call for each costs.
    let (single, _) = bench.best(|| moves.iter().try_for_each(|step| cuda.copy(MAIN, &[*step])))?;
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    println!(
        "{MOVES} moves of {name:<10} device {:7.1} GB/s, whole {:7.1} GB/s; one copy {:7.1} GB/s; a call each {:6.1} GB/s",
        rate(device),
        rate(all),
        length as f64 / plain / 1e9,
        rate(single)
    );
    for block in [from, to] {
        // SAFETY: every copy was waited for.
        unsafe { cuda.free(block) }?;
    }
    Ok(())
}

/// Prints where a launch begins to pay: microseconds of a few moves, one call each and in one batch.
fn threshold(bench: &Bench, size: u64) -> Result<()> {
    let cuda = &bench.cuda;
    let (from, to) = (cuda.allocate(HeapId(0), 16 * size)?, cuda.allocate(HeapId(0), 16 * size)?);
    for count in [2, 3, 4, 6, 8, 16] {
        let one = |number| Move {
            from: BlockOffset { block: &from, offset: number * size },
            to: BlockOffset { block: &to, offset: number * size },
            size,
        };
        let moves: Vec<Move<'_, Block>> = (0..count).map(one).collect();
        let single = bench.best(|| moves.iter().try_for_each(|step| cuda.copy(MAIN, &[*step])))?;
        let batch = bench.best(|| cuda.copy(MAIN, &moves))?;
        println!(
            "{count:2} moves of {size:8} bytes: device {:6.1} us one by one, {:6.1} us in a batch; whole {:6.1} and {:6.1} us",
            single.0 * 1e6,
            batch.0 * 1e6,
            single.1 * 1e6,
            batch.1 * 1e6
        );
    }
    for block in [from, to] {
        // SAFETY: every copy was waited for.
        unsafe { cuda.free(block) }?;
    }
    Ok(())
}

/// Opens the device, and prints the kernel's start-up cost: with opening the device, loaded again, and compiled.
fn start() -> core::result::Result<Cuda, Box<dyn Error>> {
    let began = Instant::now();
    let cuda = Cuda::open(0)?;
    let opened = began.elapsed();
    cuda.prepare_batches()?;
    let began = Instant::now();
    cuda.load_ptx(PREPARED)?.kernel("omniheap_compact")?;
    let loaded = began.elapsed();
    let began = Instant::now();
    cuda.compile(COMPACTION)?.kernel("omniheap_compact")?;
    println!(
        "opened in {opened:?}; the kernel is loaded in {loaded:?}, compiled in {:?}",
        began.elapsed()
    );
    Ok(cuda)
}

fn main() -> core::result::Result<(), Box<dyn Error>> {
    let cuda = start()?;
    // SAFETY: the context lives as long as `cuda`; left current, which costs nothing here.
    let _ = unsafe { sys::cuCtxPushCurrent_v2(cuda.context()) };
    let stream = cuda.stream(MAIN)?;
    // A fill of this much takes longer than the host needs for a batch.
    let busy = cuda.allocate(HeapId(0), 8 << 30)?;
    let bench = Bench { cuda, stream, busy };
    for (name, size_of) in KINDS {
        measure(&bench, name, size_of)?;
    }
    for size in [4 << 10, 1 << 20, 4 << 20, 16 << 20] {
        threshold(&bench, size)?;
    }
    Ok(())
}
