//! The constant bank, and images that are broken.
#![expect(unsafe_code, reason = "launches kernels")]
use crate::shared::support::{
    DEVICE, MAIN, allocate, assert_same, at, constant, free, kind, pattern, read, write,
};
use omniheap_core::{Address, Backend, ErrorKind, Transfer};
use omniheap_cuda::{Argument, BANK_SYMBOL, Block, Config, Cuda, Kernel, Launch};

const PREPARED: &str = include_str!("../../kernels/constant_bank.ptx");

cases! {
    Nothing: a_kernel_reads_the_constant_bank, blocks_share_the_bank, the_prepared_image_works,
        broken_images_give_the_log;
    Compiler: own_kernels_read_the_constant_bank;
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

fn broken_images_give_the_log(cuda: &Cuda) {
    let broken = PREPARED.replace("setp.ge.u64", "nonsense");
    let error = cuda.load_ptx(&broken).expect_err("broken");
    assert!(!error.log().is_empty(), "{error}");
    assert!(cuda.load_ptx("no image at all").is_err());
    assert_eq!(cuda.wait_idle(), Ok(()), "and the device is well");
}
