//! Random descriptions of textures: `Texture::create` and `wgpu::Device::create_texture` accept and refuse the same ones.
//! `OMNIHEAP_OPS` sets their number, `OMNIHEAP_SEED` the seed.
use crate::{
    Check, Target,
    random::{Random, setting},
    texture::{open, open_with_formats, places},
};
use omniheap_core::{ErrorKind, Manager};
use omniheap_wgpu::{Texture, Wgpu};
use wgpu::{
    AstcBlock, AstcChannel, ErrorFilter, Extent3d, TextureDescriptor, TextureDimension,
    TextureFormat as F, TextureUsages as U, TextureViewDescriptor,
};

pub(crate) const CASES: &[(&str, Check)] =
    &[("random_descriptions_are_judged_as_by_wgpu", random_descriptions_are_judged_as_by_wgpu)];

const FORMATS: &[F] = &[
    F::R8Unorm,
    F::R8Snorm,
    F::R8Uint,
    F::R16Float,
    F::R16Unorm,
    F::R32Uint,
    F::R32Float,
    F::R64Uint,
    F::Rg16Sint,
    F::Rg32Float,
    F::Rgba8Unorm,
    F::Rgba8UnormSrgb,
    F::Rgba8Snorm,
    F::Bgra8Unorm,
    F::Bgra8UnormSrgb,
    F::Rgb10a2Unorm,
    F::Rg11b10Ufloat,
    F::Rgb9e5Ufloat,
    F::Rgba16Float,
    F::Rgba32Uint,
    F::Rgba32Float,
    F::Depth16Unorm,
    F::Depth24Plus,
    F::Depth32Float,
    F::Depth32FloatStencil8,
    F::Stencil8,
    F::NV12,
    F::Bc1RgbaUnorm,
    F::Bc1RgbaUnormSrgb,
    F::Bc5RgSnorm,
    F::Bc7RgbaUnorm,
    F::Bc7RgbaUnormSrgb,
    F::Etc2Rgb8Unorm,
    F::Astc { block: AstcBlock::B8x5, channel: AstcChannel::Unorm },
];

const VIEWED: U = U::TEXTURE_BINDING.union(U::STORAGE_BINDING).union(U::RENDER_ATTACHMENT);

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// Returns the usual value most of the time, so that enough descriptions have one thing wrong, or nothing.
fn mostly<T: Copy>(random: &mut Random, usual: T, others: &[T]) -> T {
    if random.below(5) > 0 { usual } else { pick(random, others) }
}

fn usages(random: &mut Random) -> U {
    let all = [
        U::COPY_SRC,
        U::COPY_DST,
        U::TEXTURE_BINDING,
        U::STORAGE_BINDING,
        U::RENDER_ATTACHMENT,
        U::TRANSIENT_ATTACHMENT,
        U::STORAGE_ATOMIC,
    ];
    let odds = [2, 2, 2, 5, 5, 25, 25];
    let chosen = all.iter().zip(odds).filter(|(_, odds)| random.below(*odds) == 0);
    chosen.fold(U::empty(), |all, (usage, _)| all | *usage)
}

fn size(random: &mut Random, dimension: TextureDimension, most: u32) -> Extent3d {
    let side = pick(random, &[1, 2, 4, 8, 8, 12, 16, 20, 32, 40]);
    let odd = [0, 3, 5, 7, side, side + 4, most, most + 1, u32::MAX];
    let mut other = |usual| mostly(random, usual, &odd);
    let (width, usual) = (other(side), if dimension == TextureDimension::D1 { 1 } else { side });
    let (height, deep) = (other(usual), other(1));
    // One long side at most: an agreement about gigabytes is no agreement about rules.
    let height = if width >= most && height < u32::MAX { height.min(4) } else { height };
    let long = width.saturating_mul(height) >= 4 * most;
    let deep = if long { deep.min(1) } else { deep };
    Extent3d { width, height, depth_or_array_layers: mostly(random, deep, &[2, 3, 6, 12]) }
}

