//! Limits of the own cgroup: `dmem.max` and `dmem.low`, of it and of those above it.

use omniheap_seam::{LimitKind, LimitValue, SystemLimit};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read: a line for each region of a machine is far less.
const MOST: usize = 64 << 10;
/// Groups above the own one that are looked at.
const DEPTH: usize = 64;

/// Reads the limits of all regions whose name starts with `region`.
pub(crate) fn read(root: &Path, region: &str) -> Vec<SystemLimit> {
    let Some(own) = own_group(root) else { return Vec::new() };
    let top = root.join("sys/fs/cgroup");
    let groups = own.ancestors().take(DEPTH).take_while(|group| group.starts_with(&top));
    let files = [("dmem.max", LimitKind::Hard), ("dmem.low", LimitKind::Soft)];
    let groups: Vec<_> = groups.map(Path::to_path_buf).collect();
    let each = files.into_iter().flat_map(|(name, kind)| {
        groups.iter().filter_map(move |group| of_file(&group.join(name), kind, region))
    });
    each.collect()
}

/// Returns the folder of the own cgroup of version 2; `None` where there is none.
fn own_group(root: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A path with `..` is that of a group outside the own namespace, which cannot be looked at.
    let is_inside = !path.split('/').any(|part| part == "..");
    is_inside.then(|| root.join("sys/fs/cgroup").join(path.trim_start_matches('/')))
}

/// Reads one file; `None` where it does not exist or has no such region.
fn of_file(path: &Path, kind: LimitKind, region: &str) -> Option<SystemLimit> {
    let made = |name: &str, value| {
        let source = format!("{}{}{name}", path.display(), if name.is_empty() { "" } else { " " });
        Some(SystemLimit { source, kind, value })
    };
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return made("", LimitValue::Unreadable(error.to_string())),
    };
    let lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let own = lines.filter(|(name, _)| name.starts_with(region));
    // The process cannot always tell which region belongs to which device: the least of them is safe for every one.
    let (name, value) = own
        .map(|(name, value)| (name.to_owned(), value_of(value.trim(), kind)))
        .min_by_key(|(_, value)| order(value))?;
    made(&name, value)
}

fn value_of(text: &str, kind: LimitKind) -> LimitValue {
    match (text, text.parse()) {
        ("max", _) => LimitValue::Unlimited,
        // Nothing is protected: that says nothing about how much to use.
        (_, Ok(0)) if kind == LimitKind::Soft => LimitValue::Unlimited,
        (_, Ok(bytes)) => LimitValue::Bytes(bytes),
        _ => LimitValue::Unreadable(format!("{text:?} is neither a number of bytes nor max")),
    }
}

fn order(value: &LimitValue) -> (u8, u64) {
    match value {
        LimitValue::Bytes(bytes) => (0, *bytes),
        LimitValue::Unreadable(_) => (1, 0),
        _ => (2, 0),
    }
}
