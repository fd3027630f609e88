//! Ends in any order.
#![expect(unsafe_code, reason = "launches kernels")]
use super::support::{DEVICE, MAIN, MIB, allocate, at, free, read, timeline, write};
use crate::own::{Argument, Device, Launch};
use omniheap_core::{Address, Backend, Timelines, Transfer};

cases! {
    Nothing: pending_work_ends_before_the_backend,
        a_backend_with_live_blocks_may_go, backends_open_and_close_many_times,
        a_forgotten_backend_is_harmless;
    Compiler: a_module_outlives_its_backend, kernels_outlive_their_module_value;
}

fn a_module_outlives_its_backend(_: &Device) {
    let other = Device::open(0).expect("it opened before");
    let module = other.compile("extern \"C\" __global__ void f() {}").expect("fine");
    drop(other);
    assert!(module.kernel("f").is_ok());
}

fn kernels_outlive_their_module_value(device: &Device) {
    let source = "extern \"C\" __global__ void set(int* to) { *to = 42; }";
    let kernel = device.compile(source).expect("fine").kernel("set").expect("it is in the source");
    let to = allocate(device, DEVICE, 4);
    let arguments = [Argument::U64(device.address(&to))];
    // SAFETY: one thread writes the four bytes of `to`.
    unsafe { device.launch(MAIN, &kernel, Launch::linear(1, 1), &arguments) }.expect("small");
    drop(kernel);
    assert_eq!(read(device, &to, 0, 4), 42i32.to_le_bytes());
    free(device, to);
}

fn pending_work_ends_before_the_backend(_: &Device) {
    let other = Device::open(0).expect("it opened before");
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

fn a_backend_with_live_blocks_may_go(_: &Device) {
    let other = Device::open(0).expect("it opened before");
    let blocks: Vec<_> =
        other.caps().heap_ids().map(|(id, _)| allocate(&other, id, 4096)).collect();
    drop(other);
    drop(blocks);
}

fn backends_open_and_close_many_times(_: &Device) {
    for round in 0..10u8 {
        let other = Device::open(0).expect("it opened before");
        let block = allocate(&other, DEVICE, 4096);
        write(&other, &block, 0, &[round; 4096]);
        assert_eq!(read(&other, &block, 0, 4096), [round; 4096]);
        free(&other, block);
    }
}

fn a_forgotten_backend_is_harmless(_: &Device) {
    // Process exit finds it open, with a block that was never freed.
    let other: &'static Device = Box::leak(Box::new(Device::open(0).expect("it opened before")));
    let block = allocate(other, DEVICE, 4096);
    write(other, &block, 0, &[1; 4096]);
    core::mem::forget(block);
}
