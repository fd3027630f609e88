//! The same traces and churn through omniheap and its peers, in turn: tables of ratios, and JSON.
//!
//! `cargo run --release -- TRACE.csv.gz … [--json FILE] [--repeat N]`, from this folder.
mod device;
mod measure;
mod mock;
mod offsets;
mod ours;
mod real;
mod table;
mod workload;

use device::Device;
use measure::{Entry, measure};
use table::{Row, Table};
use workload::Workload;

/// Runs of which the table has medians. Each takes the fastest of some turns.
const RUNS: usize = 3;
/// Bytes that a workload on a real device holds at its peak; larger ones are scaled down to fit small machines.
const REAL_PEAK: u64 = 8 << 30;

fn main() {
    let mut traces = Vec::new();
    let (mut json, mut repeat) = (None, 3);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => {
                json = Some(arguments.next().unwrap_or_else(|| fail("--json needs a file")))
            }
            "--repeat" => {
                let number = arguments.next().and_then(|text| text.parse().ok());
                repeat =
                    number.filter(|n| *n > 0).unwrap_or_else(|| fail("--repeat needs a number"));
            }
            option if option.starts_with('-') => fail(&format!("{option} is no option")),
            _ => traces.push(argument),
        }
    }
    let mut workloads: Vec<Workload> = traces.iter().map(|path| load(path)).collect();
    workloads.push(Workload::churn(10_000, 2_000_000));
    let mut tables = vec![offsets_and_null_drivers(&workloads, repeat)];
    workloads.pop();
    match Device::open() {
        Some(device) => tables.extend(on_a_device(&device, &workloads, repeat)),
        None => println!("no Vulkan device here: the rows on a device are left out"),
    }
    let scaling = ours::scaling(&Workload::churn(2_000, 200_000));
    println!("two threads on one manager are {scaling:.2}x as fast as one");
    if let Some(path) = json {
        let tables: Vec<_> = tables.iter().map(Table::json).collect();
        let text = serde_json::json!({ "tables": tables, "two_threads": scaling }).to_string();
        std::fs::write(&path, text).unwrap_or_else(|error| fail(&format!("{path}: {error}")));
    }
}

fn fail(line: &str) -> ! {
    eprintln!("{line}");
    std::process::exit(2)
}

fn load(path: &str) -> Workload {
    let trace =
        omniheap_trace::Trace::open(path).unwrap_or_else(|error| fail(&format!("{path}: {error}")));
    let name =
        std::path::Path::new(path).file_name().map_or(path, |name| name.to_str().unwrap_or(path));
    Workload::from_trace(name.trim_end_matches(".csv.gz"), &trace)
}

fn offsets_and_null_drivers(workloads: &[Workload], repeat: u32) -> Table {
    let peers = [
        Entry::new("offset-allocator", offsets::OffsetAllocator::new),
        Entry::new("omniheap strategy", ours::Offsets::new),
        Entry::new("omniheap manager", ours::Whole::new),
        Entry::new("VMA virtual block", offsets::Virtual::new),
        Entry::new("gpu-alloc", mock::GpuAlloc::new),
    ];
    compare(
        "offsets, and managers over a driver that costs nothing".into(),
        &peers,
        workloads,
        repeat,
    )
}

fn on_a_device(device: &Device, workloads: &[Workload], repeat: u32) -> [Table; 2] {
    let scale = |workload: &Workload| workload.scaled(workload.peak_live.div_ceil(REAL_PEAK));
    let mut scaled: Vec<Workload> = workloads.iter().map(scale).collect();
    // Peers that search lists need microseconds here, so fewer operations.
    scaled.push(scale(&Workload::churn(10_000, 100_000)));
    let memory = [
        Entry::new("VMA", |_| real::Vma::new(device)),
        Entry::new("gpu-allocator", |_| real::GpuAllocator::new(device)),
        Entry::new("omniheap manager", |_| real::Ours::new(device)),
    ];
    let buffers = [
        Entry::new("VMA", |_| real::VmaBuffers::new(device)),
        Entry::new("gpu-allocator", |_| real::GpuAllocatorBuffers::new(device)),
        Entry::new("omniheap manager", |_| real::OurBuffers::new(device)),
    ];
    let name = device.name();
    [
        compare(format!("memory on {name}"), &memory, &scaled, repeat.min(5)),
        compare(format!("memory and bound buffers on {name}"), &buffers, &scaled, repeat.min(5)),
    ]
}

/// Measures, and prints the table.
fn compare(title: String, peers: &[Entry<'_>], workloads: &[Workload], repeat: u32) -> Table {
    let mut rows = Vec::new();
    for workload in workloads {
        let runs: Vec<_> = (0..RUNS).map(|_| measure(peers, workload, repeat)).collect();
        rows.extend(peers.iter().enumerate().map(|(at, peer)| Row {
            peer: peer.name,
            workload: workload.name.clone(),
            is_trace: workload.is_trace,
            runs: runs.iter().map(|run| run[at]).collect(),
            peak_live: workload.peak_live,
        }));
    }
    let peers = peers.iter().map(|peer| peer.name).collect();
    let table = Table { title, peers, rows };
    println!("{table}");
    table
}
