//! Allocates and frees as wgpu does when resources are created and dropped, on omniheap and on gpu-allocator from crates.io.
//!
//! `churn [pairs N] [batches N] [align N]` prints the median time of one allocation and its free. Batches of both crates
//! alternate, so that a busy machine slows both. `align` replaces the alignment that the driver asks for. Under callgrind, one
//! batch is enough: read the instructions of the functions `omniheap::…` and `gpu_allocator::…`.
use ash::vk;
use omniheap_vulkan::Vulkan;
use std::{env, error::Error, time::Instant};

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

/// What the command line says.
struct Options {
    pairs: u64,
    batches: usize,
    align: Option<u64>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { pairs: 10_000, batches: 21, align: None };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or("a number follows")?;
        match word.as_str() {
            "pairs" => options.pairs = value.parse()?,
            "batches" => options.batches = value.parse()?,
            "align" => options.align = Some(value.parse()?),
            _ => return Err(format!("`{word}` is not known").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let device = Vulkan::open(0)?;
    let wish = |name, mut asked: vk::MemoryRequirements, linear| {
        asked.alignment = options.align.unwrap_or(asked.alignment);
        println!("{name}: {asked:?}");
        Wish { name, asked, linear }
    };
    let buffers = wish("churned buffer", buffer(&device)?, true);
    let textures = wish("churned texture", image(&device)?, false);
    let sizes: Vec<u64> = (0..options.pairs).map(|n| (1 + n * 37 % SIZES) << 12).collect();

    let mut ours = omniheap::allocator(&device)?;
    let mut theirs = gpu_allocator::allocator(&device)?;
    let our_beside = omniheap::beside(&mut ours, &buffers)?;
    let their_beside = gpu_allocator::beside(&mut theirs, &buffers)?;
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..options.batches {
        times[0].push(time(&sizes, || omniheap::buffers(&mut ours, &buffers, &sizes)));
        times[1].push(time(&sizes, || gpu_allocator::buffers(&mut theirs, &buffers, &sizes)));
        times[2].push(time(&sizes, || omniheap::textures(&mut ours, &textures, &sizes)));
        times[3].push(time(&sizes, || gpu_allocator::textures(&mut theirs, &textures, &sizes)));
    }
    our_beside.into_iter().try_for_each(|piece| ours.free(piece))?;
    their_beside.into_iter().try_for_each(|piece| theirs.free(piece))?;
    let [our_buffer, their_buffer, our_texture, their_texture] = times.map(median);
    println!(
        "{{\"buffer_ns\":{our_buffer:.1},\"gpu_allocator_buffer_ns\":{their_buffer:.1},\
         \"texture_ns\":{our_texture:.1},\"gpu_allocator_texture_ns\":{their_texture:.1}}}"
    );
    Ok(())
}

/// Returns the nanoseconds of one pair.
fn time(sizes: &[u64], pairs: impl FnOnce()) -> f64 {
    let start = Instant::now();
    pairs();
    start.elapsed().as_secs_f64() * 1e9 / sizes.len() as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
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
