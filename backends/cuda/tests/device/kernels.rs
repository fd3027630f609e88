//! The constant bank, shared memory, and device code that does not build.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::shared::support::{
    DEVICE, MAIN, allocate, assert_same, at, constant, delay_kernel, free, kind, pattern, read,
    write,
};
use omniheap_core::{Address, Backend, ErrorKind, Transfer};
use omniheap_cuda::{Argument, BANK_SYMBOL, Block, Config, Cuda, Kernel, Launch};

const PREPARED: &str = include_str!("../../../../shaders/constant_bank/constant_bank.ptx");

cases! {
    Nothing: a_kernel_reads_the_constant_bank, blocks_share_the_bank, the_prepared_image_works,
        broken_images_give_the_log;
    Compiler: own_kernels_read_the_constant_bank, shared_memory_above_the_default_works,
        launches_over_the_limits_are_refused, broken_source_gives_the_log;
}

/// Runs the bank's reading kernel over `length` bytes.
fn read_bank(cuda: &Cuda, kernel: &Kernel, to: &Block, offset: u64, length: usize) -> Vec<u8> {
    let arguments =
        [Argument::U64(cuda.address(to)), Argument::U64(offset), Argument::U64(length as u64)];
    // SAFETY: the kernel reads inside the bank and writes `length` bytes of `to`, which has them.
    unsafe { cuda.launch(MAIN, kernel, Launch::linear(8, 256), &arguments) }.expect("small");
    read(cuda, to, 0, length)
}

fn a_kernel_reads_the_constant_bank(cuda: &Cuda) {
    let bank = allocate(cuda, constant(cuda), 65_536);
    let to = allocate(cuda, DEVICE, 65_536);
    let kernel = cuda.bank_module().expect("built").kernel("omniheap_bank_read").expect("ours");
    for round in 0..3 {
        let bytes = pattern(65_536, round);
        write(cuda, &bank, 0, &bytes);
        assert_same(&read_bank(cuda, &kernel, &to, 0, 65_536), &bytes, "bank");
        assert_same(&read_bank(cuda, &kernel, &to, 1234, 4000), &bytes[1234..5234], "span");
    }
    cuda.fill(MAIN, at(&bank, 100), 50, 0xAA).expect("in range");
    assert_same(&read_bank(cuda, &kernel, &to, 100, 50), &[0xAA; 50], "filled");
    free(cuda, bank);
    free(cuda, to);
}

fn blocks_share_the_bank(cuda: &Cuda) {
    let heap = constant(cuda);
    let (first, second) = (allocate(cuda, heap, 100), allocate(cuda, heap, 40_000));
    let offsets = [&first, &second].map(|block| cuda.bank_offset(block).expect("constant"));
    assert!(offsets[1] >= offsets[0] + 100 || offsets[0] >= offsets[1] + 40_000, "{offsets:?}");
    assert_eq!(kind(cuda.allocate(heap, 30_000)), Some(ErrorKind::OutOfDeviceMemory));
    assert_eq!(kind(cuda.allocate(heap, 65_537)), Some(ErrorKind::ExceedsLimit));
    assert_eq!(kind(cuda.write(MAIN, at(&first, 99), &[1, 2])), Some(ErrorKind::OutOfRange));
    write(cuda, &first, 0, &[1; 100]);
    write(cuda, &second, 0, &[2; 40_000]);
    let kernel = cuda.bank_module().expect("built").kernel("omniheap_bank_read").expect("ours");
    let to = allocate(cuda, DEVICE, 40_000);
    assert_same(&read_bank(cuda, &kernel, &to, offsets[0], 100), &[1; 100], "first");
    assert_same(&read_bank(cuda, &kernel, &to, offsets[1], 40_000), &[2; 40_000], "second");
    assert_eq!(kind(cuda.bank_offset(&to)), Some(ErrorKind::Unsupported));
    free(cuda, second);
    assert_same(&read_bank(cuda, &kernel, &to, offsets[0], 100), &[1; 100], "first stays");
    free(cuda, first);
    free(cuda, to);
    let whole = allocate(cuda, heap, 65_536);
    free(cuda, whole);
}

fn the_prepared_image_works(cuda: &Cuda) {
    let module = cuda.load_ptx(PREPARED).expect("every driver takes it");
    let (address, size) = module.global(BANK_SYMBOL).expect("it is in the image");
    assert_eq!((size, address % 256), (65_536, 0));
    let kernel = module.kernel("omniheap_bank_read").expect("it is in the image");
    let to = allocate(cuda, DEVICE, 4096);
    cuda.fill(MAIN, at(&to, 0), 4096, 0xFF).expect("in range");
    assert_same(&read_bank(cuda, &kernel, &to, 61_440, 4096), &[0; 4096], "a fresh bank");
    free(cuda, to);
}

