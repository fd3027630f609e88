//! Memory that leaves the process and comes back.
use crate::support::{
    DEVICE, MIB, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use omniheap_core::{Address, DriverBudget, ErrorKind, Export, Exported, HeapId};
use omniheap_cuda::{Cuda, Memory};
use std::path::Path;

crate::cases! {
    Export: both_sides_see_the_same_bytes, a_wrong_token_is_refused, only_exportable_blocks_are_exported,
        exports_leak_nothing;
}

fn is_open(fd: i32) -> bool {
    Path::new(&format!("/proc/self/fd/{fd}")).exists()
}

fn both_sides_see_the_same_bytes(cuda: &Cuda) {
    let block = cuda.allocate_exportable(DEVICE, 3 * MIB + 1).expect("small");
    assert!(block.size() > 3 * MIB);
    assert_eq!(block.memory(), Memory::Exportable);
    let bytes = pattern(3 << 20, 8);
    write(cuda, &block, 0, &bytes);
    let exported = cuda.export(&block).expect("exportable");
    assert_eq!(exported.size, block.size());
    let imported = cuda.import(DEVICE, &exported).expect("our own");
    assert!(!is_open(exported.fd), "closed on success");
    assert_ne!(cuda.address(&imported), cuda.address(&block));
    assert_same(&read(cuda, &imported, 0, bytes.len()), &bytes, "imported");
    write(cuda, &imported, 5, &[1, 2, 3]);
    assert_eq!(read(cuda, &block, 5, 3), [1, 2, 3]);
    // The memory lives as long as either side.
    free(cuda, block);
    assert_eq!(read(cuda, &imported, 5, 3), [1, 2, 3]);
    free(cuda, imported);
}

fn a_wrong_token_is_refused(cuda: &Cuda) {
    let block = cuda.allocate_exportable(DEVICE, MIB).expect("small");
    let good = cuda.export(&block).expect("exportable");
    let copy = |size, uuid| Exported { fd: good.fd, size, uuid };
    let stranger = cuda.import(DEVICE, &copy(good.size, Some([0xAB; 16])));
    assert_eq!(kind(stranger), Some(ErrorKind::Foreign));
    let longer = cuda.import(DEVICE, &copy(good.size * 8, good.uuid));
    assert_eq!(kind(longer), Some(ErrorKind::ExceedsLimit));
    let empty = cuda.import(DEVICE, &copy(0, good.uuid));
    assert_eq!(kind(empty), Some(ErrorKind::ZeroSize));
    let elsewhere = cuda.import(HeapId(1), &copy(good.size, good.uuid));
    assert_eq!(kind(elsewhere), Some(ErrorKind::Unsupported));
    let nothing = Exported { fd: -1, ..copy(good.size, good.uuid) };
    assert_eq!(kind(cuda.import(DEVICE, &nothing)), Some(ErrorKind::OutOfRange));
    assert!(is_open(good.fd), "a refused descriptor stays open");
    let imported = cuda.import(DEVICE, &good).expect("and still works");
    free(cuda, imported);
    free(cuda, block);
}

fn only_exportable_blocks_are_exported(cuda: &Cuda) {
    for heap in [DEVICE, pinned(cuda)] {
        let block = allocate(cuda, heap, MIB);
        assert_eq!(kind(cuda.export(&block)), Some(ErrorKind::Unsupported));
        free(cuda, block);
    }
    let refused = cuda.allocate_exportable(pinned(cuda), MIB);
    assert_eq!(kind(refused), Some(ErrorKind::Unsupported));
    let endless = cuda.allocate_exportable(DEVICE, u64::MAX);
    assert_eq!(kind(endless), Some(ErrorKind::SizeOverflow));
}

fn exports_leak_nothing(cuda: &Cuda) {
    let used = || cuda.budget(DEVICE).expect("the driver tells").used;
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (before, open) = (used(), descriptors());
    for _ in 0..50 {
        let block = cuda.allocate_exportable(DEVICE, 8 * MIB).expect("small");
        let exported = cuda.export(&block).expect("exportable");
        let imported = cuda.import(DEVICE, &exported).expect("our own");
        free(cuda, block);
        free(cuda, imported);
    }
    assert!(used() <= before + 64 * MIB, "{before} then {}", used());
    assert!(descriptors() <= open + 4, "{open} then {}", descriptors());
}
