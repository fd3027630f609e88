//! The interfaces of other allocators over omniheap: `tests/compat/`, a workspace of its own.
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The same program with the patch and without: its name, its folder, and the packages to build.
type Programs = [(&'static str, &'static str, &'static [&'static str]); 2];

/// A small wgpu program. Every step asks for the same packages: others would unify features otherwise, and build the dependencies again.
const WGPU: Programs = [
    ("scene", "tests/compat", &["-p", "gpu-allocator", "-p", "limit-layer", "-p", "scene"]),
    ("anchor", "", &["--workspace", "--all-features", "--bin", "anchor", "--config", AS_USERS_DO]),
];

/// The main workspace leaves ash unoptimised. `scene` has it optimised, and the times of both are compared.
const AS_USERS_DO: &str = "profile.release.package.ash.opt-level=3";

/// Way in which programs are built.
#[derive(Clone, Copy)]
enum Built {
    /// Soon: for pictures and bytes, which are the same either way.
    Soon,
    /// As users do: for times.
    Optimised,
}

impl Built {
    /// Returns what cargo is told.
    fn argument(self) -> Option<&'static str> {
        match self {
            Self::Soon => None,
            Self::Optimised => Some("--release"),
        }
    }

    /// Returns the folder, below that of cargo's target, that programs come to.
    fn folder(self) -> &'static str {
        match self {
            Self::Soon => "debug",
            Self::Optimised => "release",
        }
    }
}

/// A headless Bevy program.
const BEVY: Programs =
    [("bevy-on-omniheap", "examples/bevy", &[]), ("bevy-without", "examples/bevy/without", &[])];

/// Tests the interface, and compares a scene with and without the patch.
pub(crate) fn test() -> Outcome {
    test_built(Built::Soon)?;
    compare(&WGPU, Built::Soon, &["frames", "100", "mib", "512"])?;
    swapped_offsets_show(Built::Soon)?;
    finish_on_a_small_device(Built::Soon, 3)
}

fn test_built(built: Built) -> Outcome {
    let (_, folder, packages) = WGPU[0];
    let mut tests = in_workspace(folder, &["test", "--quiet"]);
    tests.args(built.argument());
    status("tests of bindings/gpu-allocator", tests.args(packages))
}

/// Lints, tests, and compares a larger scene.
pub(crate) fn run() -> Outcome {
    status("format", &mut in_workspace("tests/compat", &["fmt", "--all", "--check"]))?;
    let lint = ["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
    status("lint", &mut in_workspace("tests/compat", &lint))?;
    test_built(Built::Optimised)?;
    compare(&WGPU, Built::Optimised, &["frames", "2000", "mib", "1024"])?;
    swapped_offsets_show(Built::Optimised)?;
    finish_on_a_small_device(Built::Optimised, 20)
}

/// Builds Bevy with the patch and without, and compares a scene.
pub(crate) fn bevy() -> Outcome {
    // Both programs use the same versions of everything else.
    let folder = root().join("examples/bevy");
    let copied = fs::copy(folder.join("Cargo.lock"), folder.join("without/Cargo.lock"));
    copied.map_err(|error| format!("Cargo.lock of examples/bevy: {error}"))?;
    compare(&BEVY, Built::Optimised, &["frames", "2000", "mib", "512"])
}

/// Cargo in another workspace, with the target folder of this one.
fn in_workspace(folder: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.current_dir(root().join(folder)).env("CARGO_TARGET_DIR", target());
    command
}

/// Figures of one program, and its picture.
struct Ran {
    measured: serde_json::Value,
    picture: Vec<u8>,
}

impl Ran {
    /// Returns a figure.
    fn number(&self, name: &str) -> Result<f64, String> {
        self.measured[name].as_f64().ok_or_else(|| format!("no `{name}` was measured"))
    }
}

fn compare(programs: &Programs, built: Built, arguments: &[&str]) -> Outcome {
    let mut ran = Vec::new();
    for (name, folder, packages) in *programs {
        let mut build = in_workspace(folder, &["build", "--quiet"]);
        status(name, build.args(built.argument()).args(packages))?;
        match run_one(name, built, arguments)? {
            Some(one) => ran.push(one),
            None => return Ok(()),
        }
    }
    let [ours, theirs] = &ran[..] else { return Err("two programs ran".into()) };
    if ours.picture != theirs.picture {
        return Err("the pictures with and without the patch differ".into());
    }
    let ratio = |name: &str| Ok::<_, String>(ours.number(name)? / theirs.number(name)?);
    let after = ours.number("held_after")? / ours.number("live_after")?;
    if let (Built::Optimised, Ok(buffers), Ok(textures)) =
        (built, ratio("buffer_ns"), ratio("texture_ns"))
    {
        println!("    buffer and texture time {buffers:.2} and {textures:.2} of gpu-allocator's");
    }
    let rows = [
        ("bytes of a bare device, of gpu-allocator's", ratio("bare")?, 0.10),
        ("bytes of the scene at peak, of gpu-allocator's", ratio("scene_peak")?, 0.75),
        ("held of live bytes after nine of ten levels were dropped", after, 1.15),
    ];
    for (what, value, bar) in rows {
        println!("    {what}: {value:.3}");
        if value > bar {
            return Err(format!("{what}: {value:.3}, more than {bar}"));
        }
    }
    Ok(())
}

/// Arguments of the scene on a small device.
const SMALL_SCENE: [&str; 4] = ["frames", "20", "mib", "210"];

/// A device that has as much memory as the scene needs with gpu-allocator, divided by 1.3: with gpu-allocator the scene fails on it,
/// and on omniheap it finishes every time.
fn finish_on_a_small_device(built: Built, times: u32) -> Outcome {
    let [(ours, ..), (theirs, ..)] = WGPU;
    let Some(whole) = run_one(theirs, built, &SMALL_SCENE)? else { return Ok(()) };
    let limit = whole.number("load_peak")?.max(whole.number("scene_peak")?) / 1.3;
    let run = |name| under_layer(name, built, "OMNIHEAP_LAYER_LIMIT", &format!("{limit:.0}"));
    if run(theirs)?.status.success() {
        return Err(format!("{theirs} finishes with {limit:.0} bytes: the limit proves nothing"));
    }
    for time in 1..=times {
        let ran = run(ours)?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            return Err(format!("{ours}, run {time}, with {limit:.0} bytes: {said}"));
        }
    }
    println!("    {limit:.0} bytes: {theirs} fails, {ours} finished {times} of {times} times");
    Ok(())
}

