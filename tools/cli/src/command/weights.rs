//! `omniheap weights`: what is in weights files, what it needs, and whether it can be read.
use super::Failure;
use super::choice::Backend;
use super::file::NewFile;
use super::interrupt;
use super::output::{self, Format};
use core::cell::Cell;
use core::ops::ControlFlow;
use omniheap::seam::{Heap, HeapKind, HostAccess};
use omniheap::weights::{Load, LoadWeights as _, Tensor, WeightsFile, arrange, layer_of, treemap};
use omniheap::{
    AnyBackend, Backend as _, BackendKind, Manager, PoolConfig, UserPool, devices, open,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// List the tensors of safetensors, GGUF and PyTorch files, and say where they fit
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Files: .safetensors, .index.json, .gguf, or zip files of torch.save
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Load every tensor, to see that all of it can be read, and how fast
    #[arg(long)]
    check: bool,
    /// Draw the tensors as a treemap
    #[arg(short, long, alias = "html", value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Backend that --check loads to
    #[arg(long, value_enum, default_value = "host", requires = "check")]
    backend: Backend,
    /// Number of the device that --check loads to
    #[arg(long, default_value_t = 0, requires = "check")]
    device: u32,
}

const EXAMPLES: &str = "\
Examples:
  omniheap weights model.safetensors
  omniheap weights model.safetensors.index.json --check
  omniheap weights model.safetensors --out model.html
  omniheap weights llama.gguf --check --backend cuda --json

Exit codes: 0 all good, 1 a file cannot be read, 2 a file is damaged or bad usage, 130 Ctrl-C ended --check: the list is whole, the check is not.";

/// One result: the contract of `--json`.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    files: Vec<FileEntry>,
    tensors: Vec<TensorEntry<'a>>,
    tensor_count: usize,
    parameters: u64,
    bytes: u64,
    dtypes: Vec<Total>,
    layers: Vec<Total>,
    fits: Vec<Fit>,
    check: Option<Check>,
}

#[derive(Debug, Serialize)]
struct FileEntry {
    path: PathBuf,
    format: &'static str,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct TensorEntry<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [u64],
    packing: &'static str,
    parameters: u64,
    bytes: u64,
    file: usize,
    offset: u64,
}

/// Sum over tensors that have something in common.
#[derive(Debug, Default, Serialize)]
struct Total {
    name: String,
    tensors: u64,
    parameters: u64,
    bytes: u64,
}

/// Room of a device for the tensors.
#[derive(Debug, Serialize)]
struct Fit {
    backend: &'static str,
    device: String,
    needs_bytes: u64,
    free_bytes: u64,
    fits: bool,
}

#[derive(Debug, Serialize)]
struct Check {
    device: String,
    seconds: f64,
    gigabytes_per_second: f64,
}

/// Lists weights files, and loads them where asked to.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let file = WeightsFile::open(&arguments.files).map_err(|error| match error.kind() {
        omniheap::weights::ErrorKind::Io(_) => Failure::failed(error.to_string()),
        _ => Failure::input(error.to_string()),
    })?;
    if let Some(path) = &arguments.out {
        let others: Vec<_> = file.files().iter().map(|part| Some(part.path.as_path())).collect();
        output::keep_apart(path, &others)?;
        NewFile::create(path)?.write(|sink| sink.write_all(treemap(&file).as_bytes()))?;
    }
    let checked = arguments.check.then(|| check(&file, arguments, format)).transpose();
    let (check, partial) = match checked {
        // A file's list of tensors does not depend on whether all of it was loaded.
        Err(why) if interrupt::is_wanted() => (None, Err(why)),
        checked => (checked?, Ok(())),
    };
    let listing = listing(&file, check);
    output::print(format, &listing, text)?;
    partial
}

fn listing(file: &WeightsFile, check: Option<Check>) -> Listing<'_> {
    let entry = |tensor| entry(file, tensor);
    let part = |part: &omniheap::weights::Part| FileEntry {
        path: part.path.clone(),
        format: part.format.name(),
        bytes: part.size,
    };
    let tensors: Vec<_> = file.tensors().iter().map(entry).collect();
    Listing {
        files: file.files().iter().map(part).collect(),
        tensor_count: tensors.len(),
        parameters: tensors.iter().map(|tensor| tensor.parameters).sum(),
        bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
        dtypes: totals(&tensors, |tensor| tensor.dtype.into()),
        layers: totals(&tensors, |tensor| layer_of(tensor.name).into()),
        fits: fits(file),
        tensors,
        check,
    }
}

fn entry<'a>(file: &WeightsFile, tensor: &'a Tensor) -> TensorEntry<'a> {
    TensorEntry {
        name: &tensor.name,
        dtype: tensor.dtype.name(),
        shape: &tensor.shape,
        packing: file.packing(tensor).name(),
        parameters: file.parameters(tensor),
        bytes: tensor.size,
        file: tensor.file,
        offset: tensor.offset,
    }
}

fn totals(tensors: &[TensorEntry<'_>], key: impl Fn(&TensorEntry<'_>) -> String) -> Vec<Total> {
    let mut order = Vec::new();
    let mut sums = BTreeMap::<String, Total>::new();
    for tensor in tensors {
        let name = key(tensor);
        if !sums.contains_key(&name) {
            order.push(name.clone());
        }
        let sum = sums.entry(name).or_default();
        sum.tensors += 1;
        sum.parameters += tensor.parameters;
        sum.bytes += tensor.bytes;
    }
    let take =
        |name: String| Total { name: name.clone(), ..sums.remove(&name).unwrap_or_default() };
    order.into_iter().map(take).collect()
}

