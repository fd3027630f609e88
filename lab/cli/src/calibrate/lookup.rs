//! Kernels that only look up a table, in every size of it: what calibration measures, and what placements are judged with.
//!
//! The texts are in `lookups/`; the SPIR-V is compiled when a kernel is asked for.
#![expect(unsafe_code, reason = "answers for the text of the kernels")]
mod host;

use omniheap::Request;
use omniheap::placement::{Dependence, Pattern, Work, Writer};
use omniheap::seam::{HostLaunch, Kernel, KernelText};
use omniheap_shaders::Placed;
use omniheap_shaders::compile::{Compiled, compile};
use omniheap_shaders::template::{Place, SHARED_ROWS};

/// A kernel that does nothing but look up a table, and how it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    /// The kernel, with its table in every place.
    pub(super) table: Placed,
    /// Access pattern.
    pub(super) pattern: Pattern,
    /// Arithmetic per element.
    pub(super) work: Work,
    /// Dependence between reads.
    pub(super) dependence: Dependence,
    /// Bytes of the table that one item reads.
    pub(super) reads: u32,
    /// Bytes of the table that a group touches with one item for each thread; zero for all of them.
    pub(super) touches: u32,
}

impl Lookup {
    /// Returns the request of its table, for workgroups of 256 threads with `load` items each.
    #[must_use]
    pub(super) fn request(&self, load: u32) -> Request<'static> {
        let reuse = u64::from(self.reads) * 256 * u64::from(load) / self.table.bytes();
        let request = Request::new(self.table.bytes()).writer(Writer::HostOnce);
        let request = request.pattern(self.pattern).name(self.table.name());
        let request = request.work(self.work).dependence(self.dependence);
        let request = request.reuse(u32::try_from(reuse).unwrap_or(u32::MAX));
        match u64::from(self.touches) * u64::from(load) {
            0 => request,
            touched => request.touches(touched.min(self.table.bytes())),
        }
    }
}

/// The access pattern of a kernel.
type Access = (Pattern, Work, Dependence);

const BROADCAST: Access = (Pattern::Broadcast, Work::Any, Dependence::Any);
const BROADCAST_LIGHT: Access = (Pattern::Broadcast, Work::Light, Dependence::Any);
const UNIFORM: Access = (Pattern::Uniform, Work::Any, Dependence::Any);
const COALESCED: Access = (Pattern::Coalesced, Work::Any, Dependence::Independent);
const RECORDS: Access = (Pattern::Records, Work::Any, Dependence::Any);
const GATHERED: Access = (Pattern::Gathered, Work::Any, Dependence::Independent);
const GATHERED_CHAINED: Access = (Pattern::Gathered, Work::Any, Dependence::Chained);
const GATHERED_LIGHT: Access = (Pattern::Gathered, Work::Light, Dependence::Independent);
const GATHERED_LIGHT_CHAINED: Access = (Pattern::Gathered, Work::Light, Dependence::Chained);
const FIELDS: Access = (Pattern::Fields, Work::Any, Dependence::Independent);
const FIELDS_LIGHT: Access = (Pattern::Fields, Work::Light, Dependence::Independent);
const FIELDS_LIGHT_CHAINED: Access = (Pattern::Fields, Work::Light, Dependence::Chained);

