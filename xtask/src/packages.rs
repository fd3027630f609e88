//! Checks of packages: those for users can be published, no test lies where cargo does not look for tests, and every build has the same
//! features.
use crate::step::{Outcome, status};
use crate::words::files;
use crate::{WORKSPACE, cargo, root, target};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Folders of what is not the product: the laboratory, and what is never shipped.
const BESIDE: [&str; 5] = ["benches", "examples", "lab", "tests", "xtask"];

/// A crate that is published.
pub(crate) struct Package {
    name: String,
    folder: PathBuf,
    has_library: bool,
    /// Crates of the workspace that are published before it.
    needs: Vec<String>,
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
    if let Some((name, need)) = unpublished(&packages) {
        return Err(format!("{name} depends on {need}, which is not published"));
    }
    // Without a lock file: to write those, cargo asks the registry for most of a minute.
    let options = ["--quiet", "--no-verify", "--allow-dirty", "--exclude-lockfile"];
    let mut command = cargo(&["package"]);
    command.args(options).arg("--target-dir").arg(target().join("packages"));
    command.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    // Cargo warns of examples that are left out on purpose; errors are shown.
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

/// Checks that libraries and programs with `test = false`, which saves building them for tests, have no tests, or that another package
/// of the same sources runs them.
pub(crate) fn check_tests() -> Outcome {
    let packages = listed()?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let tested: Vec<_> = targets.clone().filter_map(|it| tested(it)?.canonicalize().ok()).collect();
    let is_tested = |source: &&Path| source.canonicalize().is_ok_and(|it| tested.contains(&it));
    for source in targets.filter_map(untested).filter(|source| !is_tested(source)) {
        let folder = source.parent().unwrap_or(source);
        for path in files(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            if text.contains("#[test]") {
                let shown = path.display();
                return Err(format!("{shown}: its package has `test = false`: remove that"));
            }
        }
    }
    Ok(())
}

/// Checks that tests enable no features that a build without tests lacks: `cargo doc` and `cargo build` would build what has them again,
/// and all that depends on it, for minutes.
pub(crate) fn check_features() -> Outcome {
    let (without, with) = (features("normal,build")?, features("normal,build,dev")?);
    match without.difference(&with).next() {
        None => Ok(()),
        Some(other) => Err(format!(
            "{other}: it has more features where tests are built; name the development dependency that enables them in \
             benches/defragment/Cargo.toml too"
        )),
    }
}

/// Checks that nothing of the product depends on the laboratory.
pub(crate) fn check_laboratory() -> Outcome {
    let mut packages = listed()?;
    for apart in ["bindings/gpu-allocator", "tools/overlay"] {
        packages.extend(listed_of(&root().join(apart).join("Cargo.toml"))?);
    }
    let found: Vec<String> =
        packages.iter().flat_map(|package| ahead_of_itself(package, &root())).collect();
    match found.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{first}; what programs need of the laboratory belongs to a crate of the product"
        )),
    }
}

/// Returns what a package depends on in the laboratory, unless it is of the laboratory itself or never shipped.
fn ahead_of_itself(package: &Value, root: &Path) -> Vec<String> {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    if BESIDE.iter().any(|folder| manifest.starts_with(root.join(folder))) {
        return Vec::new();
    }
    let in_lab = |one: &&Value| {
        one["path"].as_str().is_some_and(|path| Path::new(path).starts_with(root.join("lab")))
    };
    let found = package["dependencies"].as_array().into_iter().flatten().filter(in_lab);
    found.map(|one| format!("{} depends on {}", package["name"], one["name"])).collect()
}

/// Returns every package that is built along such edges, with its features.
fn features(edges: &str) -> Result<BTreeSet<String>, String> {
    let mut command =
        cargo(&["tree", "--prefix", "none", "--format", "{p} [{f}]", "--edges", edges]);
    let output = command.args(WORKSPACE).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

/// Returns the root file of a library or program that cargo does not test.
fn untested(target: &Value) -> Option<&Path> {
    root_of(target).filter(|_| target["test"] == false)
}

/// Returns the root file of a library or program that cargo tests.
fn tested(target: &Value) -> Option<&Path> {
    root_of(target).filter(|_| target["test"] == true)
}

fn root_of(target: &Value) -> Option<&Path> {
    let kinds = target["kind"].as_array()?;
    let is_code = kinds.iter().any(|kind| kind == "lib" || kind == "rlib" || kind == "bin");
    target["src_path"].as_str().map(Path::new).filter(|_| is_code)
}

/// Returns what cargo says of every package of the workspace.
fn listed() -> Result<Vec<Value>, String> {
    listed_of(&root().join("Cargo.toml"))
}

/// Returns what cargo says of every package of a manifest's workspace.
fn listed_of(manifest: &Path) -> Result<Vec<Value>, String> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--no-deps", "--manifest-path"]);
    command.arg(manifest);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let mut metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata lists no packages".into()),
    }
}

