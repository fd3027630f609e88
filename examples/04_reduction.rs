//! A sum in two launches: scratch memory between them is freed in the order of the timeline, without waiting.
//!
//! `cargo run --release --example 04_reduction -- --backend auto|cuda|hip|vulkan|wgpu|host`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::shaders::REDUCTION;
use omniheap::{
    ErrorKind, Request, TimelineId,
    placement::{Lifetime, SharedArray, SharedLayout, Writer},
};
use omniheap_examples::{Outcome, check, noise, parameters, place, read};

const COUNT: usize = 1 << 20;
const GROUPS: usize = 64;
const MAIN: TimelineId = TimelineId::MAIN;

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let limits = manager.caps().shared.ok_or(ErrorKind::Unsupported)?;
    let layout = SharedLayout::plan(&[SharedArray::new("sums", 4, 256)], 0, &limits)?;
    println!("  sums: {} bytes of shared memory", layout.bytes);
    let program = manager.load(&REDUCTION, layout.bytes)?;

    let numbers = noise(COUNT);
    let (input, _) =
        place(&manager, "numbers", COUNT, &Request::new(0).writer(Writer::HostOnce).on(MAIN))?;
    let scratch = Request::new(0).lifetime(Lifetime::Kernel).on(MAIN).name("scratch");
    let (partial, _) = place(&manager, "partial sums", GROUPS, &scratch)?;
    let (sum, _) = place(&manager, "sum", 1, &Request::new(0).on(MAIN))?;
    input.write(0, &numbers)?;

    for (from, to, count, groups) in
        [(&input, &partial, COUNT, GROUPS), (&partial, &sum, GROUPS, 1)]
    {
        let words = [u32::try_from(count)?, u32::try_from(groups)?];
        let arguments = [from.allocation(), to.allocation()];
        // SAFETY: `from` has `count` numbers and `to` one for every group; both launches are on one timeline.
        unsafe { program.launch(MAIN, [words[1], 1, 1], &arguments, &parameters(&words)) }?;
    }
    // The kernels may still run: the bytes are used again on this timeline only, where that is later.
    drop(partial);

    // The processor adds in the same order, so that roundings do not pile up.
    let groups = (0..GROUPS).map(|group| {
        let mine = numbers.chunks(256).skip(group).step_by(GROUPS);
        mine.flatten().map(|value| f64::from(*value)).sum::<f64>()
    });
    let total: f64 = groups.sum();
    let got = f64::from(read(&sum)?[0]);
    println!("  sum {got:.1}, exactly {total:.1}");
    #[expect(clippy::cast_possible_truncation, reason = "compared as a share of itself")]
    let share = (got / total) as f32;
    check(&[share], &[1.0])
}
