//! `cargo xtask semver`: compares the public interface of every published library with the last release.
use crate::packages::{Package, published};
use crate::root;
use crate::step::{Outcome, status};
use std::path::Path;
use std::process::{Command, Stdio};

/// Compares with the newest tag `v…` behind this commit. Without one there is nothing to break, which is said.
pub(crate) fn check() -> Outcome {
    let Some(tag) = last_release(&root()) else {
        println!("    no tag `v…` behind this commit: there is no release to compare with");
        return Ok(());
    };
    require()?;
    let packages = published()?.into_iter().filter(Package::has_library);
    let (known, new): (Vec<_>, Vec<_>) =
        packages.partition(|package| is_in(&root(), &tag, package.folder()));
    for package in &new {
        println!("    {}: not in {tag}", package.name());
    }
    if known.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["semver-checks", "--baseline-rev", &tag]).current_dir(root());
    command.args(known.iter().flat_map(|package| ["-p", package.name()]));
    status("cargo semver-checks", &mut command)
}

/// Returns the newest tag of a release behind the current commit.
fn last_release(repository: &Path) -> Option<String> {
    let arguments = ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"];
    let told = git(repository, &arguments).output().ok()?;
    let tag = String::from_utf8(told.stdout).ok()?.trim().to_owned();
    (told.status.success() && !tag.is_empty()).then_some(tag)
}

/// Returns whether a release has a package in this folder.
fn is_in(repository: &Path, tag: &str, folder: &Path) -> bool {
    let inside = folder.strip_prefix(repository).unwrap_or(folder).join("Cargo.toml");
    let object = format!("{tag}:{}", inside.display());
    git(repository, &["cat-file", "-e", &object]).status().is_ok_and(|status| status.success())
}

fn git(repository: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(arguments).stderr(Stdio::null());
    command
}

/// Checks that the tool is installed.
fn require() -> Outcome {
    let mut probe = Command::new("cargo");
    let probe = probe.args(["semver-checks", "--version"]).stdout(Stdio::null());
    match probe.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("this needs `cargo install cargo-semver-checks --locked`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{git, is_in, last_release};
    use std::fs;
    use std::path::Path;

    fn run(repository: &Path, arguments: &[&str]) {
        let name = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
        let done = git(repository, &[&name[..], arguments].concat()).output().expect("git is here");
        assert!(done.status.success(), "{arguments:?}");
    }

    #[test]
    fn the_last_release_is_found_and_says_which_packages_it_has() {
        let repository = crate::target().join("tmp/semver-repository");
        let _ = fs::remove_dir_all(&repository);
        fs::create_dir_all(repository.join("old")).expect("the target folder can be written");
        run(&repository, &["init", "--quiet"]);
        fs::write(repository.join("old/Cargo.toml"), "").expect("as above");
        run(&repository, &["add", "."]);
        run(&repository, &["commit", "--quiet", "-m", "one"]);
        assert_eq!(last_release(&repository), None, "nothing was released");
        run(&repository, &["tag", "nightly"]);
        assert_eq!(last_release(&repository), None, "a tag of another kind is no release");
        run(&repository, &["tag", "v0.1.0"]);
        fs::create_dir_all(repository.join("new")).expect("as above");
        fs::write(repository.join("new/Cargo.toml"), "").expect("as above");
        run(&repository, &["add", "."]);
        run(&repository, &["commit", "--quiet", "-m", "two"]);
        let tag = last_release(&repository).expect("tagged");
        assert_eq!(tag, "v0.1.0");
        assert!(is_in(&repository, &tag, &repository.join("old")));
        assert!(!is_in(&repository, &tag, &repository.join("new")));
    }
}
