//! Times uploads and read-backs from pageable and pinned memory, beside one plain driver copy.
//! Ends with an error where there is no device.
#![expect(unsafe_code, reason = "looks at mapped memory and calls the driver")]
use core::{error::Error, slice};
use cudarc::driver::sys;
use omniheap_core::{
    Backend, BlockOffset, HeapId, HostAccess, Map, Point, TimelineId, Timelines, Transfer,
};
use omniheap_cuda::{Block, Cuda};
use std::time::Instant;

const SIZE: u64 = 1 << 30;
const MAIN: TimelineId = TimelineId::MAIN;

/// Returns the best of five, in GB/s.
fn best(mut work: impl FnMut() -> omniheap_core::Result<()>) -> omniheap_core::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(SIZE as f64 / best / 1e9)
}

fn settled(cuda: &Cuda) -> omniheap_core::Result<()> {
    cuda.wait(Point { timeline: MAIN, epoch: cuda.mark(MAIN)? })
}

fn plain(cuda: &Cuda, block: &Block, bytes: &[u8]) -> omniheap_core::Result<()> {
    let stream = cuda.stream(MAIN)?;
    // SAFETY: the context lives as long as `cuda`; left current, which costs nothing here.
    let _ = unsafe { sys::cuCtxPushCurrent_v2(cuda.context()) };
    let from = bytes.as_ptr().cast();
    // SAFETY: the block has as many bytes as the slice, which is borrowed until the copy has run.
    let _ = unsafe { sys::cuMemcpyHtoDAsync_v2(block.address(), from, bytes.len(), stream) };
    settled(cuda)
}

fn main() -> Result<(), Box<dyn Error>> {
    let cuda = Cuda::open(0)?;
    let mut heaps = cuda.caps().heap_ids();
    let cached = heaps.find(|(_, heap)| heap.host == HostAccess::Cached).ok_or("no pinned heap")?.0;
    let (block, staged) = (cuda.allocate(HeapId(0), SIZE)?, cuda.allocate(cached, SIZE)?);
    let at = || BlockOffset { block: &block, offset: 0 };
    let length = usize::try_from(SIZE)?;
    let mut pageable = vec![1u8; length];
    // SAFETY: the block has that many mapped bytes, and only this slice names them.
    let pinned = unsafe { slice::from_raw_parts_mut(cuda.map(&staged)?.as_ptr(), length) };
    pinned.fill(2);

    let baseline = best(|| plain(&cuda, &block, pinned))?;
    let show = |name: &str, rate: f64| {
        println!("{name:<22} {rate:6.1} GB/s  {:.2}x", rate / baseline);
    };
    show("plain pinned copy", baseline);
    show("write from pinned", best(|| cuda.write(MAIN, at(), pinned))?);
    show(
        "write from pageable",
        best(|| cuda.write(MAIN, at(), &pageable).and_then(|()| settled(&cuda)))?,
    );
    show("read to pinned", best(|| cuda.read(MAIN, at(), pinned))?);
    show("read to pageable", best(|| cuda.read(MAIN, at(), &mut pageable))?);
    for block in [block, staged] {
        // SAFETY: every transfer was waited for.
        unsafe { cuda.free(block) }?;
    }
    Ok(())
}
