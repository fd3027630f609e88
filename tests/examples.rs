//! Every example on every backend that is here, each against its own reference.
//!
//! A backend without a device is ignored, unless `OMNIHEAP_REQUIRE` lists it.
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap::{AnyBackend, BackendKind, open};
use std::env;
use std::path::PathBuf;
use std::process::Command;

const EXAMPLES: [&str; 11] = [
    "01_allocate",
    "02_convolution",
    "03_matmul",
    "04_reduction",
    "05_frame_ring",
    "06_streams",
    "07_own_strategy",
    "08_own_backend",
    "09_bilateral_filter",
    "10_kv_blocks",
    "11_residents",
];

fn main() {
    let mut trials = Vec::new();
    for backend in BackendKind::ALL {
        let device = open(backend, 0).ok().filter(|device| device.as_launch().is_some());
        // Pools sleep only where there are pages.
        let has_pages =
            |device: &AnyBackend| device.caps().heap_ids().any(|(_, heap)| heap.page.is_some());
        let sleeps = device.as_ref().is_some_and(has_pages);
        let listed = env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
        let is_required = listed.split(',').any(|word| word.trim() == backend.name());
        for example in EXAMPLES {
            let check = move || run(example, backend);
            let trial = Trial::test(format!("[{backend}] {example}"), check);
            let is_here = device.is_some() && (sleeps || example != "11_residents");
            trials.push(trial.with_ignored_flag(!(is_here || is_required && device.is_none())));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Returns the file where cargo puts an example, seen from a test.
fn program(example: &str) -> Option<PathBuf> {
    let test = env::current_exe().ok()?;
    let path = test.parent()?.parent()?.join("examples").join(example);
    path.exists().then_some(path)
}

fn run(example: &str, backend: BackendKind) -> Result<(), Failed> {
    let program =
        program(example).ok_or("the example is not built: run `cargo build --examples`")?;
    // Named after the example too: they run beside each other, and each removes its own.
    let image = format!("omniheap-{}-{example}-{backend}.png", std::process::id());
    let image = env::temp_dir().join(image);
    let done = Command::new(program)
        .args(["--backend", backend.name(), "--output"])
        .arg(&image)
        .output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let image = std::fs::remove_file(image);
    if !done.status.success() {
        return Err(format!("{text}{}", String::from_utf8_lossy(&done.stderr)).into());
    }
    if example == "09_bilateral_filter" && image.is_err() {
        return Err("no image was written".into());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/");
    if std::fs::read_to_string(format!("{source}{example}.rs"))?.lines().count() >= 120 {
        return Err("an example has less than 120 lines".into());
    }
    match ["as they should be", " memory, because "].iter().all(|words| text.contains(words)) {
        true => Ok(()),
        false => Err(format!("it does not say what it did:\n{text}").into()),
    }
}
