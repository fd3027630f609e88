//! Kernels: run in order, checked before they run, and unable to take the process with them.
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap_core::{
    Allocation, Backend, ErrorKind, HostLaunch, Kernel, KernelText, Manager, Request, TimelineId,
    Timelines,
};
use omniheap_host::Host;
use omniheap_shaders::{CONVOLUTION, MATMUL, REDUCTION, SCALE};
use std::sync::Arc;

const MAIN: TimelineId = TimelineId::MAIN;

fn manager() -> (Arc<Host>, Manager<Arc<Host>>) {
    let host = Arc::new(Host::new());
    (Arc::clone(&host), Manager::new(host))
}

fn with(manager: &Manager<Arc<Host>>, values: &[f32]) -> Allocation<Arc<Host>> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let made = manager.allocate(&Request::new(bytes.len() as u64)).expect("fits");
    made.write(0, bytes).expect("in range");
    made
}

fn values(allocation: &Allocation<Arc<Host>>) -> Vec<f32> {
    let mut values = vec![0.0; usize::try_from(allocation.size() / 4).expect("small")];
    allocation.read(0, bytemuck::cast_slice_mut(&mut values)).expect("in range");
    values
}

#[test]
fn a_kernel_runs_after_what_came_before_and_before_what_comes_after() {
    let (host, manager) = manager();
    let (a, b) = (with(&manager, &[1.0, 2.0, 3.0]), with(&manager, &[0.0; 3]));
    let scale = manager.load(&SCALE, 0).expect("host runs kernels");
    let parameters = [3, 2f32.to_bits(), 1f32.to_bits()];
    let hold = host.hold(MAIN).expect("open");
    // SAFETY: three numbers in, three out.
    unsafe { scale.launch(MAIN, [1, 1, 1], &[&a, &b], bytemuck::bytes_of(&parameters)) }
        .expect("as declared");
    // SAFETY: as above.
    unsafe { scale.launch(MAIN, [1, 1, 1], &[&b, &a], bytemuck::bytes_of(&parameters)) }
        .expect("as declared");
    drop(hold);
    assert_eq!(values(&b), [3.0, 5.0, 7.0]);
    assert_eq!(values(&a), [7.0, 11.0, 15.0]);
}

#[test]
fn bytes_stay_until_the_kernel_has_run() {
    let (host, manager) = manager();
    let (a, b) = (with(&manager, &[1.0]), with(&manager, &[0.0]));
    let id = host.open().expect("open");
    let scale = manager.load(&SCALE, 0).expect("host runs kernels");
    let hold = host.hold(id).expect("open");
    // SAFETY: one number in, one out.
    unsafe { scale.launch(id, [1, 1, 1], &[&a, &b], bytemuck::bytes_of(&[1, 2f32.to_bits(), 0])) }
        .expect("as declared");
    let place = a.binding().span();
    drop(a);
    let next = with(&manager, &[9.0]);
    assert_ne!(next.binding().span(), place, "the kernel still reads the old bytes");
    drop(hold);
    host.wait(omniheap_core::Point { timeline: id, epoch: host.mark(id).expect("open") })
        .expect("runs");
    assert_eq!(values(&b), [2.0]);
}

#[test]
fn what_a_kernel_does_not_declare_is_refused() {
    let (_, manager) = manager();
    let (a, b) = (with(&manager, &[1.0]), with(&manager, &[0.0]));
    let scale = manager.load(&SCALE, 0).expect("host runs kernels");
    let kind = |groups, arguments: &[&Allocation<Arc<Host>>], parameters: &[u8]| {
        // SAFETY: every call is refused.
        unsafe { scale.launch(MAIN, groups, arguments, parameters) }.map_err(|error| error.kind())
    };
    assert_eq!(kind([1, 1, 1], &[&a], &[0; 12]), Err(ErrorKind::InvalidConfig));
    assert_eq!(kind([1, 1, 1], &[&a, &b], &[0; 8]), Err(ErrorKind::InvalidConfig));
    assert_eq!(kind([1, 0, 1], &[&a, &b], &[0; 12]), Err(ErrorKind::ZeroSize));
    let load =
        |kernel: &Kernel, shared| manager.load(kernel, shared).map(drop).map_err(|e| e.kind());
    assert_eq!(load(&REDUCTION, 97 * 1024), Err(ErrorKind::ExceedsLimit));
    assert_eq!(load(&REDUCTION, 3), Err(ErrorKind::Misaligned));
    let (_, other) = self::manager();
    let foreign = with(&other, &[1.0]);
    assert_eq!(kind([1, 1, 1], &[&a, &foreign], &[0; 12]), Err(ErrorKind::Foreign));
}

