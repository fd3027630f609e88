//! An image as one row of bytes: its texels without gaps, each level, layer and slice behind the one before. Pure.
#![forbid(unsafe_code)]
use ash::vk;
use core::ops::Range;

/// Description of an image whose texels can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Texels {
    /// Bytes of a block of texels: one texel, where the format is not compressed.
    bytes: u64,
    /// Texels of a block, in width and height.
    block: [u32; 2],
    extent: vk::Extent3D,
    levels: u32,
    layers: u32,
}

/// One slice of a level of a layer.
#[derive(Clone, Copy)]
struct Slice {
    level: u32,
    layer: u32,
    depth: u32,
    width: u32,
    height: u32,
    /// Bytes of a row of blocks.
    row: u64,
    bytes: u64,
}

impl Texels {
    /// Returns the texels of an image as `info` says; `None` for formats with several planes or aspects, and those whose blocks have no power of two of bytes.
    pub(crate) fn of(info: &vk::ImageCreateInfo<'_>) -> Option<Self> {
        let (bytes, width, height) = block_of(info.format)?;
        let (levels, layers) = (info.mip_levels, info.array_layers);
        Some(Self { bytes, block: [width, height], extent: info.extent, levels, layers })
    }

    /// Returns the number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.slices().map(|slice| slice.bytes).sum()
    }

    /// Returns the parts of the image that a range of bytes covers, as copies with a buffer in which the range starts at `start`. The range starts and ends at
    /// multiples of a block.
    pub(crate) fn regions(&self, range: Range<u64>, start: u64) -> Vec<vk::BufferImageCopy> {
        let (mut regions, mut begin) = (Vec::new(), 0);
        for slice in self.slices() {
            let end = begin + slice.bytes;
            let (mut at, stop) = (range.start.max(begin), range.end.min(end));
            while at < stop {
                let (region, bytes) = self.region(&slice, at - begin, stop - at);
                regions.push(region.buffer_offset(start + (at - range.start)));
                at += bytes;
            }
            begin = end;
        }
        regions
    }

    fn slices(&self) -> impl Iterator<Item = Slice> + '_ {
        (0..self.levels).flat_map(move |level| {
            let of_level = |size: u32| size.checked_shr(level).unwrap_or(0).max(1);
            let [width, height] = [self.extent.width, self.extent.height].map(of_level);
            let row = u64::from(width.div_ceil(self.block[0])) * self.bytes;
            let bytes = row * u64::from(height.div_ceil(self.block[1]));
            let depths = of_level(self.extent.depth);
            let places = (0..self.layers).flat_map(move |at| (0..depths).map(move |z| (at, z)));
            places.map(move |(layer, depth)| Slice {
                level,
                layer,
                depth,
                width,
                height,
                row,
                bytes,
            })
        })
    }

    /// Returns the longest part of a slice that starts `at` bytes in it, has at most `most` bytes and is a rectangle, and its bytes.
    fn region(&self, slice: &Slice, at: u64, most: u64) -> (vk::BufferImageCopy, u64) {
        let blocks = |bytes: u64| u32::try_from(bytes / self.bytes).unwrap_or(u32::MAX);
        let rows = |bytes: u64| u32::try_from(bytes / slice.row).unwrap_or(u32::MAX);
        let (y, in_row) = (rows(at), at % slice.row);
        let x = blocks(in_row);
        let (wide, high, bytes) = match in_row == 0 && most >= slice.row {
            true => (slice.width, rows(most), most / slice.row * slice.row),
            false => {
                let bytes = most.min(slice.row - in_row);
                (blocks(bytes) * self.block[0], 1, bytes)
            }
        };
        let [x, y] = [x * self.block[0], y * self.block[1]];
        let width = wide.min(slice.width - x);
        let height = (high * self.block[1]).min(slice.height - y);
        let subresource = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .mip_level(slice.level)
            .base_array_layer(slice.layer)
            .layer_count(1);
        let [x, y, z] = [x, y, slice.depth].map(u32::cast_signed);
        let region = vk::BufferImageCopy::default()
            .image_subresource(subresource)
            .image_offset(vk::Offset3D { x, y, z })
            .image_extent(vk::Extent3D { width, height, depth: 1 });
        (region, bytes)
    }
}

/// Texels of a block of the formats of ASTC, in the order of their numbers; each has two.
const ASTC: [[u32; 2]; 14] = [
    [4, 4],
    [5, 4],
    [5, 5],
    [6, 5],
    [6, 6],
    [8, 5],
    [8, 6],
    [8, 8],
    [10, 5],
    [10, 6],
    [10, 8],
    [10, 10],
    [12, 10],
    [12, 12],
];