/// Returns the crates of the workspace that are not marked `publish = false`.
pub(crate) fn published() -> Result<Vec<Package>, String> {
    let packages = listed()?;
    let package = |one: &Value| {
        let manifest = Path::new(one["manifest_path"].as_str()?);
        let is_published = one["publish"].is_null();
        let (name, folder) = (one["name"].as_str()?.to_owned(), manifest.parent()?.to_owned());
        let targets = one["targets"].as_array()?.iter();
        let mut kinds = targets.filter_map(|target| target["kind"].as_array()).flatten();
        let has_library = kinds.any(|kind| kind == "lib");
        let dependencies = one["dependencies"].as_array()?.iter();
        let needed = dependencies.filter(|one| is_needed(one));
        let needs = needed.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect();
        is_published.then_some(Package { name, folder, has_library, needs })
    };
    Ok(packages.iter().filter_map(package).collect())
}

/// Returns whether a dependency is of the workspace, and stays in what is published: cargo leaves out those for tests that have no version.
fn is_needed(dependency: &Value) -> bool {
    !dependency["path"].is_null() && (dependency["kind"] != "dev" || dependency["req"] != "*")
}

/// Returns a published crate, and one that it needs and that is not published.
fn unpublished(packages: &[Package]) -> Option<(&str, &str)> {
    let is_published = |need: &str| packages.iter().any(|package| package.name == need);
    let missing = |package: &'_ Package| package.needs.iter().position(|need| !is_published(need));
    packages.iter().find_map(|one| Some((&*one.name, &*one.needs[missing(one)?])))
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
    use super::{Package, ahead_of_itself, included, is_needed, leaves, unpublished, untested};
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn a_crate_that_needs_one_that_is_not_published_is_found() {
        let package = |name: &str, need: &str| Package {
            name: name.into(),
            folder: "/".into(),
            has_library: true,
            needs: vec![need.into()],
        };
        let all = [package("a", "b"), package("b", "a"), package("c", "d")];
        assert_eq!(unpublished(&all[..2]), None);
        assert_eq!(unpublished(&all), Some(("c", "d")));
    }

    #[test]
    fn a_version_keeps_a_dependency_of_tests_in_what_is_published() {
        let of = |path: Option<&str>, kind: Option<&str>, req: &str| {
            is_needed(&json!({"path": path, "kind": kind, "req": req}))
        };
        assert!(of(Some("/a"), None, "^0.1.0") && of(Some("/a"), Some("build"), "^0.1.0"));
        assert!(of(Some("/a"), Some("dev"), "^0.1.0"));
        assert!(!of(Some("/a"), Some("dev"), "*") && !of(None, None, "^0.1.0"));
    }

    #[test]
    fn libraries_and_programs_that_cargo_does_not_test_are_found() {
        let of = |kind: &str, test: bool| {
            untested(&json!({"kind": [kind], "test": test, "src_path": "/a/src/lib.rs"})).is_some()
        };
        assert!(of("lib", false) && of("rlib", false) && of("bin", false));
        assert!(!of("lib", true) && !of("example", false) && !of("custom-build", false));
    }

    #[test]
    fn what_depends_on_the_laboratory_is_found_outside_of_it() {
        let of = |folder: &str, need: &str| {
            let manifest = format!("/w/{folder}/Cargo.toml");
            let need = json!({"name": "need", "path": format!("/w/{need}"), "kind": "dev"});
            let package = json!({"name": "own", "manifest_path": manifest, "dependencies": [need]});
            ahead_of_itself(&package, Path::new("/w"))
        };
        assert_eq!(of("core/manager", "lab/plan"), ["\"own\" depends on \"need\""]);
        assert_eq!(of(".", "lab/fit").len(), 1);
        assert!(
            of("core/manager", "core/seam").is_empty() && of("core/a", "laboratory").is_empty()
        );
        assert!(of("lab/cli", "lab/plan").is_empty() && of("tests/fuzz", "lab/plan").is_empty());
    }

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
