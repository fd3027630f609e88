//! Allocates and frees as wgpu does when resources are created and dropped, on omniheap and on gpu-allocator from crates.io.
//!
//! `churn [rounds]`: run it under callgrind, and read the instructions of the functions `ours::…` and `theirs::…`.
use ash::vk;
use omniheap_vulkan::Vulkan;
use std::{env, error::Error};

/// A resource: what the driver asks for, and whether it is a buffer.
struct Wish {
    name: &'static str,
    asked: vk::MemoryRequirements,
    linear: bool,
}

/// Sizes of what is created and dropped, in units of 4 KiB.
const SIZES: u64 = 64;
/// Allocations that live meanwhile.
const BESIDE: u64 = 1000;

/// One program for each of the two crates, which have the same interface.
macro_rules! churn {
    ($module:ident, $crate_name:ident) => {
        mod $module {
            use super::{BESIDE, Vulkan, Wish};
            use std::error::Error;
            use $crate_name::{
                AllocationSizes, MemoryLocation,
                vulkan::{
                    Allocation, AllocationCreateDesc, AllocationScheme, Allocator,
                    AllocatorCreateDesc,
                },
            };

            pub(super) fn allocator(on: &Vulkan) -> Result<Allocator, Box<dyn Error>> {
                Ok(Allocator::new(&AllocatorCreateDesc {
                    instance: on.ash_instance().clone(),
                    device: on.ash_device().clone(),
                    physical_device: on.physical_device(),
                    debug_settings: Default::default(),
                    buffer_device_address: false,
                    allocation_sizes: AllocationSizes::default(),
                })?)
            }

            fn desc<'a>(wish: &'a Wish, size: u64) -> AllocationCreateDesc<'a> {
                AllocationCreateDesc {
                    name: wish.name,
                    requirements: ash::vk::MemoryRequirements { size, ..wish.asked },
                    location: MemoryLocation::GpuOnly,
                    linear: wish.linear,
                    allocation_scheme: AllocationScheme::GpuAllocatorManaged,
                }
            }

            /// What lives beside: pieces of 1 to 64 KiB.
            pub(super) fn beside(
                allocator: &mut Allocator,
                wish: &Wish,
            ) -> Result<Vec<Allocation>, Box<dyn Error>> {
                let sizes = (0..BESIDE).map(|n| (1 + n * 29 % 64) << 10);
                Ok(sizes
                    .map(|size| allocator.allocate(&desc(wish, size)))
                    .collect::<Result<_, _>>()?)
            }

            #[inline(never)]
            pub(super) fn buffers(on: &mut Allocator, wish: &Wish, sizes: &[u64]) {
                pairs(on, wish, sizes);
            }

            #[inline(never)]
            pub(super) fn textures(on: &mut Allocator, wish: &Wish, sizes: &[u64]) {
                pairs(on, std::hint::black_box(wish), sizes);
            }

            #[inline(always)]
            fn pairs(on: &mut Allocator, wish: &Wish, sizes: &[u64]) {
                for size in sizes {
                    let made = on.allocate(&desc(wish, *size)).expect("there is room");
                    on.free(std::hint::black_box(made)).expect("it is this allocator's");
                }
            }
        }
    };
}

churn!(omniheap, ours);
churn!(gpu_allocator, theirs);

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u64 = env::args().nth(1).map_or(Ok(10_000), |n| n.parse())?;
    let device = Vulkan::open(0)?;
    let buffers = Wish { name: "churned buffer", asked: buffer(&device)?, linear: true };
    let textures = Wish { name: "churned texture", asked: image(&device)?, linear: false };
    let sizes: Vec<u64> = (0..rounds).map(|n| (1 + n * 37 % SIZES) << 12).collect();
    println!("{:?} {:?}", buffers.asked, textures.asked);

    let mut one = omniheap::allocator(&device)?;
    let beside = omniheap::beside(&mut one, &buffers)?;
    omniheap::buffers(&mut one, &buffers, &sizes);
    omniheap::textures(&mut one, &textures, &sizes);
    beside.into_iter().try_for_each(|piece| one.free(piece))?;

    let mut other = gpu_allocator::allocator(&device)?;
    let beside = gpu_allocator::beside(&mut other, &buffers)?;
    gpu_allocator::buffers(&mut other, &buffers, &sizes);
    gpu_allocator::textures(&mut other, &textures, &sizes);
    beside.into_iter().try_for_each(|piece| other.free(piece))?;
    Ok(())
}

fn buffer(on: &Vulkan) -> Result<vk::MemoryRequirements, vk::Result> {
    let usage = vk::BufferUsageFlags::VERTEX_BUFFER | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(4096).usage(usage);
    let device = on.ash_device();
    // SAFETY: a plain buffer.
    let made = unsafe { device.create_buffer(&info, None) }?;
    // SAFETY: created just above.
    let asked = unsafe { device.get_buffer_memory_requirements(made) };
    // SAFETY: nothing ever used it.
    unsafe { device.destroy_buffer(made, None) };
    Ok(asked)
}

fn image(on: &Vulkan) -> Result<vk::MemoryRequirements, vk::Result> {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 64, height: 64, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST);
    let device = on.ash_device();
    // SAFETY: a plain image.
    let made = unsafe { device.create_image(&info, None) }?;
    // SAFETY: created just above.
    let asked = unsafe { device.get_image_memory_requirements(made) };
    // SAFETY: nothing ever used it.
    unsafe { device.destroy_image(made, None) };
    Ok(asked)
}