#[test]
fn a_constant_argument_is_no_longer_than_the_device_binds() {
    let (host, manager) = manager();
    let most = host.caps().constant.expect("a host has constants").max_bind;
    let text = KernelText { host: |_| (), ..*CONVOLUTION.constant };
    // SAFETY: the text is as it was, but in Rust, which has no interface to keep.
    let kernel = unsafe { Kernel::new(text) };
    let program = manager.load(&kernel, 0).expect("host runs kernels");
    let other = with(&manager, &[0.0; 2]);
    for (size, answer) in [(most, Ok(())), (most + 4, Err(ErrorKind::ExceedsLimit))] {
        let constant = manager.allocate(&Request::new(size)).expect("fits");
        let out = with(&manager, &[0.0; 2]);
        // SAFETY: the kernel touches nothing.
        let run = unsafe { program.launch(MAIN, [1, 1, 1], &[&constant, &other, &out], &[0; 12]) };
        assert_eq!(run.map_err(|error| error.kind()), answer);
    }
}

#[test]
fn a_kernel_that_panics_loses_the_device_and_nothing_else() {
    fn broken(launch: &mut HostLaunch<'_>) {
        let _ = launch.reads[9];
    }
    let (host, manager) = manager();
    let (a, b) = (with(&manager, &[1.0]), with(&manager, &[0.0]));
    // SAFETY: the text is as it was, but in Rust, which has no interface to keep.
    let kernel = unsafe { Kernel::new(KernelText { host: broken, ..*SCALE }) };
    let program = manager.load(&kernel, 0).expect("host runs kernels");
    // SAFETY: the kernel touches nothing.
    unsafe { program.launch(MAIN, [1, 1, 1], &[&a, &b], &[0; 12]) }.expect("as declared");
    assert_eq!(host.wait_idle().map_err(|error| error.kind()), Err(ErrorKind::DeviceLost));
}

/// The host runs the Rust alone, and still says what other backends would choke on.
#[test]
fn slips_of_an_author_are_told_by_the_host() {
    let (_, manager) = manager();
    let detail = |text: KernelText| {
        // SAFETY: it is not what it promises, and so it is refused.
        let kernel = unsafe { Kernel::new(text) };
        let error = manager.load(&kernel, 0).map(drop).expect_err("a slip");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.detail()
    };
    let unbound = detail(KernelText { slots: &SCALE.slots[..1], ..*SCALE });
    assert!(unbound.contains("not in `slots`"), "{unbound}");
    let unknown = detail(KernelText { name: "scales", ..*SCALE });
    assert!(unknown.contains("entry point"), "{unknown}");
}

#[test]
fn the_references_agree_with_arithmetic() {
    let (_, manager) = manager();
    let run = |kernel: &Kernel, arguments: &[&Allocation<Arc<Host>>], parameters: &[u32]| {
        let program = manager.load(kernel, 4096).expect("host runs kernels");
        // SAFETY: the sizes below are those that the parameters name.
        unsafe { program.launch(MAIN, [1, 1, 1], arguments, bytemuck::cast_slice(parameters)) }
            .expect("as declared");
    };
    let (a, b) = (with(&manager, &[1.0, 2.0, 3.0, 4.0]), with(&manager, &[5.0, 6.0, 7.0, 8.0]));
    let out = with(&manager, &[0.0; 4]);
    run(&MATMUL, &[&a, &b, &out], &[2, 2, 2, 16, 256]);
    assert_eq!(values(&out), [19.0, 22.0, 43.0, 50.0]);
    let many = with(&manager, &vec![1.0; 1000]);
    run(&REDUCTION, &[&many, &out], &[1000, 4]);
    assert_eq!(values(&out).iter().sum::<f32>(), 1000.0);
    assert_eq!(values(&out)[3], 232.0, "the fourth group has what three full ones leave");
    let mut filter = [0.0; 256];
    filter[..9].copy_from_slice(&[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let filter = with(&manager, &filter);
    run(&CONVOLUTION.constant, &[&filter, &a, &out], &[2, 2, 1]);
    assert_eq!(
        values(&out),
        [
            1.0 + 1.0 + 2.0 + 3.0,
            2.0 + 1.0 + 2.0 + 4.0,
            1.0 + 3.0 + 3.0 + 4.0,
            2.0 + 3.0 + 4.0 + 4.0
        ]
    );
}

#[test]
fn a_kernel_does_not_write_what_is_final() {
    let (_, manager) = manager();
    let (a, b) = (with(&manager, &[1.0]), with(&manager, &[0.0]));
    let scale = manager.load(&SCALE, 0).expect("host runs kernels");
    let run = |arguments: &[&Allocation<Arc<Host>>]| {
        let parameters = [1, 2f32.to_bits(), 0];
        // SAFETY: one number in, one out.
        unsafe { scale.launch(MAIN, [1, 1, 1], arguments, bytemuck::bytes_of(&parameters)) }
            .map_err(|error| error.kind())
    };
    a.publish().expect("final");
    assert_eq!(run(&[&a, &b]), Ok(()), "reading is free");
    b.publish().expect("final");
    assert_eq!(values(&b), [2.0], "publishing waits for what was written");
    assert_eq!(run(&[&a, &b]), Err(ErrorKind::Published));
}