fn own_kernels_read_the_constant_bank(_: &Cuda) {
    let source = r#"
        extern "C" __global__ void weigh(unsigned int* to) {
            const float* weights = reinterpret_cast<const float*>(omniheap_bank + 256);
            to[threadIdx.x] = (unsigned int)(weights[threadIdx.x] * 2.0f);
        }"#;
    let cuda = Cuda::open_with(0, Config::new().bank_kernels(source)).expect("it opened before");
    let bank = allocate(&cuda, constant(&cuda), 1024);
    let to = allocate(&cuda, DEVICE, 128);
    let weights: Vec<u8> = (0..32u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    write(&cuda, &bank, 256, &weights);
    let kernel = cuda.bank_module().expect("built").kernel("weigh").expect("it is in the source");
    let arguments = [Argument::U64(cuda.address(&to))];
    // SAFETY: 32 threads read 32 floats of the bank and write 32 words of `to`.
    unsafe { cuda.launch(MAIN, &kernel, Launch::linear(1, 32), &arguments) }.expect("small");
    let expected: Vec<u8> = (0..32u32).flat_map(|n| (2 * n).to_le_bytes()).collect();
    assert_same(&read(&cuda, &to, 0, 128), &expected, "weighed");
    free(&cuda, bank);
    free(&cuda, to);
}

fn shared_memory_above_the_default_works(cuda: &Cuda) {
    let shared = cuda.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(cuda, "omniheap_sum_shared");
    let to = allocate(cuda, DEVICE, 4);
    for bytes in [1024, shared.per_group, shared.per_group + 4, shared.per_group_opt_in, 2048] {
        let words = u32::try_from(bytes / 4).expect("small");
        let launch = Launch::linear(1, 128).shared(bytes);
        let arguments = [Argument::U64(cuda.address(&to)), Argument::U32(words)];
        // SAFETY: the kernel uses `words` words of the shared bytes it is given, and writes one word of `to`.
        unsafe { cuda.launch(MAIN, &kernel, launch, &arguments) }.expect("within the limit");
        let expected = (1..=words).fold(0u32, u32::wrapping_add);
        assert_eq!(read(cuda, &to, 0, 4), expected.to_le_bytes(), "{bytes} bytes");
    }
    free(cuda, to);
}

fn launches_over_the_limits_are_refused(cuda: &Cuda) {
    let shared = cuda.caps().shared.expect("kernels have it");
    let kernel = delay_kernel(cuda, "omniheap_sum_shared");
    let to = allocate(cuda, DEVICE, 4);
    let arguments = [Argument::U64(cuda.address(&to)), Argument::U32(0)];
    // SAFETY: the kernel touches no shared word, and writes one word of `to`, if it is launched at all.
    let launch = |shape| kind(unsafe { cuda.launch(MAIN, &kernel, shape, &arguments) });
    let one = Launch::linear(1, 1);
    let limit = Some(ErrorKind::ExceedsLimit);
    assert_eq!(launch(one.shared(shared.per_group_opt_in + 1)), limit);
    assert_eq!(launch(one.shared(u64::MAX)), limit);
    assert_eq!(launch(Launch::linear(1, 1025)), limit);
    assert_eq!(launch(Launch { group: [u32::MAX; 3], ..one }), limit);
    assert_eq!(launch(Launch::linear(0, 1)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(Launch::linear(1, 0)), Some(ErrorKind::ZeroSize));
    assert_eq!(launch(one), None, "and the device is well");
    free(cuda, to);
}

fn broken_source_gives_the_log(cuda: &Cuda) {
    let error = cuda.compile("extern \"C\" __global__ void f() { nonsense; }").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.log().contains("nonsense"), "{error}");
    let error = cuda.compile("a\0b").expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let module = cuda.compile("extern \"C\" __global__ void f() {}").expect("fine");
    assert_eq!(kind(module.kernel("g")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.kernel("f\0")), Some(ErrorKind::InvalidConfig));
    assert_eq!(kind(module.global("nothing")), Some(ErrorKind::InvalidConfig));
    assert!(module.kernel("f").is_ok());
}

fn broken_images_give_the_log(cuda: &Cuda) {
    let broken = PREPARED.replace("setp.ge.u64", "nonsense");
    let error = cuda.load_ptx(&broken).expect_err("broken");
    assert!(!error.log().is_empty(), "{error}");
    assert!(cuda.load_ptx("no image at all").is_err());
    assert_eq!(cuda.wait_idle(), Ok(()), "and the device is well");
}
