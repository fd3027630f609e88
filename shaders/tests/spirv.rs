//! The SPIR-V that is checked in is what the WGSL compiles to, and launches bring what the WGSL declares.
//!
//! `cargo xtask spirv` compiles it again.
use omniheap_seam::Kernel;
use omniheap_shaders::compile::compile;
use omniheap_shaders::{BILATERAL, CONVOLUTION, MATMUL, Placed, REDUCTION, RESIDUE, SCALE};

/// All kernels, in the order in which the build script takes them.
fn kernels() -> Vec<Kernel> {
    let placed = [CONVOLUTION, BILATERAL].into_iter().flat_map(variants);
    [SCALE, MATMUL, REDUCTION, RESIDUE].into_iter().chain(placed).collect()
}

fn variants(kernel: Placed) -> impl Iterator<Item = Kernel> {
    [Some(kernel.constant), Some(kernel.device), kernel.shared].into_iter().flatten()
}

#[test]
fn checked_in_spirv_is_what_the_wgsl_compiles_to() {
    let renew = std::env::var("OMNIHEAP_SPIRV").is_ok_and(|word| word == "renew");
    let kernels = kernels();
    let compiled = kernels.iter().map(|one| compile(one.name, one.wgsl).spirv);
    if renew {
        return write(&compiled.collect::<Vec<_>>());
    }
    for (kernel, words) in kernels.iter().zip(compiled) {
        assert!(
            kernel.spirv == words,
            "{}: the SPIR-V is not that of this source; run `cargo xtask spirv`\n{}",
            kernel.name,
            kernel.wgsl
        );
    }
}

fn write(modules: &[Vec<u32>]) {
    let count = |module: &Vec<u32>| u32::try_from(module.len()).expect("a kernel is small");
    let words = modules.iter().flat_map(|one| core::iter::once(count(one)).chain(one.clone()));
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let path = format!("{}/spirv/kernels.spv", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(path, bytes).expect("the sources can be written");
}

#[test]
fn a_launch_brings_what_the_wgsl_declares() {
    for kernel in kernels() {
        let compiled = compile(kernel.name, kernel.wgsl);
        assert_eq!(compiled.group, kernel.group, "{}", kernel.name);
        assert_eq!(compiled.slots, kernel.slots, "{}", kernel.name);
        assert_eq!(compiled.parameters, kernel.parameters, "{}", kernel.name);
        assert_eq!(kernel.check(), Ok(()), "{}", kernel.name);
    }
}
