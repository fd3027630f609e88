//! `cargo xtask install-c PREFIX`: the C library, its header, and the files that find them.
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::fs;
use std::path::Path;

/// The part of the version that the ABI changes with.
const ABI: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Builds without debugging information, and installs under `prefix`.
pub(crate) fn run(prefix: &str) -> Outcome {
    let strip = ["--config", "profile.release.strip=true"];
    status("build", cargo(&["build", "--release", "-p", "omniheap-c"]).args(strip))?;
    put(&target().join("release"), Path::new(prefix))
}

/// Installs the libraries that lie in the folder `built` under `prefix`.
pub(crate) fn put(built: &Path, prefix: &Path) -> Outcome {
    fs::create_dir_all(prefix).map_err(|error| name(prefix, &error))?;
    let prefix = fs::canonicalize(prefix).map_err(|error| name(prefix, &error))?;
    let source = root().join("bindings/c");
    let shared = format!("libomniheap_c.so.{ABI}");
    copy(&built.join("libomniheap_c.so"), &prefix.join("lib").join(&shared))?;
    link(&shared, &prefix.join("lib/libomniheap_c.so"))?;
    copy(&built.join("libomniheap_c.a"), &prefix.join("lib/libomniheap_c.a"))?;
    copy(&source.join("include/omniheap.h"), &prefix.join("include/omniheap.h"))?;
    let cmake = "omniheap-config.cmake";
    copy(&source.join("cmake").join(cmake), &prefix.join("lib/cmake/omniheap").join(cmake))?;
    let version = "omniheap-config-version.cmake";
    let template = source.join("cmake").join(format!("{version}.in"));
    fill(&template, &prefix.join("lib/cmake/omniheap").join(version), &prefix)?;
    fill(&source.join("omniheap.pc.in"), &prefix.join("lib/pkgconfig/omniheap.pc"), &prefix)?;
    println!("installed under {}", prefix.display());
    Ok(())
}

/// Writes a template with its variables replaced.
fn fill(template: &Path, to: &Path, prefix: &Path) -> Outcome {
    let text = fs::read_to_string(template).map_err(|error| name(template, &error))?;
    let text = text.replace("@PREFIX@", &prefix.display().to_string());
    let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@ABI@", ABI);
    make_folder(to)?;
    fs::write(to, text).map_err(|error| name(to, &error))
}

/// Makes `at` a link to the file `to` beside it.
fn link(to: &str, at: &Path) -> Outcome {
    match fs::remove_file(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(name(at, &error)),
        _ => {}
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(to, at).map_err(|error| name(at, &error))?;
    #[cfg(not(unix))]
    copy(&at.with_file_name(to), at)?;
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
