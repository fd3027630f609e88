//! Checks that every crate that is meant for users can be published.
use crate::step::{Outcome, status};
use crate::words::files;
use crate::{cargo, target};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A crate that is published.
pub(crate) struct Package {
    name: String,
    folder: PathBuf,
    has_library: bool,
}

impl Package {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of its manifest.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether other crates can depend on it.
    pub(crate) fn has_library(&self) -> bool {
        self.has_library
    }
}

/// Packs every crate, without building it, and checks that no source file includes a file of another package.
pub(crate) fn check() -> Outcome {
    let packages = published()?;
    let mut command = cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"]);
    command.arg("--target-dir").arg(target().join("packages"));
    command.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    // It warns of examples that are left out on purpose; errors are shown.
    status("cargo package", command.stdout(Stdio::null()))?;
    let mut outside = Vec::new();
    for Package { folder, .. } in &packages {
        let source = folder.join("src");
        let paths = files(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
            let text =
                fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let found = included(&text).filter(|name| leaves(folder, path, name));
            outside.extend(found.map(|name| format!("{}: {name}", path.display())));
        }
    }
    outside.iter().for_each(|line| println!("    {line}"));
    match outside.len() {
        0 => Ok(()),
        count => Err(format!("{count} files are included from outside their package")),
    }
}

/// Returns the crates of the workspace that are not marked `publish = false`.
pub(crate) fn published() -> Result<Vec<Package>, String> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let package = |one: &Value| {
        let manifest = Path::new(one["manifest_path"].as_str()?);
        let is_published = one["publish"].is_null();
        let (name, folder) = (one["name"].as_str()?.to_owned(), manifest.parent()?.to_owned());
        let targets = one["targets"].as_array()?.iter();
        let mut kinds = targets.filter_map(|target| target["kind"].as_array()).flatten();
        let has_library = kinds.any(|kind| kind == "lib");
        is_published.then_some(Package { name, folder, has_library })
    };
    Ok(packages.iter().filter_map(package).collect())
}

/// Returns the paths that a source file includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let macros = ["include_str!(\"", "include_bytes!(\"", "include!(\""];
    let behind = macros.into_iter().flat_map(|start| text.split(start).skip(1));
    behind.filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
}

/// Returns whether a path in a source file leads out of its package.
fn leaves(package: &Path, file: &Path, name: &str) -> bool {
    let depth = file.strip_prefix(package).map_or(0, |inside| inside.components().count() - 1);
    name.matches("../").count() > depth
}

#[cfg(test)]
mod tests {
    use super::{included, leaves};
    use std::path::Path;

    #[test]
    fn included_files_inside_and_outside_are_told_apart() {
        let text =
            "const A: &str = include_str!(\"../kernels/a.cu\");\ninclude_bytes!(\"../../b\")";
        let names: Vec<_> = included(text).collect();
        assert_eq!(names, ["../kernels/a.cu", "../../b"]);
        let leaves = |name| leaves(Path::new("/w/cuda"), Path::new("/w/cuda/src/lib.rs"), name);
        assert!(!leaves(names[0]));
        assert!(leaves(names[1]));
    }
}
