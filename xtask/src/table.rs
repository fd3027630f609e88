//! The conformance table, written from results and never by hand.
use crate::root;
use crate::step::Outcome;
use core::fmt::Write as _;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- conformance table: begin -->\n";
const END: &str = "<!-- conformance table: end -->";
/// Fields kept of each run.
const KEPT: [&str; 8] =
    ["label", "backend", "device", "driver", "passed", "failed", "refused", "known"];

fn store() -> PathBuf {
    root().join("docs/results/conformance.json")
}

fn document() -> PathBuf {
    root().join("docs/conformance.md")
}

/// Adds the results in `files` to what is kept, and writes the table.
pub(crate) fn write(files: &[String]) -> Outcome {
    let mut runs = stored()?;
    for file in files {
        let run = parse(&read(Path::new(file))?, file)?;
        let (kept, label) = (keep(&run, file)?, run["label"].clone());
        runs.retain(|known| known["label"] != label || known["device"] != kept["device"]);
        runs.push(kept);
    }
    runs.sort_by_key(|run| (text(run, "backend"), text(run, "label"), text(run, "device")));
    let lines: Vec<String> = runs.iter().map(ToString::to_string).collect();
    save(&store(), &format!("[\n{}\n]\n", lines.join(",\n")))?;
    let path = document();
    let old = read(&path)?;
    save(&path, &replaced(&old, &table(&runs), &path)?)
}

/// Fails when the table was written by hand.
pub(crate) fn check() -> Outcome {
    let wanted = table(&stored()?);
    let path = document();
    let old = read(&path)?;
    if replaced(&old, &wanted, &path)? == old {
        return Ok(());
    }
    Err(format!("{}: run `cargo xtask conformance-table`", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(text: &str, from: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{from}: {error}"))
}

fn stored() -> Result<Vec<Value>, String> {
    match parse(&read(&store())?, "docs/results/conformance.json")? {
        Value::Array(runs) => Ok(runs),
        _ => Err("docs/results/conformance.json: a list of runs is expected".into()),
    }
}

fn keep(run: &Value, file: &str) -> Result<Value, String> {
    let mut kept = Map::new();
    for key in KEPT {
        let value =
            run.get(key).ok_or(format!("{file}: no `{key}`; is it a result of the suite?"))?;
        kept.insert(key.into(), value.clone());
    }
    let ran: u64 = KEPT[4..].iter().filter_map(|key| run[*key].as_u64()).sum();
    if run["total"].as_u64() != Some(ran) {
        return Err(format!("{file}: {ran} of {} cases ran; only whole runs count", run["total"]));
    }
    Ok(json!(kept))
}

fn text(run: &Value, key: &str) -> String {
    run[key].as_str().unwrap_or_default().to_owned()
}

fn table(runs: &[Value]) -> String {
    let mut out = String::from(
        "| backend | device | driver | passed | refused as documented | known failures | failed |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for run in runs {
        let (backend, label) = (text(run, "backend"), text(run, "label"));
        let shown = if backend == label { backend } else { format!("{backend} (`{label}`)") };
        let _ = writeln!(
            out,
            "| {shown} | {} | {} | {} | {} | {} | {} |",
            quoted(&text(run, "device")),
            quoted(&text(run, "driver")),
            run["passed"],
            run["refused"],
            run["known"],
            run["failed"]
        );
    }
    out
}

/// Returns a name whose words with an underscore, which Markdown would take for emphasis, are set as code.
fn quoted(name: &str) -> String {
    let word = |word: &str| if word.contains('_') { format!("`{word}`") } else { word.to_owned() };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn replaced(old: &str, table: &str, path: &Path) -> Result<String, String> {
    let missing = || format!("{}: the markers of the conformance table are gone", path.display());
    let (before, rest) = old.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let old = format!("a\n{BEGIN}| old |\n{END}\nb\n");
        let new = replaced(&old, "| new |\n", Path::new("x")).expect("both markers");
        assert_eq!(new, format!("a\n{BEGIN}| new |\n{END}\nb\n"));
        assert!(replaced("nothing", "", Path::new("x")).is_err());
    }

    #[test]
    fn names_with_underscores_are_code() {
        assert_eq!(quoted("NVIDIA H200 (sm_90)"), "NVIDIA H200 `(sm_90)`");
        assert_eq!(quoted("host memory"), "host memory");
    }

    #[test]
    fn a_file_that_is_no_result_is_refused() {
        assert!(keep(&json!({"label": "host"}), "f").is_err_and(|why| why.contains("backend")));
    }

    #[test]
    fn a_run_that_a_filter_shortened_does_not_count() {
        let mut run = json!({"label": "l", "backend": "b", "device": "d", "driver": "v",
            "passed": 5, "failed": 1, "refused": 2, "known": 0, "total": 8});
        assert!(keep(&run, "f").is_ok());
        run["total"] = json!(9);
        assert!(keep(&run, "f").is_err_and(|why| why.contains("8 of 9")));
    }
}
