//! First act: requests by intent, uploaded and read back.
use super::super::{Failure, output, selftest};
use omniheap::{
    Allocation, AnyBackend, Manager, ManagerConfig, Request,
    placement::{Access, Keyword as _, Pattern, Writer},
};
use serde::Serialize;

/// Placement of one request.
#[derive(Debug, Serialize)]
pub(super) struct Placed {
    what: &'static str,
    size: u64,
    region: String,
    reason: String,
}

impl Placed {
    /// Returns the name of the data.
    pub(super) const fn what(&self) -> &'static str {
        self.what
    }

    /// Returns the placement and its reason.
    pub(super) fn why(&self) -> String {
        format!("{}: {}", self.region, self.reason)
    }
}

/// Returns the cast: what a renderer or a model would ask for.
fn requests() -> [Request<'static>; 5] {
    [
        Request::new(8 << 20).writer(Writer::HostOnce).name("weights"),
        Request::new(16 << 20).name("activations"),
        Request::new(4 << 10)
            .writer(Writer::HostOnce)
            .pattern(Pattern::Broadcast)
            .name("lookup table"),
        Request::new(64 << 10).writer(Writer::HostPerFrame).name("uniforms"),
        Request::new(1 << 20).access(Access::Host).name("results"),
    ]
}

/// Allocates by policy, uploads, reads back; also says how many bytes were compared.
pub(super) fn run(
    device: &AnyBackend,
    config: &ManagerConfig,
) -> Result<(Vec<Placed>, u64), Failure> {
    let manager = Manager::with_config(AnyBackend::clone(device), config.clone());
    let mut placed = Vec::new();
    let mut live = Vec::new();
    for (seed, request) in (1..).zip(requests()) {
        let allocation = manager
            .allocate(&request)
            .map_err(|error| Failure::failed(format!("{}: {error}", name(&request))))?;
        allocation.write(0, &stamp(allocation.size(), seed))?;
        let placement = allocation.placed();
        placed.push(Placed {
            what: name(&request),
            size: allocation.size(),
            region: placement.region.word().to_owned(),
            reason: placement.reason.to_string(),
        });
        live.push((allocation, seed));
    }
    let verified = verify(&live)?;
    Ok((placed, verified))
}

fn name(request: &Request<'static>) -> &'static str {
    request.name.unwrap_or("unnamed")
}

/// An allocation, and the seed of the bytes that it was given.
pub(super) type Stamped = (Allocation<AnyBackend>, u64);

/// Returns the bytes that an allocation is given.
pub(super) fn stamp(size: u64, seed: u64) -> Vec<u8> {
    selftest::pattern(usize::try_from(size).expect("the demo's sizes are small"), seed)
}

/// Reads every allocation back and compares; says how many bytes that were.
pub(super) fn verify(live: &[Stamped]) -> Result<u64, Failure> {
    let mut bytes = 0;
    for (allocation, seed) in live {
        let written = stamp(allocation.size(), *seed);
        let mut read = vec![0; written.len()];
        allocation.read(0, &mut read)?;
        if read != written {
            let line = format!("allocation {seed} lost its bytes: this is a bug, report it");
            return Err(Failure::failed(line));
        }
        bytes += allocation.size();
    }
    Ok(bytes)
}

/// Returns a table for people.
pub(super) fn text(placed: &[Placed]) -> String {
    let row = |one: &Placed| {
        let what = format!("  {}", one.what);
        vec![what, output::bytes(one.size), one.region.clone(), one.reason.clone()]
    };
    let rows: Vec<_> = placed.iter().map(row).collect();
    output::table(&["  request", "size", "region", "because"], &rows)
}
