//! Ends in any order.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::support::{DEVICE, MAIN, MIB, allocate, at, free, read, timeline, write};
use omniheap_core::{Address, Backend, Timelines, Transfer};
use omniheap_cuda::{Argument, Cuda, Launch};

crate::cases! {
    Nothing: a_module_outlives_its_backend, pending_work_ends_before_the_backend,
        a_backend_with_live_blocks_may_go, backends_open_and_close_many_times,
        the_callers_context_is_restored, a_forgotten_backend_is_harmless;
    Compiler: kernels_outlive_their_module_value;
}

fn a_module_outlives_its_backend(_: &Cuda) {
    let other = Cuda::open(0).expect("it opened before");
    let module = other.bank_module().expect("built");
    drop(other);
    assert!(module.kernel("omniheap_bank_read").is_ok());
}

fn kernels_outlive_their_module_value(cuda: &Cuda) {
    let source = "extern \"C\" __global__ void set(int* to) { *to = 42; }";
    let kernel = cuda.compile(source).expect("fine").kernel("set").expect("it is in the source");
    let to = allocate(cuda, DEVICE, 4);
    let arguments = [Argument::U64(cuda.address(&to))];
    // SAFETY: one thread writes the four bytes of `to`.
    unsafe { cuda.launch(MAIN, &kernel, Launch::linear(1, 1), &arguments) }.expect("small");
    drop(kernel);
    assert_eq!(read(cuda, &to, 0, 4), 42i32.to_le_bytes());
    free(cuda, to);
}

fn pending_work_ends_before_the_backend(_: &Cuda) {
    let other = Cuda::open(0).expect("it opened before");
    let block = allocate(&other, DEVICE, 64 * MIB);
    let on = timeline(&other);
    for _ in 0..20 {
        other.fill(on, at(&block, 0), 64 * MIB, 1).expect("in range");
        other.write(on, at(&block, 0), &[3; 1000]).expect("in range");
        other.mark(on).expect("open");
    }
    drop(other);
    // The block's memory stays with the primary context; the value itself may go.
    drop(block);
}

fn a_backend_with_live_blocks_may_go(_: &Cuda) {
    let other = Cuda::open(0).expect("it opened before");
    let blocks: Vec<_> =
        other.caps().heap_ids().map(|(id, _)| allocate(&other, id, 4096)).collect();
    drop(other);
    drop(blocks);
}

fn backends_open_and_close_many_times(_: &Cuda) {
    for round in 0..10u8 {
        let other = Cuda::open(0).expect("it opened before");
        let block = allocate(&other, DEVICE, 4096);
        write(&other, &block, 0, &[round; 4096]);
        assert_eq!(read(&other, &block, 0, 4096), [round; 4096]);
        free(&other, block);
    }
}

fn the_callers_context_is_restored(cuda: &Cuda) {
    // A thread without a context stays without one, whatever is called on it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = allocate(cuda, DEVICE, 64);
            write(cuda, &block, 0, &[1; 64]);
            let mut current = core::ptr::null_mut();
            // SAFETY: `current` is a valid out-pointer.
            let code = unsafe { cudarc::driver::sys::cuCtxGetCurrent(&raw mut current) };
            assert_eq!(code, cudarc::driver::sys::CUresult::CUDA_SUCCESS);
            assert!(current.is_null(), "a context was left behind");
            free(cuda, block);
        });
    });
}

fn a_forgotten_backend_is_harmless(_: &Cuda) {
    // Process exit finds it open, with a block that was never freed.
    let other: &'static Cuda = Box::leak(Box::new(Cuda::open(0).expect("it opened before")));
    let block = allocate(other, DEVICE, 4096);
    write(other, &block, 0, &[1; 4096]);
    core::mem::forget(block);
}