/// Compares the bytes of all tensors with the free device memory of every device here.
fn fits(file: &WeightsFile) -> Vec<Fit> {
    let tensors: Vec<_> = file.tensors().iter().collect();
    let fit = |backend: BackendKind, device: &AnyBackend| {
        let caps = device.caps();
        let (heap, found) = caps.heap_ids().find(|(_, heap)| heap.kind == HeapKind::Device)?;
        let budget = device.as_budget().and_then(|budget| budget.budget(heap).ok());
        let free_bytes = budget.map_or(found.size, |now| now.budget.saturating_sub(now.used));
        let needs_bytes = arrange(&tensors, caps.copy.align).sizes.iter().sum();
        let (backend, device) = (backend.name(), caps.device.name.clone());
        Some(Fit { backend, device, needs_bytes, free_bytes, fits: needs_bytes <= free_bytes })
    };
    let found = devices();
    found.iter().filter_map(|one| fit(one.backend, one.device.as_ref().ok()?)).collect()
}

/// A staging pool for checks on the host backend: files are read straight into it, without a copy through the ring.
fn straight_pool(
    manager: &Manager<AnyBackend>,
    kind: BackendKind,
) -> Result<Option<UserPool<AnyBackend>>, Failure> {
    let mut heaps = manager.caps().heap_ids();
    let is_straight =
        |heap: &Heap| heap.kind == HeapKind::Staging && heap.host == HostAccess::Cached;
    let found = heaps.find(|(_, heap)| kind == BackendKind::Host && is_straight(heap));
    let create = |(id, _)| manager.create_pool(id, PoolConfig::new());
    found.map(create).transpose().map_err(|error| Failure::failed(error.to_string()))
}

fn check(file: &WeightsFile, arguments: &Arguments, format: Format) -> Result<Check, Failure> {
    let kind = arguments.backend.kind();
    let device = open(kind, arguments.device)
        .map_err(|error| Failure::no_device(Some(kind), arguments.device, error))?;
    let device_name = device.caps().device.name.clone();
    let manager = Manager::new(device);
    let pool = straight_pool(&manager, kind)?;
    let bar = output::progress(format, file.tensors().iter().map(|tensor| tensor.size).sum());
    bar.set_message("loading");
    let done = Cell::new(0);
    interrupt::watch();
    let load = pool.as_ref().map_or_else(Load::new, |pool| Load::new().into(pool));
    let load = load.progress(|progress| {
        bar.set_position(progress.done);
        done.set(progress.done);
        if interrupt::is_wanted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let start = Instant::now();
    let loaded = manager.load_weights(file, &load);
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let loaded = loaded.map_err(|error| match interrupt::is_wanted() {
        true => {
            let (done, all) = (done.get(), file.tensors().iter().map(|tensor| tensor.size).sum());
            let (done, all) = (output::bytes(done), output::bytes(all));
            let line = format!("interrupted: the check is partial, {done} of {all} were loaded");
            Failure::interrupted(line)
        }
        false => Failure::failed(error.to_string()),
    })?;
    let bytes: u64 = loaded.iter().map(|one| one.tensor().size).sum();
    let gigabytes = output::ratio(bytes, 1_000_000_000);
    Ok(Check { device: device_name, seconds, gigabytes_per_second: gigabytes / seconds })
}

fn text(listing: &Listing<'_>) -> String {
    let shape = |shape: &[u64]| {
        let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
        if extents.is_empty() { "scalar".into() } else { extents.join("x") }
    };
    let tensor = |tensor: &TensorEntry<'_>| {
        let dtype = match tensor.packing {
            "plain" | "blocks" => tensor.dtype.into(),
            packing => format!("{} ({packing})", tensor.dtype),
        };
        vec![tensor.name.into(), dtype, shape(tensor.shape), output::bytes(tensor.bytes)]
    };
    let total = |total: &Total| {
        let Total { name, tensors, parameters, bytes } = total;
        vec![name.clone(), tensors.to_string(), parameters.to_string(), output::bytes(*bytes)]
    };
    let rows = |totals: &[Total]| totals.iter().map(total).collect::<Vec<_>>();
    let tensors: Vec<_> = listing.tensors.iter().map(tensor).collect();
    let mut parts = vec![output::table(&["tensor", "type", "shape", "size"], &tensors)];
    parts.push(output::table(&["type", "tensors", "parameters", "size"], &rows(&listing.dtypes)));
    parts.push(output::table(&["layer", "tensors", "parameters", "size"], &rows(&listing.layers)));
    parts.push(listing.fits.iter().map(fit_line).collect::<Vec<_>>().join("\n"));
    parts.push(format!(
        "{} tensors, {} parameters, {} in {} file(s)",
        listing.tensor_count,
        listing.parameters,
        output::bytes(listing.bytes),
        listing.files.len()
    ));
    if let Some(Check { device, seconds, gigabytes_per_second }) = &listing.check {
        parts.push(format!(
            "every tensor was loaded to {device} in {seconds:.3} s ({gigabytes_per_second:.2} GB/s)"
        ));
    }
    parts.join("\n\n")
}

fn fit_line(fit: &Fit) -> String {
    let verdict = if fit.fits { "fits" } else { "does not fit" };
    let (needs, free) = (output::bytes(fit.needs_bytes), output::bytes(fit.free_bytes));
    format!("{verdict} on {} ({}): needs {needs}, {free} free", fit.device, fit.backend)
}
