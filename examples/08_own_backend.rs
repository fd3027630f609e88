//! A backend of your own: this one wraps whatever device is here and tells what is asked of its driver.
//!
//! Four verbs are all that a backend must have; what else the device can do is passed on. `examples/toy-backend` is one
//! from the ground up, with the conformance suite behind it.
//!
//! `cargo run --release --example 08_own_backend -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap::{
    AnyBackend, Backend, Caps, HeapId, Manager, Usage,
    placement::Keyword as _,
    seam::{
        Address, AnyBlock, DriverBudget, Export, Launch, Map, Remap, Result, Timelines, Transfer,
    },
};
use omniheap_examples::{Outcome, check, noise};

/// Prints every block that is allocated or freed.
struct Loud {
    inner: AnyBackend,
    calls: AtomicU64,
}

// SAFETY: every promise is the inner backend's; telling changes none of them.
unsafe impl Backend for Loud {
    type Block = AnyBlock;

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<AnyBlock> {
        let block = self.inner.allocate(heap, size);
        let call = self.calls.fetch_add(1, Relaxed);
        let outcome = block.as_ref().map_or_else(|error| error.to_string(), |_| "done".into());
        println!("  driver call {call}: {size} bytes of heap {}: {outcome}", heap.0);
        block
    }

    unsafe fn free(&self, block: AnyBlock) -> Result<()> {
        println!("  driver call {}: a block goes back", self.calls.fetch_add(1, Relaxed));
        // SAFETY: the caller's promise is about the inner backend's own block.
        unsafe { self.inner.free(block) }
    }

    fn wait_idle(&self) -> Result<()> {
        self.inner.wait_idle()
    }

    fn as_map(&self) -> Option<&dyn Map<Block = AnyBlock>> {
        self.inner.as_map()
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = AnyBlock>> {
        self.inner.as_transfer()
    }
    fn as_address(&self) -> Option<&dyn Address<Block = AnyBlock>> {
        self.inner.as_address()
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        self.inner.as_timelines()
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = AnyBlock>> {
        None // So that memory comes in blocks, which this backend sees.
    }
    fn as_budget(&self) -> Option<&dyn DriverBudget> {
        self.inner.as_budget()
    }
    fn as_export(&self) -> Option<&dyn Export<Block = AnyBlock>> {
        self.inner.as_export()
    }
    fn as_launch(&self) -> Option<&dyn Launch<Block = AnyBlock>> {
        self.inner.as_launch()
    }
}

fn main() -> Outcome {
    let inner = AnyBackend::clone(omniheap_examples::manager()?.backend());
    let manager = Manager::new(Loud { inner, calls: AtomicU64::new(0) });

    // A thousand allocations, and the driver hears of a few.
    let numbers = noise(1024);
    let buffers = (0..1000)
        .map(|_| manager.allocate_slice::<f32>(1024, Usage::Device))
        .collect::<Result<Vec<_>, _>>()?;
    let last = buffers.last().ok_or("a thousand were asked for")?;
    let placed = last.allocation().placed();
    println!("  buffers: {} memory, because {}", placed.region.word(), placed.reason);
    last.write(0, &numbers)?;
    let mut back = vec![0.0; 1024];
    last.read(0, &mut back)?;
    println!("  1000 allocations, {} driver calls", manager.backend().calls.load(Relaxed));
    check(&back, &numbers)?;
    drop(buffers);
    println!("  {} bytes go back", manager.trim()?);
    Ok(())
}
