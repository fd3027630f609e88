//! An engine on Vulkan that owns its device and takes its memory from omniheap.
//!
//! `cargo run -p omniheap-engines --example vulkan_engine [PICTURE.png]`
//!
//! The engine renders 360 meshes with 220 textures, drops two thirds of the objects as a game does between levels, and
//! goes on rendering while the rest moves together: omniheap copies the meshes, the engine its images. Every picture of
//! that time, and the one after it, is the same to the last bit as without defragmentation.
mod assets;
mod device;
mod frame;
mod image;
mod moving;
mod pipeline;

use assets::Assets;
use core::error::Error;
use device::Device;
use frame::Renderer;
use moving::Moving;
use omniheap_core::{Budget, Manager, Moved};
use omniheap_engines::{Picture, Scene};
use omniheap_vulkan::Vulkan;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or("vulkan_engine.png".into(), PathBuf::from);
    let Some(device) = Device::open()? else {
        println!("no Vulkan 1.3 device here");
        return Ok(());
    };
    let manager = Manager::new(device.memory()?);
    println!("{}", manager.caps().device.name);
    let scene = Scene::new();
    let mut assets = Assets::load(&device, &manager, &scene)?;
    let renderer = Renderer::new(&device, &manager, &scene, &assets)?;
    tell(&manager, "loaded");

    let all: Vec<usize> = (0..scene.objects.len()).collect();
    let picture = renderer.render(&assets, &all)?;
    picture.save(&path)?;
    println!("{} pixels drawn, see {}", picture.covered(), path.display());

    // The level ends: two of three objects go, and leave holes.
    assets.keep(&scene, |index| index % 3 == 0);
    let before = renderer.render(&assets, &all)?;
    tell(&manager, "after the level");
    let frames = defragment_while_rendering(&device, &manager, &renderer, &mut assets)?;
    tell(&manager, "defragmented");
    let after = renderer.render(&assets, &all)?;
    same(&after, &before)?;
    println!("{frames} frames rendered meanwhile; the pictures are the same");
    Ok(())
}

fn same(found: &Picture, wanted: &Picture) -> Result<(), String> {
    match found.differing(wanted) {
        0 => Ok(()),
        wrong => Err(format!("{wrong} pixels changed")),
    }
}

/// Renders half of the objects at a time while a pass moves some of the others, until nothing is left to gain.
fn defragment_while_rendering(
    device: &Device,
    manager: &Manager<Vulkan>,
    renderer: &Renderer<'_>,
    assets: &mut Assets,
) -> Result<u32, Box<dyn Error>> {
    let half =
        |which: usize| (0..assets.meshes.len()).filter(move |n| n / 3 % 2 == which).collect();
    let halves: [Vec<usize>; 2] = [half(0), half(1)];
    let without = [renderer.render(assets, &halves[0])?, renderer.render(assets, &halves[1])?];
    // A frame of a game can spare this much.
    let budget = Budget::new().bytes(512 << 10);
    let (mut frames, mut idle, mut moved, mut images) = (0, 0, Moved::default(), 0);
    while idle < 2 {
        let which = usize::from(frames % 2 == 1);
        let moving = Moving::begin(device, manager, assets, &budget)?;
        // Objects that the frame binds are left where they are.
        same(&renderer.render(assets, &halves[which])?, &without[which])?;
        let (one, of_images) = moving.end(device, manager, assets, &renderer.pipeline)?;
        idle = if one.moves == 0 { idle + 1 } else { 0 };
        moved.moves += one.moves;
        moved.bytes += one.bytes;
        moved.returned_bytes += one.returned_bytes;
        images += of_images;
        frames += 1;
    }
    let Moved { moves, bytes, returned_bytes, .. } = moved;
    println!(
        "{moves} moves ({bytes} bytes), {images} of them images; {returned_bytes} bytes went back to the driver"
    );
    Ok(frames)
}

fn tell(manager: &Manager<Vulkan>, when: &str) {
    let report = manager.report();
    let (live, held) = (report.totals.live_bytes, report.totals.reserved_bytes);
    println!(
        "{when}: {live} bytes live in {held} bytes held, {} driver calls",
        report.driver_calls
    );
}
