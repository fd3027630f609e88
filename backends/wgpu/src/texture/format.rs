//! Translates texture descriptors to Vulkan.
use ash::vk;
use wgpu::{
    TextureDescriptor, TextureDimension, TextureFormat, TextureUsages, hal::MAX_MIP_LEVELS,
};

/// Returns the one native colour format of a texture format; `None` where the device chooses among several, or where wgpu
/// does more than name it.
pub(super) const fn native(format: TextureFormat) -> Option<vk::Format> {
    use TextureFormat as T;
    use vk::Format as F;
    Some(match format {
        T::R8Unorm => F::R8_UNORM,
        T::R8Snorm => F::R8_SNORM,
        T::R8Uint => F::R8_UINT,
        T::R8Sint => F::R8_SINT,
        T::R16Uint => F::R16_UINT,
        T::R16Sint => F::R16_SINT,
        T::R16Float => F::R16_SFLOAT,
        T::Rg8Unorm => F::R8G8_UNORM,
        T::Rg8Snorm => F::R8G8_SNORM,
        T::Rg8Uint => F::R8G8_UINT,
        T::Rg8Sint => F::R8G8_SINT,
        T::R32Uint => F::R32_UINT,
        T::R32Sint => F::R32_SINT,
        T::R32Float => F::R32_SFLOAT,
        T::Rg16Uint => F::R16G16_UINT,
        T::Rg16Sint => F::R16G16_SINT,
        T::Rg16Float => F::R16G16_SFLOAT,
        T::Rgba8Unorm => F::R8G8B8A8_UNORM,
        T::Rgba8UnormSrgb => F::R8G8B8A8_SRGB,
        T::Rgba8Snorm => F::R8G8B8A8_SNORM,
        T::Rgba8Uint => F::R8G8B8A8_UINT,
        T::Rgba8Sint => F::R8G8B8A8_SINT,
        T::Bgra8Unorm => F::B8G8R8A8_UNORM,
        T::Bgra8UnormSrgb => F::B8G8R8A8_SRGB,
        other => return wide(other),
    })
}

const fn wide(format: TextureFormat) -> Option<vk::Format> {
    use TextureFormat as T;
    use vk::Format as F;
    Some(match format {
        T::Rgb10a2Uint => F::A2B10G10R10_UINT_PACK32,
        T::Rgb10a2Unorm => F::A2B10G10R10_UNORM_PACK32,
        T::Rg11b10Ufloat => F::B10G11R11_UFLOAT_PACK32,
        T::Rgb9e5Ufloat => F::E5B9G9R9_UFLOAT_PACK32,
        T::Rg32Uint => F::R32G32_UINT,
        T::Rg32Sint => F::R32G32_SINT,
        T::Rg32Float => F::R32G32_SFLOAT,
        T::Rgba16Uint => F::R16G16B16A16_UINT,
        T::Rgba16Sint => F::R16G16B16A16_SINT,
        T::Rgba16Float => F::R16G16B16A16_SFLOAT,
        T::Rgba32Uint => F::R32G32B32A32_UINT,
        T::Rgba32Sint => F::R32G32B32A32_SINT,
        T::Rgba32Float => F::R32G32B32A32_SFLOAT,
        other => return compressed(other),
    })
}

const fn compressed(format: TextureFormat) -> Option<vk::Format> {
    use TextureFormat as T;
    use vk::Format as F;
    Some(match format {
        T::Bc1RgbaUnorm => F::BC1_RGBA_UNORM_BLOCK,
        T::Bc1RgbaUnormSrgb => F::BC1_RGBA_SRGB_BLOCK,
        T::Bc2RgbaUnorm => F::BC2_UNORM_BLOCK,
        T::Bc2RgbaUnormSrgb => F::BC2_SRGB_BLOCK,
        T::Bc3RgbaUnorm => F::BC3_UNORM_BLOCK,
        T::Bc3RgbaUnormSrgb => F::BC3_SRGB_BLOCK,
        T::Bc4RUnorm => F::BC4_UNORM_BLOCK,
        T::Bc4RSnorm => F::BC4_SNORM_BLOCK,
        T::Bc5RgUnorm => F::BC5_UNORM_BLOCK,
        T::Bc5RgSnorm => F::BC5_SNORM_BLOCK,
        T::Bc6hRgbUfloat => F::BC6H_UFLOAT_BLOCK,
        T::Bc6hRgbFloat => F::BC6H_SFLOAT_BLOCK,
        T::Bc7RgbaUnorm => F::BC7_UNORM_BLOCK,
        T::Bc7RgbaUnormSrgb => F::BC7_SRGB_BLOCK,
        _ => return None,
    })
}

