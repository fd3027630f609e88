//! `cargo xtask install-c PREFIX` and `install-vma PREFIX`: a library of C, its header, and the files that find them.
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

/// The part of the version that the ABI changes with.
const ABI: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// A library of C that programs install.
pub(crate) struct Library {
    /// Name for linkers: the package's, with underscores.
    pub(crate) name: &'static str,
    /// Folder of the package.
    pub(crate) folder: &'static str,
    headers: &'static [&'static str],
    /// Name that `find_package` knows.
    pub(crate) cmake: &'static str,
    /// Files for `find_package`: one finds the library, the other compares versions.
    config: [&'static str; 2],
    /// Name that pkg-config knows.
    pub(crate) pkg_config: &'static str,
}

/// Our own interface.
pub(crate) const C: Library = Library {
    name: "omniheap_c",
    folder: "bindings/c",
    headers: &["omniheap.h", "omniheap.hpp"],
    cmake: "omniheap",
    config: ["omniheap-config.cmake", "omniheap-config-version.cmake"],
    pkg_config: "omniheap",
};

/// The interface of the Vulkan Memory Allocator. Its files have the names of VMA's, so that programs find it in its place.
pub(crate) const VMA: Library = Library {
    name: "omniheap_vma",
    folder: "bindings/vma",
    headers: &["vk_mem_alloc.h"],
    cmake: "VulkanMemoryAllocator",
    config: ["VulkanMemoryAllocatorConfig.cmake", "VulkanMemoryAllocatorConfigVersion.cmake"],
    pkg_config: "vulkan-memory-allocator",
};

/// Builds without debugging information, and installs under `prefix`.
pub(crate) fn run(library: &Library, prefix: &str) -> Outcome {
    let strip = ["--config", "profile.release.strip=true"];
    let package = library.name.replace('_', "-");
    status("build", cargo(&["build", "--release", "-p", &package]).args(strip))?;
    put(library, &target().join("release"), Path::new(prefix))
}

/// Installs the files of the folder `built` under `prefix`. Running programs keep the version that they loaded.
pub(crate) fn put(library: &Library, built: &Path, prefix: &Path) -> Outcome {
    fs::create_dir_all(prefix).map_err(|error| name(prefix, &error))?;
    let prefix = fs::canonicalize(prefix).map_err(|error| name(prefix, &error))?;
    let source = root().join(library.folder);
    let (file, archive) = (format!("lib{}.so", library.name), format!("lib{}.a", library.name));
    let shared = format!("{file}.{ABI}");
    copy(&built.join(&file), &prefix.join("lib").join(&shared))?;
    link(&shared, &prefix.join("lib").join(&file))?;
    copy(&built.join(&archive), &prefix.join("lib").join(&archive))?;
    for header in library.headers {
        let header = Path::new("include").join(header);
        copy(&source.join(&header), &prefix.join(&header))?;
    }
    let (cmake, [config, version]) = (prefix.join("lib/cmake").join(library.cmake), library.config);
    copy(&source.join("cmake").join(config), &cmake.join(config))?;
    fill(&source.join("cmake").join(format!("{version}.in")), &cmake.join(version))?;
    let found_by = format!("{}.pc", library.pkg_config);
    fill(&source.join(format!("{found_by}.in")), &prefix.join("lib/pkgconfig").join(found_by))?;
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
    use super::{C, VMA, put};
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
        put(&C, &built, &prefix).expect("a new prefix");
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
        put(&C, &built, &prefix).expect("an installed prefix");
        let read = |path| fs::read_to_string(path).expect("a file");
        assert_eq!([read(kept.join("0")), read(kept.join("1"))], ["first"; 2]);
        assert_eq!(read(kept.join("2")), "an older header");
        assert_eq!(read(prefix.join("lib/libomniheap_c.so")), "second");
        assert_eq!(read(prefix.join("lib/libomniheap_c.a")), "second");
        assert!(read(prefix.join("include/omniheap.h")).contains("omniheap_open"));
        fs::remove_file(built.join("libomniheap_c.a")).expect("made above");
        assert!(put(&C, &built, &prefix).is_err_and(|why| why.contains("libomniheap_c.a")));
        assert_eq!(names(), before, "nothing is left over");
        fs::remove_dir_all(folder).expect("made above");
    }
    #[test]
    fn the_interface_of_vma_is_installed_under_the_names_of_vma() {
        let folder = std::env::temp_dir().join(format!("omniheap-vma-{}", std::process::id()));
        let (built, prefix) = (folder.join("built"), folder.join("prefix"));
        fs::create_dir_all(&built).expect("a folder");
        for name in ["libomniheap_vma.so", "libomniheap_vma.a"] {
            fs::write(built.join(name), "a library").expect("a file");
        }
        put(&VMA, &built, &prefix).expect("a new prefix");
        let read = |path| fs::read_to_string(prefix.join(path)).expect("a file");
        assert!(read("include/vk_mem_alloc.h").contains("vmaCreateAllocator"));
        let cmake = read("lib/cmake/VulkanMemoryAllocator/VulkanMemoryAllocatorConfig.cmake");
        assert!(cmake.contains("GPUOpen::VulkanMemoryAllocator"));
        let version = "lib/cmake/VulkanMemoryAllocator/VulkanMemoryAllocatorConfigVersion.cmake";
        for text in [read(version), read("lib/pkgconfig/vulkan-memory-allocator.pc")] {
            assert!(text.contains("3.4.0") && !text.contains('@'), "{text}");
        }
        assert_eq!(read("lib/libomniheap_vma.so"), "a library");
        fs::remove_dir_all(folder).expect("made above");
    }
}
