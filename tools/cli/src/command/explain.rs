//! `omniheap explain`: where data would go on every device here, and why.
use super::Failure;
use super::choice::Backend;
use super::output::{self, Format};
use super::request;
use clap::Args;
use omniheap::{
    AnyBackend, Backend as _, Caps, Found, Manager, ManagerConfig, Request, devices,
    placement::{Keyword as _, Knowledge, Region, Spill, WrittenRequest, config_for},
    report::{Explanation, Source},
};
use serde::Serialize;
use std::path::PathBuf;

/// The placement of requests on every device here, with reasons
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Requests: a JSON array of objects with the options below as keys; `-` is standard input
    #[arg(conflicts_with_all = request::OPTIONS)]
    file: Option<PathBuf>,
    #[command(flatten)]
    wanted: request::Options,
    /// Only devices of this backend
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// The built-in rules, also where `omniheap calibrate` measured
    #[arg(long)]
    no_profile: bool,
}

/// Use of the device's measured profile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Profile,
    BuiltIn,
}

const EXAMPLES: &str = "\
Examples:
  omniheap explain --size 4K --writes host-once --pattern broadcast
  omniheap explain --size 64M --writes host-per-frame --json
  omniheap explain requests.json

A file of requests: [{\"name\": \"filter\", \"size\": 1024, \"writes\": \"host-once\", \"pattern\": \"broadcast\"}]";

/// The decision on one device.
#[derive(Debug, Serialize)]
struct Decision {
    backend: &'static str,
    device: String,
    name: Option<String>,
    size: u64,
    region: Option<String>,
    heap: Option<String>,
    /// Alignment.
    align: Option<u64>,
    /// The most bytes that the region gives one request.
    limit: Option<u64>,
    reason: String,
    /// Origin of the profile.
    rules: String,
    /// Fallback when device memory is full.
    when_full: &'static str,
    /// Source of the bytes, and how many are new.
    source: Option<&'static str>,
    #[serde(skip)]
    from: Option<&'static str>,
    new_bytes: Option<u64>,
    rejected: Vec<Rejected>,
}

#[derive(Debug, Serialize)]
struct Rejected {
    what: String,
    because: String,
}

/// Explains the requests on every device that is wanted.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let requests = match &arguments.file {
        Some(path) => request::read(path)?,
        None => vec![arguments.wanted.wanted()?],
    };
    let wanted =
        |found: &Found| arguments.backend.is_none_or(|backend| backend.kind() == found.backend);
    let profile = if arguments.no_profile { Use::BuiltIn } else { Use::Profile };
    let (mut any, mut absent) = (false, None);
    for found in devices().into_iter().filter(wanted) {
        let device = match found.device {
            Ok(device) => device,
            Err(error) => {
                absent = Some((found.backend, error));
                continue;
            }
        };
        any = true;
        for request in &requests {
            let decision = decide(found.backend.name(), &device, request, profile);
            output::print(format, &decision, text)?;
        }
    }
    match absent {
        Some((kind, error)) if !any => Err(Failure::no_device(Some(kind), 0, error)),
        _ => Ok(()),
    }
}

fn decide(
    backend: &'static str,
    device: &AnyBackend,
    wanted: &WrittenRequest,
    profile: Use,
) -> Decision {
    let (config, rules) = match profile {
        Use::Profile => config_for(device.caps()),
        Use::BuiltIn => (ManagerConfig::default(), Knowledge::Assumed),
    };
    let manager = Manager::with_config(AnyBackend::clone(device), config);
    let request = wanted.request();
    let mut decision = Decision {
        backend,
        device: manager.caps().device.name.clone(),
        name: wanted.name.clone(),
        size: wanted.size,
        region: None,
        heap: None,
        align: None,
        limit: None,
        reason: String::new(),
        rules: rules.to_string(),
        when_full: match wanted.spill {
            Spill::Allowed => "it spills to host memory",
            Spill::Forbidden => "it fails",
        },
        source: None,
        from: None,
        new_bytes: None,
        rejected: Vec::new(),
    };
    match manager.explain(&request) {
        Err(error) => decision.reason = error.to_string(),
        Ok(found) => fill(&mut decision, manager.caps(), &request, &found),
    }
    if let Ok(plan) = manager.plan(&request) {
        let (word, sentence) = told(plan.source);
        (decision.source, decision.from) = (Some(word), Some(sentence));
        decision.new_bytes = Some(plan.new_bytes);
    }
    decision
}

/// Returns the source of bytes: a word for tools, and text for people.
const fn told(source: Source) -> (&'static str, &'static str) {
    match source {
        Source::Held => ("held", "memory that is held"),
        Source::NewBlock => ("new_block", "a new block that others may share"),
        Source::Pages => ("pages", "pages that are mapped where they are needed"),
        Source::Dedicated => ("dedicated", "a block of its own"),
    }
}

fn fill(decision: &mut Decision, caps: &Caps, request: &Request<'_>, told: &Explanation) {
    let name = |heap| {
        let about = caps.heap(heap);
        about.map_or_else(String::new, |about| format!("{} {}", heap.0, about.name))
    };
    let placement = told.placement;
    let first = placement.heaps.as_slice().first().copied();
    decision.region = Some(placement.region.word().to_owned());
    decision.heap = first.map(name);
    decision.reason = placement.reason.to_string();
    let unit = ManagerConfig::default().unit;
    decision.align = Some(request.layout.align.max(unit).get());
    decision.limit = match placement.region {
        Region::Constant => caps.constant.map(|limits| limits.bank.min(limits.max_bind)),
        Region::Shared => caps.shared.map(|limits| limits.per_group),
        _ => first.and_then(|heap| caps.heap(heap)).map(|heap| heap.max_block),
    };
    let regions = told.regions.iter().filter_map(|verdict| {
        let what = format!("{} memory", verdict.region.word());
        Some(Rejected { what, because: verdict.refusal?.to_string() })
    });
    let heaps = told.verdicts.iter().filter_map(|verdict| {
        let what = format!("heap {}", name(verdict.heap));
        Some(Rejected { what, because: verdict.rejected?.to_string() })
    });
    decision.rejected = regions.chain(heaps).collect();
}

fn text(decision: &Decision) -> String {
    let region = decision.region.as_deref();
    let region = region.map_or_else(|| "nowhere".to_owned(), |word| format!("{word} memory"));
    let number = |value: Option<u64>| value.map_or_else(|| "-".into(), output::bytes);
    let mut text = format!("{} {}", decision.backend, decision.device);
    if let Some(name) = &decision.name {
        text.push_str(&format!(": {name}"));
    }
    let size = output::bytes(decision.size);
    text.push_str(&format!("\n  {size} to {region}: {}\n", decision.reason));
    if decision.region.is_some() {
        text.push_str(&format!(
            "  heap {}, aligned to {}, limit {}\n  rules: {}; when full, {}\n",
            decision.heap.as_deref().unwrap_or("-"),
            number(decision.align),
            number(decision.limit),
            decision.rules,
            decision.when_full
        ));
    }
    if let (Some(from), Some(new)) = (decision.from, decision.new_bytes) {
        text.push_str(&format!("  from {from}; the driver is asked for {}\n", output::bytes(new)));
    }
    for rejected in &decision.rejected {
        text.push_str(&format!("  not {}: {}\n", rejected.what, rejected.because));
    }
    text
}
