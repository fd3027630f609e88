//! Turns every kernel into constants: WGSL as text, its SPIR-V, the C++ text, and what a launch must bring.
//!
//! The SPIR-V was compiled before and is checked in (`spirv/`). `tests/spirv.rs` checks that it is what the WGSL compiles to, and
//! that group size, slots and parameters were read from the WGSL correctly.
use core::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Kernels without a table.
const PLAIN: &[&str] = &["scale", "matmul", "reduction", "residue"];

/// Kernels with a table, and its number of 16-byte rows. The table may be in constant, device or shared memory.
const PLACED: &[(&str, u32)] = &[("convolution", 64), ("bilateral", 128)];

/// A kernel that only looks up a table; its file holds the body of `shaders/table`. Its name, its access pattern, the bytes it
/// reads per item of a table with this many rows, and the bytes of the table that one workgroup touches (zero: all).
type Lookup = (&'static str, Words, fn(u32) -> u32, u32);

/// The access pattern of a kernel: pattern, work, dependence.
type Words = [&'static str; 3];

const BROADCAST: Words = ["Broadcast", "Any", "Any"];
const BROADCAST_LIGHT: Words = ["Broadcast", "Light", "Any"];
const UNIFORM: Words = ["Uniform", "Any", "Any"];
const COALESCED: Words = ["Coalesced", "Any", "Independent"];
const RECORDS: Words = ["Records", "Any", "Any"];
const GATHERED: Words = ["Gathered", "Any", "Independent"];
const GATHERED_CHAINED: Words = ["Gathered", "Any", "Chained"];
const GATHERED_LIGHT: Words = ["Gathered", "Light", "Independent"];
const GATHERED_LIGHT_CHAINED: Words = ["Gathered", "Light", "Chained"];
const FIELDS: Words = ["Fields", "Any", "Independent"];
const FIELDS_LIGHT: Words = ["Fields", "Light", "Independent"];
const FIELDS_LIGHT_CHAINED: Words = ["Fields", "Light", "Chained"];

/// The kernels of `probes/`, which calibration measures, for each pattern. Some patterns need two: an address that the compiler
/// knows costs no instruction but must be in the first cache, and dependent reads want low latency rather than bandwidth.
const PROBES: &[Lookup] = &[
    ("whole", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("unrolled", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("busy", BROADCAST, |rows| 16 * rows, 0),
    ("walk", UNIFORM, |_| 1024, 0),
    ("lanes", COALESCED, |_| 32, 0),
    ("codes", GATHERED_LIGHT, |_| 64, 0),
    ("hops", GATHERED_LIGHT_CHAINED, |_| 32, 0),
    ("records", RECORDS, |_| 128, 0),
];

/// The kernels of `judged/`, which placements are judged with. Calibration never runs them.
const JUDGED: &[Lookup] = &[
    ("automaton", GATHERED_LIGHT_CHAINED, |_| 48, 0),
    ("bands", UNIFORM, |_| 128, 128),
    ("blend", GATHERED_LIGHT, |_| 128, 0),
    ("bodies", BROADCAST, |rows| 16 * rows, 0),
    ("centroids", BROADCAST, |rows| 8 * rows, 0),
    ("chain", FIELDS_LIGHT_CHAINED, |_| 64, 0),
    ("checksum", GATHERED_CHAINED, |_| 16, 0),
    ("codebook", RECORDS, |_| 128, 256),
    ("curve", GATHERED, |_| 16, 0),
    ("density", BROADCAST, |rows| 16 * rows, 0),
    ("dither", COALESCED, |_| 4, 256),
    ("envelope", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("gain", COALESCED, |_| 4, 0),
    ("interpolate", FIELDS, |_| 8, 0),
    ("joints", RECORDS, |_| 96, 0),
    ("lights", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("material", UNIFORM, |_| 16, 16),
    ("pairs", GATHERED_LIGHT, |_| 48, 0),
    ("palette", FIELDS, |_| 8, 0),
    ("polynomial", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("rules", UNIFORM, |_| 512, 512),
    ("search", FIELDS_LIGHT_CHAINED, |rows| 4 * rows.ilog2(), 0),
    ("segments", BROADCAST_LIGHT, |rows| 16 * rows, 0),
    ("steps", BROADCAST, |rows| 16 * rows, 0),
    ("substitute", FIELDS_LIGHT, |_| 64, 0),
    ("tone", GATHERED_CHAINED, |_| 8, 0),
    ("tree", RECORDS, |_| 128, 0),
    ("twiddle", FIELDS_LIGHT, |rows| 8 * rows.ilog2(), 0),
    ("window", COALESCED, |_| 8, 0),
];

/// Tables of probes, in rows: 256 bytes to 1 MiB, closer where caches end.
const PROBE_ROWS: &[u32] = &[
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16_384,
    32_768, 65_536,
];

/// Tables to judge with, in rows: none of them is a probe's.
const JUDGED_ROWS: &[u32] = &[40, 72, 112, 288, 640, 2560];

/// Shared memory of the largest tables that are copied there, in rows; few devices have more.
const SHARED_ROWS: u32 = 3072;

/// Memory of a table.
#[derive(Clone, Copy)]
enum Place {
    Constant,
    Device,
    Shared,
}

fn main() {
    let mut rust = plain_and_placed(&mut Pack::read("kernels"));
    if env::var_os("CARGO_FEATURE_LOOKUPS").is_some() {
        let pack = &mut Pack::read("lookups");
        rust.push_str(&lookups(pack, "probes", PROBES, PROBE_ROWS));
        rust.push_str(&lookups(pack, "judged", JUDGED, JUDGED_ROWS));
    }
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("kernels.rs"), rust).expect("OUT_DIR can be written");
}

/// Modules that are checked in as one file, in the order of their kernels: little-endian words, each module behind their number.
struct Pack {
    words: std::vec::IntoIter<u32>,
}

impl Pack {
    fn read(name: &str) -> Self {
        let path = format!("spirv/{name}.spv");
        println!("cargo::rerun-if-changed={path}");
        let bytes = fs::read(&path).unwrap_or_else(|why| panic!("shaders/{path}: {why}"));
        let (words, _) = bytes.as_chunks();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        Self { words: words.into_iter() }
    }

    /// Returns the next module. One that is missing is empty, so that the test that writes the file can be built.
    fn next(&mut self) -> Vec<u32> {
        let count = self.words.next().unwrap_or(0);
        self.words.by_ref().take(count as usize).collect()
    }
}

/// Returns the kernels of examples and tests.
fn plain_and_placed(pack: &mut Pack) -> String {
    let mut rust = String::new();
    let mut define = |name: &str, kind: &str, value: &str| {
        let (about, constant) = (format!("/// `shaders/{name}`."), name.to_uppercase());
        writeln!(rust, "{about}\npub const {constant}: {kind} = {value};")
            .expect("a string takes everything");
    };
    for name in PLAIN {
        let value = kernel(pack, name, &read(name, name, "wgsl"), &read(name, name, "cu"));
        define(name, "Kernel", &value);
    }
    for (name, rows) in PLACED {
        let texts = (&*read(name, name, "wgsl"), &*read(name, name, "cu"));
        define(name, "Placed", &placed(pack, name, texts, *rows));
    }
    rust
}

/// Returns every lookup kernel of a folder in every size, as one list.
fn lookups(pack: &mut Pack, folder: &str, kernels: &[Lookup], sizes: &[u32]) -> String {
    let (wgsl, cpp) = (read("table", "table", "wgsl"), read("table", "table", "cu"));
    let mut text = String::new();
    for (name, [pattern, work, dependence], reads, touches) in kernels {
        let fill = |frame: &str, body: &str| frame.replace("$body", body).replace("$name", name);
        let texts =
            (&*fill(&wgsl, &read(folder, name, "wgsl")), &*fill(&cpp, &read(folder, name, "cu")));
        for rows in sizes {
            let (placed, reads) = (placed(pack, name, texts, *rows), reads(*rows));
            write!(
                text,
                "Lookup {{ table: {placed}, pattern: Pattern::{pattern}, work: Work::{work}, dependence: \
                 Dependence::{dependence}, reads: {reads}, touches: {touches} }}, "
            )
            .expect("a string takes everything");
        }
    }
    let list = folder.to_uppercase();
    format!(
        "/// The kernels of `shaders/{folder}`, each in every size of table.\npub const {list}: &[Lookup] = &[{text}];\n"
    )
}

/// Returns the variants of a kernel with a table, as a Rust expression.
fn placed(pack: &mut Pack, name: &str, (wgsl, cpp): (&str, &str), rows: u32) -> String {
    let mut make =
        |place: Place| kernel(pack, name, &place.wgsl(wgsl, rows), &place.cpp(cpp, rows));
    let (constant, device) = (make(Place::Constant), make(Place::Device));
    let shared = match rows <= SHARED_ROWS {
        true => format!("Some({})", make(Place::Shared)),
        false => "None".to_owned(),
    };
    format!("Placed {{ rows: {rows}, constant: {constant}, device: {device}, shared: {shared} }}")
}

impl Place {
    /// Fills in what depends on the table's place.
    fn wgsl(self, text: &str, rows: u32) -> String {
        let tile = format!("var<workgroup> tile: array<vec4<f32>, {rows}>;");
        let stage = stage(rows);
        let (space, table, tile, stage) = match self {
            Self::Constant => ("uniform", "table", "", ""),
            Self::Device => ("storage, read", "table", "", ""),
            Self::Shared => ("storage, read", "tile", tile.as_str(), stage.as_str()),
        };
        text.replace("$space", space)
            .replace("$rows", &rows.to_string())
            .replace("$table", table)
            .replace("$tile", tile)
            .replace("$stage", stage)
    }

    /// Prepends definitions to the text. AMD has no constant bank: there the address is read, through the scalar
    /// cache where all threads of a wave read alike.
    fn cpp(self, text: &str, rows: u32) -> String {
        let head = match self {
            Self::Constant => {
                "#if defined(__HIPCC_RTC__) || defined(__HIP_DEVICE_COMPILE__)\n#define TABLE table\n#else\nextern \
                 \"C\" { __constant__ float4 omniheap_constant_0[ROWS]; }\n#define TABLE \
                 omniheap_constant_0\n#endif\n#define STAGE\n"
            }
            Self::Device => "#define TABLE table\n#define STAGE\n",
            Self::Shared => {
                "#define TABLE tile\n#define STAGE __shared__ float4 tile[ROWS]; for (unsigned int r = lane; r < ROWS; \
                 r += threads) { tile[r] = table[r]; } __syncthreads();\n"
            }
        };
        format!("#define ROWS {rows}u\n{head}#line 1\n{text}")
    }
}

/// Copies a table to shared memory, four rows for each thread at a time: one at a time, a thread would wait for every
/// single one.
fn stage(rows: u32) -> String {
    let row = |step: u32| format!("lane + {}u", 256 * step);
    let mut text = String::new();
    for first in (0..rows / 256).step_by(4) {
        let batch: Vec<_> = (first..rows / 256).take(4).map(row).collect();
        batch.iter().enumerate().for_each(|(k, row)| {
            write!(text, "let row{first}_{k} = table[{row}]; ").expect("a string takes everything");
        });
        batch.iter().enumerate().for_each(|(k, row)| {
            write!(text, "tile[{row}] = row{first}_{k}; ").expect("a string takes everything");
        });
    }
    let rest = row(rows / 256);
    format!("{text}if ({rest} < {rows}u) {{ tile[{rest}] = table[{rest}]; }} workgroupBarrier();")
}

fn read(folder: &str, name: &str, language: &str) -> String {
    let path = format!("{folder}/{name}.{language}");
    println!("cargo::rerun-if-changed={path}");
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("shaders/{path}: {why}"))
}

/// One kernel as a Rust expression.
fn kernel(pack: &mut Pack, name: &str, wgsl: &str, cpp: &str) -> String {
    let (group, slots, parameters) = (group(wgsl), slots(wgsl).join(", "), parameters(wgsl));
    format!(
        "{{ let text = KernelText {{ name: {name:?}, group: {group:?}, slots: &[{slots}], parameters: {parameters}, \
         wgsl: {wgsl:?}, spirv: &{:?}, cpp: {cpp:?}, host: crate::host::{name} }};\n\
         // SAFETY: naga made the SPIR-V of the WGSL, of which the rest was read; `tests/spirv.rs` checks both.\n\
         unsafe {{ Kernel::new(text) }} }}",
        pack.next()
    )
}

/// Returns what stands between `from` and `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    text.split_once(from)?.1.split_once(to).map(|(found, _)| found)
}

fn group(wgsl: &str) -> [u32; 3] {
    let written = between(wgsl, "@workgroup_size(", ")").expect("a kernel has a group size");
    let mut sizes = written.split(',').map(|size| size.trim().parse().expect("a number"));
    core::array::from_fn(|_| sizes.next().unwrap_or(1))
}

/// Returns the slots. They are declared in the order of their bindings.
fn slots(wgsl: &str) -> Vec<&'static str> {
    let declared = wgsl.lines().filter(|line| line.contains("@binding("));
    let slot = |line: &str| match between(line, "var<", ">") {
        Some("uniform") => "Slot::Constant",
        Some("storage, read") => "Slot::Read",
        Some("storage, read_write") => "Slot::Write",
        _ => panic!("no slot is declared as: {line}"),
    };
    declared.map(slot).collect()
}

/// Returns the bytes of the parameters: each is a number of four bytes.
fn parameters(wgsl: &str) -> usize {
    between(wgsl, "struct Parameters {", "}").map_or(0, |fields| 4 * fields.matches(':').count())
}
