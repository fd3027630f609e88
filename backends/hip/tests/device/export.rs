//! Memory that leaves the process and comes back.
#![expect(unsafe_code, reason = "closes descriptors")]
use crate::support::{
    DEVICE, MIB, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use omniheap_core::{Address, DriverBudget, ErrorKind, Export, Exported, HeapId};
use omniheap_hip::{Hip, Memory};
use std::{
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
};

crate::cases! {
    Export: both_sides_see_the_same_bytes, a_wrong_token_is_refused, only_exportable_blocks_are_exported,
        exports_leak_nothing, imports_are_given_back;
}

fn close(fd: i32) {
    // SAFETY: the case owns the descriptor that `export` made.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

fn is_open(fd: i32) -> bool {
    Path::new(&format!("/proc/self/fd/{fd}")).exists()
}

fn both_sides_see_the_same_bytes(hip: &Hip) {
    let block = hip.allocate_exportable(DEVICE, 3 * MIB + 1).expect("small");
    assert!(block.size() > 3 * MIB);
    assert_eq!(block.memory(), Memory::Exportable);
    let bytes = pattern(3 << 20, 8);
    write(hip, &block, 0, &bytes);
    let exported = hip.export(&block).expect("exportable");
    assert_eq!(exported.size, block.size());
    let imported = hip.import(DEVICE, &exported).expect("our own");
    assert!(!is_open(exported.fd), "closed on success");
    assert_ne!(hip.address(&imported), hip.address(&block));
    assert_same(&read(hip, &imported, 0, bytes.len()), &bytes, "imported");
    write(hip, &imported, 5, &[1, 2, 3]);
    assert_eq!(read(hip, &block, 5, 3), [1, 2, 3]);
    // The memory lives as long as either side.
    free(hip, block);
    assert_eq!(read(hip, &imported, 5, 3), [1, 2, 3]);
    free(hip, imported);
}

fn a_wrong_token_is_refused(hip: &Hip) {
    let block = hip.allocate_exportable(DEVICE, MIB).expect("small");
    let good = hip.export(&block).expect("exportable");
    let copy = |size, uuid| Exported { fd: good.fd, size, uuid };
    let stranger = hip.import(DEVICE, &copy(good.size, Some([0xAB; 16])));
    assert_eq!(kind(stranger), Some(ErrorKind::Foreign));
    let longer = hip.import(DEVICE, &copy(good.size * 8, good.uuid));
    assert_eq!(kind(longer), Some(ErrorKind::ExceedsLimit));
    let empty = hip.import(DEVICE, &copy(0, good.uuid));
    assert_eq!(kind(empty), Some(ErrorKind::ZeroSize));
    let elsewhere = hip.import(HeapId(1), &copy(good.size, good.uuid));
    assert_eq!(kind(elsewhere), Some(ErrorKind::Unsupported));
    let nothing = Exported { fd: -1, ..copy(good.size, good.uuid) };
    assert_eq!(kind(hip.import(DEVICE, &nothing)), Some(ErrorKind::OutOfRange));
    assert!(is_open(good.fd), "a refused descriptor stays open");
    let imported = hip.import(DEVICE, &good).expect("and still works");
    free(hip, imported);
    free(hip, block);
}

fn only_exportable_blocks_are_exported(hip: &Hip) {
    for heap in [DEVICE, pinned(hip)] {
        let block = allocate(hip, heap, MIB);
        assert_eq!(kind(hip.export(&block)), Some(ErrorKind::Unsupported));
        free(hip, block);
    }
    let refused = hip.allocate_exportable(pinned(hip), MIB);
    assert_eq!(kind(refused), Some(ErrorKind::Unsupported));
    let endless = hip.allocate_exportable(DEVICE, u64::MAX);
    assert_eq!(kind(endless), Some(ErrorKind::SizeOverflow));
}

fn exports_leak_nothing(hip: &Hip) {
    let used = || hip.budget(DEVICE).expect("the driver tells").used;
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (before, open) = (used(), descriptors());
    for _ in 0..50 {
        let block = hip.allocate_exportable(DEVICE, 8 * MIB).expect("small");
        let exported = hip.export(&block).expect("exportable");
        close(exported.fd);
        free(hip, block);
    }
    assert!(used() <= before + 64 * MIB, "{before} then {}", used());
    assert!(descriptors() <= open + 4, "{open} then {}", descriptors());
}

fn imports_are_given_back(hip: &Hip) {
    let used = || hip.budget(DEVICE).expect("the driver tells").used;
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (before, open) = (used(), descriptors());
    for _ in 0..10 {
        let block = hip.allocate_exportable(DEVICE, 8 * MIB).expect("small");
        let exported = hip.export(&block).expect("exportable");
        let imported = hip.import(DEVICE, &exported).expect("our own");
        free(hip, block);
        free(hip, imported);
    }
    // AMD's runtime 6.4 and 7.2 keeps memory that was imported, and with it the descriptor of a stand-in's file.
    let kept = used().saturating_sub(before) / MIB;
    println!("{kept} MiB and {} descriptors kept", descriptors().saturating_sub(open));
    if hip.arch().expect("a name of the usual form").name().starts_with("sm_") {
        assert!(kept <= 8, "{kept} MiB");
        assert!(descriptors() <= open + 4, "{open} then {}", descriptors());
    }
}
