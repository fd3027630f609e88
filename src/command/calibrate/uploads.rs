//! How fast the host's bytes reach the device, by each way that there is.
use super::bench::Bench;
use crate::command::Failure;
use crate::command::output::{self, Format};
use omniheap::{AnyBackend, HeapKind, HostAccess, Manager, Request};
use serde::Serialize;
use std::time::Instant;

/// Bytes of one upload.
const SIZE: usize = 16 << 20;

/// One way.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    upload: &'static str,
    gigabytes_per_second: f64,
}

/// Times a staged upload, and one straight into host-visible device memory where there is some.
pub(super) fn run(bench: &Bench, format: Format) -> Result<(), Failure> {
    let manager = &bench.manager;
    let bytes = vec![7u8; SIZE];
    let mut lines = Vec::new();
    let device = manager.allocate(&Request::new(SIZE as u64));
    if let Ok(device) = device {
        lines.push(line(manager, "staged, to device memory", || device.write(0, &bytes))?);
    }
    let visible = manager
        .caps()
        .heap_ids()
        .find(|(_, heap)| heap.kind == HeapKind::Unified && heap.host != HostAccess::None);
    if let Some((heap, _)) = visible
        && let Ok(made) = manager.allocate(&Request::new(SIZE as u64).heap(heap))
        && let Ok(mapped) = made.map()
    {
        lines.push(line(manager, "mapped, to host-visible memory", || mapped.write(0, &bytes))?);
    }
    for line in &lines {
        match format {
            Format::Json => output::print_json(line)?,
            Format::Text => output::print_line(&format!(
                "{}: {:.1} GB/s",
                line.upload, line.gigabytes_per_second
            ))?,
        }
    }
    Ok(())
}

/// The fastest of five uploads, until the device has the bytes.
fn line(
    manager: &Manager<AnyBackend>,
    upload: &'static str,
    run: impl Fn() -> omniheap::Result<()>,
) -> Result<Line, Failure> {
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        run()?;
        manager.backend().wait_idle()?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let gigabytes_per_second = SIZE as f64 / fastest / 1e9;
    Ok(Line { backend: manager.caps().device.backend, upload, gigabytes_per_second })
}
