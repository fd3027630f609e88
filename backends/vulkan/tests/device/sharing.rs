//! Memory that leaves and enters by file descriptor.
use crate::rig::{Rig, first, pattern, read, write};
use omniheap_core::{Backend, ErrorKind, Export, Exported};
use omniheap_vulkan::{Block, Vulkan};

crate::cases! {
    two_devices_see_the_same_bytes if has;
    only_exportable_blocks_leave if has;
    what_is_not_ours_does_not_enter if has;
}

fn has(vulkan: &Vulkan) -> bool {
    vulkan.as_export().is_some()
}

fn export(vulkan: &Vulkan) -> &dyn Export<Block = Block> {
    vulkan.as_export().expect("the case needs it")
}

fn two_devices_see_the_same_bytes(rig: &Rig) {
    let (here, there) = (rig.open(), rig.open());
    let heap = first(&here);
    let block = export(&here).allocate_exportable(heap, 100_000).unwrap();
    let bytes = pattern(1, 100_000);
    write(&here, &block, 0, &bytes);
    here.wait_idle().unwrap();
    let exported = export(&here).export(&block).unwrap();
    assert!(exported.size >= 100_000 && exported.uuid == here.caps().device.uuid);
    let copy = export(&there).import(heap, &exported).expect("the same device");
    assert!(read(&there, &copy, 0, 100_000) == bytes);
    write(&there, &copy, 50, b"from there");
    there.wait_idle().unwrap();
    assert_eq!(read(&here, &block, 50, 10), b"from there");
    drop(block);
    drop(here);
    assert_eq!(read(&there, &copy, 50, 10), b"from there", "the importer holds it too");
}

fn only_exportable_blocks_leave(rig: &Rig) {
    let vulkan = rig.open();
    let plain = vulkan.allocate(first(&vulkan), 4096).unwrap();
    assert_eq!(export(&vulkan).export(&plain).unwrap_err().kind(), ErrorKind::Unsupported);
    let size = export(&vulkan).allocate_exportable(first(&vulkan), 0).unwrap_err();
    assert_eq!(size.kind(), ErrorKind::ZeroSize);
    let size = export(&vulkan).allocate_exportable(first(&vulkan), u64::MAX).unwrap_err();
    assert_eq!(size.kind(), ErrorKind::ExceedsLimit);
}

fn what_is_not_ours_does_not_enter(rig: &Rig) {
    let vulkan = rig.open();
    let heap = first(&vulkan);
    let block = export(&vulkan).allocate_exportable(heap, 65536).unwrap();
    let good = export(&vulkan).export(&block).unwrap();
    let refused = |exported: Exported| export(&vulkan).import(heap, &exported).unwrap_err().kind();
    let Exported { size, uuid, .. } = good;
    let changed = |size, uuid| Exported { fd: good.fd.try_clone().unwrap(), size, uuid };
    assert_eq!(refused(changed(size, Some([7; 16]))), ErrorKind::Foreign);
    assert_eq!(refused(changed(0, uuid)), ErrorKind::ZeroSize);
    assert_eq!(refused(changed(u64::MAX, uuid)), ErrorKind::ExceedsLimit);
    assert_eq!(refused(changed(size + 1, uuid)), ErrorKind::ExceedsLimit);
}
