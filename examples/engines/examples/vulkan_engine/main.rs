//! An engine on Vulkan that owns its device and takes its memory from omniheap.
//!
//! `cargo run -p omniheap-engines --example vulkan_engine [PICTURE.png]`
//!
//! It renders 360 meshes with 220 textures, drops two thirds of the meshes as a game does between levels, and goes on
//! rendering while omniheap moves the rest together: the pictures before and after are the same to the last bit.
mod assets;
mod device;
mod frame;
mod image;
mod pipeline;

use assets::Assets;
use core::error::Error;
use device::Device;
use frame::Renderer;
use omniheap_core::{Budget, Manager, ManagerConfig, Moved};
use omniheap_engines::Scene;
use omniheap_vulkan::Vulkan;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or("vulkan_engine.png".into(), PathBuf::from);
    let Some(device) = Device::open()? else {
        println!("no Vulkan 1.3 device here");
        return Ok(());
    };
    // Images cannot be bound to pages that move, so this engine asks for whole blocks.
    let manager = Manager::with_config(device.memory()?, ManagerConfig::default().plain());
    println!("{}", manager.caps().device.name);
    let scene = Scene::new();
    let mut assets = Assets::load(&device, &manager, &scene)?;
    let renderer = Renderer::new(&device, &manager, &scene, &assets)?;
    tell(&manager, "loaded");

    let all: Vec<usize> = (0..scene.objects.len()).collect();
    let picture = renderer.render(&assets, &all)?;
    picture.save(&path)?;
    println!("{} pixels drawn, see {}", picture.covered(), path.display());

    // The level ends: two of three meshes go, and leave holes.
    for index in all.iter().filter(|index| *index % 3 != 0) {
        assets.meshes[*index] = None;
    }
    let before = renderer.render(&assets, &all)?;
    tell(&manager, "after the level");
    let frames = defragment_while_rendering(&manager, &renderer, &assets)?;
    tell(&manager, "defragmented");
    let after = renderer.render(&assets, &all)?;
    match after.differing(&before) {
        0 => println!("{frames} frames rendered meanwhile; the pictures are the same"),
        wrong => return Err(format!("{wrong} pixels changed").into()),
    }
    Ok(())
}

/// Renders half of the objects at a time while a pass moves some of the others, until nothing is left to gain.
fn defragment_while_rendering(
    manager: &Manager<Vulkan>,
    renderer: &Renderer<'_>,
    assets: &Assets,
) -> Result<u32, Box<dyn Error>> {
    let half =
        |which: usize| (0..assets.meshes.len()).filter(move |n| n / 3 % 2 == which).collect();
    let halves: [Vec<usize>; 2] = [half(0), half(1)];
    // What a frame of a game can spare.
    let budget = Budget::new().bytes(512 << 10);
    let (mut frames, mut idle, mut moved) = (0, 0, Moved::default());
    while idle < 2 {
        // The copies are queued before the frame's own work; what the frame binds is left where it is.
        let mut pass = manager.begin_defragment(&budget)?;
        pass.start()?;
        renderer.render(assets, &halves[usize::from(frames % 2 == 1)])?;
        let one = pass.commit()?.moved;
        idle = if one.moves == 0 { idle + 1 } else { 0 };
        moved.moves += one.moves;
        moved.bytes += one.bytes;
        moved.returned_bytes += one.returned_bytes;
        frames += 1;
    }
    let Moved { moves, bytes, returned_bytes, .. } = moved;
    println!(
        "{moves} meshes moved ({bytes} bytes), {returned_bytes} bytes went back to the driver"
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
