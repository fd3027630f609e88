//! `cargo xtask install-c PREFIX`: the C library, its header, and the files that find them.
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::fs;
use std::path::Path;

/// Builds and installs under `prefix`.
pub(crate) fn run(prefix: &str) -> Outcome {
    status("build", &mut cargo(&["build", "--release", "-p", "omniheap-c"]))?;
    put(&target().join("release"), Path::new(prefix))
}

/// Installs the libraries that lie in the folder `built` under `prefix`.
pub(crate) fn put(built: &Path, prefix: &Path) -> Outcome {
    fs::create_dir_all(prefix).map_err(|error| name(prefix, &error))?;
    let prefix = fs::canonicalize(prefix).map_err(|error| name(prefix, &error))?;
    let source = root().join("bindings/c");
    for library in ["libomniheap_c.so", "libomniheap_c.a"] {
        copy(&built.join(library), &prefix.join("lib").join(library))?;
    }
    copy(&source.join("include/omniheap.h"), &prefix.join("include/omniheap.h"))?;
    let cmake = "omniheap-config.cmake";
    copy(&source.join("cmake").join(cmake), &prefix.join("lib/cmake/omniheap").join(cmake))?;
    let template = source.join("omniheap.pc.in");
    let text = fs::read_to_string(&template).map_err(|error| name(&template, &error))?;
    let text = text.replace("@PREFIX@", &prefix.display().to_string());
    let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let to = prefix.join("lib/pkgconfig/omniheap.pc");
    make_folder(&to)?;
    fs::write(&to, text).map_err(|error| name(&to, &error))?;
    println!("installed under {}", prefix.display());
    Ok(())
}

fn make_folder(path: &Path) -> Outcome {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| name(folder, &error))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    make_folder(to)?;
    fs::copy(from, to).map(|_| ()).map_err(|error| name(from, &error))
}

fn name(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
