//! Times uploads in every available way.
use super::bench::Bench;
use super::costs::percent;
use core::time::Duration;
use indicatif::ProgressBar;
use omniheap::{
    AnyBackend, Manager, Request,
    placement::Profile,
    seam::{Heap, HeapKind, HostAccess},
};
use omniheap_cli::Failure;
use omniheap_cli::output::{self, Format};
use serde::Serialize;
use std::time::Instant;

/// Bytes of one upload.
const SIZES: [u32; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Runs of which the fastest counts.
const ROUNDS: u32 = 9;

/// One size.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    upload_bytes: u32,
    /// Copied to device memory.
    staged_gigabytes_per_second: f64,
    /// Written straight to host-visible memory, where there is some.
    mapped_gigabytes_per_second: Option<f64>,
}

/// Steps of the whole measurement.
pub(super) const STEPS: u64 = SIZES.len() as u64;

/// Times staged uploads, and those straight into host-visible device memory where there is some.
pub(super) fn run(
    bench: &Bench,
    profile: Profile,
    bar: &ProgressBar,
    format: Format,
) -> Result<Profile, Failure> {
    let manager = &bench.manager;
    let heaps = &manager.caps().heaps;
    let is_visible = |heap: &Heap| heap.kind == HeapKind::Unified && heap.host != HostAccess::None;
    // Memory that migrates is visible too, but no window: its bytes travel when a kernel reads them.
    let is_window = |heap: &Heap| is_visible(heap) && heap.host == HostAccess::Combined;
    let has_device = heaps.iter().any(|heap| heap.kind == HeapKind::Device);
    let mut shares = Vec::new();
    for size in SIZES {
        bar.set_message(format!("uploads, {}", output::bytes(size.into())));
        let bytes = vec![7u8; size.try_into().unwrap_or(0)];
        let Ok(device) = manager.allocate(&Request::new(size.into())) else { continue };
        let staged = fastest(manager, || device.write(0, &bytes))?;
        let visible = manager.caps().heap_ids().filter(|(_, heap)| is_visible(heap));
        let visible = visible.min_by_key(|(_, heap)| !is_window(heap));
        let mut mapped = None;
        if let Some((heap, about)) = visible
            && let Ok(made) = manager.allocate(&Request::new(size.into()).heap(heap))
            && let Ok(view) = made.map()
        {
            let time = fastest(manager, || view.write(0, &bytes))?;
            mapped = Some(time);
            if is_window(about) && has_device {
                shares.push(100.0 * time.as_secs_f64() / staged.as_secs_f64().max(1e-9));
            }
        }
        show(manager, size, staged, mapped, format)?;
        bar.inc(1);
    }
    #[expect(clippy::cast_precision_loss, reason = "a few sizes")]
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    Ok(if shares.is_empty() { profile } else { profile.with_window(percent(mean)) })
}

/// Returns the fastest of several uploads, until the device has the bytes.
fn fastest(
    manager: &Manager<AnyBackend>,
    run: impl Fn() -> omniheap::seam::Result<()>,
) -> Result<Duration, Failure> {
    let mut fastest = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run()?;
        manager.backend().wait_idle()?;
        fastest = fastest.min(start.elapsed());
    }
    Ok(fastest)
}

fn show(
    manager: &Manager<AnyBackend>,
    size: u32,
    staged: Duration,
    mapped: Option<Duration>,
    format: Format,
) -> Result<(), Failure> {
    let rate = |time: Duration| f64::from(size) / time.as_secs_f64().max(1e-9) / 1e9;
    let line = Line {
        backend: manager.caps().device.backend,
        upload_bytes: size,
        staged_gigabytes_per_second: rate(staged),
        mapped_gigabytes_per_second: mapped.map(rate),
    };
    if format == Format::Json {
        return output::print_json(&line);
    }
    let mapped = line.mapped_gigabytes_per_second.map_or_else(
        || "no host-visible device memory".to_owned(),
        |rate| format!("{rate:.2} GB/s mapped, to host-visible memory"),
    );
    output::print_line(&format!(
        "uploads of {}: {:.2} GB/s staged, to device memory; {mapped}",
        output::bytes(size.into()),
        line.staged_gigabytes_per_second
    ))
}
