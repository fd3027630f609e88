//! Fetches both runtimes and prints how to run programs on them, over the stand-in when it is built.

use std::path::PathBuf;

use omniheap_hip_runtime::{Error, Suite, ensure};

fn main() -> Result<(), Error> {
    let built = standin().filter(|path| path.exists());
    for suite in Suite::ALL {
        let mut runtime = ensure(suite)?;
        let under =
            if built.is_some() { "over the stand-in" } else { "over AMD's own HSA library" };
        if let Some(library) = &built {
            runtime = runtime.with_standin(library)?;
        }
        println!("Debian {suite}: HIP {}, {under}\n  {}", runtime.version(), runtime.runner());
    }
    Ok(())
}

/// Returns the path where `cargo build -p omniheap-hsa-standin` puts the library, seen from this program's folder.
fn standin() -> Option<PathBuf> {
    let example = std::env::current_exe().ok()?;
    Some(example.parent()?.parent()?.join("libomniheap_hsa_standin.so"))
}
