//! An engine on wgpu that owns its device and takes the memory of its buffers and textures from omniheap.
//!
//! `cargo run -p omniheap-engines --example wgpu_engine [PICTURE.png]`
//!
//! The same scene as `vulkan_engine`: 360 meshes and 220 textures. Where wgpu runs on Vulkan, textures lie in the manager's
//! memory too; render targets, and elsewhere all textures, are placed by wgpu and counted. Meshes move together after two thirds of them are gone.
mod frame;
mod setup;

use core::error::Error;
use frame::Renderer;
use omniheap_core::{Align, Allocation, Manager, PoolConfig, Request, Writer};
use omniheap_engines::Scene;
use omniheap_wgpu::{Wgpu, wgpu};
use std::path::PathBuf;

/// The meshes on the device; those that were dropped are `None`.
pub(crate) type Meshes = Vec<Option<Allocation<Wgpu>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or("wgpu_engine.png".into(), PathBuf::from);
    let Some((device, queue)) = open()? else {
        println!("no device for wgpu here");
        return Ok(());
    };
    // The engine keeps its device; omniheap works beside it, on memory of its own where wgpu runs on Vulkan.
    let wgpu = Wgpu::wrap(device.clone(), queue.clone());
    let manager =
        Manager::new(wgpu.with_own_memory().unwrap_or_else(|_| Wgpu::wrap(device, queue)));
    println!("{}", manager.caps().device.name);
    let scene = Scene::new();
    let mut meshes = load(&manager, &scene)?;
    let renderer = Renderer::new(&manager, &scene)?;
    println!("{} of {} textures are ours", renderer.placed(), scene.textures.len() + 2);
    tell(&manager, "loaded");
    let picture = renderer.render(&meshes)?;
    picture.save(&path)?;
    println!("{} pixels drawn, see {}", picture.covered(), path.display());

    // The level ends: two of three meshes go, and leave holes.
    for (index, mesh) in meshes.iter_mut().enumerate() {
        if index % 3 != 0 {
            *mesh = None;
        }
    }
    let before = renderer.render(&meshes)?;
    tell(&manager, "after the level");
    let returned = manager.defragment()?;
    tell(&manager, "defragmented");
    match renderer.render(&meshes)?.differing(&before) {
        0 => println!("{returned} bytes went back to the driver; the pictures are the same"),
        wrong => return Err(format!("{wrong} pixels changed").into()),
    }
    Ok(())
}

/// Opens the first device that renders; `None` where there is none.
fn open() -> Result<Option<(wgpu::Device, wgpu::Queue)>, Box<dyn Error>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::PRIMARY,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&Default::default())) else {
        return Ok(None);
    };
    let wanted = wgpu::DeviceDescriptor { label: Some("wgpu_engine"), ..Default::default() };
    Ok(Some(pollster::block_on(adapter.request_device(&wanted))?))
}

/// Moves every mesh into a pool of small blocks, each of which can be emptied and freed.
fn load(manager: &Manager<Wgpu>, scene: &Scene) -> Result<Meshes, Box<dyn Error>> {
    let request = |bytes: &[u8]| {
        Request::new(bytes.len() as u64).align(Align::of(16)).writer(Writer::HostOnce).name("mesh")
    };
    let heap = manager.explain(&request(&[0; 4]))?.placement.heaps.as_slice()[0];
    let small = PoolConfig::new().block(1 << 20);
    let pool = manager.create_pool(heap, small)?;
    let mut meshes = Vec::new();
    for mesh in &scene.meshes {
        let allocation = pool.allocate(&request(&mesh.bytes))?;
        allocation.write(0, &mesh.bytes)?;
        meshes.push(Some(allocation));
    }
    Ok(meshes)
}

fn tell(manager: &Manager<Wgpu>, when: &str) {
    let report = manager.report();
    let (live, held) = (report.totals.live_bytes, report.totals.reserved_bytes);
    // wgpu counts what it allocated itself: staging, and textures where it places them.
    let all = manager.backend().bytes_of_wgpu();
    let all = all.map_or("unknown".into(), |bytes| bytes.to_string());
    println!("{when}: {live} bytes live in {held} bytes held; wgpu holds {all} bytes in all");
}
