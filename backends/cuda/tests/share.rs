//! One allocation that CUDA and Vulkan see, handed over as a file descriptor.
//!
//! Without both drivers on one device every case is *ignored*; `OMNIHEAP_REQUIRE=cuda,vulkan` turns that into failure.
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap_core::{Backend, BlockOffset, HeapId, HeapKind, Result, TimelineId};
use omniheap_cuda::Cuda;
use omniheap_vulkan::{Options, Vulkan, Which};
use std::process::ExitCode;

const MAIN: TimelineId = TimelineId::MAIN;
const NONE: &str = "a backend lacks a capability that it must have";
/// A multiple of what either side rounds to.
const SIZE: u64 = 4 << 20;

fn is_required() -> bool {
    let names = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    ["cuda", "vulkan"].iter().all(|wanted| names.split(',').any(|name| name.trim() == *wanted))
}

/// Returns the first CUDA device, and the same one through Vulkan.
fn both() -> Result<(Cuda, Vulkan)> {
    let cuda = Cuda::open(0)?;
    let uuid = cuda.caps().device.uuid.ok_or(omniheap_core::ErrorKind::Unsupported)?;
    let vulkan = Vulkan::open_with(Options::default().device(Which::Uuid(uuid)))?;
    Ok((cuda, vulkan))
}

fn device_heap(backend: &impl Backend) -> HeapId {
    let mut heaps = backend.caps().heap_ids();
    heaps.find(|(_, heap)| heap.kind == HeapKind::Device).expect("every device has one").0
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        state.to_be_bytes()[0]
    };
    (0..SIZE).map(next).collect()
}

/// Writes on one side and looks on the other, both ways.
fn hand_over(from: &impl Backend, to: &impl Backend) -> Result<(), Failed> {
    let (giver, taker) = (from.as_export().ok_or(NONE)?, to.as_export().ok_or(NONE)?);
    let block = giver.allocate_exportable(device_heap(from), SIZE)?;
    let exported = giver.export(&block)?;
    if exported.uuid != to.caps().device.uuid {
        return Err("the two sides name the device differently".into());
    }
    let seen = taker.import(device_heap(to), &exported)?;
    check(from, &block, to, &seen, 1)?;
    check(to, &seen, from, &block, 2)
}

fn check<A: Backend, B: Backend>(
    from: &A,
    source: &A::Block,
    to: &B,
    seen: &B::Block,
    seed: u64,
) -> Result<(), Failed> {
    let (sent, mut found) = (pattern(seed), vec![0; pattern(seed).len()]);
    from.as_transfer().ok_or(NONE)?.write(MAIN, BlockOffset { block: source, offset: 0 }, &sent)?;
    from.wait_idle()?;
    to.as_transfer().ok_or(NONE)?.read(MAIN, BlockOffset { block: seen, offset: 0 }, &mut found)?;
    if sent == found { Ok(()) } else { Err(format!("other bytes, with seed {seed}").into()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_absent = both().is_err() && !is_required();
    let trials = vec![
        Trial::test("vulkan_sees_what_cuda_exports", || {
            let (cuda, vulkan) = both()?;
            hand_over(&cuda, &vulkan)
        }),
        Trial::test("cuda_sees_what_vulkan_exports", || {
            let (cuda, vulkan) = both()?;
            hand_over(&vulkan, &cuda)
        }),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(is_absent));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
