//! Host memory that a process may still take.
#![forbid(unsafe_code)]
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes that this process may take without swapping or being killed; `None` where the system does not say.
#[must_use]
pub fn available_host_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = control_group(&groups).and_then(|path| left_in(Path::new("/sys/fs/cgroup"), path));
    [machine, group].into_iter().flatten().min()
}

/// The bytes of `MemAvailable`.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The path of the process's control group.
fn control_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The bytes left below the tightest `memory.max` of a control group and those around it.
fn left_in(root: &Path, group: &str) -> Option<u64> {
    let mut folder: PathBuf = root.join(group);
    let mut least = None;
    while folder.starts_with(root) {
        let read =
            |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // `max` is no number, and no limit.
        if let (Some(most), Some(used)) = (read("memory.max"), read("memory.current")) {
            let left = most.saturating_sub(used);
            least = Some(least.map_or(left, |known: u64| known.min(left)));
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_figures_are_read() {
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:    12 kB\n"), Some(12 << 10));
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
        assert_eq!(control_group("1:cpu:/x\n0::/a/b\n"), Some("a/b"));
        assert_eq!(control_group("1:cpu:/x\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = std::env::temp_dir().join(format!("omniheap-groups-{}", std::process::id()));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).expect("a folder");
        let write = |folder: &Path, most: &str, used: &str| {
            fs::write(folder.join("memory.max"), most).expect("a file");
            fs::write(folder.join("memory.current"), used).expect("a file");
        };
        write(&inner, "max\n", "5\n");
        write(&root.join("a"), "100\n", "30\n");
        assert_eq!(left_in(&root, "a/b"), Some(70));
        write(&inner, "40\n", "50\n");
        assert_eq!(left_in(&root, "a/b"), Some(0));
        fs::remove_dir_all(&root).expect("the folder");
    }
}
