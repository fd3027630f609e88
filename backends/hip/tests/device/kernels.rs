//! Constants, shared memory, and device code that does not build.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::shared::support::{
    DEVICE, MAIN, allocate, assert_same, constant, delay_kernel, free, kind, pattern, read, write,
};
use omniheap_core::{Address, Backend, ErrorKind};
use omniheap_hip::{Arch, Argument, Hip, Launch, Memory};

cases! {
    Nothing: constants_are_device_memory, broken_images_are_refused;
    Compiler: all_shared_memory_works, launches_over_the_limits_are_refused,
        broken_source_gives_the_log, another_architecture_is_compiled_but_not_loaded;
}

fn constants_are_device_memory(hip: &Hip) {
    let heap = constant(hip);
    let limit = hip.caps().heap(heap).expect("it is there").max_block;
    let (first, second) = (allocate(hip, heap, 100), allocate(hip, heap, 40_000));
    assert_eq!(first.memory(), Memory::Constant);
    let apart = hip.address(&first).abs_diff(hip.address(&second));
    assert!(apart >= 100, "{apart} bytes apart");
    let bytes = pattern(40_000, 4);
    write(hip, &second, 0, &bytes);
    write(hip, &first, 0, &[1; 100]);
    assert_same(&read(hip, &second, 0, 40_000), &bytes, "second");
    // All of it is not free any more, and what is more than all never was.
    assert_eq!(kind(hip.allocate(heap, limit)), Some(ErrorKind::OutOfDeviceMemory));
    assert_eq!(kind(hip.allocate(heap, limit + 1)), Some(ErrorKind::ExceedsLimit));
    free(hip, second);
    assert_same(&read(hip, &first, 0, 100), &[1; 100], "first stays");
    free(hip, first);
}

fn all_shared_memory_works(hip: &Hip) {
    let shared = hip.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(hip, "omniheap_sum_shared");
    let to = allocate(hip, DEVICE, 4);
    for bytes in [1024, shared.per_group, shared.per_group_opt_in, 2048] {
        let words = u32::try_from(bytes / 4).expect("small");
        let launch = Launch::linear(1, 128).shared(bytes);
        let arguments = [Argument::U64(hip.address(&to)), Argument::U32(words)];
        // SAFETY: the kernel uses `words` words of the shared bytes it is given, and writes one word of `to`.
        unsafe { hip.launch(MAIN, &kernel, launch, &arguments) }.expect("within the limit");
        let expected = (1..=words).fold(0u32, u32::wrapping_add);
        assert_eq!(read(hip, &to, 0, 4), expected.to_le_bytes(), "{bytes} bytes");
    }
    free(hip, to);
}

fn launches_over_the_limits_are_refused(hip: &Hip) {
    let shared = hip.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(hip, "omniheap_sum_shared");
    let to = allocate(hip, DEVICE, 4);
    let arguments = [Argument::U64(hip.address(&to)), Argument::U32(0)];
    // SAFETY: the kernel touches no shared word, and writes one word of `to`, if it is launched at all.
    let launch = |shape| kind(unsafe { hip.launch(MAIN, &kernel, shape, &arguments) });
    let one = Launch::linear(1, 1);
    let limit = Some(ErrorKind::ExceedsLimit);
    assert_eq!(launch(one.shared(shared.per_group_opt_in + 1)), limit);
    assert_eq!(launch(one.shared(u64::MAX)), limit);
    assert_eq!(launch(Launch::linear(1, 1025)), limit);
    assert_eq!(launch(Launch { group: [u32::MAX; 3], ..one }), limit);
    assert_eq!(launch(Launch::linear(0, 1)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(Launch::linear(1, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(one), None, "and the device is well");
    free(hip, to);
}

fn broken_source_gives_the_log(hip: &Hip) {
    let error = hip.compile("extern \"C\" __global__ void f() { nonsense; }").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.log().contains("nonsense"), "{error}");
    let error = hip.compile("a\0b").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let module = hip.compile("extern \"C\" __global__ void f() {}").expect("fine");
    assert_eq!(kind(module.kernel("g")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.kernel("f\0")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.global("nothing")), Some(ErrorKind::InvalidConfig));
    assert!(module.kernel("f").is_ok());
}

fn another_architecture_is_compiled_but_not_loaded(hip: &Hip) {
    let own = hip.arch().expect("a name of the usual form");
    let other = if own.name().starts_with("gfx1030") { "gfx1100" } else { "gfx1030" };
    let arch = Arch::new(other).expect("a name of the usual form");
    let source = "extern \"C\" __global__ void f() {}";
    assert!(hip.compile_for(&own, source).is_ok());
    if own.name().starts_with("sm_") {
        // A forwarded device compiles for itself, whatever is asked for.
        return;
    }
    let error = hip.compile_for(&arch, source).expect_err("not for this device");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(Arch::new("gfx90a -I/"), None);
}

fn broken_images_are_refused(hip: &Hip) {
    for broken in [&b""[..], b"no image at all", b"\x7FELF\x02\x01\x01"] {
        // SAFETY: refused before the runtime sees it.
        let error = unsafe { hip.load_code(broken) }.expect_err("broken");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
    assert_eq!(hip.wait_idle(), Ok(()), "and the device is well");
}