/// Staging buffers with each other's offsets give another picture: equal pictures say that offsets are right.
fn swapped_offsets_show(built: Built) -> Outcome {
    let [(ours, ..), _] = WGPU;
    let Some(right) = run_one(ours, built, &SMALL_SCENE)? else { return Ok(()) };
    let swapped = under_layer(ours, built, "OMNIHEAP_LAYER_SWAP", "1")?;
    let said = String::from_utf8_lossy(&swapped.stderr).into_owned();
    let count = said.lines().find_map(|line| line.strip_suffix(" offsets swapped"));
    if !swapped.status.success() || count.is_none_or(|count| count.ends_with(" 0")) {
        return Err(format!("{ours} with swapped offsets: {}: {said}", swapped.status));
    }
    let path = layer_picture();
    let wrong = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if wrong == right.picture {
        return Err("the picture is the same with swapped offsets: it proves nothing".into());
    }
    println!("    {ours} with swapped offsets: another picture");
    Ok(())
}

/// Path of the picture that a program draws under the layer.
fn layer_picture() -> PathBuf {
    std::env::temp_dir().join("omniheap-small.rgba")
}

/// Runs a program with the layer, which is told one variable.
fn under_layer(
    name: &str,
    built: Built,
    variable: &str,
    value: &str,
) -> Result<std::process::Output, String> {
    let mut program = Command::new(target().join(built.folder()).join(name));
    program.arg(layer_picture()).args(SMALL_SCENE).env(variable, value);
    program.env("VK_LAYER_PATH", write_manifest(built)?);
    program.env("VK_INSTANCE_LAYERS", "VK_LAYER_OMNIHEAP_limit");
    program.output().map_err(|error| format!("{name}: {error}"))
}

/// Tells the Vulkan loader of the layer that limits memory; returns the folder.
fn write_manifest(built: Built) -> Result<PathBuf, String> {
    let library = target().join(built.folder()).join("liblimit_layer.so");
    let folder = target().join("limit-layer");
    let manifest = root().join("tests/compat/limit/limit_layer.json.in");
    let text = fs::read_to_string(&manifest)
        .map_err(|error| format!("{}: {error}", manifest.display()))?
        .replace("@LIBRARY@", &library.display().to_string());
    let written =
        fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("limit_layer.json"), text));
    written.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs a program; nothing where there is no device.
fn run_one(name: &str, built: Built, arguments: &[&str]) -> Result<Option<Ran>, String> {
    let picture: PathBuf = std::env::temp_dir().join(format!("omniheap-{name}.rgba"));
    let program: &Path = &target().join(built.folder()).join(name);
    let output = Command::new(program).arg(&picture).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    print!("{}", String::from_utf8_lossy(&output.stderr));
    println!("    {name}: {line}");
    if !output.status.success() {
        return Err(format!("{name}: {}", output.status));
    }
    if !line.starts_with('{') {
        return Ok(None);
    }
    let picture = fs::read(&picture).map_err(|error| format!("{}: {error}", picture.display()))?;
    let measured = serde_json::from_str(&line).map_err(|error| format!("{name}: {error}"))?;
    Ok(Some(Ran { measured, picture }))
}
