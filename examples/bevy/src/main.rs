//! A headless Bevy program: spawns and despawns meshes and textures, and prints its memory as one line of JSON.
//!
//! `bevy-on-omniheap OUT.rgba [frames N] [mib N]`: the last picture goes to `OUT.rgba`. Nothing in here knows whose memory it
//! gets; `without/` is the same program on another allocator.
mod memory;

use bevy::asset::RenderAssetUsages;
use bevy::camera::RenderTarget;
use bevy::core_pipeline::tonemapping::Tonemapping;
use bevy::prelude::*;
use bevy::render::gpu_readback::{Readback, ReadbackComplete};
use bevy::render::render_resource::{Extent3d, TextureDimension, TextureFormat, TextureUsages};
use bevy::render::{RenderPlugin, renderer::RenderDevice};
use bevy::window::ExitCondition;
use memory::{Held, MemoryPlugin};
use std::collections::VecDeque;
use std::f32::consts::FRAC_PI_2;
use std::{env, error::Error, fs};

const WIDTH: u32 = 320;
const HEIGHT: u32 = 240;
/// Things that live at a time while frames are drawn.
const MOST_THINGS: usize = 48;
/// Frames until what was despawned has left the device: Bevy and wgpu free it some frames later.
const SETTLE: u32 = 8;

/// A fixed sequence of numbers.
#[derive(Resource)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % u64::from(limit)) as u32
    }
}

/// The picture that the camera draws into, and its bytes after a readback.
#[derive(Resource)]
struct Target(Handle<Image>);
#[derive(Resource, Default)]
struct Picture(Vec<u8>);

/// Entities that were spawned, the oldest first.
#[derive(Resource, Default)]
struct Things(VecDeque<Entity>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let path = words.next().ok_or("usage: bevy-on-omniheap OUT.rgba [frames N] [mib N]")?;
    let (mut frames, mut mib) = (200, 128);
    while let Some(word) = words.next() {
        let value = words.next().ok_or("a number follows")?;
        match word.as_str() {
            "frames" => frames = value.parse()?,
            "mib" => mib = value.parse()?,
            _ => return Err(format!("`{word}` is not known").into()),
        }
    }
    let mut app = app();
    let bare = held(&app);
    let mut peak = Held::default();
    for _ in 0..frames {
        app.world_mut().run_system_cached(spawn_and_despawn).map_err(|why| why.to_string())?;
        app.update();
        peak = peak.max(held(&app));
    }
    let picture = picture(&mut app)?;
    fs::write(&path, &picture)?;
    let (loaded, after) = load_and_drop(&mut app, mib)?;
    println!(
        "{{\"bare\":{},\"scene_peak\":{},\"load_peak\":{},\"live_after\":{},\"held_after\":{}}}",
        bare.held, peak.held, loaded.held, after.live, after.held
    );
    Ok(())
}

/// Bevy without windows, ready for its first frame.
fn app() -> App {
    let mut app = App::new();
    let window =
        WindowPlugin { primary_window: None, exit_condition: ExitCondition::DontExit, ..default() };
    // Otherwise a picture depends on when the compiler of shaders ends.
    let render = RenderPlugin { synchronous_pipeline_compilation: true, ..default() };
    app.add_plugins(DefaultPlugins.set(window).set(render))
        .add_plugins(MemoryPlugin)
        .insert_resource(ClearColor(Color::BLACK))
        .insert_resource(Random(20))
        .init_resource::<Things>()
        .init_resource::<Picture>()
        .add_systems(Startup, set_up);
    app.finish();
    app.cleanup();
    app
}

fn held(app: &App) -> Held {
    Held::of(app.world().resource::<RenderDevice>())
}

fn set_up(mut commands: Commands, mut images: ResMut<Assets<Image>>) {
    let mut image = Image::new_target_texture(WIDTH, HEIGHT, TextureFormat::Rgba8UnormSrgb, None);
    image.texture_descriptor.usage |= TextureUsages::COPY_SRC;
    let image = images.add(image);
    commands.spawn((
        Camera3d::default(),
        RenderTarget::Image(image.clone().into()),
        Tonemapping::None,
        Msaa::Sample4,
        Transform::from_xyz(-2.5, 7.5, 14.0).looking_at(Vec3::ZERO, Vec3::Y),
    ));
    commands.spawn((
        PointLight { shadow_maps_enabled: true, ..default() },
        Transform::from_xyz(4.0, 8.0, 4.0),
    ));
    commands.insert_resource(Target(image));
}

