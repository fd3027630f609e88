//! A private apt: the machine's mirror, keys and proxies, and none of its state.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::index::Package;
use crate::mirror::Mirror;

/// Path of apt's helper that reads its compressed lists.
const HELPER: &str = "/usr/lib/apt/apt-helper";
/// Keyring that signs Debian's archive when the sources name no key.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt whose lists, cache and sources live in one folder, so that it needs no root and changes nothing.
#[derive(Debug)]
pub(crate) struct Apt {
    options: Vec<String>,
    downloads: PathBuf,
}

impl Apt {
    /// Sets up apt in `folder` for `suites` of `mirror`.
    pub(crate) fn new(folder: &Path, mirror: &Mirror, suites: &[&str]) -> Result<Self, Error> {
        let downloads = folder.join("downloads");
        for part in ["lists/partial", "archives/partial", "downloads"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(Error::file(path))?;
        }
        let keyring = mirror
            .keyring
            .clone()
            .or_else(|| Path::new(KEYRING).exists().then(|| KEYRING.to_owned()));
        let signed = keyring.map_or_else(String::new, |keyring| format!("[signed-by={keyring}] "));
        let sources: String = suites
            .iter()
            .map(|suite| format!("deb {signed}{} {suite} main\n", mirror.uri))
            .collect();
        let list = folder.join("sources.list");
        fs::write(&list, sources).map_err(Error::file(&list))?;
        let status = folder.join("status");
        fs::write(&status, "").map_err(Error::file(&status))?;
        Ok(Self { options: options(folder), downloads })
    }

    /// Fetches the signed indexes and returns each one's text, in the order of the suites.
    pub(crate) fn indexes(&self) -> Result<Vec<String>, Error> {
        self.apt_get("reading Debian's package indexes", &["update"])?;
        let format = ["indextargets", "--format", "$(FILENAME)", "Created-By: Packages"];
        let files = self.apt_get("listing the package indexes", &format)?;
        files
            .lines()
            .map(|file| run("unpacking a package index", HELPER, ["cat-file", file], None))
            .collect()
    }

    /// Downloads `packages`, checks every file against the index and returns the paths.
    pub(crate) fn download(&self, packages: &[&Package]) -> Result<Vec<PathBuf>, Error> {
        let names: Vec<String> = packages
            .iter()
            .map(|package| format!("{}={}", package.name, package.version))
            .collect();
        let mut arguments = vec!["download"];
        arguments.extend(names.iter().map(String::as_str));
        self.apt_get("downloading AMD's packages", &arguments)?;
        packages.iter().map(|package| self.check(package)).collect()
    }

    fn check(&self, package: &Package) -> Result<PathBuf, Error> {
        let path = self.find(package)?;
        let sum = run("computing a checksum", "sha256sum", [path.as_os_str()], None)?;
        let found = sum.split_whitespace().next().unwrap_or_default();
        if found == package.sha256 {
            return Ok(path);
        }
        let detail = format!("{found} instead of {}", package.sha256);
        Err(Error::Checksum { package: package.name.clone(), detail })
    }

    /// Finds a download: apt writes the epoch of a version into the file name, the archive does not.
    fn find(&self, package: &Package) -> Result<PathBuf, Error> {
        let prefix = format!("{}_", package.name);
        let entries = fs::read_dir(&self.downloads).map_err(Error::file(&self.downloads))?;
        let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let is_it = |path: &PathBuf| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(&prefix))
        };
        paths
            .find(is_it)
            .ok_or_else(|| Error::NoPackage { suite: "the mirror", package: package.file.clone() })
    }

    fn apt_get(&self, step: &str, arguments: &[&str]) -> Result<String, Error> {
        let all = self.options.iter().map(String::as_str).chain(arguments.iter().copied());
        run(step, "apt-get", all, Some(&self.downloads))
    }
}

fn options(folder: &Path) -> Vec<String> {
    let folder = folder.display();
    let settings = [
        format!("Dir::State::lists={folder}/lists"),
        format!("Dir::State::status={folder}/status"),
        format!("Dir::Cache={folder}"),
        format!("Dir::Etc::sourcelist={folder}/sources.list"),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        "Acquire::Check-Valid-Until=false".to_owned(), // Mirrors of sid may lag; what they hold is signed all the same.
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::Retries=2".to_owned(),
        "APT::Architecture=amd64".to_owned(),
        "APT::Architectures=amd64".to_owned(),
        "APT::Sandbox::User=root".to_owned(), // Otherwise apt, run by root, may not write into the build folder.
    ];
    settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect()
}

/// Runs a program and returns what it wrote, or why it failed.
pub(crate) fn run<A: AsRef<OsStr>>(
    step: &str,
    program: &'static str,
    arguments: impl IntoIterator<Item = A>,
    folder: Option<&Path>,
) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").current_dir(folder.unwrap_or(Path::new("/")));
    let output = command.output().map_err(|source| Error::MissingProgram { program, source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines: Vec<_> = text.lines().rev().take(3).collect();
    lines.reverse();
    Err(Error::Step { step: step.to_owned(), status: output.status, message: lines.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::{Apt, Error, Mirror, fs, run};
    use crate::index::Index;

    #[test]
    fn a_file_that_differs_from_the_index_is_refused() {
        let folder = std::env::temp_dir().join(format!("omniheap-apt-{}", std::process::id()));
        let mirror = Mirror { uri: "http://mirror.invalid/debian".into(), keyring: None };
        let apt =
            Apt::new(&folder, &mirror, &["sid"]).expect("the temporary folder can be written");
        let mut index = Index::default();
        let sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; // of "hello"
        index.read(&format!("Package: liba\nVersion: 1\nFilename: pool/liba.deb\nSHA256: {sum}\n"));
        let packages = index.resolve(&["liba"]).expect("it is in the index");
        assert!(matches!(apt.check(packages[0]), Err(Error::NoPackage { .. })));
        let file = folder.join("downloads/liba_1_amd64.deb");
        fs::write(&file, "hello").expect("as above");
        assert_eq!(apt.check(packages[0]).expect("the sum is right"), file);
        fs::write(&file, "hellO").expect("as above");
        assert!(matches!(apt.check(packages[0]), Err(Error::Checksum { .. })));
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_named() {
        let missing =
            run("trying", "omniheap-no-such-program", ["x"], None).expect_err("no such program");
        assert!(missing.to_string().contains("omniheap-no-such-program"), "{missing}");
        let failed = run("looking", "ls", ["/nowhere/at/all"], None).expect_err("no such folder");
        assert!(failed.to_string().starts_with("looking failed with exit status"), "{failed}");
    }
}
