//! `cargo xtask bite`: proves that the suite, the tests of processes and the small worlds catch bugs, by planting them in a copy of the tree.
use crate::planted::{BEDS, Bed, Planted};
use crate::step::{Outcome, status};
use crate::{cargo, root, target};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Switch for one bug of the lists, in a copy that has them all.
const SWITCH: &str = "
extern crate std;
/// Whether the bug with this number is the one of this run.
pub(crate) fn is_planted(number: usize) -> bool {
    static WHICH: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *WHICH.get_or_init(|| std::env::var(\"OMNIHEAP_PLANTED\").ok()?.parse().ok()) == Some(number)
}
";

/// Plants every bug, or those whose name contains `only`, and runs the case that must catch it.
pub(crate) fn run(only: &str) -> Outcome {
    let built = build()?;
    let mut missed = Vec::new();
    let mut sound = BTreeSet::new();
    for (number, bed, bug) in all().filter(|(.., bug)| bug.name.contains(only)) {
        let suite = built.get(bed.binary).ok_or(format!("cargo built no {}", bed.binary))?;
        let case = name_of(&bed, bug);
        if sound.insert((bed.binary, bug.case)) && !passes(suite, &case, None)? {
            return Err(format!("{} does not pass without a bug", bug.case));
        }
        let is_caught = !passes(suite, &case, Some(number))?;
        println!("    {} {}", if is_caught { "caught:" } else { "MISSED:" }, bug.name);
        if !is_caught {
            missed.push(format!("{} by {}", bug.name, bug.case));
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join("; "))) }
}

/// Every bug with its number and its bed.
fn all() -> impl Iterator<Item = (usize, Bed, &'static Planted)> {
    let bugs = BEDS.into_iter().flat_map(|bed| bed.bugs.iter().map(move |bug| (bed, bug)));
    bugs.enumerate().map(|(number, (bed, bug))| (number, bed, bug))
}

/// Builds the tests of host memory over a copy of the tree with every bug; returns where each binary is.
fn build() -> Result<BTreeMap<String, PathBuf>, String> {
    let tree = target().join("bite/tree");
    copy(&tree)?;
    for (number, bed, bug) in all() {
        plant(&tree.join(bed.folder).join(bug.file), bug, number)?;
    }
    for folder in BEDS.map(|bed| bed.folder).into_iter().collect::<BTreeSet<_>>() {
        let library = tree.join(folder).join("lib.rs");
        let text = read(&library)? + SWITCH;
        save(&library, &text)?;
    }
    let mut command = cargo(&["test", "--no-run", "--message-format=json"]);
    command.args(["-p", "omniheap-host", "-p", "omniheap-model", "-p", "omniheap-exhaustive"]);
    for binary in BEDS.map(|bed| bed.binary).into_iter().collect::<BTreeSet<_>>() {
        command.args(["--test", binary]);
    }
    command.current_dir(&tree);
    // The edits are short, not pretty.
    command
        .env("RUSTFLAGS", "--cap-lints allow")
        .env("CARGO_TARGET_DIR", target().join("bite/built"));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the copy with planted bugs does not build".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let binary = |message: serde_json::Value| {
        let path = message["executable"].as_str().map(PathBuf::from)?;
        Some((message["target"]["name"].as_str()?.to_owned(), path))
    };
    Ok(messages.filter_map(binary).collect())
}

/// Copies what git knows of the working tree.
fn copy(tree: &Path) -> Outcome {
    let last = tree.with_extension("last");
    let fails = |error: std::io::Error| format!("{}: {error}", tree.display());
    if last.exists() {
        fs::remove_dir_all(&last).map_err(fails)?;
    }
    if tree.exists() {
        fs::rename(tree, &last).map_err(fails)?;
    }
    fs::create_dir_all(tree).map_err(fails)?;
    let listed = "git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{listed} | tar -x -C \"$1\"",), "sh"]).arg(tree);
    status("copying the working tree", command.current_dir(root()))?;
    keep_ages(tree, &last).map_err(fails)
}

/// Keeps the age of files that are as they were in the last copy; all others are new. Cargo builds again what is
/// younger than its last build, and a file that was changed while that build ran is older.
fn keep_ages(tree: &Path, last: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(tree)? {
        let path = entry?.path();
        let last = last.join(path.file_name().unwrap_or_default());
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            keep_ages(&path, &last)?;
            continue;
        }
        let is_same = fs::read(&last).is_ok_and(|last| fs::read(&path).is_ok_and(|it| it == last));
        let age = if is_same { fs::metadata(&last)?.modified()? } else { SystemTime::now() };
        fs::File::options().append(true).open(&path)?.set_modified(age)?;
    }
    Ok(())
}

