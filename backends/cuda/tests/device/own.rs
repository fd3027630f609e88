//! Hooks for the shared cases, and the cases of this backend alone.
#![expect(unsafe_code, reason = "hands in streams and contexts, and launches a kernel")]
use crate::shared::support::{
    DEVICE, Gate, MAIN, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use core::sync::atomic::Ordering;
use cudarc::driver::sys::{self, CUcontext, CUresult, CUstream};
use omniheap_core::{Backend as _, ErrorKind, Map, Point, Result, TimelineId, Timelines as _};
pub(crate) use omniheap_cuda::{
    Argument, Block, BlockSource, Config, Cuda as Device, DefaultStream, Feature, IpcHandle,
    Kernel, Launch, Memory, Rows, Standing, Verdict,
};

pub(crate) const NAME: &str = "cuda";
/// Marks that wait for a held timeline at a time.
pub(crate) const MARKS: usize = 20_000;
/// Marks after which no more events are held than before.
pub(crate) const MANY_MARKS: u32 = 1_000_000;
const PREPARED: &str = include_str!("../../kernels/compact.ptx");

cases! {
    Nothing: no_context_is_refused, the_prepared_image_copies, the_callers_context_is_restored,
        a_capture_of_somebody_else_is_seen_and_survives;
    Compiler: a_borrowed_stream_may_die_before_its_work;
}

/// Returns whether AMD's runtime answers, with limits that are its own.
pub(crate) const fn is_amd(_: &Device) -> bool {
    false
}

/// Returns a second backend on a stream of the first, which outlives it.
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

fn create_stream() -> CUstream {
    let mut stream = core::ptr::null_mut();
    // SAFETY: `stream` is a valid out-pointer; one is the flag of streams that wait for no other.
    assert_eq!(unsafe { sys::cuStreamCreate(&raw mut stream, 1) }, CUresult::CUDA_SUCCESS);
    stream
}

fn number(device: &Device, stream: CUstream) -> Option<u64> {
    // SAFETY: the callers' streams live.
    match unsafe { device.standing(stream) }.expect("it lives") {
        Standing::Running(number) => number,
        Standing::Captured(capture) => panic!("{capture:?}"),
    }
}

fn a_borrowed_stream_may_die_before_its_work(device: &Device) {
    with_context(device, || {
        let stream = create_stream();
        let first = number(device, stream);
        // SAFETY: it lives until it is destroyed below, and the timeline is not named after that but to be marked and closed.
        let line = unsafe { device.borrow_stream(stream) }.expect("the same context");
        let gate = Gate::close(device, line);
        // SAFETY: destroyed once; its work still runs.
        assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream) }, CUresult::CUDA_SUCCESS);
        let again = create_stream();
        assert_ne!(number(device, again), first, "no number comes back, though a handle may");
        let own = device.mark(line).expect("the whole device is marked");
        let epoch = device.mark(TimelineId::ALL).expect("the driver follows all");
        let point = Point { timeline: TimelineId::ALL, epoch };
        assert!(device.reached(TimelineId::ALL).expect("alive") < epoch, "it still runs");
        device.order(MAIN, point).expect("alive");
        gate.open();
        device.wait(point).expect("alive");
        assert!(device.reached(TimelineId::ALL).expect("alive") >= epoch);
        assert!(device.reached(line).expect("open") >= own);
        device.close(line).expect("open");
        // SAFETY: destroyed once.
        assert_eq!(unsafe { sys::cuStreamDestroy_v2(again) }, CUresult::CUDA_SUCCESS);
    });
}

/// Captures a stream without announcing it, as a library may, while the device works.
fn capture(device: &Device, stream: CUstream, mode: sys::CUstreamCaptureMode) {
    // SAFETY: the stream lives, and captures nothing yet.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
    assert_eq!(begun, CUresult::CUDA_SUCCESS);
    // SAFETY: as above.
    let standing = unsafe { device.standing(stream) }.expect("asking spoils nothing");
    let Standing::Captured(found) = standing else { panic!("{standing:?}") };
    // SAFETY: the graph is being captured.
    let gone = unsafe { device.watch_graph(found.graph.expect("it has not failed")) };
    let gone = gone.expect("the driver tells");
    device.timelines().begin_capture();
    std::thread::scope(|scope| {
        drop(scope.spawn(|| {
            let block = allocate(device, DEVICE, 64);
            write(device, &block, 0, &[1; 64]);
            let epoch = device.mark(TimelineId::ALL).expect("it is given out");
            assert!(device.reached(TimelineId::ALL).expect("alive") < epoch);
            let written = device.mark(MAIN).expect("alive");
            device.wait(Point { timeline: MAIN, epoch: written }).expect("alive");
            // SAFETY: the write has finished. To wait for the whole device would spoil the capture.
            unsafe { device.free(block) }.expect("the driver takes it back");
        }));
    });
    let mut graph = core::ptr::null_mut();
    // SAFETY: begun above; `graph` is a valid out-pointer.
    let ended = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    device.timelines().end_capture();
    assert_eq!(ended, CUresult::CUDA_SUCCESS, "it was spoiled");
    assert!(!gone.load(Ordering::Acquire));
    // SAFETY: destroyed once, and nothing was made of it.
    assert_eq!(unsafe { sys::cuGraphDestroy(graph) }, CUresult::CUDA_SUCCESS);
    while !gone.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

fn a_capture_of_somebody_else_is_seen_and_survives(device: &Device) {
    use sys::CUstreamCaptureMode_enum::{
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    };
    with_context(device, || {
        let stream = create_stream();
        for mode in [
            CU_STREAM_CAPTURE_MODE_GLOBAL,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CU_STREAM_CAPTURE_MODE_RELAXED,
        ] {
            capture(device, stream, mode);
        }
        // SAFETY: destroyed once.
        assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream) }, CUresult::CUDA_SUCCESS);
    });
}

/// Runs with the device's context current, as a program has it that uses the device too.
fn with_context(device: &Device, run: impl FnOnce()) {
    // SAFETY: the context lives as long as the device.
    assert_eq!(unsafe { sys::cuCtxPushCurrent_v2(device.context()) }, CUresult::CUDA_SUCCESS);
    run();
    let mut popped = core::ptr::null_mut();
    // SAFETY: `popped` is a valid out-pointer; one was pushed above.
    assert_eq!(unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) }, CUresult::CUDA_SUCCESS);
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
