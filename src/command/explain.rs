//! `omniheap explain`: where data would go on every device here, and why.
use super::Failure;
use super::choice::Backend;
use super::output::{self, Format};
use clap::{Args, ValueEnum};
use omniheap::{
    Access, Align, AnyBackend, Found, Lifetime, Manager, Pattern, Request, Writer, devices,
};
use serde::Serialize;

/// The placement of a request on every device here, with reasons
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Bytes (suffixes K, M, G, T)
    #[arg(long, value_parser = output::bytes_argument)]
    size: u64,
    /// Alignment in bytes: a power of two
    #[arg(long, value_parser = parse_align, default_value = "1")]
    align: Align,
    /// Who writes it
    #[arg(long, value_enum, default_value_t = Writes::Device)]
    writes: Writes,
    /// Who reads it
    #[arg(long, value_enum, default_value_t = Reads::Device)]
    reads: Reads,
    /// How kernels read it
    #[arg(long, value_enum, default_value_t = How::Coalesced)]
    pattern: How,
    /// How long it lives
    #[arg(long, value_enum, default_value_t = Lives::Persistent)]
    lifetime: Lives,
    /// Only devices of this backend
    #[arg(long, value_enum)]
    backend: Option<Backend>,
}

const EXAMPLES: &str = "\
Examples:
  omniheap explain --size 4K --writes host-once --pattern broadcast
  omniheap explain --size 64M --writes host-per-frame --json";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Writes {
    Device,
    HostOnce,
    HostPerFrame,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reads {
    Device,
    Host,
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Coalesced,
    Broadcast,
    Gathered,
    Tiled,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lives {
    Persistent,
    Frame,
    Kernel,
}

fn parse_align(text: &str) -> Result<Align, String> {
    let align = output::parse_bytes(text).and_then(Align::new);
    align.ok_or_else(|| "expected a power of two".into())
}

impl Arguments {
    fn request(&self) -> Request<'static> {
        Request::new(self.size)
            .align(self.align)
            .writer(match self.writes {
                Writes::Device => Writer::Device,
                Writes::HostOnce => Writer::HostOnce,
                Writes::HostPerFrame => Writer::HostPerFrame,
            })
            .access(match self.reads {
                Reads::Device => Access::Device,
                Reads::Host => Access::Host,
                Reads::Both => Access::Both,
            })
            .pattern(match self.pattern {
                How::Coalesced => Pattern::Coalesced,
                How::Broadcast => Pattern::Broadcast,
                How::Gathered => Pattern::Gathered,
                How::Tiled => Pattern::Tiled,
            })
            .lifetime(match self.lifetime {
                Lives::Persistent => Lifetime::Persistent,
                Lives::Frame => Lifetime::Frame,
                Lives::Kernel => Lifetime::Kernel,
            })
    }
}

/// The decision on one device.
#[derive(Debug, Serialize)]
struct Decision {
    backend: &'static str,
    device: String,
    region: Option<String>,
    heap: Option<String>,
    reason: String,
    /// Where the bytes would come from, and how many new ones.
    source: Option<String>,
    new_bytes: Option<u64>,
    rejected: Vec<Rejected>,
}

#[derive(Debug, Serialize)]
struct Rejected {
    heap: String,
    because: String,
}

/// Explains the request on every device that is wanted.
pub(super) fn run(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let wanted =
        |found: &Found| arguments.backend.is_none_or(|backend| backend.kind() == found.backend);
    let request = arguments.request();
    let mut any = false;
    for found in devices().into_iter().filter(wanted) {
        let Ok(device) = found.device else { continue };
        any = true;
        let decision = decide(found.backend.name(), &device, &request);
        match format {
            Format::Json => output::print_json(&decision)?,
            Format::Text => output::print_line(&text(&decision))?,
        }
    }
    if any { Ok(()) } else { Err(Failure::failed("no such device here; try `omniheap devices`")) }
}

fn decide(backend: &'static str, device: &AnyBackend, request: &Request<'_>) -> Decision {
    let manager = Manager::new(AnyBackend::clone(device));
    let caps = manager.caps();
    let mut decision = Decision {
        backend,
        device: caps.device.name.clone(),
        region: None,
        heap: None,
        reason: String::new(),
        source: None,
        new_bytes: None,
        rejected: Vec::new(),
    };
    let name = |heap| {
        let about = caps.heap(heap);
        about.map_or_else(String::new, |about| format!("{} {}", heap.0, about.name))
    };
    match manager.explain(request) {
        Err(error) => decision.reason = error.to_string(),
        Ok(explanation) => {
            let placement = explanation.placement;
            decision.region = Some(format!("{:?}", placement.region).to_lowercase());
            decision.heap = placement.heaps.as_slice().first().map(|heap| name(*heap));
            decision.reason = placement.reason.to_string();
            let rejected = explanation.verdicts.into_iter().filter_map(|verdict| {
                let because = verdict.rejected?.to_string();
                Some(Rejected { heap: name(verdict.heap), because })
            });
            decision.rejected = rejected.collect();
        }
    }
    if let Ok(plan) = manager.plan(request) {
        decision.source = Some(format!("{:?}", plan.source).to_lowercase());
        decision.new_bytes = Some(plan.new_bytes);
    }
    decision
}

fn text(decision: &Decision) -> String {
    let region = decision.region.as_deref().unwrap_or("nowhere");
    let mut text = format!(
        "{} {}\n  {region}, heap {}: {}\n",
        decision.backend,
        decision.device,
        decision.heap.as_deref().unwrap_or("-"),
        decision.reason
    );
    if let (Some(source), Some(new)) = (&decision.source, decision.new_bytes) {
        text.push_str(&format!("  from {source}, {} new from the driver\n", output::bytes(new)));
    }
    for rejected in &decision.rejected {
        text.push_str(&format!("  not heap {}: {}\n", rejected.heap, rejected.because));
    }
    text
}
