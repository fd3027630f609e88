//! Limits from folders of made-up files and variables.
use omniheap_limits::{SystemLimits, Vendor, parse_size};
use omniheap_seam::{LimitKind, LimitValue, SystemLimit};
use std::fs;
use std::path::PathBuf;

/// A root with these files, below the folder for tests.
fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

fn read(vendor: Vendor, root: PathBuf, variables: &'static [(&str, &str)]) -> Vec<SystemLimit> {
    let get = |name: &str| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    SystemLimits::new(vendor, 1).within(root, get).read()
}

const GROUP: (&str, &str) = ("proc/self/cgroup", "1:x:/old\n0::/jobs/mine\n");

#[test]
fn variables_are_read_for_this_device_and_vendor() {
    let set = &[
        ("OMNIHEAP_LIMIT", "0=1G,1=6G"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=512M"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "9g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "3000m"),
    ];
    let found = read(Vendor::Nvidia, root("variables", &[]), set);
    let found: Vec<_> = found.iter().map(|it| (&*it.source, it.value.clone())).collect();
    assert_eq!(
        found,
        [
            ("OMNIHEAP_LIMIT", LimitValue::Bytes(6 << 30)),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", LimitValue::Bytes(512 << 20)),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", LimitValue::Bytes(3000 << 20)),
        ]
    );
    assert_eq!(read(Vendor::Any, root("any", &[]), set).len(), 1, "the others are not for it");
    let elsewhere = &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G"), ("OMNIHEAP_LIMIT", " ")];
    assert_eq!(read(Vendor::Nvidia, root("elsewhere", &[]), elsewhere), []);
}

#[test]
fn damaged_variables_are_listed_as_unreadable() {
    for (name, text) in [
        ("OMNIHEAP_LIMIT", "much"),
        ("OMNIHEAP_LIMIT", "0"),
        ("OMNIHEAP_LIMIT", "1=,0=4G"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "8G"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "99999999999g"),
    ] {
        let get = move |key: &str| (key == name).then(|| text.to_owned());
        let limits = SystemLimits::new(Vendor::Nvidia, 1).within("/nowhere", get).read();
        assert!(
            matches!(&*limits, [SystemLimit { value: LimitValue::Unreadable(_), .. }]),
            "{text}"
        );
    }
}

#[test]
fn groups_above_count_and_the_least_region_does() {
    let files = [
        GROUP,
        ("sys/fs/cgroup/jobs/mine/dmem.max", "nvidia/0000:01:00.0/vidmem max\ndrm/x/vram0 5\n"),
        (
            "sys/fs/cgroup/jobs/dmem.max",
            "nvidia/0000:01:00.0/vidmem 700\nnvidia/0000:02:00.0/vidmem 300\n",
        ),
        ("sys/fs/cgroup/jobs/mine/dmem.low", "nvidia/0000:01:00.0/vidmem 200\n"),
        ("sys/fs/cgroup/jobs/dmem.low", "nvidia/0000:01:00.0/vidmem 0\n"),
        ("dmem.max", "nvidia/0000:01:00.0/vidmem 1\n"),
    ];
    let found = read(Vendor::Nvidia, root("groups", &files), &[]);
    let found: Vec<_> = found.iter().map(|it| (it.kind, it.value.clone())).collect();
    let (hard, soft) = (LimitKind::Hard, LimitKind::Soft);
    assert_eq!(
        found,
        [
            (hard, LimitValue::Unlimited),
            (hard, LimitValue::Bytes(300)),
            (soft, LimitValue::Bytes(200)),
            (soft, LimitValue::Unlimited),
        ]
    );
    let amd = read(Vendor::Amd, root("groups", &files), &[]);
    assert_eq!(amd.iter().map(|it| &it.value).collect::<Vec<_>>(), [&LimitValue::Bytes(5)]);
}

#[test]
fn absent_unreadable_and_damaged_files_say_so_or_nothing() {
    assert_eq!(read(Vendor::Nvidia, root("absent", &[GROUP]), &[]), []);
    assert_eq!(read(Vendor::Nvidia, root("old", &[("proc/self/cgroup", "1:x:/old\n")]), &[]), []);
    let outside = [("proc/self/cgroup", "0::/../../etc\n"), ("etc/dmem.max", "nvidia/a 1\n")];
    assert_eq!(read(Vendor::Nvidia, root("outside", &outside), &[]), []);
    let damaged = [GROUP, ("sys/fs/cgroup/jobs/mine/dmem.max", "nvidia/a lots\nnvidia/b\n\u{0}")];
    let found = read(Vendor::Nvidia, root("damaged", &damaged), &[]);
    assert!(matches!(&*found, [SystemLimit { value: LimitValue::Unreadable(_), .. }]), "{found:?}");
    // A folder cannot be read as a file, whoever tries.
    let folder = root("folder", &[GROUP, ("sys/fs/cgroup/jobs/mine/dmem.max/x", "")]);
    let found = read(Vendor::Nvidia, folder, &[]);
    assert!(matches!(&*found, [SystemLimit { value: LimitValue::Unreadable(_), .. }]), "{found:?}");
}

#[test]
fn sizes_have_binary_suffixes() {
    for (text, bytes) in
        [("1", 1), ("2k", 2 << 10), ("3 MB", 3 << 20), ("4GiB", 4 << 30), ("1t", 1 << 40)]
    {
        assert_eq!(parse_size(text), Some(bytes), "{text}");
    }
    for wrong in ["", "-1", "1.5G", "G", "0", "17000000t", "1gg", "0x10"] {
        assert_eq!(parse_size(wrong), None, "{wrong}");
    }
}