/// Returns the bytes of a block of texels, its width and its height.
fn block_of(format: vk::Format) -> Option<(u64, u32, u32)> {
    // By number, because those of a kind lie side by side.
    let (bytes, [width, height]) = match format.as_raw() {
        1 | 9..=15 => (1, [1, 1]),
        2..=8 | 16..=22 | 70..=76 => (2, [1, 1]),
        37..=69 | 77..=83 | 98..=100 | 122 | 123 => (4, [1, 1]),
        91..=97 | 101..=103 | 110..=112 => (8, [1, 1]),
        107..=109 | 113..=115 => (16, [1, 1]),
        131..=134 | 139 | 140 | 147..=150 | 153 | 154 => (8, [4, 4]),
        135..=138 | 141..=146 | 151 | 152 | 155 | 156 => (16, [4, 4]),
        number @ 157..=184 => (16, *ASTC.get(usize::try_from((number - 157) / 2).ok()?)?),
        _ => return None,
    };
    Some((bytes, width, height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk::Format as F;

    fn texels(format: F, [width, height, depth]: [u32; 3], levels: u32, layers: u32) -> Texels {
        let extent = vk::Extent3D { width, height, depth };
        let info = vk::ImageCreateInfo::default().format(format).extent(extent);
        Texels::of(&info.mip_levels(levels).array_layers(layers)).expect("a format that is served")
    }

    #[test]
    fn blocks_are_those_of_the_specification() {
        let known = [
            (F::R4G4_UNORM_PACK8, Some((1, 1, 1))),
            (F::A1R5G5B5_UNORM_PACK16, Some((2, 1, 1))),
            (F::R8_SRGB, Some((1, 1, 1))),
            (F::R8G8_SRGB, Some((2, 1, 1))),
            (F::R8G8B8_UNORM, None),
            (F::R8G8B8A8_UNORM, Some((4, 1, 1))),
            (F::A2B10G10R10_SINT_PACK32, Some((4, 1, 1))),
            (F::R16_SFLOAT, Some((2, 1, 1))),
            (F::R16G16_UNORM, Some((4, 1, 1))),
            (F::R16G16B16_SFLOAT, None),
            (F::R16G16B16A16_SFLOAT, Some((8, 1, 1))),
            (F::R32_UINT, Some((4, 1, 1))),
            (F::R32G32_SFLOAT, Some((8, 1, 1))),
            (F::R32G32B32_SFLOAT, None),
            (F::R32G32B32A32_SFLOAT, Some((16, 1, 1))),
            (F::R64_UINT, Some((8, 1, 1))),
            (F::R64G64_SFLOAT, Some((16, 1, 1))),
            (F::R64G64B64A64_SFLOAT, None),
            (F::E5B9G9R9_UFLOAT_PACK32, Some((4, 1, 1))),
            (F::D16_UNORM, None),
            (F::D32_SFLOAT_S8_UINT, None),
            (F::BC1_RGBA_SRGB_BLOCK, Some((8, 4, 4))),
            (F::BC3_SRGB_BLOCK, Some((16, 4, 4))),
            (F::BC4_SNORM_BLOCK, Some((8, 4, 4))),
            (F::BC7_SRGB_BLOCK, Some((16, 4, 4))),
            (F::ETC2_R8G8B8A1_SRGB_BLOCK, Some((8, 4, 4))),
            (F::ETC2_R8G8B8A8_UNORM_BLOCK, Some((16, 4, 4))),
            (F::EAC_R11_SNORM_BLOCK, Some((8, 4, 4))),
            (F::EAC_R11G11_SNORM_BLOCK, Some((16, 4, 4))),
            (F::ASTC_4X4_UNORM_BLOCK, Some((16, 4, 4))),
            (F::ASTC_8X5_SRGB_BLOCK, Some((16, 8, 5))),
            (F::ASTC_12X12_SRGB_BLOCK, Some((16, 12, 12))),
            (F::G8_B8R8_2PLANE_420_UNORM, None),
            (F::UNDEFINED, None),
        ];
        for (format, block) in known {
            assert_eq!(block_of(format), block, "{format:?}");
        }
    }

    #[test]
    fn a_range_covers_the_image_once_however_it_is_cut() {
        let images = [
            texels(F::R8G8B8A8_UNORM, [37, 19, 1], 6, 3),
            texels(F::R8_UNORM, [33, 7, 5], 4, 1),
            texels(F::BC1_RGB_UNORM_BLOCK, [37, 19, 1], 6, 2),
            texels(F::ASTC_10X6_SRGB_BLOCK, [64, 64, 1], 7, 1),
            texels(F::R32G32B32A32_SFLOAT, [1, 1, 1], 1, 1),
        ];
        for image in images {
            let whole = image.size();
            for step in [16, 48, 4096, u64::MAX] {
                let (mut at, mut covered) = (0, Vec::new());
                while at < whole {
                    let end = at.saturating_add(step).min(whole);
                    let regions = image.regions(at..end, 64);
                    covered.extend(check(&image, &regions, end - at));
                    at = end;
                }
                covered.sort_unstable();
                let blocks = usize::try_from(whole / image.bytes).expect("small");
                assert_eq!(covered.len(), blocks, "{image:?} by {step}");
                covered.dedup();
                assert_eq!(covered.len(), blocks, "no block twice: {image:?} by {step}");
            }
        }
    }

    /// Level, layer, slice, row and column of each block that regions cover; checks that they lie side by side in the buffer, and what
    /// Vulkan demands of them.
    fn check(image: &Texels, regions: &[vk::BufferImageCopy], bytes: u64) -> Vec<[u32; 5]> {
        let (mut at, mut covered) = (64, Vec::new());
        for region in regions {
            assert_eq!(region.buffer_offset, at);
            let (from, size, of) =
                (region.image_offset, region.image_extent, region.image_subresource);
            let [x, y, z] = [from.x, from.y, from.z].map(i32::cast_unsigned);
            let [wide, high] = image.block;
            let level = |size: u32| (size >> of.mip_level).max(1);
            let ends = (x + size.width, y + size.height);
            assert!(x % wide == 0 && y % high == 0, "{region:?}");
            assert!(ends.0 <= level(image.extent.width) && ends.1 <= level(image.extent.height));
            assert!(size.width % wide == 0 || ends.0 == level(image.extent.width));
            assert!(size.height % high == 0 || ends.1 == level(image.extent.height));
            assert!(z < level(image.extent.depth) && size.depth == 1);
            for row in 0..size.height.div_ceil(high) {
                for column in 0..size.width.div_ceil(wide) {
                    let (row, column) = (y / high + row, x / wide + column);
                    covered.push([of.mip_level, of.base_array_layer, z, row, column]);
                    at += image.bytes;
                }
            }
        }
        assert_eq!(at - 64, bytes);
        covered
    }
}
