//! Calls below the runtime that fail, and what the backend makes of it.
//!
//! The stand-in fails the calls that `OMNIHEAP_HSA_FAIL` names, so each case is a process of its own, started by `rig`.
#![expect(unsafe_code, reason = "maps and unmaps pages")]
use crate::shared::{
    Case,
    support::{DEVICE, MAIN, Need, at, kind, read},
};
use omniheap_core::{Address, Backend, DriverBudget, ErrorKind, Export, Remap, Transfer};
use omniheap_hip::{Feature, Hip, Verdict};

/// Failing call, and the case that sees it. Opening the device uses the first call of each kind.
pub(crate) const FAULTS: &[(&str, Case)] = &[
    ("hsa_amd_vmem_map:1", ("pages_that_fail_are_quarantined", Need::Nothing, quarantined)),
    ("hsa_amd_vmem_set_access:1", ("access_that_fails_is_quarantined", Need::Nothing, quarantined)),
    ("hsa_amd_vmem_map:4", ("a_silent_map_rolls_back", Need::Nothing, rolls_back)),
    ("hsa_amd_vmem_set_access:2+", ("a_refused_access_rolls_back", Need::Nothing, stays_out)),
    ("hsa_amd_vmem_set_access:2", ("a_refused_access_is_tried_again", Need::Nothing, tries_again)),
    ("hsa_amd_vmem_handle_create:4", ("pages_come_all_or_none", Need::Nothing, all_or_none)),
    ("hsa_amd_vmem_map:2", ("a_silent_export_is_tried_elsewhere", Need::Nothing, exports)),
    ("hsa_amd_vmem_map:2+", ("a_silent_export_fails", Need::Nothing, exports_nothing)),
];

fn quarantined(hip: &Hip) {
    let found = hip.findings().iter().find(|finding| finding.feature == Feature::Pages);
    let verdict = found.map(|finding| finding.verdict);
    assert!(matches!(verdict, Some(Verdict::Quarantined(_))), "{verdict:?}");
    assert!(hip.as_remap().is_none() && hip.as_export().is_none());
    assert!(hip.caps().heaps.iter().all(|heap| heap.page.is_none()));
    let block = hip.allocate(DEVICE, 4096).expect("the rest works");
    hip.fill(MAIN, at(&block, 0), 4096, 3).expect("in range");
    assert_eq!(read(hip, &block, 4095, 1), [3]);
}

/// Maps four pages; returns what the first try and the second one said.
fn map_twice(hip: &Hip) -> [Option<ErrorKind>; 2] {
    let page = hip.caps().heaps[0].page.expect("the self-test passed").get();
    let block = hip.reserve(DEVICE, 8 * page).expect("addresses are plenty");
    let mut pages = Vec::new();
    hip.create(DEVICE, 4, &mut pages).expect("a few pages fit");
    let try_once = || {
        // SAFETY: block and pages are this case's own, and the pages are not mapped.
        let result = kind(unsafe { hip.map_pages(&block, 2, &pages) });
        let used = kind(hip.fill(MAIN, at(&block, 2 * page), 4 * page, 5));
        let expected = result.map(|_| ErrorKind::OutOfRange);
        assert_eq!(used, expected, "mapped wholly or not at all");
        if result.is_none() {
            assert_eq!(read(hip, &block, 6 * page - 1, 1), [5]);
            // SAFETY: `read` has waited.
            unsafe { hip.unmap_pages(&block, 2, 4) }.expect("mapped positions");
        }
        result
    };
    let results = [try_once(), try_once()];
    // SAFETY: the pages are this case's own, and not mapped.
    unsafe { hip.destroy(DEVICE, &pages) }.expect("the driver takes them back");
    let spoiled = results[0].map(|_| hip.address(&block));
    // SAFETY: nothing is mapped.
    unsafe { hip.free(block) }.expect("the driver takes it back");
    // AMD's runtime remembers a map that failed: nothing must ever be mapped there again.
    let next = hip.reserve(DEVICE, 8 * page).expect("addresses are plenty");
    assert_ne!(Some(hip.address(&next)), spoiled, "spoiled addresses were given back");
    // SAFETY: nothing is mapped.
    unsafe { hip.free(next) }.expect("the driver takes it back");
    results
}

fn rolls_back(hip: &Hip) {
    assert_eq!(map_twice(hip), [Some(ErrorKind::Driver), None]);
}

fn stays_out(hip: &Hip) {
    assert_eq!(map_twice(hip), [Some(ErrorKind::Driver); 2]);
}

fn tries_again(hip: &Hip) {
    assert_eq!(map_twice(hip), [None; 2]);
}

fn all_or_none(hip: &Hip) {
    let mut pages = Vec::new();
    let result = hip.create(DEVICE, 4, &mut pages);
    assert_eq!(kind(result), Some(ErrorKind::OutOfDeviceMemory));
    assert!(pages.is_empty(), "{pages:?}");
    assert_eq!(map_twice(hip), [None; 2], "and the next ones come");
}

fn exports(hip: &Hip) {
    let block = hip.allocate_exportable(DEVICE, 4096).expect("other addresses do");
    hip.fill(MAIN, at(&block, 0), 4096, 1).expect("in range");
    assert_eq!(read(hip, &block, 0, 1), [1]);
}

fn exports_nothing(hip: &Hip) {
    let used = || hip.budget(DEVICE).expect("the runtime tells").used;
    let before = used();
    assert_eq!(kind(hip.allocate_exportable(DEVICE, 4096)), Some(ErrorKind::Driver));
    // AMD's runtime keeps a page whose map failed silently: one, however often that was tried.
    let page = hip.caps().heaps[0].page.expect("the self-test passed").get();
    assert!(used() <= before + page, "{before} then {}", used());
}
