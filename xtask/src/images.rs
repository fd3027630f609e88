//! Checks that compiled kernels and their sources change together.
use crate::root;
use crate::step::Outcome;
use std::fs;

/// Compiled kernels that are checked in: how they were made, source, image, and the hashes of both.
type Image = (&'static str, &'static str, &'static str, [u64; 2]);

const IMAGES: [Image; 3] = [
    (
        "nvrtc 12.9 --gpu-architecture=compute_52 --std=c++17, then .version 6.4",
        "backends/stream/kernels/compact.cu",
        "backends/cuda/kernels/compact.ptx",
        [0x0af3_654b_2c50_ad36, 0x6577_2c06_6201_0da4],
    ),
    (
        "glslangValidator -V --target-env vulkan1.1",
        "backends/vulkan/kernels/compact.comp",
        "backends/vulkan/kernels/compact.spv",
        [0x4aad_cf58_2fc4_0b59, 0xa910_a0b7_1d43_2617],
    ),
    (
        "written by hand",
        "backends/cuda/kernels/constant_bank.cu",
        "backends/cuda/kernels/constant_bank.ptx",
        [0x4ebe_67f9_b8f3_4a42, 0x4d9c_297f_1d75_0bc4],
    ),
];

/// Compares every source and every image with its hash.
pub(crate) fn check() -> Outcome {
    let read = |path: &str| {
        fs::read(root().join(path)).map(|bytes| hash(&bytes)).map_err(|e| format!("{path}: {e}"))
    };
    for (how, source, image, hashes) in IMAGES {
        let found = [read(source)?, read(image)?];
        if found != hashes {
            return Err(format!(
                "{source} or {image} changed alone; make the image again ({how}), then write {found:#x?} to xtask"
            ));
        }
    }
    Ok(())
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