/// A mesh with a texture of its own, so that each thing has memory of its own.
fn thing(
    random: &mut Random,
    meshes: &mut Assets<Mesh>,
    images: &mut Assets<Image>,
    materials: &mut Assets<StandardMaterial>,
) -> (impl Bundle, u64) {
    let detail = 1 + random.below(5);
    let mesh = match random.below(3) {
        0 => Mesh::from(Cuboid::from_length(0.8)),
        1 => Sphere::new(0.5).mesh().ico(detail * 4).expect("few enough triangles"),
        _ => Torus::new(0.2, 0.5).mesh().major_resolution(8 * detail as usize).build(),
    };
    let side = 32 << random.below(5);
    let shade = [random.below(256) as u8, random.below(256) as u8, 200, 255];
    let size = Extent3d { width: side, height: side, depth_or_array_layers: 1 };
    let pixels = shade.repeat((side * side) as usize);
    let format = TextureFormat::Rgba8UnormSrgb;
    let usage = RenderAssetUsages::RENDER_WORLD;
    let image = Image::new(size, TextureDimension::D2, pixels, format, usage);
    let bytes = u64::from(side * side * 4) + mesh.get_vertex_buffer_size() as u64;
    let material = StandardMaterial { base_color_texture: Some(images.add(image)), ..default() };
    let mut at = || random.below(1000) as f32 / 125.0 - 4.0;
    let place = Transform::from_xyz(at(), at() / 4.0, at())
        .with_rotation(Quat::from_rotation_y(at() * FRAC_PI_2));
    ((Mesh3d(meshes.add(mesh)), MeshMaterial3d(materials.add(material)), place), bytes)
}

/// Spawns a few things, and despawns as many where there are enough.
fn spawn_and_despawn(
    mut commands: Commands,
    mut random: ResMut<Random>,
    mut things: ResMut<Things>,
    mut meshes: ResMut<Assets<Mesh>>,
    mut images: ResMut<Assets<Image>>,
    mut materials: ResMut<Assets<StandardMaterial>>,
) {
    for _ in 0..1 + random.below(3) {
        let (bundle, _) = thing(&mut random, &mut meshes, &mut images, &mut materials);
        things.0.push_back(commands.spawn(bundle).id());
    }
    while things.0.len() > MOST_THINGS {
        let at = random.below(things.0.len() as u32) as usize;
        commands.entity(things.0.remove(at).expect("one of them")).despawn();
    }
}

/// Reads what the camera drew.
fn picture(app: &mut App) -> Result<Vec<u8>, Box<dyn Error>> {
    let target = app.world().resource::<Target>().0.clone();
    let reader = app.world_mut().spawn(Readback::texture(target)).id();
    app.world_mut().entity_mut(reader).observe(
        |read: On<ReadbackComplete>, mut picture: ResMut<Picture>| picture.0 = read.data.clone(),
    );
    for _ in 0..100 {
        app.update();
        if !app.world().resource::<Picture>().0.is_empty() {
            app.world_mut().despawn(reader);
            return Ok(std::mem::take(&mut app.world_mut().resource_mut::<Picture>().0));
        }
    }
    Err("no picture came back in 100 frames".into())
}

/// Loads `mib` of meshes and textures, then drops nine tenths of them.
fn load_and_drop(app: &mut App, mib: u64) -> Result<(Held, Held), Box<dyn Error>> {
    let load = move |mut commands: Commands,
                     mut random: ResMut<Random>,
                     mut things: ResMut<Things>,
                     mut meshes: ResMut<Assets<Mesh>>,
                     mut images: ResMut<Assets<Image>>,
                     mut materials: ResMut<Assets<StandardMaterial>>| {
        let mut loaded = 0;
        while loaded < mib << 17 {
            let (bundle, bytes) = thing(&mut random, &mut meshes, &mut images, &mut materials);
            loaded += bytes;
            things.0.push_back(commands.spawn(bundle).id());
        }
    };
    let load = app.world_mut().register_system(load);
    let mut peak = Held::default();
    // Some at a time, as levels are loaded while frames go on.
    for _ in 0..8 {
        app.world_mut().run_system(load).map_err(|why| why.to_string())?;
        app.update();
        peak = peak.max(held(app));
    }
    let mut things = std::mem::take(&mut app.world_mut().resource_mut::<Things>().0);
    for thing in things.split_off(things.len() / 10) {
        app.world_mut().despawn(thing);
    }
    for _ in 0..SETTLE {
        app.update();
    }
    Ok((peak, held(app)))
}
