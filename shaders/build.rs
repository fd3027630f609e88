//! Turns every kernel into constants: WGSL as text, its SPIR-V, the C++ text, and what a launch must bring.
//!
//! The SPIR-V was compiled before and is checked in (`spirv/`). `tests/spirv.rs` checks that it is what the WGSL compiles to, and
//! that group size, slots and parameters were read from the WGSL correctly.
#[path = "src/template.rs"]
#[expect(unreachable_pub, reason = "the library has it too")]
mod template;

use core::fmt::Write as _;
use std::path::Path;
use std::{env, fs};
use template::Place;

/// Kernels without a table.
const PLAIN: &[&str] = &["scale", "matmul", "reduction", "residue"];

/// Kernels with a table, and its number of 16-byte rows. The table may be in constant, device or shared memory.
const PLACED: &[(&str, u32)] = &[("convolution", 64), ("bilateral", 128)];

fn main() {
    let rust = plain_and_placed(&mut Pack::read());
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("kernels.rs"), rust).expect("OUT_DIR can be written");
}

/// Modules that are checked in as one file, `spirv/kernels.spv`, in the order of their kernels: little-endian words, each module behind their number.
struct Pack {
    words: std::vec::IntoIter<u32>,
}

impl Pack {
    fn read() -> Self {
        let path = "spirv/kernels.spv";
        println!("cargo::rerun-if-changed={path}");
        let bytes = fs::read(path).unwrap_or_else(|why| panic!("shaders/{path}: {why}"));
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

/// Returns the variants of a kernel with a table, as a Rust expression.
fn placed(pack: &mut Pack, name: &str, (wgsl, cpp): (&str, &str), rows: u32) -> String {
    let mut make =
        |place: Place| kernel(pack, name, &place.wgsl(wgsl, rows), &place.cpp(cpp, rows));
    let (constant, device) = (make(Place::Constant), make(Place::Device));
    let shared = match rows <= template::SHARED_ROWS {
        true => format!("Some({})", make(Place::Shared)),
        false => "None".to_owned(),
    };
    format!("Placed {{ rows: {rows}, constant: {constant}, device: {device}, shared: {shared} }}")
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
