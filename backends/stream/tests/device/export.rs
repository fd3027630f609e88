//! Memory that leaves the process and comes back.
use super::support::{
    DEVICE, MIB, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use crate::own::{Device, Memory, is_amd};
use omniheap_core::{Address, DriverBudget, ErrorKind, Export, Exported, HeapId};

cases! {
    Export: both_sides_see_the_same_bytes, a_wrong_token_is_refused, only_exportable_blocks_are_exported,
        exports_leak_nothing, imports_are_given_back;
}

fn both_sides_see_the_same_bytes(device: &Device) {
    let block = device.allocate_exportable(DEVICE, 3 * MIB + 1).expect("small");
    assert!(block.size() > 3 * MIB);
    assert_eq!(block.memory(), Memory::Exportable);
    let bytes = pattern(3 << 20, 8);
    write(device, &block, 0, &bytes);
    let exported = device.export(&block).expect("exportable");
    assert_eq!(exported.size, block.size());
    let imported = device.import(DEVICE, &exported).expect("our own");
    drop(exported);
    assert_ne!(device.address(&imported), device.address(&block));
    assert_same(&read(device, &imported, 0, bytes.len()), &bytes, "imported");
    write(device, &imported, 5, &[1, 2, 3]);
    assert_eq!(read(device, &block, 5, 3), [1, 2, 3]);
    // The memory lives as long as either side.
    free(device, block);
    assert_eq!(read(device, &imported, 5, 3), [1, 2, 3]);
    free(device, imported);
}

fn a_wrong_token_is_refused(device: &Device) {
    let block = device.allocate_exportable(DEVICE, MIB).expect("small");
    let good = device.export(&block).expect("exportable");
    let copy = |size, uuid| {
        let fd = good.fd.try_clone().expect("one more");
        Exported { fd, size, uuid }
    };
    let stranger = device.import(DEVICE, &copy(good.size, Some([0xAB; 16])));
    assert_eq!(kind(stranger), Some(ErrorKind::Foreign));
    let longer = device.import(DEVICE, &copy(good.size * 8, good.uuid));
    assert_eq!(kind(longer), Some(ErrorKind::ExceedsLimit));
    let empty = device.import(DEVICE, &copy(0, good.uuid));
    assert_eq!(kind(empty), Some(ErrorKind::ZeroSize));
    let elsewhere = device.import(HeapId(1), &copy(good.size, good.uuid));
    assert_eq!(kind(elsewhere), Some(ErrorKind::Unsupported));
    let file = std::fs::File::open("/dev/null").expect("Unix");
    let nothing = Exported { fd: file.into(), ..copy(good.size, good.uuid) };
    assert!(device.import(DEVICE, &nothing).is_err(), "no memory");
    let imported = device.import(DEVICE, &good).expect("and still works");
    free(device, imported);
    free(device, block);
}

fn only_exportable_blocks_are_exported(device: &Device) {
    for heap in [DEVICE, pinned(device)] {
        let block = allocate(device, heap, MIB);
        assert_eq!(kind(device.export(&block)), Some(ErrorKind::Unsupported));
        free(device, block);
    }
    let refused = device.allocate_exportable(pinned(device), MIB);
    assert_eq!(kind(refused), Some(ErrorKind::Unsupported));
    let endless = device.allocate_exportable(DEVICE, u64::MAX);
    assert_eq!(kind(endless), Some(ErrorKind::SizeOverflow));
}

fn exports_leak_nothing(device: &Device) {
    let used = || device.budget(DEVICE).expect("the driver tells").used;
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (before, open) = (used(), descriptors());
    for _ in 0..50 {
        let block = device.allocate_exportable(DEVICE, 8 * MIB).expect("small");
        let exported = device.export(&block).expect("exportable");
        drop(exported);
        free(device, block);
    }
    assert!(used() <= before + 64 * MIB, "{before} then {}", used());
    assert!(descriptors() <= open + 4, "{open} then {}", descriptors());
}

fn imports_are_given_back(device: &Device) {
    let used = || device.budget(DEVICE).expect("the driver tells").used;
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (before, open) = (used(), descriptors());
    for _ in 0..10 {
        let block = device.allocate_exportable(DEVICE, 8 * MIB).expect("small");
        let exported = device.export(&block).expect("exportable");
        let imported = device.import(DEVICE, &exported).expect("our own");
        free(device, block);
        free(device, imported);
    }
    // AMD's runtime 6.4 and 7.2 keeps memory that was imported, and with it the descriptor of a stand-in's file.
    let kept = used().saturating_sub(before) / MIB;
    println!("{kept} MiB and {} descriptors kept", descriptors().saturating_sub(open));
    if !is_amd(device) {
        assert!(kept <= 8, "{kept} MiB");
        assert!(descriptors() <= open + 4, "{open} then {}", descriptors());
    }
}