/// A kernel whose table may have any size. Its texts are bodies of the frame in `lookups/table`.
struct Template {
    name: &'static str,
    wgsl: &'static str,
    cpp: &'static str,
    host: fn(&mut HostLaunch<'_>),
    access: Access,
    /// The bytes that it reads per item of a table with this many rows.
    reads: fn(u32) -> u32,
    /// The bytes of the table that one workgroup touches (zero: all).
    touches: u32,
}

/// Lists the kernels of a folder: name, access, reads, touches.
macro_rules! templates {
    ($folder:literal: $($name:ident: $access:expr, $reads:expr, $touches:expr;)*) => {
        &[$(Template {
            name: stringify!($name),
            wgsl: include_str!(concat!("../../lookups/", $folder, "/", stringify!($name), ".wgsl")),
            cpp: include_str!(concat!("../../lookups/", $folder, "/", stringify!($name), ".cu")),
            host: host::$name,
            access: $access,
            reads: $reads,
            touches: $touches,
        }),*]
    };
}

/// The kernels of `lookups/probes`, which calibration measures, for each pattern. Some patterns need two: an address that the compiler
/// knows costs no instruction but must be in the first cache, and dependent reads want low latency rather than bandwidth.
const PROBES: &[Template] = templates! { "probes":
    whole: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    unrolled: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    busy: BROADCAST, |rows| 16 * rows, 0;
    walk: UNIFORM, |_| 1024, 0;
    lanes: COALESCED, |_| 32, 0;
    codes: GATHERED_LIGHT, |_| 64, 0;
    hops: GATHERED_LIGHT_CHAINED, |_| 32, 0;
    records: RECORDS, |_| 128, 0;
};

/// The kernels of `lookups/judged`, which placements are judged with. Calibration never runs them.
const JUDGED: &[Template] = templates! { "judged":
    automaton: GATHERED_LIGHT_CHAINED, |_| 48, 0;
    bands: UNIFORM, |_| 128, 128;
    blend: GATHERED_LIGHT, |_| 128, 0;
    bodies: BROADCAST, |rows| 16 * rows, 0;
    centroids: BROADCAST, |rows| 8 * rows, 0;
    chain: FIELDS_LIGHT_CHAINED, |_| 64, 0;
    checksum: GATHERED_CHAINED, |_| 16, 0;
    codebook: RECORDS, |_| 128, 256;
    curve: GATHERED, |_| 16, 0;
    density: BROADCAST, |rows| 16 * rows, 0;
    dither: COALESCED, |_| 4, 256;
    envelope: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    gain: COALESCED, |_| 4, 0;
    interpolate: FIELDS, |_| 8, 0;
    joints: RECORDS, |_| 96, 0;
    lights: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    material: UNIFORM, |_| 16, 16;
    pairs: GATHERED_LIGHT, |_| 48, 0;
    palette: FIELDS, |_| 8, 0;
    polynomial: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    rules: UNIFORM, |_| 512, 512;
    search: FIELDS_LIGHT_CHAINED, |rows| 4 * rows.ilog2(), 0;
    segments: BROADCAST_LIGHT, |rows| 16 * rows, 0;
    steps: BROADCAST, |rows| 16 * rows, 0;
    substitute: FIELDS_LIGHT, |_| 64, 0;
    tone: GATHERED_CHAINED, |_| 8, 0;
    tree: RECORDS, |_| 128, 0;
    twiddle: FIELDS_LIGHT, |rows| 8 * rows.ilog2(), 0;
    window: COALESCED, |_| 8, 0;
};

/// Tables of probes, in rows: 256 bytes to 1 MiB, closer where caches end.
const PROBE_ROWS: &[u32] = &[
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16_384,
    32_768, 65_536,
];

/// Tables to judge with, in rows: none of them is a probe's.
const JUDGED_ROWS: &[u32] = &[40, 72, 112, 288, 640, 2560];

/// Number of probes, each with every table.
pub(super) const PROBE_COUNT: usize = PROBES.len() * PROBE_ROWS.len();

/// Makes every probe with every table, one after the other.
pub(super) fn probes() -> impl Iterator<Item = Lookup> {
    PROBES.iter().flat_map(|template| PROBE_ROWS.iter().map(|rows| template.with(*rows)))
}

/// Makes the kernels to judge with whose name contains `part`, each with every table.
pub(super) fn judged(part: &str) -> impl ExactSizeIterator<Item = Lookup> {
    let named = JUDGED.iter().filter(|template| template.name.contains(part));
    let all: Vec<_> =
        named.flat_map(|template| JUDGED_ROWS.iter().map(move |rows| (template, *rows))).collect();
    all.into_iter().map(|(template, rows)| template.with(rows))
}

/// Returns the names of the kernels to judge with.
pub(super) fn judged_names() -> Vec<&'static str> {
    JUDGED.iter().map(|template| template.name).collect()
}

impl Template {
    /// Makes the kernel with a table of this many rows.
    fn with(&self, rows: u32) -> Lookup {
        let fill =
            |frame: &str, body: &str| frame.replace("$body", body).replace("$name", self.name);
        let wgsl = fill(include_str!("../../lookups/table/table.wgsl"), self.wgsl);
        let cpp = fill(include_str!("../../lookups/table/table.cu"), self.cpp);
        let make = |place: Place| self.kernel(place.wgsl(&wgsl, rows), place.cpp(&cpp, rows));
        let table = Placed {
            rows,
            constant: make(Place::Constant),
            device: make(Place::Device),
            shared: (rows <= SHARED_ROWS).then(|| make(Place::Shared)),
        };
        let ((pattern, work, dependence), touches) = (self.access, self.touches);
        Lookup { table, pattern, work, dependence, reads: (self.reads)(rows), touches }
    }

    /// Compiles a kernel. Its texts live as long as the process, as those of all kernels do.
    fn kernel(&self, wgsl: String, cpp: String) -> Kernel {
        let Compiled { group, slots, parameters, spirv } = compile(self.name, &wgsl);
        let text = KernelText {
            name: self.name,
            group,
            slots: slots.leak(),
            parameters,
            wgsl: wgsl.leak(),
            spirv: spirv.leak(),
            cpp: cpp.leak(),
            host: self.host,
        };
        // SAFETY: naga checked the WGSL and made the SPIR-V of it; slots, parameters and group were read from the same module, and the C++
        // text fills the same frame (`tests.rs`).
        unsafe { Kernel::new(text) }
    }
}

#[cfg(test)]
mod tests;
