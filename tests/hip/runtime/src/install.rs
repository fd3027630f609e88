//! From a suite to an unpacked runtime, once per folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::apt::{Apt, run};
use crate::error::Error;
use crate::index::{Index, Package};
use crate::{Runtime, Suite, mirror};

/// Written last, so that its presence says that everything else is there.
const STAMP: &str = "packages.txt";
/// The name that AMD's HIP library asks the loader for.
const STANDIN: &str = "libhsa-runtime64.so.1";

/// Returns the runtime under `folder`, fetching it when it is not there; one process at a time.
pub(crate) fn ensure(folder: &Path, suite: Suite) -> Result<Runtime, Error> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Error::WrongMachine);
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let folder = fs::canonicalize(folder).map_err(Error::file(folder))?;
    let _guard = lock(&folder, suite.name())?;
    let root = folder.join(suite.name());
    let stamp = root.join(STAMP);
    if !stamp.exists() {
        fetch(&folder, &root, suite)?;
    }
    let text = fs::read_to_string(&stamp).map_err(Error::file(&stamp))?;
    let prefix = format!("{}=", suite.roots()[0]);
    let version =
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("unknown").to_owned();
    verify(Runtime::at(&root, suite, version))
}

/// Waits until no other thread or process works on `name` in `folder`, and keeps them out while the result lives.
fn lock(folder: &Path, name: &str) -> Result<File, Error> {
    let path = folder.join(format!("{name}.lock"));
    let file = File::create(&path).map_err(Error::file(&path))?;
    file.lock().map_err(Error::file(&path))?;
    Ok(file)
}

/// Copies the stand-in to a folder of its own, under the name that the loader looks for.
pub(crate) fn place_standin(folder: &Path, library: &Path) -> Result<PathBuf, Error> {
    let place = folder.join("standin");
    fs::create_dir_all(&place).map_err(Error::file(&place))?;
    let place = fs::canonicalize(&place).map_err(Error::file(&place))?;
    // Beside and then over it, as another process may be using the file that is there; and nobody else writes the copy.
    let _guard = lock(folder, "standin")?;
    let copy = place.join("new");
    fs::copy(library, &copy).map_err(Error::file(library))?;
    fs::rename(&copy, place.join(STANDIN)).map_err(Error::file(&place))?;
    Ok(place)
}

fn fetch(folder: &Path, root: &Path, suite: Suite) -> Result<(), Error> {
    let mirror = mirror::find(Path::new("/etc/apt")).ok_or(Error::NoMirror)?;
    let work = folder.join(format!("{suite}.work"));
    remove(root)?;
    remove(&work)?;
    let apt = Apt::new(&work, &mirror, suite.sources())?;
    let mut index = Index::default();
    for text in apt.indexes()? {
        index.read(&text);
    }
    let missing = |package| Error::NoPackage { suite: suite.name(), package };
    let packages = index.resolve(&suite.roots()).map_err(missing)?;
    fs::create_dir_all(root).map_err(Error::file(root))?;
    for path in apt.download(&packages)? {
        run(
            "unpacking a package",
            "dpkg-deb",
            ["-x".as_ref(), path.as_os_str(), root.as_os_str()],
            None,
        )?;
    }
    remove(&work)?;
    let stamp = root.join(STAMP);
    fs::write(&stamp, listing(&packages)).map_err(Error::file(stamp))
}

fn listing(packages: &[&Package]) -> String {
    packages.iter().map(|package| format!("{}={}\n", package.name, package.version)).collect()
}

fn verify(runtime: Runtime) -> Result<Runtime, Error> {
    match [runtime.loader(), runtime.library()].into_iter().find(|path| !path.exists()) {
        Some(path) => Err(Error::Incomplete { suite: runtime.suite().name(), path }),
        None => Ok(runtime),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    if path.exists() { fs::remove_dir_all(path).map_err(Error::file(path)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::place_standin;

    #[test]
    fn the_stand_in_gets_the_name_that_is_asked_for() {
        let folder = std::env::temp_dir().join(format!("omniheap-standin-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let built = folder.join("built.so");
        for text in ["first", "second"] {
            fs::write(&built, text).expect("as above");
            let place = place_standin(&folder, &built).expect("the file is there");
            assert_eq!(
                fs::read_to_string(place.join("libhsa-runtime64.so.1")).expect("it was placed"),
                text
            );
        }
        let missing =
            place_standin(&folder, Path::new("/nowhere/built.so")).expect_err("no such file");
        assert!(missing.to_string().contains("/nowhere/built.so"), "{missing}");
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn nobody_sees_half_a_stand_in() {
        let folder = std::env::temp_dir().join(format!("omniheap-half-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let built = folder.join("built.so");
        fs::write(&built, vec![1; 1 << 20]).expect("as above");
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..100 {
                        let place = place_standin(&folder, &built).expect("the file is there");
                        let seen = fs::metadata(place.join("libhsa-runtime64.so.1"));
                        assert_eq!(seen.expect("it was placed").len(), 1 << 20);
                    }
                });
            }
        });
        fs::remove_dir_all(&folder).expect("made above");
    }
}
