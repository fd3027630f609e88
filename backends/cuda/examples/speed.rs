//! Times allocation: one manager beside the driver's own asynchronous pool, in one run.
//!
//! `pytorch/run.py` measures PyTorch's caching allocator with the same sizes in the same order. Ends with an error where
//! there is no device.
#![expect(unsafe_code, reason = "calls the driver")]
use core::{error::Error, hint::black_box, ptr};
use cudarc::driver::sys::{self, CUstream};
use omniheap_core::{Manager, Request, TimelineId};
use omniheap_cuda::Cuda;
use std::time::Instant;

const MAIN: TimelineId = TimelineId::MAIN;
/// Allocations that are live during churn.
const LIVE: usize = 2_000;
const PAIRS: u32 = 200_000;
const ROUNDS: u32 = 4;

/// A small generator (splitmix64); `loop.cpp` has the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.next() % length as u64).expect("below a length")
    }
}

/// 512 bytes to 1 MiB, as many of each power of two.
fn sizes() -> Vec<u64> {
    let mut random = Random(7);
    let one = |_| {
        let base = 512 << (random.next() % 11);
        base + random.next() % base
    };
    (0..1024).map(one).collect()
}

/// Someone who hands out memory; what is handed out is taken back by `free`.
trait Source {
    type Held;
    fn allocate(&self, size: u64) -> Self::Held;
    fn free(&self, held: Self::Held);
}

/// The manager, in the order of the main timeline or of none.
struct Ours<'a>(&'a Manager<Cuda>, Option<TimelineId>);

impl Source for Ours<'_> {
    type Held = omniheap_core::Allocation<Cuda>;

    fn allocate(&self, size: u64) -> Self::Held {
        let request = Request::new(size);
        let request = self.1.map_or(request, |timeline| request.on(timeline));
        self.0.allocate(&request).expect("the device has room")
    }

    fn free(&self, held: Self::Held) {
        held.free();
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync`, with a pool that keeps what it gets back.
struct Async(CUstream);

impl Source for Async {
    type Held = u64;

    fn allocate(&self, size: u64) -> u64 {
        let mut address = 0;
        let size = usize::try_from(size).expect("small");
        // SAFETY: the context is current and the stream lives as long as the backend.
        let code = unsafe { sys::cuMemAllocAsync(&raw mut address, size, self.0) };
        assert_eq!(code as u32, 0, "cuMemAllocAsync");
        address
    }

    fn free(&self, held: u64) {
        // SAFETY: `allocate` made it, and nothing uses it.
        let code = unsafe { sys::cuMemFreeAsync(held, self.0) };
        assert_eq!(code as u32, 0, "cuMemFreeAsync");
    }
}

/// Nanoseconds of one allocate and one free, the best round.
fn best(mut round: impl FnMut()) -> f64 {
    let time = |()| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS)
    };
    (0..ROUNDS).map(|_| ()).map(time).fold(f64::INFINITY, f64::min)
}

fn pair(source: &impl Source, size: u64) -> f64 {
    source.free(source.allocate(size));
    best(|| (0..PAIRS).for_each(|_| source.free(black_box(source.allocate(size)))))
}

fn churn(source: &impl Source, sizes: &[u64]) -> f64 {
    let mut random = Random(1);
    let mut pick = |length| random.index(length);
    let mut live: Vec<_> = (0..LIVE).map(|_| source.allocate(sizes[pick(sizes.len())])).collect();
    let time = best(|| {
        for _ in 0..PAIRS {
            source.free(live.swap_remove(pick(LIVE)));
            live.push(source.allocate(sizes[pick(sizes.len())]));
        }
    });
    live.into_iter().for_each(|held| source.free(held));
    time
}

/// Makes the device's default pool keep all memory; otherwise each wait would free it.
fn keep_all(context: sys::CUcontext) {
    let (mut pool, mut all) = (ptr::null_mut(), u64::MAX);
    // SAFETY: the context lives as long as the backend, which outlives the measurement.
    let _ = unsafe { sys::cuCtxPushCurrent_v2(context) };
    // SAFETY: `pool` is a valid out-pointer.
    let _ = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, 0) };
    let threshold = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is 64 bits wide, as `all` is.
    let _ = unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast()) };
}

fn main() -> Result<(), Box<dyn Error>> {
    // One for each, so that neither finds what the other left.
    let (manager, other) = (Manager::new(Cuda::open(0)?), Manager::new(Cuda::open(0)?));
    keep_all(manager.backend().context());
    let driver = Async(manager.backend().stream(MAIN)?);
    let (ordered, unordered) = (Ours(&manager, Some(MAIN)), Ours(&other, None));
    let show = |what: String, ordered: f64, unordered: f64, driver: f64| {
        println!(
            "{what:<26} omniheap on a timeline {ordered:7.1} ns, on none {unordered:7.1} ns, driver's pool \
             {driver:7.1} ns, {:.3}x",
            ordered / driver
        );
    };
    for size in [512, 4 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let (a, b, c) = (pair(&ordered, size), pair(&unordered, size), pair(&driver, size));
        show(format!("allocate+free {size}"), a, b, c);
    }
    let sizes = sizes();
    let (a, b) = (churn(&ordered, &sizes), churn(&unordered, &sizes));
    show(format!("churn with {LIVE} live"), a, b, churn(&driver, &sizes));
    Ok(())
}
