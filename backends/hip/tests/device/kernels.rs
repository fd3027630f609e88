//! Constants, and device code that is not for the device.
#![expect(unsafe_code, reason = "loads device code")]
use crate::shared::support::{allocate, assert_same, constant, free, kind, pattern, read, write};
use omniheap_core::{Address, Backend, ErrorKind};
use omniheap_hip::{Arch, Hip, Memory};

cases! {
    Nothing: constants_are_device_memory, broken_images_are_refused;
    Compiler: another_architecture_is_compiled_but_not_loaded;
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