/// Replaces the right text by the wrong one.
fn plant(path: &Path, bug: &Planted, number: usize) -> Outcome {
    let text = read(path)?;
    // Two bugs may share a line: the first one's text is still there, inside its other branch.
    let wrong = bug.wrong.replace("PLANTED", &format!("crate::is_planted({number})"));
    if !text.contains(bug.right) {
        return Err(format!("{}: the place in {} is gone: choose another", bug.name, bug.file));
    }
    save(path, &text.replacen(bug.right, &wrong, 1))
}

/// The arguments that name a case in its binary. A world is named in full: the names of others contain it.
fn name_of(bed: &Bed, bug: &Planted) -> Vec<String> {
    match bed.binary {
        "lanes" => Vec::from(["--exact".to_owned(), format!("explored::{}", bug.case)]),
        _ => Vec::from([bug.case.to_owned()]),
    }
}

/// Whether the case passes in every mode; with a bug, or without one.
fn passes(suite: &Path, case: &[String], bug: Option<usize>) -> Result<bool, String> {
    let mut command = Command::new(suite);
    command.args(case).arg("--quiet").stdout(Stdio::piped()).stderr(Stdio::null());
    command.env_remove("OMNIHEAP_PLANTED");
    if let Some(number) = bug {
        command.env("OMNIHEAP_PLANTED", number.to_string());
    }
    let output = command.output().map_err(|error| format!("{}: {error}", suite.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && !said.contains(" 0 passed") {
        return Ok(true);
    }
    if said.contains("failed") || !output.status.success() {
        return Ok(false);
    }
    Err(format!("{case:?}: no case has this name, or none can run on host memory"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything in a folder of sources, as one text.
    fn texts(folder: &str) -> String {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        entries.map(|entry| read(&entry.expect("it can be listed").path()).expect("text")).collect()
    }

    #[test]
    fn a_copy_is_as_old_as_the_last_one_where_it_is_the_same_and_new_where_not() {
        let folder = std::env::temp_dir().join(format!("omniheap-ages-{}", std::process::id()));
        let [last, tree] = ["last", "tree"].map(|name| folder.join(name));
        let old = SystemTime::UNIX_EPOCH + core::time::Duration::from_secs(1000);
        for (folder, changed) in [(&last, "before"), (&tree, "after")] {
            fs::create_dir_all(folder.join("inner")).expect("a folder");
            for (name, text) in [("same", "text"), ("inner/changed", changed)] {
                save(&folder.join(name), text).expect("a file");
                let file = fs::File::options().append(true).open(folder.join(name));
                file.and_then(|file| file.set_modified(old)).expect("a file");
            }
        }
        keep_ages(&tree, &last).expect("both are there");
        let age = |name: &str| fs::metadata(tree.join(name)).and_then(|about| about.modified());
        assert_eq!(age("same").expect("a file"), old);
        assert!(age("inner/changed").expect("a file") > old);
        fs::remove_dir_all(folder).expect("it can be removed");
    }

    #[test]
    fn every_bug_has_one_place_and_a_case() {
        let cases = texts("tests/conformance/src/cases");
        let model = ["order", "manager", "stream"].map(|name| format!("tests/model/tests/{name}"));
        let model: String = model.iter().map(|folder| texts(folder)).collect();
        let tests =
            texts("backends/host/tests/host") + &model + &texts("tests/exhaustive/tests/arbiter");
        let worlds = texts("tests/exhaustive/tests/lanes");
        for (_, bed, bug) in all() {
            let text = read(&root().join(bed.folder).join(bug.file)).expect(bug.name);
            assert_eq!(text.matches(bug.right).count(), 1, "{}: {}", bug.name, bug.right);
            assert!(bug.wrong.contains("PLANTED"), "{} can be switched off", bug.name);
            let is_there = match bed.binary {
                "conformance" => cases.contains(&format!("fn {}<", bug.case)),
                "lanes" => worlds.contains(&format!("\n    {} to ", bug.case)),
                _ => tests.contains(&format!("fn {}(", bug.case)),
            };
            assert!(is_there, "{}: {}", bug.name, bug.case);
        }
    }
}
