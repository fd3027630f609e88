//! Memory that the allocator under wgpu holds, and the time that it takes.
use std::{error::Error, time::Instant};

/// Bytes of an allocator: live, and held from the driver.
#[derive(Clone, Copy, Default)]
pub struct Held {
    pub live: u64,
    pub held: u64,
}

impl Held {
    pub fn max(self, other: Self) -> Self {
        Self { live: self.live.max(other.live), held: self.held.max(other.held) }
    }
}

pub fn report(device: &wgpu::Device) -> Held {
    let report = device.generate_allocator_report().expect("wgpu's Vulkan backend has one");
    Held { live: report.total_allocated_bytes, held: report.total_reserved_bytes }
}

/// Waits for the device, so that wgpu frees what was dropped.
pub fn collect(device: &wgpu::Device) -> Result<(), Box<dyn Error>> {
    device.poll(wgpu::PollType::wait_indefinitely())?;
    Ok(())
}

/// A fixed sequence of numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 11) % u64::from(limit)).expect("below a u32")
    }
}

pub struct Load {
    pub peak: Held,
    pub after: Held,
}

/// One level of a game: its meshes and textures, created and uploaded one after the other.
#[derive(Default)]
struct Level {
    _buffers: Vec<wgpu::Buffer>,
    _textures: Vec<wgpu::Texture>,
    bytes: u64,
}

fn level(device: &wgpu::Device, queue: &wgpu::Queue, random: &mut Random, bytes: u64) -> Level {
    let mut level = Level::default();
    while level.bytes < bytes {
        if random.below(3) == 0 {
            let side = 128 << random.below(4);
            let texture = texture(device, side, "texture of a level");
            level.bytes += u64::from(side * side * 4);
            upload(queue, &texture, side);
            level._textures.push(texture);
        } else {
            let size = u64::from(16 + random.below(512)) << 10;
            let mesh = buffer(device, size, "mesh of a level");
            queue.write_buffer(&mesh, 0, &[7; 1024]);
            level.bytes += size;
            level._buffers.push(mesh);
        }
        queue.submit([]);
    }
    level
}

/// Loads ten levels and drops nine.
pub fn load(device: &wgpu::Device, queue: &wgpu::Queue, mib: u64) -> Result<Load, Box<dyn Error>> {
    let mut random = Random::new(20);
    let mut levels = Vec::new();
    let mut peak = Held::default();
    for _ in 0..10 {
        levels.push(level(device, queue, &mut random, (mib << 20) / 10));
        collect(device)?;
        peak = peak.max(report(device));
    }
    levels.truncate(1);
    collect(device)?;
    Ok(Load { peak, after: report(device) })
}

pub struct Churn {
    pub buffer_ns: u128,
    pub texture_ns: u128,
}

/// The median time of creating and dropping, with a thousand others live.
pub fn churn(device: &wgpu::Device) -> Result<Churn, Box<dyn Error>> {
    let mut random = Random::new(5);
    let live: Vec<_> = (0..1000)
        .map(|_| buffer(device, u64::from(1 + random.below(64)) << 10, "beside"))
        .collect();
    let mut time = |make: &mut dyn FnMut(u32)| -> Result<u128, Box<dyn Error>> {
        let mut rounds = Vec::new();
        for _ in 0..21 {
            let start = Instant::now();
            for _ in 0..200 {
                make(random.below(64));
            }
            collect(device)?;
            rounds.push(start.elapsed().as_nanos() / 200);
        }
        rounds.sort_unstable();
        Ok(rounds[rounds.len() / 2])
    };
    let buffer_ns = time(&mut |n| drop(buffer(device, u64::from(1 + n) << 12, "churned buffer")))?;
    let texture_ns = time(&mut |n| drop(texture(device, 16 + 4 * n, "churned texture")))?;
    drop(live);
    Ok(Churn { buffer_ns, texture_ns })
}

pub fn buffer(device: &wgpu::Device, size: u64, label: &str) -> wgpu::Buffer {
    let usage = wgpu::BufferUsages::VERTEX | wgpu::BufferUsages::COPY_DST;
    let label = Some(label);
    device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
}

pub fn texture(device: &wgpu::Device, side: u32, label: &str) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: Some(label),
        size: wgpu::Extent3d { width: side, height: side, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

fn upload(queue: &wgpu::Queue, texture: &wgpu::Texture, side: u32) {
    let bytes = vec![5; (side * side * 4) as usize];
    write(queue, texture, side, &bytes);
}

pub fn write(queue: &wgpu::Queue, texture: &wgpu::Texture, side: u32, bytes: &[u8]) {
    let rows = wgpu::TexelCopyBufferLayout { bytes_per_row: Some(side * 4), ..Default::default() };
    queue.write_texture(texture.as_image_copy(), bytes, rows, texture.size());
}
