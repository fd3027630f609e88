//! Renders, spawns and drops with wgpu, and prints what that took as one line of JSON.
//!
//! `scene OUT.rgba [frames N] [mib N]`: the picture goes to `OUT.rgba`.
mod draw;
mod memory;

use std::{env, error::Error, fs};

/// Options of the command line.
struct Options {
    picture: String,
    frames: u32,
    mib: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let Some((device, queue)) = open()? else {
        println!("no Vulkan device here");
        return Ok(());
    };
    let bare = memory::report(&device);
    let renderer = draw::Renderer::new(&device, &queue);
    let mut picture = Vec::new();
    let mut peak = memory::report(&device);
    for frame in 0..options.frames {
        picture = renderer.frame(frame)?;
        peak = peak.max(memory::report(&device));
    }
    fs::write(&options.picture, &picture)?;
    drop(renderer);
    memory::collect(&device)?;
    let load = memory::load(&device, &queue, options.mib)?;
    let churn = memory::churn(&device)?;
    println!(
        "{{\"bare\":{},\"scene_peak\":{},\"load_peak\":{},\"live_after\":{},\"held_after\":{},\
         \"buffer_ns\":{},\"texture_ns\":{},\"picture\":\"{:016x}\"}}",
        bare.held,
        peak.held,
        load.peak.held,
        load.after.live,
        load.after.held,
        churn.buffer_ns,
        churn.texture_ns,
        draw::hash(&picture)
    );
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let picture = words.next().ok_or("usage: scene OUT.rgba [frames N] [mib N]")?;
    let mut options = Options { picture, frames: 200, mib: 256 };
    while let Some(word) = words.next() {
        let value = words.next().ok_or("a number follows")?;
        match word.as_str() {
            "frames" => options.frames = value.parse()?,
            "mib" => options.mib = value.parse()?,
            _ => return Err(format!("`{word}` is not known").into()),
        }
    }
    Ok(options)
}

/// Opens a device; `None` where there is none and none is required.
fn open() -> Result<Option<(wgpu::Device, wgpu::Queue)>, Box<dyn Error>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        flags: wgpu::InstanceFlags::from_env_or_default(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let required = env::var("OMNIHEAP_REQUIRE").is_ok_and(|list| list.contains("vulkan"));
    let adapter = match pollster::block_on(instance.request_adapter(&Default::default())) {
        Err(_) if !required => return Ok(None),
        found => found?,
    };
    Ok(Some(pollster::block_on(adapter.request_device(&Default::default()))?))
}
