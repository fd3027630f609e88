//! `omniheap devices`: every device of every backend, and whether it works.
use super::Failure;
use super::output::{self, Format};
use super::selftest;
use omniheap::{
    AnyBackend, Backend as _, BackendKind, Caps, Error, Found, HeapId, devices,
    placement::Keyword as _,
    seam::{Heap, HostAccess, InsideBlock},
};
use serde::Serialize;

/// Every device of every backend: heaps, limits, capabilities, self-test result
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  omniheap devices\n  omniheap devices --json")]
pub(super) struct Arguments {}

/// One device, or a backend that has none.
#[derive(Debug, Serialize)]
struct Entry {
    backend: &'static str,
    ordinal: u32,
    present: bool,
    /// Reason why there is no device.
    absent_because: Option<String>,
    #[serde(flatten)]
    about: Option<About>,
}

#[derive(Debug, Serialize)]
struct About {
    device: String,
    driver: String,
    uuid: Option<String>,
    /// `passed`, or what went wrong.
    self_test: String,
    capabilities: Vec<&'static str>,
    heaps: Vec<HeapEntry>,
    max_blocks: u64,
    copy_align_bytes: u64,
    copy_inside_block: bool,
    neighbour_granularity_bytes: u64,
    constant_bank_bytes: Option<u64>,
    shared_bytes_per_group: Option<u64>,
    shared_bytes_per_group_opt_in: Option<u64>,
}

#[derive(Debug, Serialize)]
struct HeapEntry {
    id: u8,
    kind: &'static str,
    name: String,
    size_bytes: u64,
    max_block_bytes: u64,
    align_bytes: u64,
    page_bytes: Option<u64>,
    host: &'static str,
}

/// Finds and prints every device.
pub(super) fn run(_: &Arguments, format: Format) -> Result<(), Failure> {
    let bar = output::progress(format, BackendKind::ALL.len() as u64);
    bar.set_message("looking for devices");
    let found = devices();
    bar.finish_and_clear();
    for device in &found {
        let entry = entry(device);
        output::print(format, &entry, text)?;
    }
    Ok(())
}

fn entry(found: &Found) -> Entry {
    let (backend, ordinal) = (found.backend.name(), found.ordinal);
    match &found.device {
        Ok(device) => {
            let about = Some(about(device));
            Entry { backend, ordinal, present: true, absent_because: None, about }
        }
        Err(error) => {
            let absent_because = Some(absence(found.backend, *error));
            Entry { backend, ordinal, present: false, absent_because, about: None }
        }
    }
}

/// Returns the reason why a backend shows no device.
fn absence(backend: BackendKind, error: Error) -> String {
    if !backend.is_built_in() {
        return format!("not built in; build with `--features {backend}`");
    }
    match error.kind() {
        omniheap::ErrorKind::Unsupported => "no driver or no device here".into(),
        _ => error.to_string(),
    }
}

fn about(device: &AnyBackend) -> About {
    let caps = device.caps();
    About {
        device: caps.device.name.clone(),
        driver: caps.device.driver.clone(),
        uuid: caps.device.uuid.map(|uuid| uuid.iter().map(|byte| format!("{byte:02x}")).collect()),
        self_test: selftest::run(device).map_or_else(|why| why, |()| "passed".into()),
        capabilities: capabilities(device),
        heaps: caps.heap_ids().map(heap_entry).collect(),
        max_blocks: caps.max_blocks,
        copy_align_bytes: caps.copy.align.get(),
        copy_inside_block: caps.copy.inside_block == InsideBlock::Allowed,
        neighbour_granularity_bytes: caps.neighbour_granularity.get(),
        constant_bank_bytes: caps.constant.map(|constant| constant.bank),
        shared_bytes_per_group: shared(caps, |shared| shared.per_group),
        shared_bytes_per_group_opt_in: shared(caps, |shared| shared.per_group_opt_in),
    }
}

fn shared(caps: &Caps, of: fn(&omniheap::seam::SharedCaps) -> u64) -> Option<u64> {
    caps.shared.as_ref().map(of)
}

fn capabilities(device: &AnyBackend) -> Vec<&'static str> {
    [
        ("map", device.as_map().is_some()),
        ("transfer", device.as_transfer().is_some()),
        ("address", device.as_address().is_some()),
        ("timelines", device.as_timelines().is_some()),
        ("remap", device.as_remap().is_some()),
        ("budget", device.as_budget().is_some_and(|driver| driver.budget(HeapId(0)).is_ok())),
        ("export", device.as_export().is_some()),
        ("launch", device.as_launch().is_some()),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect()
}

fn heap_entry((id, heap): (HeapId, &Heap)) -> HeapEntry {
    HeapEntry {
        id: id.0,
        kind: heap.kind.word(),
        name: heap.name.clone(),
        size_bytes: heap.size,
        max_block_bytes: heap.max_block,
        align_bytes: heap.align.get(),
        page_bytes: heap.page.map(|page| page.get()),
        host: match heap.host {
            HostAccess::None => "none",
            HostAccess::Combined => "combined",
            HostAccess::Cached => "cached",
            HostAccess::Incoherent => "incoherent",
        },
    }
}

fn text(entry: &Entry) -> String {
    let Some(about) = &entry.about else {
        let why = entry.absent_because.as_deref().unwrap_or("unknown");
        return format!("{:7} -  {why}\n", entry.backend);
    };
    let row = |heap: &HeapEntry| {
        vec![
            format!("  heap {} {}", heap.id, heap.kind),
            output::bytes(heap.size_bytes),
            format!("blocks up to {}", output::bytes(heap.max_block_bytes)),
            heap.page_bytes
                .map_or_else(|| "no pages".into(), |p| format!("pages {}", output::bytes(p))),
            format!("host: {}", heap.host),
            heap.name.clone(),
        ]
    };
    let rows: Vec<_> = about.heaps.iter().map(row).collect();
    format!(
        "{:7} {}  {} ({})\n  self-test {}; can {}\n{}\n",
        entry.backend,
        entry.ordinal,
        about.device,
        about.driver,
        about.self_test,
        about.capabilities.join(", "),
        output::table(&["", "", "", "", "", ""], &rows).trim_start_matches('\n'),
    )
}
