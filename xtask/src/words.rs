//! The core names no vendor: whole words, in code and in comments.
use crate::step::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

const VENDORS: [&str; 8] = ["cuda", "hip", "vulkan", "wgpu", "metal", "nvidia", "amd", "intel"];

/// Searches every file of the core.
pub(crate) fn check(folder: &Path) -> Outcome {
    let mut found = Vec::new();
    for path in files(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for (at, line) in text.lines().enumerate() {
            if let Some(word) = vendor_in(line) {
                found.push(format!("{}:{}: {word}", path.display(), at + 1));
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    found.iter().for_each(|line| println!("    {line}"));
    Err(format!("the core names a vendor {} times", found.len()))
}

fn vendor_in(line: &str) -> Option<&'static str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find_map(|word| VENDORS.into_iter().find(|vendor| word.eq_ignore_ascii_case(vendor)))
}

/// Returns all files of a folder and its subfolders, sorted.
pub(crate) fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::vendor_in;

    #[test]
    fn whole_words_in_any_case_are_found() {
        assert_eq!(vendor_in("// as Vulkan does"), Some("vulkan"));
        assert_eq!(vendor_in("use hip::Device;"), Some("hip"));
    }

    #[test]
    fn parts_of_words_are_not() {
        assert_eq!(vendor_in("chip, ownership, cuda_like, amdahl"), None);
    }
}
