//! Limits that NVML tells, by a library that stands in for it (`examples/nvml_standin.rs`).
use omniheap_limits::{ProcessCount, SystemLimits, Vendor};
use omniheap_seam::{LimitKind, LimitValue, SystemLimit};
use std::path::PathBuf;

const GIB: u64 = 1 << 30;
const WHOLE: &str = "NVML, without what is reserved";

/// The stand-in, which cargo builds with the tests; `None` where this binary was copied to another machine without it.
fn built() -> Option<String> {
    let test = std::env::current_exe().expect("this test");
    let folder = test.parent().filter(|it| it.ends_with("deps"))?.parent()?.join("examples");
    let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = folder.join(format!("{start}nvml_standin{end}"));
    assert!(path.is_file(), "{}: build it with `cargo build --examples`", path.display());
    Some(path.to_str().expect("UTF-8").to_owned())
}

/// The stand-in, or a library that is not there.
fn standin() -> String {
    built().unwrap_or_else(|| "/nowhere".to_owned())
}

/// Returns true if there is a stand-in to ask; prints a line if not.
fn is_here() -> bool {
    let is_here = built().is_some();
    if !is_here {
        println!("NOT TESTED: the library that stands in for NVML is not beside this binary");
    }
    is_here
}

fn uuid(kind: u8) -> [u8; 16] {
    let rest = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
    let mut uuid = [0x88; 16];
    (uuid[0], uuid[15]) = (kind, 0x88);
    uuid[1..15].copy_from_slice(&rest);
    uuid
}

fn read(vendor: Vendor, library: String, kind: u8, total: u64) -> Vec<SystemLimit> {
    let get = move |name: &str| (name == "OMNIHEAP_NVML_LIBRARY").then(|| library.clone());
    let limits = SystemLimits::new(vendor, 0).device(Some(uuid(kind)), total);
    limits.within(PathBuf::from("/nowhere"), get).read()
}

fn told(kind: u8) -> Vec<(String, LimitValue)> {
    let all = read(Vendor::Nvidia, standin(), kind, 96 * GIB);
    assert!(all.iter().all(|it| it.kind == LimitKind::Hard));
    all.into_iter().map(|it| (it.source, it.value)).collect()
}

#[test]
fn a_gpu_is_as_large_as_what_is_not_reserved() {
    if !is_here() {
        return;
    }
    assert_eq!(told(1), [(WHOLE.to_owned(), LimitValue::Bytes(79 * GIB))]);
}

#[test]
fn what_the_driver_says_already_is_listed_and_limits_nothing() {
    if !is_here() {
        return;
    }
    for total in [79 * GIB, 78 * GIB, 80 * GIB] {
        let found = read(Vendor::Nvidia, standin(), 1, total);
        let found: Vec<_> = found.iter().map(|it| (&*it.source, &it.value)).collect();
        assert_eq!(found, [(WHOLE, &LimitValue::Unlimited)], "{total}");
    }
    let limited = read(Vendor::Nvidia, standin(), 1, 81 * GIB);
    assert_eq!(limited[0].value, LimitValue::Bytes(79 * GIB));
}

#[test]
fn a_mig_instance_is_as_large_as_itself() {
    if !is_here() {
        return;
    }
    assert_eq!(told(2), [("NVML, MIG instance".to_owned(), LimitValue::Bytes(10 * GIB))]);
}

#[test]
fn confidential_computing_leaves_what_is_protected() {
    if !is_here() {
        return;
    }
    let protected = "NVML, protected memory of confidential computing";
    let (whole, protected) = ((WHOLE, 79 * GIB), (protected, 70 * GIB));
    let expected =
        [whole, protected].map(|(name, size)| (name.to_owned(), LimitValue::Bytes(size)));
    assert_eq!(told(3), expected);
}

#[test]
fn an_error_is_listed_and_nonsense_is_not() {
    if !is_here() {
        return;
    }
    let lost = LimitValue::Unreadable("NVML answers with error 15".to_owned());
    assert_eq!(told(4), [(WHOLE.to_owned(), lost)]);
    assert_eq!(told(5), [], "more is reserved than there is");
}

#[test]
fn without_the_library_or_the_device_nothing_is_said() {
    assert_eq!(told(9), [], "another device");
    for library in ["/nowhere/libnvidia-ml.so.1", "libm.so.6", ""] {
        assert_eq!(read(Vendor::Nvidia, library.to_owned(), 1, 96 * GIB), [], "{library}");
    }
    assert_eq!(read(Vendor::Any, standin(), 1, 96 * GIB), [], "not for others");
    assert_eq!(read(Vendor::Amd, standin(), 1, 96 * GIB), [], "not for others");
}

#[test]
fn a_device_without_an_identity_is_not_looked_for() {
    let get = |name: &str| (name == "OMNIHEAP_NVML_LIBRARY").then(standin);
    assert_eq!(SystemLimits::new(Vendor::Nvidia, 0).within("/nowhere", get).read(), []);
}

#[test]
fn processes_are_counted_once_with_all_that_they_have() {
    if !is_here() {
        return;
    }
    let count = |number| ProcessCount::of(number, |_| Some(standin()));
    let first = count(0).expect("a GPU");
    let all = first.read().expect("it says");
    let of = |pid| all.iter().filter(|it| it.0 == pid).map(|it| it.1 >> 20).collect::<Vec<_>>();
    assert_eq!((all.len(), of(200), of(1000), of(7)), (201, vec![200], vec![1], vec![9]));
    assert_eq!(first.capacity(), Some(79 * GIB));
    assert!(count(1).is_none(), "a GPU that is lost");
    assert!(count(2).is_none(), "a driver that does not know what a process has");
    assert!(count(3).is_none(), "no such GPU");
    assert!(ProcessCount::of(0, |_| Some("libm.so.6".to_owned())).is_none());
}
