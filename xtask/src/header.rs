//! `cargo xtask header`: the C header, generated from the crate that exports the functions.
use crate::root;
use crate::step::Outcome;
use std::fs;

const CRATE: &str = "bindings/c";
const HEADER: &str = "bindings/c/include/omniheap.h";

/// Writes the header.
pub(crate) fn write() -> Outcome {
    let path = root().join(HEADER);
    fs::write(&path, generate()?).map_err(|error| format!("{HEADER}: {error}"))?;
    println!("{}", path.display());
    Ok(())
}

/// Returns whether the header in the repository is the one that the crate gives.
pub(crate) fn check() -> Outcome {
    let held =
        fs::read_to_string(root().join(HEADER)).map_err(|error| format!("{HEADER}: {error}"))?;
    let made = generate()?;
    let differs = held.lines().zip(made.lines()).position(|(held, made)| held != made);
    match differs {
        None if held == made => Ok(()),
        at => Err(format!(
            "{HEADER} differs from the crate at line {}; run `cargo xtask header` and commit it",
            at.unwrap_or(held.lines().count().min(made.lines().count())) + 1
        )),
    }
}

fn generate() -> Result<String, String> {
    let folder = root().join(CRATE);
    let bindings = cbindgen::generate(folder).map_err(|error| format!("cbindgen: {error}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|_| "cbindgen wrote something that is not UTF-8".into())
}
