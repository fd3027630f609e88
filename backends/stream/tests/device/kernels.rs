//! Launches up to the limits and over them, and source that does not build.
#![expect(unsafe_code, reason = "launches kernels")]
use super::support::{DEVICE, MAIN, allocate, delay_kernel, free, kind, read};
use crate::own::{Argument, Device, Launch};
use omniheap_core::{Address, Backend, ErrorKind};

cases! {
    Compiler: all_shared_memory_works, launches_over_the_limits_are_refused,
        broken_source_gives_the_log;
}

fn all_shared_memory_works(device: &Device) {
    let shared = device.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(device, "omniheap_sum_shared");
    let to = allocate(device, DEVICE, 4);
    let (default, most) = (shared.per_group, shared.per_group_opt_in);
    for bytes in [1024, default, (default + 4).min(most), most, 2048] {
        let words = u32::try_from(bytes / 4).expect("small");
        let launch = Launch::linear(1, 128).shared(bytes);
        let arguments = [Argument::U64(device.address(&to)), Argument::U32(words)];
        // SAFETY: the kernel uses `words` words of the shared bytes it is given, and writes one word of `to`.
        unsafe { device.launch(MAIN, &kernel, launch, &arguments) }.expect("within the limit");
        let expected = (1..=words).fold(0u32, u32::wrapping_add);
        assert_eq!(read(device, &to, 0, 4), expected.to_le_bytes(), "{bytes} bytes");
    }
    free(device, to);
}

fn launches_over_the_limits_are_refused(device: &Device) {
    let shared = device.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(device, "omniheap_sum_shared");
    let to = allocate(device, DEVICE, 4);
    let arguments = [Argument::U64(device.address(&to)), Argument::U32(0)];
    // SAFETY: the kernel touches no shared word, and writes one word of `to`, if it is launched at all.
    let launch = |shape| kind(unsafe { device.launch(MAIN, &kernel, shape, &arguments) });
    let one = Launch::linear(1, 1);
    let limit = Some(ErrorKind::ExceedsLimit);
    assert_eq!(launch(one.shared(shared.per_group_opt_in + 1)), limit);
    assert_eq!(launch(one.shared(u64::MAX)), limit);
    assert_eq!(launch(Launch::linear(1, 1025)), limit);
    assert_eq!(launch(Launch { group: [u32::MAX; 3], ..one }), limit);
    assert_eq!(launch(Launch::linear(0, 1)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(Launch::linear(1, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(one), None, "and the device is well");
    free(device, to);
}

fn broken_source_gives_the_log(device: &Device) {
    let error =
        device.compile("extern \"C\" __global__ void f() { nonsense; }").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.log().contains("nonsense"), "{error}");
    let error = device.compile("a\0b").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let module = device.compile("extern \"C\" __global__ void f() {}").expect("fine");
    assert_eq!(kind(module.kernel("g")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.kernel("f\0")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.global("nothing")), Some(ErrorKind::InvalidConfig));
    assert!(module.kernel("f").is_ok());
}