/// Returns the native usages; `None` where one has no equal, or where textures of ours must not have it.
///
/// Render targets are wgpu's own. After `StoreOp::Discard` wgpu clears a texture before its next use, and it has no way to
/// clear one that it did not make: it panics.
fn usages(descriptor: &TextureDescriptor<'_>) -> Option<vk::ImageUsageFlags> {
    use TextureUsages as T;
    use vk::ImageUsageFlags as U;
    let pairs = [
        (T::COPY_SRC, U::TRANSFER_SRC),
        (T::COPY_DST, U::TRANSFER_DST),
        (T::TEXTURE_BINDING, U::SAMPLED),
        (T::STORAGE_BINDING, U::STORAGE),
    ];
    let known = pairs.iter().fold(T::empty(), |all, (usage, _)| all | *usage);
    let wanted = pairs.iter().filter(|(usage, _)| descriptor.usage.contains(*usage));
    // Textures are cleared before anyone sees them, which is a transfer.
    let native = wanted.fold(U::TRANSFER_DST, |all, (_, native)| all | *native);
    known.contains(descriptor.usage).then_some(native)
}

/// Returns whether wgpu lets a texture be viewed so: other than srgb or not, formats must not differ, or a view reaches beyond
/// the texture.
fn may_view(texture: TextureFormat, view: TextureFormat) -> bool {
    texture.remove_srgb_suffix() == view.remove_srgb_suffix()
}

/// Returns the native description of a texture that wgpu would accept; `None` where that is not plain to see.
pub(super) fn describe(
    descriptor: &TextureDescriptor<'_>,
    device: &wgpu::Device,
) -> Option<vk::ImageCreateInfo<'static>> {
    let format = descriptor.format;
    let guaranteed = format.guaranteed_format_features(device.features());
    // Compressed blocks are cleared by a write, which wgpu allows where the texture's own usages do.
    let clears = !format.is_compressed() || descriptor.usage.contains(TextureUsages::COPY_DST);
    // wgpu asks that textures of several samples are render targets.
    let fine = device.features().contains(format.required_features())
        && !descriptor.usage.is_empty()
        && guaranteed.allowed_usages.contains(descriptor.usage)
        && descriptor.sample_count == 1
        && descriptor.view_formats.iter().all(|view| may_view(format, *view))
        && clears
        && has_size(descriptor, &device.limits());
    let (width, height) = (descriptor.size.width, descriptor.size.height);
    let deep = descriptor.size.depth_or_array_layers;
    let (kind, depth, layers) = match descriptor.dimension {
        TextureDimension::D1 => (vk::ImageType::TYPE_1D, 1, deep),
        TextureDimension::D2 => (vk::ImageType::TYPE_2D, 1, deep),
        TextureDimension::D3 => (vk::ImageType::TYPE_3D, deep, 1),
    };
    let info = vk::ImageCreateInfo::default()
        .flags(flags(descriptor))
        .image_type(kind)
        .format(native(format)?)
        .extent(vk::Extent3D { width, height, depth })
        .mip_levels(descriptor.mip_level_count)
        .array_layers(layers)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(usages(descriptor)?);
    fine.then_some(info)
}

/// Returns whether every number is within what wgpu asks of all textures and of this device.
fn has_size(descriptor: &TextureDescriptor<'_>, limits: &wgpu::Limits) -> bool {
    let wgpu::Extent3d { width, height, depth_or_array_layers: deep } = descriptor.size;
    let (most, layers) = match descriptor.dimension {
        TextureDimension::D1 => (limits.max_texture_dimension_1d, 1),
        TextureDimension::D2 => (limits.max_texture_dimension_2d, limits.max_texture_array_layers),
        TextureDimension::D3 => (limits.max_texture_dimension_3d, limits.max_texture_dimension_3d),
    };
    let flat = descriptor.dimension != TextureDimension::D1 || height == 1;
    // Compressed blocks are for flat pictures, and whole.
    let usual = !descriptor.format.is_compressed() || descriptor.dimension == TextureDimension::D2;
    let (x, y) = descriptor.format.block_dimensions();
    let levels = 1..=descriptor.size.max_mips(descriptor.dimension).min(MAX_MIP_LEVELS);
    let within = |size: u32, most: u32| (1..=most).contains(&size);
    within(width, most)
        && within(height, most)
        && within(deep, layers)
        && flat
        && usual
        && width.is_multiple_of(x)
        && height.is_multiple_of(y)
        && levels.contains(&descriptor.mip_level_count)
}

/// Returns the image flags that its view formats and view dimensions need.
fn flags(descriptor: &TextureDescriptor<'_>) -> vk::ImageCreateFlags {
    use vk::ImageCreateFlags as F;
    let size = descriptor.size;
    let mut flags = F::empty();
    let six = size.depth_or_array_layers.is_multiple_of(6) && size.width == size.height;
    if descriptor.dimension == TextureDimension::D2 && six {
        flags |= F::CUBE_COMPATIBLE;
    }
    if !descriptor.view_formats.is_empty() {
        flags |= F::MUTABLE_FORMAT;
    }
    flags
}
