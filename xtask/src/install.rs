//! `cargo xtask install-c PREFIX`: the C library, its header, and the files that find them.
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

/// The part of the version that the ABI changes with.
const ABI: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Builds without debugging information, and installs under `prefix`.
pub(crate) fn run(prefix: &str) -> Outcome {
    let strip = ["--config", "profile.release.strip=true"];
    status("build", cargo(&["build", "--release", "-p", "omniheap-c"]).args(strip))?;
    put(&target().join("release"), Path::new(prefix))
}

/// Installs the libraries that lie in the folder `built` under `prefix`. Programs that run with an installed version go on with that one.
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
    fill(&template, &prefix.join("lib/cmake/omniheap").join(version))?;
    fill(&source.join("omniheap.pc.in"), &prefix.join("lib/pkgconfig/omniheap.pc"))?;
    println!("installed under {}", prefix.display());
    Ok(())
}

/// Writes a template with its variables replaced.
fn fill(template: &Path, to: &Path) -> Outcome {
    let text = fs::read_to_string(template).map_err(|error| name(template, &error))?;
    let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@ABI@", ABI);
    replace(to, |new| fs::write(new, text))
}

/// Makes `at` a link to the file `to` beside it.
fn link(to: &str, at: &Path) -> Outcome {
    #[cfg(unix)]
    return replace(at, |new| std::os::unix::fs::symlink(to, new));
    #[cfg(not(unix))]
    copy(&at.with_file_name(to), at)
}

fn copy(from: &Path, to: &Path) -> Outcome {
    if !from.exists() {
        return Err(format!("{}: it is not there", from.display()));
    }
    replace(to, |new| fs::copy(from, new).map(drop))
}

/// Has `make` write a file beside `to`, and gives it that name once it is whole. Who has the old file open or mapped keeps it: writing into it would
/// crash running programs.
fn replace(to: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Outcome {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(|error| name(folder, &error))?;
    let mut hidden = OsString::from(".");
    hidden.push(to.file_name().unwrap_or_default());
    hidden.push(format!(".{}", std::process::id()));
    let new = to.with_file_name(hidden);
    let made = make(&new).and_then(|()| fs::rename(&new, to));
    made.map_err(|error| {
        // Nothing is left of an installation that failed but what was there before.
        let _ = fs::remove_file(&new);
        name(to, &error)
    })
}

fn name(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::put;
    use std::fs;

    #[test]
    fn what_is_installed_is_replaced_and_never_written_into() {
        let folder = std::env::temp_dir().join(format!("omniheap-install-{}", std::process::id()));
        let (built, prefix, kept) =
            (folder.join("built"), folder.join("prefix"), folder.join("kept"));
        fs::create_dir_all(&built).expect("a folder");
        fs::create_dir_all(&kept).expect("a folder");
        let build = |text: &str| {
            for name in ["libomniheap_c.so", "libomniheap_c.a"] {
                fs::write(built.join(name), text).expect("a file");
            }
        };
        build("first");
        put(&built, &prefix).expect("a new prefix");
        let files = ["lib/libomniheap_c.so.0.1", "lib/libomniheap_c.a", "include/omniheap.h"];
        for (number, file) in files.iter().enumerate() {
            fs::hard_link(prefix.join(file), kept.join(number.to_string())).expect("a second name");
        }
        let names = || {
            let lib = fs::read_dir(prefix.join("lib")).expect("a folder");
            let mut names: Vec<_> = lib.map(|one| one.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        build("second");
        fs::write(kept.join("2"), "an older header").expect("the same file as the installed one");
        put(&built, &prefix).expect("an installed prefix");
        let read = |path| fs::read_to_string(path).expect("a file");
        assert_eq!([read(kept.join("0")), read(kept.join("1"))], ["first"; 2]);
        assert_eq!(read(kept.join("2")), "an older header");
        assert_eq!(read(prefix.join("lib/libomniheap_c.so")), "second");
        assert_eq!(read(prefix.join("lib/libomniheap_c.a")), "second");
        assert!(read(prefix.join("include/omniheap.h")).contains("omniheap_open"));
        fs::remove_file(built.join("libomniheap_c.a")).expect("made above");
        assert!(put(&built, &prefix).is_err_and(|why| why.contains("libomniheap_c.a")));
        assert_eq!(names(), before, "nothing is left over");
        fs::remove_dir_all(folder).expect("made above");
    }
}
