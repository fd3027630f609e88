//! N: hand-over to others, on the seam itself.
#![expect(unsafe_code, reason = "frees blocks")]
use super::kind;
use crate::case::{Case, Need};
use crate::world::World;
use omniheap_core::{Backend, BlockOffset, ErrorKind, Export, Exported, HeapId, TimelineId};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        only_blocks_made_for_it_can_be_exported proves [111] needs [Export];
        an_exported_block_is_zero_and_all_its_own proves [112] needs [Export, Transfer];
        an_import_that_does_not_match_is_refused proves [113] needs [Export];
        an_import_of_more_than_there_is_is_refused proves [113] needs [Export];
        a_descriptor_stays_its_holders proves [113] needs [Export];
        the_importer_keeps_memory_that_its_exporter_freed proves [114] needs [Export, Transfer];
    }
}

const MAIN: TimelineId = TimelineId::MAIN;

/// A heap that has exportable blocks, and one of them.
fn exportable<B: Backend + 'static>(world: &World<B>) -> (HeapId, B::Block) {
    let export = share(world);
    let mut heaps = world.backend().caps().heap_ids();
    let found = heaps.find_map(|(id, _)| Some((id, export.allocate_exportable(id, 1 << 20).ok()?)));
    found.expect("some heap can be exported")
}

fn share<B: Backend + 'static>(world: &World<B>) -> &dyn Export<Block = B::Block> {
    world.backend().as_export().expect("needed")
}

fn free<B: Backend + 'static>(world: &World<B>, block: B::Block) {
    world.backend().wait_idle().expect("alive");
    // SAFETY: the block came from this backend, which is idle.
    unsafe { world.backend().free(block) }.expect("idle");
}

/// The same memory with another size and device.
fn changed(exported: &Exported, size: u64, uuid: Option<[u8; 16]>) -> Exported {
    Exported { fd: exported.fd.try_clone().expect("one more"), size, uuid }
}

fn read<B: Backend + 'static>(world: &World<B>, block: &B::Block, offset: u64) -> [u8; 64] {
    let mut bytes = [1; 64];
    let transfer = world.backend().as_transfer().expect("needed");
    transfer.read(MAIN, BlockOffset { block, offset }, &mut bytes).expect("inside");
    bytes
}

fn only_blocks_made_for_it_can_be_exported<B: Backend + 'static>(world: &World<B>) {
    let (heap, made) = exportable(world);
    let plain = world.backend().allocate(heap, 1 << 20).expect("fits");
    assert_eq!(kind(share(world).export(&plain)), ErrorKind::Unsupported);
    let exported = share(world).export(&made).expect("made for it");
    assert!(exported.size >= 1 << 20);
    free(world, plain);
    free(world, made);
}

fn an_exported_block_is_zero_and_all_its_own<B: Backend + 'static>(world: &World<B>) {
    let (heap, first) = exportable(world);
    let transfer = world.backend().as_transfer().expect("needed");
    transfer.fill(MAIN, BlockOffset { block: &first, offset: 0 }, 1 << 20, 0xcc).expect("inside");
    let second = share(world).allocate_exportable(heap, 1 << 20).expect("fits");
    for offset in [0, 4096, (1 << 20) - 64] {
        assert_eq!(read(world, &second, offset), [0; 64], "nothing of anybody else's");
        assert_eq!(read(world, &first, offset), [0xcc; 64]);
    }
    free(world, first);
    free(world, second);
}

fn an_import_that_does_not_match_is_refused<B: Backend + 'static>(world: &World<B>) {
    let (heap, block) = exportable(world);
    let exported = share(world).export(&block).expect("made for it");
    let Exported { size, uuid, .. } = exported;
    let import = |heap, size, uuid| share(world).import(heap, &changed(&exported, size, uuid));
    assert_eq!(kind(import(heap, size, Some([0xa5; 16]))), ErrorKind::Foreign);
    for wrong in [size / 2, 0] {
        assert!(import(heap, wrong, uuid).is_err(), "{wrong} of {size}");
    }
    assert!(import(HeapId(250), size, uuid).is_err());
    let file = std::fs::File::open("/dev/null").expect("Unix");
    let nothing = Exported { fd: file.into(), size, uuid };
    assert!(share(world).import(heap, &nothing).is_err(), "no memory");
    let imported =
        share(world).import(heap, &exported).expect("nothing was consumed by the refusals");
    free(world, imported);
    free(world, block);
}

fn an_import_of_more_than_there_is_is_refused<B: Backend + 'static>(world: &World<B>) {
    let (heap, block) = exportable(world);
    let exported = share(world).export(&block).expect("made for it");
    let Exported { size, uuid, .. } = exported;
    for more in [size + size / 8, size * 2, size * 64, u64::MAX] {
        let longer = changed(&exported, more, uuid);
        assert!(share(world).import(heap, &longer).is_err(), "{more} of {size}");
    }
    let imported =
        share(world).import(heap, &exported).expect("nothing was consumed by the refusals");
    free(world, imported);
    free(world, block);
}

/// An import that closed it would close whatever file gets the number next.
fn a_descriptor_stays_its_holders<B: Backend + 'static>(world: &World<B>) {
    let (heap, block) = exportable(world);
    let exported = share(world).export(&block).expect("made for it");
    let number = exported.number();
    let blocks = [(); 2].map(|()| share(world).import(heap, &exported).expect("the same device"));
    assert!(exported.fd.try_clone().is_ok(), "the import closed a descriptor that it borrowed");
    drop(exported);
    let file = std::fs::File::open("/dev/null").expect("Unix");
    blocks.into_iter().for_each(|block| free(world, block));
    assert!(file.metadata().is_ok(), "descriptor {number} was closed twice");
    free(world, block);
}

fn the_importer_keeps_memory_that_its_exporter_freed<B: Backend + 'static>(world: &World<B>) {
    let (heap, block) = exportable(world);
    let transfer = world.backend().as_transfer().expect("needed");
    transfer.write(MAIN, BlockOffset { block: &block, offset: 4096 }, &[7; 64]).expect("inside");
    world.backend().wait_idle().expect("alive");
    let exported = share(world).export(&block).expect("made for it");
    let imported = share(world).import(heap, &exported).expect("the same device");
    free(world, block);
    let other = world.backend().allocate(heap, 1 << 20).expect("fits");
    transfer.fill(MAIN, BlockOffset { block: &other, offset: 0 }, 1 << 20, 9).expect("inside");
    assert_eq!(read(world, &imported, 4096), [7; 64], "still there, and nobody else's");
    free(world, other);
    free(world, imported);
}
