//! What the shared cases ask of this backend, and the cases that only it has.
#![expect(unsafe_code, reason = "hands in streams and contexts, and launches a kernel")]
use crate::shared::support::{
    DEVICE, MAIN, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use cudarc::driver::sys::{self, CUcontext, CUresult, CUstream};
use omniheap_core::{ErrorKind, Map, Result};
pub(crate) use omniheap_cuda::{
    Argument, Block, BlockSource, Config, Cuda as Device, DefaultStream, Feature, IpcHandle,
    Kernel, Launch, Memory, Rows, Verdict,
};

pub(crate) const NAME: &str = "cuda";
/// Marks that wait for a held timeline at a time.
pub(crate) const MARKS: usize = 20_000;
/// Marks after which no more events are held than before.
pub(crate) const MANY_MARKS: u32 = 1_000_000;
const PREPARED: &str = include_str!("../../../../shaders/compact/compact.ptx");

cases! {
    Nothing: no_context_is_refused, the_prepared_image_copies, the_callers_context_is_restored;
}

/// Whether AMD's runtime answers, with limits that are its own.
pub(crate) const fn is_amd(_: &Device) -> bool {
    false
}

/// A second backend on a stream of the first, which outlives it.
pub(crate) fn wrap(device: &Device, stream: CUstream) -> Result<Device> {
    // SAFETY: context and stream live as long as `device`, which outlives the new one.
    unsafe { Device::wrap(device.context(), Some(stream), Config::new()) }
}

fn no_context_is_refused(_: &Device) {
    // SAFETY: a null context is refused before it is used.
    let wrapped = unsafe { Device::wrap(core::ptr::null_mut(), None, Config::new()) };
    assert_eq!(kind(wrapped), Some(ErrorKind::InvalidConfig));
}

fn the_prepared_image_copies(device: &Device) {
    let kernel = device.load_ptx(PREPARED).expect("every driver reads it");
    let kernel = kernel.kernel("omniheap_compact").expect("it is in the image");
    let (from, to) = (allocate(device, DEVICE, 4096), allocate(device, DEVICE, 4096));
    let bytes = pattern(4096, 6);
    write(device, &from, 0, &bytes);
    let table = allocate(device, pinned(device), 24 * 9);
    let host = device.map(&table).expect("pinned memory is host-visible").cast::<u64>();
    // Nine pieces, so that a second group runs: from one to nine bytes apart, each of 100 bytes.
    for piece in 0..9 {
        let (to, from) = (to.address() + 400 * piece, from.address() + 401 * piece);
        let first = usize::try_from(3 * piece).expect("small");
        for (index, number) in (first..).zip([to, from, 100]) {
            // SAFETY: the block holds 27 numbers, and no kernel reads it yet.
            unsafe { host.as_ptr().wrapping_add(index).write(number) };
        }
    }
    let arguments = [Argument::U64(table.address()), Argument::U32(9)];
    // SAFETY: the table names bytes of two live blocks.
    unsafe { device.launch(MAIN, &kernel, Launch::linear(2, 256), &arguments) }.expect("small");
    for piece in 0..9usize {
        let seen = read(device, &to, 400 * piece as u64, 100);
        assert_same(&seen, &bytes[401 * piece..401 * piece + 100], "a piece");
    }
    [from, to, table].into_iter().for_each(|block| free(device, block));
}

fn current() -> CUcontext {
    let mut current = core::ptr::null_mut();
    // SAFETY: `current` is a valid out-pointer.
    let code = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    current
}

fn the_callers_context_is_restored(device: &Device) {
    let work = |expected: CUcontext| {
        let block = allocate(device, DEVICE, 64);
        write(device, &block, 0, &[1; 64]);
        assert_eq!(read(device, &block, 0, 64), [1; 64]);
        free(device, block);
        assert_eq!(current(), expected, "another context was left behind");
    };
    std::thread::scope(|scope| {
        // A thread without a context stays without one, whatever is called on it.
        scope.spawn(|| work(core::ptr::null_mut()));
        // And one that works in another context finds that again.
        scope.spawn(|| {
            let mut other = core::ptr::null_mut();
            // SAFETY: `other` is a valid out-pointer, and there is a first device.
            let code = unsafe { sys::cuCtxCreate_v2(&raw mut other, 0, 0) };
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            work(other);
            // SAFETY: made just above, used by nothing any more.
            assert_eq!(unsafe { sys::cuCtxDestroy_v2(other) }, CUresult::CUDA_SUCCESS);
        });
    });
}
