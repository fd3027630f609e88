//! Kernels of the shaders crate, watched by the validation layer and compared with their Rust text.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::rig::Rig;
use omniheap_core::{
    Allocation, Backend, ErrorKind, Kernel, KernelText, Manager, Request, Slot, TimelineId,
    Timelines,
};
use omniheap_shaders::{CONVOLUTION, MATMUL, REDUCTION, SCALE};
use omniheap_vulkan::Vulkan;
use std::sync::Arc;

crate::cases! {
    kernels_agree_with_their_rust_text if |vulkan| vulkan.as_launch().is_some();
    launches_follow_each_other if |vulkan| vulkan.as_launch().is_some();
    slips_of_an_author_are_refused if |vulkan| vulkan.as_launch().is_some();
    what_a_kernel_does_not_declare_is_refused if |vulkan| vulkan.as_launch().is_some();
}

type Device = Arc<Vulkan>;

fn manager(rig: &Rig) -> Manager<Device> {
    Manager::new(Arc::new(rig.open()))
}

fn with(manager: &Manager<Device>, values: &[f32]) -> Allocation<Device> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let made = manager.allocate(&Request::new(bytes.len() as u64)).unwrap();
    made.write(0, &bytes).unwrap();
    made
}

fn values(allocation: &Allocation<Device>) -> Vec<f32> {
    let mut bytes = vec![0; usize::try_from(allocation.size()).unwrap()];
    allocation.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn run(
    manager: &Manager<Device>,
    kernel: &Kernel,
    shared: u64,
    groups: [u32; 3],
    arguments: &[&Allocation<Device>],
    parameters: &[u32],
) {
    let program = manager.load(kernel, shared).unwrap();
    // SAFETY: the callers below pass sizes that match their parameters.
    unsafe { program.launch(TimelineId::MAIN, groups, arguments, &bytes(parameters)) }.unwrap();
}

fn kernels_agree_with_their_rust_text(rig: &Rig) {
    let manager = manager(rig);
    let (a, b) = (with(&manager, &[1.0, 2.0, 3.0, 4.0]), with(&manager, &[5.0, 6.0, 7.0, 8.0]));
    let out = with(&manager, &[0.0; 4]);
    run(&manager, &MATMUL, 2 * 16 * 17 * 4, [1, 1, 1], &[&a, &b, &out], &[2, 2, 2, 17, 272]);
    assert_eq!(values(&out), [19.0, 22.0, 43.0, 50.0]);
    let many = with(&manager, &[1.0; 1000]);
    run(&manager, &REDUCTION, 1024, [4, 1, 1], &[&many, &out], &[1000, 4]);
    assert_eq!(values(&out), [256.0, 256.0, 256.0, 232.0]);
    let mut filter = [0.0; 256];
    filter[..9].copy_from_slice(&[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let filter = with(&manager, &filter);
    for kernel in [CONVOLUTION.constant, CONVOLUTION.device, CONVOLUTION.shared.unwrap()] {
        out.fill(0, 16, 0).unwrap();
        run(&manager, &kernel, 0, [1, 1, 1], &[&filter, &a, &out], &[2, 2, 1]);
        assert_eq!(values(&out), [7.0, 9.0, 11.0, 13.0]);
    }
}

fn launches_follow_each_other(rig: &Rig) {
    let manager = manager(rig);
    let (a, b) = (with(&manager, &[1.0; 512]), with(&manager, &[0.0; 512]));
    let program = manager.load(&SCALE, 0).unwrap();
    let parameters = bytes(&[512, 1f32.to_bits(), 1f32.to_bits()]);
    let other = manager.backend().open().unwrap();
    for round in 0..200 {
        let (from, to) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let on = if round < 150 { TimelineId::MAIN } else { other };
        if round == 150 {
            let timeline = TimelineId::MAIN;
            let epoch = manager.backend().mark(timeline).unwrap();
            manager.backend().order(other, omniheap_core::Point { timeline, epoch }).unwrap();
        }
        // SAFETY: 512 numbers in, 512 out.
        unsafe { program.launch(on, [2, 1, 1], &[from, to], &parameters) }.unwrap();
    }
    manager.backend().wait_idle().unwrap();
    assert_eq!(values(&a), [201.0; 512]);
}

fn what_a_kernel_does_not_declare_is_refused(rig: &Rig) {
    let manager = manager(rig);
    let (a, b) = (with(&manager, &[1.0]), with(&manager, &[0.0]));
    let program = manager.load(&SCALE, 0).unwrap();
    let kind = |groups, arguments: &[&Allocation<Device>], parameters: &[u8]| {
        // SAFETY: every call is refused.
        unsafe { program.launch(TimelineId::MAIN, groups, arguments, parameters) }
            .map_err(|error| error.kind())
    };
    assert_eq!(kind([1, 1, 1], &[&a], &[0; 12]), Err(ErrorKind::InvalidConfig));
    assert_eq!(kind([1, 1, 1], &[&a, &b], &[0; 8]), Err(ErrorKind::InvalidConfig));
    assert_eq!(kind([1, 0, 1], &[&a, &b], &[0; 12]), Err(ErrorKind::ZeroSize));
    assert_eq!(kind([1, u32::MAX, 1], &[&a, &b], &[0; 12]), Err(ErrorKind::ExceedsLimit));
    let load = |shared| manager.load(&REDUCTION, shared).map(drop).map_err(|error| error.kind());
    assert_eq!(load(1 << 30), Err(ErrorKind::ExceedsLimit));
    assert_eq!(load(3), Err(ErrorKind::Misaligned));
}

/// A kernel that is not as its text declares: the driver would crash, or not say so.
fn slips_of_an_author_are_refused(rig: &Rig) {
    const MANY: &[Slot] = &[Slot::Write; (1 << 20) + 1];
    let manager = manager(rig);
    let load = |text: KernelText| {
        // SAFETY: it is not what it promises, and so it is refused before the driver sees it.
        let kernel = unsafe { Kernel::new(text) };
        manager.load(&kernel, 0).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(load(*SCALE), Ok(()));
    let invalid = Err(ErrorKind::InvalidConfig);
    assert_eq!(load(KernelText { slots: &[], ..*SCALE }), invalid);
    assert_eq!(load(KernelText { slots: &[Slot::Read, Slot::Constant], ..*SCALE }), invalid);
    assert_eq!(load(KernelText { name: "scale\0", ..*SCALE }), invalid);
    assert_eq!(load(KernelText { name: "other", ..*SCALE }), invalid);
    assert_eq!(load(KernelText { spirv: &[1, 2, 3], ..*SCALE }), invalid);
    assert_eq!(load(KernelText { spirv: &[], ..*SCALE }), Err(ErrorKind::Unsupported));
    let exceeds = Err(ErrorKind::ExceedsLimit);
    assert_eq!(load(KernelText { slots: MANY, ..*SCALE }), exceeds, "more than a device binds");
    assert_eq!(load(KernelText { parameters: 1 << 20, ..*SCALE }), exceeds);
    assert_eq!(
        load(KernelText { group: [u32::MAX; 3], ..*SCALE }),
        invalid,
        "the text has another"
    );
}