fn description<'a>(random: &mut Random, views: &'a mut Vec<F>, most: u32) -> TextureDescriptor<'a> {
    use TextureDimension as D;
    let format = pick(random, FORMATS);
    let dimension = mostly(random, D::D2, &[D::D1, D::D3]);
    for _ in 0..mostly(random, 0, &[1, 1, 2]) {
        let twin = match random.below(3) {
            0 => format,
            1 => format.add_srgb_suffix(),
            _ => format.remove_srgb_suffix(),
        };
        views.push(mostly(random, twin, FORMATS));
    }
    TextureDescriptor {
        label: None,
        size: size(random, dimension, most),
        mip_level_count: mostly(random, 1, &[0, 1, 2, 3, 4, 5, 6, 17, u32::MAX]),
        sample_count: mostly(random, 1, &[0, 2, 3, 4, 4, 8, 16, 64, u32::MAX]),
        dimension,
        format,
        usage: usages(random),
        view_formats: views,
    }
}

fn random_descriptions_are_judged_as_by_wgpu(target: &Target) {
    let (seed, rounds) = (setting("OMNIHEAP_SEED", 1), setting("OMNIHEAP_OPS", 3000));
    eprintln!("[{}] OMNIHEAP_SEED={seed} OMNIHEAP_OPS={rounds}", target.label);
    let (mut random, mut all) = (Random(seed), [0; 2]);
    for manager in [open(target), open_with_formats(target)] {
        let [placed, refused] = compare(&manager, &mut random, rounds / 2);
        assert!((placed > 0) == places(&manager), "{placed} placed");
        all = [all[0] + placed, all[1] + refused];
    }
    let [placed, refused] = all;
    eprintln!("[{}] {placed} placed and {refused} refused of {rounds}", target.label);
    assert!(refused > 0);
}

/// Returns which views of its formats a texture takes.
fn views_of(
    device: &wgpu::Device,
    texture: &wgpu::Texture,
    wanted: &TextureDescriptor<'_>,
) -> Vec<bool> {
    // Of a texture that is only copied, wgpu makes views that Vulkan forbids.
    if !wanted.usage.intersects(VIEWED) {
        return Vec::new();
    }
    let formats = wanted.view_formats.iter().map(|format| Some(*format));
    let takes = |format| {
        let scope = device.push_error_scope(ErrorFilter::Validation);
        let view = TextureViewDescriptor { format, ..Default::default() };
        drop(texture.create_view(&view));
        pollster::block_on(scope.pop()).is_none()
    };
    formats.chain([None]).map(takes).collect()
}

/// Gives random descriptions to both; returns how many were placed by us, and how many were refused.
fn compare(manager: &Manager<Wgpu>, random: &mut Random, rounds: u64) -> [usize; 2] {
    let device = manager.backend().device();
    let most = device.limits().max_texture_dimension_2d;
    let (mut placed, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut views = Vec::new();
        let wanted = description(random, &mut views, most);
        let memory = device.push_error_scope(ErrorFilter::OutOfMemory);
        let validation = device.push_error_scope(ErrorFilter::Validation);
        let theirs = device.create_texture(&wanted);
        let verdict = pollster::block_on(validation.pop());
        let seen = if verdict.is_none() { views_of(device, &theirs, &wanted) } else { Vec::new() };
        theirs.destroy();
        if pollster::block_on(memory.pop()).is_some() {
            continue;
        }
        let ours = Texture::create(manager, &wanted);
        match (&ours, &verdict) {
            (Ok(ours), None) => {
                placed += usize::from(ours.allocation().is_some());
                assert_eq!(
                    views_of(device, ours.raw(), &wanted),
                    seen,
                    "round {round}: {wanted:?}"
                );
            }
            (Err(error), Some(_)) => {
                assert_eq!(error.kind(), ErrorKind::Driver, "round {round}: {wanted:?}");
                refused += 1;
            }
            (ours, theirs) => panic!("round {round}: {wanted:?}: {ours:?}; wgpu says {theirs:?}"),
        }
    }
    manager.validate().expect("sound");
    [placed, refused]
}
