//! `cargo xtask gpu-bundle`: one folder that runs on a machine with a GPU and without Rust.
use crate::{cargo, root, step};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Paths of the Vulkan loader on Debian, Ubuntu, Fedora and Arch.
const LOADERS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/libvulkan.so.1",
    "/usr/lib64/libvulkan.so.1",
    "/usr/lib/libvulkan.so.1",
];

const ICD: &str = r#"{
  "file_format_version": "1.0.0",
  "ICD": { "library_path": "libEGL_nvidia.so.0", "api_version": "1.3.0" }
}
"#;

const RUN: &str = r#"#!/usr/bin/env bash
# Without arguments: every test binary, one line each, output under logs/. With arguments: the command `omniheap`, which has
# `omniheap-lab` beside it.
set -uo pipefail
cd "$(dirname "$0")"
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OMNIHEAP_COMMAND="$PWD/omniheap"
export VK_DRIVER_FILES="${VK_DRIVER_FILES:-$PWD/icd.json}"
export VK_ICD_FILENAMES="${VK_ICD_FILENAMES:-$VK_DRIVER_FILES}"
if [ "$#" -gt 0 ]; then
    exec ./omniheap "$@"
fi
mkdir -p logs
failed=0
for binary in tests/*; do
    name="$(basename "$binary")"
    if "$binary" >"logs/$name.txt" 2>&1; then
        verdict=ok
    else
        verdict=FAILED
        failed=$((failed + 1))
    fi
    printf '%-8s %-48s %s\n' "$verdict" "$name" "$(grep -h '^test result' "logs/$name.txt" | tail -n 1)"
done
exit "$((failed > 0))"
"#;

/// Builds and gathers. `packages` limits the test binaries; without them, all are taken.
pub(crate) fn run(packages: &[String]) -> Result<(), String> {
    let folder = root().join(".gpu");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| text(&folder, &error))?;
    }
    for part in ["tests", "lib"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(|error| text(&part, &error))?;
    }
    let commands = ["-p", "omniheap-cli", "-p", "omniheap-lab", "--all-features"];
    let mut build = cargo(&[&["build", "--release"][..], &commands].concat());
    for (name, path) in executables(&mut build)? {
        copy(&path, &folder.join(name))?;
    }
    let mut tests = cargo(&["test", "--release", "--no-run"]);
    match packages {
        [] => tests.arg("--workspace"),
        some => tests.args(some.iter().flat_map(|package| ["-p", package])),
    };
    for (name, path) in executables(&mut tests)? {
        if path.file_stem().is_some_and(|stem| stem == name.as_str()) {
            // A command that tests call; it carries no hash in its name.
            continue;
        }
        copy(&path, &folder.join("tests").join(name))?;
    }
    match LOADERS.iter().map(Path::new).find(|path| path.exists()) {
        Some(loader) => copy(loader, &folder.join("lib/libvulkan.so.1"))?,
        None => println!("no Vulkan loader here: install libvulkan1 and run this again"),
    }
    write(&folder.join("icd.json"), ICD)?;
    write(&folder.join("run.sh"), RUN)?;
    step::status("chmod", Command::new("chmod").arg("+x").arg(folder.join("run.sh")))?;
    println!("{}", folder.display());
    Ok(())
}

/// Runs a cargo command that builds, and returns what it built: a name for each and where it lies.
fn executables(command: &mut Command) -> Result<Vec<(String, PathBuf)>, String> {
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo: {}", output.status));
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(messages.filter_map(|message| executable(&message)).collect())
}

fn executable(message: &Value) -> Option<(String, PathBuf)> {
    let path = PathBuf::from(message.get("executable")?.as_str()?);
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    if kind != "test" && message["profile"]["test"] != true {
        // Examples come along with tests; only the command is wanted.
        return (kind == "bin").then(|| (target.to_owned(), path));
    }
    // `path+file:///…/core#omniheap-core@0.1.0`, or without a name where the folder has it.
    let (place, version) = message["package_id"].as_str()?.rsplit_once('#')?;
    let folder = place.rsplit('/').next()?;
    let package = version.split_once('@').map_or(folder, |(name, _)| name);
    let part = if kind == "test" { target } else { kind };
    Some((format!("{package}-{part}"), path))
}

/// Copies a file, without the symbols that only debuggers read.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|error| text(from, &error))?;
    // A machine without `strip` carries a larger bundle.
    let _ = Command::new("strip").arg("--strip-debug").arg(to).stderr(Stdio::null()).status();
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    fs::write(path, content).map_err(|error| text(path, &error))
}

fn text(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::executable;
    use serde_json::json;
    use std::path::PathBuf;

    fn named(kind: &str, name: &str, test: bool, package: &str) -> Option<String> {
        let message = json!({
            "executable": "/t/deps/x-1",
            "target": { "name": name, "kind": [kind] },
            "profile": { "test": test },
            "package_id": package,
        });
        executable(&message).map(|(name, path)| {
            assert_eq!(path, PathBuf::from("/t/deps/x-1"));
            name
        })
    }

    #[test]
    fn test_binaries_are_named_after_their_package() {
        let core = "path+file:///w/core#omniheap-core@0.1.0";
        assert_eq!(named("lib", "omniheap_core", true, core), Some("omniheap-core-lib".into()));
        assert_eq!(named("test", "device", true, core), Some("omniheap-core-device".into()));
        let short = "path+file:///w/xtask#0.1.0";
        assert_eq!(named("bin", "xtask", true, short), Some("xtask-bin".into()));
    }

    #[test]
    fn commands_keep_their_name_and_examples_stay_behind() {
        let root = "path+file:///w#omniheap@0.1.0";
        assert_eq!(named("bin", "omniheap", false, root), Some("omniheap".into()));
        assert_eq!(named("example", "01_allocate", false, root), None);
    }
}
