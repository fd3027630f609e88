//! Hooks for the shared cases, and the cases of this backend alone.
#![expect(unsafe_code, reason = "hands in streams, destroys pages twice, and asks the runtime")]
use crate::shared::support::{
    DEVICE, MAIN, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use omniheap_core::{Backend, ErrorKind, Remap, Result};
pub(crate) use omniheap_hip::{
    Argument, Block, BlockSource, Config, DefaultStream, Feature, Hip as Device, IpcHandle, Kernel,
    Launch, Memory, Rows, Verdict,
};
use omniheap_hip::{
    Coherence,
    sys::{Api, hipError_t, hipStream_t},
};

pub(crate) const NAME: &str = "hip";
/// Marks that wait for a held timeline at a time. Not more: a queue of AMD's has an end, and a mark waits for room in it.
pub(crate) const MARKS: usize = 4_000;
/// Marks after which no more events are held than before.
pub(crate) const MANY_MARKS: u32 = 100_000;

cases! {
    Nothing: no_such_device_is_wrapped, the_callers_device_is_restored, coherence_is_chosen;
    Pages: a_page_is_destroyed_once_and_not_mapped_then;
}

/// Returns whether AMD's runtime answers, with limits that are its own, and not a library that forwards to another vendor's.
pub(crate) fn is_amd(device: &Device) -> bool {
    device.arch().is_ok_and(|arch| arch.name().starts_with("gfx"))
}

/// Returns a second backend on a stream of the first, which outlives it.
pub(crate) fn wrap(_: &Device, stream: hipStream_t) -> Result<Device> {
    // SAFETY: the stream lives as long as the device that it is of, which outlives the new one.
    unsafe { Device::wrap(0, stream, Config::new()) }
}

fn no_such_device_is_wrapped(device: &Device) {
    let own = device.stream(MAIN).expect("open");
    // SAFETY: the device is refused before the stream is used.
    let wrapped = unsafe { Device::wrap(Device::count(), own, Config::new()) };
    assert_eq!(kind(wrapped), Some(ErrorKind::InvalidConfig));
}

fn a_page_is_destroyed_once_and_not_mapped_then(device: &Device) {
    let mut pages = Vec::new();
    device.create(DEVICE, 2, &mut pages).expect("two pages fit");
    // SAFETY: the pages are this case's own, and not mapped.
    unsafe { device.destroy(DEVICE, &pages[..1]) }.expect("the runtime takes it back");
    let page = device.caps().heaps[0].page.expect("there are pages").get();
    let block = device.reserve(DEVICE, 2 * page).expect("addresses are plenty");
    // SAFETY: the first page is gone, which is refused before the runtime follows its number.
    let mapped = unsafe { device.map_pages(&block, 0, &pages) };
    assert_eq!(kind(mapped), Some(ErrorKind::Foreign));
    free(device, block);
    // SAFETY: the first page is gone, which is refused; the second goes all the same.
    let again = unsafe { device.destroy(DEVICE, &pages) };
    assert_eq!(kind(again), Some(ErrorKind::Foreign));
    // SAFETY: as above, for both.
    let again = unsafe { device.destroy(DEVICE, &pages) };
    assert_eq!(kind(again), Some(ErrorKind::Foreign));
}

fn the_callers_device_is_restored(_: &Device) {
    // The last device: another one than the thread's where there are two.
    let last = Device::open(Device::count() - 1).expect("it was counted");
    let api = Api::get().expect("a device is open");
    let current = || {
        let mut device = -1;
        // SAFETY: `device` is a valid out-pointer.
        let code = unsafe { (api.device.hipGetDevice)(&raw mut device) };
        assert_eq!(code, hipError_t::hipSuccess);
        device
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let before = current();
            let block = allocate(&last, DEVICE, 64);
            write(&last, &block, 0, &[1; 64]);
            assert_eq!(current(), before, "a device was left behind");
            free(&last, block);
            assert_eq!(current(), before, "a device was left behind");
        });
    });
}

fn coherence_is_chosen(_: &Device) {
    let config =
        Config::new().device_coherence(Coherence::Fine).pinned_coherence(Coherence::Coarse);
    let device = Device::open_with(0, config).expect("the device opened before");
    for heap in [DEVICE, pinned(&device)] {
        let block = match device.allocate(heap, 4096) {
            Ok(block) => block,
            // Not every device has fine-grained memory.
            Err(error) if heap == DEVICE => {
                println!("no fine-grained memory here: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let bytes = pattern(4096, 2);
        write(&device, &block, 0, &bytes);
        assert_same(&read(&device, &block, 0, 4096), &bytes, "coherence");
        free(&device, block);
    }
}
