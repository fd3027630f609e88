//! Ends in any order.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::support::{DEVICE, MAIN, MIB, allocate, at, free, read, timeline, write};
use omniheap_core::{Address, Backend, Timelines, Transfer};
use omniheap_hip::{
    Argument, Hip, Launch,
    sys::{Api, hipError_t},
};

crate::cases! {
    Nothing: pending_work_ends_before_the_backend,
        a_backend_with_live_blocks_may_go, backends_open_and_close_many_times,
        the_callers_device_is_restored, a_forgotten_backend_is_harmless;
    Compiler: a_module_outlives_its_backend, kernels_outlive_their_module_value;
}

fn a_module_outlives_its_backend(_: &Hip) {
    let other = Hip::open(0).expect("it opened before");
    let module = other.compile("extern \"C\" __global__ void f() {}").expect("fine");
    drop(other);
    assert!(module.kernel("f").is_ok());
}

fn kernels_outlive_their_module_value(hip: &Hip) {
    let source = "extern \"C\" __global__ void set(int* to) { *to = 42; }";
    let kernel = hip.compile(source).expect("fine").kernel("set").expect("it is in the source");
    let to = allocate(hip, DEVICE, 4);
    let arguments = [Argument::U64(hip.address(&to))];
    // SAFETY: one thread writes the four bytes of `to`.
    unsafe { hip.launch(MAIN, &kernel, Launch::linear(1, 1), &arguments) }.expect("small");
    drop(kernel);
    assert_eq!(read(hip, &to, 0, 4), 42i32.to_le_bytes());
    free(hip, to);
}

fn pending_work_ends_before_the_backend(_: &Hip) {
    let other = Hip::open(0).expect("it opened before");
    let block = allocate(&other, DEVICE, 64 * MIB);
    let on = timeline(&other);
    for _ in 0..20 {
        other.fill(on, at(&block, 0), 64 * MIB, 1).expect("in range");
        other.write(on, at(&block, 0), &[3; 1000]).expect("in range");
        other.mark(on).expect("open");
    }
    drop(other);
    // The block's memory stays with the process; the value itself may go.
    drop(block);
}

fn a_backend_with_live_blocks_may_go(_: &Hip) {
    let other = Hip::open(0).expect("it opened before");
    let blocks: Vec<_> =
        other.caps().heap_ids().map(|(id, _)| allocate(&other, id, 4096)).collect();
    drop(other);
    drop(blocks);
}

fn backends_open_and_close_many_times(_: &Hip) {
    for round in 0..10u8 {
        let other = Hip::open(0).expect("it opened before");
        let block = allocate(&other, DEVICE, 4096);
        write(&other, &block, 0, &[round; 4096]);
        assert_eq!(read(&other, &block, 0, 4096), [round; 4096]);
        free(&other, block);
    }
}

fn the_callers_device_is_restored(_: &Hip) {
    // The last device: another one than the thread's where there are two.
    let last = Hip::open(Hip::count() - 1).expect("it was counted");
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

fn a_forgotten_backend_is_harmless(_: &Hip) {
    // Process exit finds it open, with a block that was never freed.
    let other: &'static Hip = Box::leak(Box::new(Hip::open(0).expect("it opened before")));
    let block = allocate(other, DEVICE, 4096);
    write(other, &block, 0, &[1; 4096]);
    core::mem::forget(block);
}
