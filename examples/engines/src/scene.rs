//! A few hundred meshes and textures, made up on the spot: sizes differ from one to the next, as in any game.
use crate::{SIZE, matrix::Matrix};
use core::f32::consts::{PI, TAU};

/// Bytes of a vertex: position, normal, texture coordinates.
pub const STRIDE: u32 = 32;
/// Bytes of an object's uniforms: two matrices.
pub const OBJECT: u32 = 128;

const COLUMNS: u16 = 24;
const ROWS: u16 = 15;
const TEXTURES: u16 = 220;

/// A mesh, ready for the device.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Vertices, then indices of 32 bits, as one piece of memory.
    pub bytes: Vec<u8>,
    /// Offset of the indices.
    pub indices_at: u64,
    /// Number of indices.
    pub indices: u32,
}

/// A square picture for surfaces.
#[derive(Clone, Debug)]
pub struct Texture {
    /// Pixels on each side.
    pub size: u32,
    /// Four bytes for each.
    pub pixels: Vec<u8>,
}

/// One thing in the scene; its mesh has the same index.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Index of its texture.
    pub texture: usize,
    place: [f32; 3],
    turn: [f32; 2],
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// One for each object.
    pub meshes: Vec<Mesh>,
    /// Several objects share one.
    pub textures: Vec<Texture>,
    /// Visible objects.
    pub objects: Vec<Object>,
}

impl Scene {
    /// Makes the scene; it is the same every time.
    #[must_use]
    pub fn new() -> Self {
        let grid = || (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (column, row)));
        let objects = (0u16..).zip(grid()).map(|(n, (column, row))| {
            let (x, y) = (f32::from(column) - 11.5, f32::from(row) - 7.0);
            let wave = (x * 0.55).sin() + (y * 0.8).cos();
            let turn = [f32::from(n) * 0.37, f32::from(n) * 0.61];
            Object { texture: usize::from(n * 7 % TEXTURES), place: [x, y, wave], turn }
        });
        Self {
            meshes: (0..COLUMNS * ROWS).map(mesh).collect(),
            textures: (0..TEXTURES).map(texture).collect(),
            objects: objects.collect(),
        }
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Object {
    /// Returns the uniforms that the shader reads.
    #[must_use]
    pub fn uniforms(&self) -> Vec<u8> {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand pixels")]
        let aspect = SIZE.0 as f32 / SIZE.1 as f32;
        let model = Matrix::shift(self.place).times(Matrix::turn(self.turn[0], self.turn[1]));
        let camera = Matrix::shift([0.0, 0.0, -19.0]).times(Matrix::turn(-0.25, 0.15));
        let clip = Matrix::perspective(0.8, aspect, 1.0, 60.0).times(camera).times(model);
        clip.bytes().chain(model.bytes()).collect()
    }
}

/// Returns a surface over two parameters from 0 to 1, as a grid of `across` by `along` quads.
fn surface(across: u16, along: u16, at: impl Fn(f32, f32) -> ([f32; 3], [f32; 3])) -> Mesh {
    let mut bytes = Vec::new();
    for j in 0..=along {
        for i in 0..=across {
            let (u, v) = (f32::from(i) / f32::from(across), f32::from(j) / f32::from(along));
            let (position, normal) = at(u, v);
            let all = position.into_iter().chain(normal).chain([2.0 * u, 2.0 * v]);
            bytes.extend(all.flat_map(f32::to_ne_bytes));
        }
    }
    let indices_at = bytes.len() as u64;
    let row = u32::from(across) + 1;
    for j in 0..u32::from(along) {
        for i in 0..u32::from(across) {
            let a = j * row + i;
            let quad = [a, a + 1, a + row, a + 1, a + row + 1, a + row];
            bytes.extend(quad.into_iter().flat_map(u32::to_ne_bytes));
        }
    }
    Mesh { bytes, indices_at, indices: u32::from(across) * u32::from(along) * 6 }
}

/// Spheres, rings and drops, finer and coarser.
fn mesh(n: u16) -> Mesh {
    let detail = 8 + n * 5 % 29;
    match n % 3 {
        0 => surface(detail, detail / 2, |u, v| {
            let normal = sphere(u, v);
            (normal.map(|x| x * 0.42), normal)
        }),
        1 => surface(detail, detail / 2, |u, v| {
            let ((sa, ca), (sb, cb)) = ((u * TAU).sin_cos(), (v * TAU).sin_cos());
            let (radius, normal) = (0.3 + 0.14 * cb, [ca * cb, sb, sa * cb]);
            ([ca * radius, 0.14 * sb, sa * radius], normal)
        }),
        _ => surface(detail, detail, |u, v| {
            let [x, y, z] = sphere(u, v);
            let thin = 0.18 + 0.24 * (1.0 - v);
            ([x * thin, y * 0.48, z * thin], [x, 0.5 * y, z])
        }),
    }
}

fn sphere(u: f32, v: f32) -> [f32; 3] {
    let ((sa, ca), (sb, cb)) = ((u * TAU).sin_cos(), (v * PI).sin_cos());
    [ca * sb, cb, sa * sb]
}

/// Checks, stripes and rings in two colours, 16 to 143 pixels wide.
fn texture(n: u16) -> Texture {
    let size = 16 + u32::from(n) * 37 % 128;
    let hue = f32::from(n) / f32::from(TEXTURES) * TAU;
    let colour = |shift: f32| {
        let part = |third: f32| 0.55 + 0.45 * (hue + shift + third * TAU / 3.0).cos();
        [part(0.0), part(1.0), part(2.0)].map(byte)
    };
    let (first, second) = (colour(0.0), colour(2.2));
    let pixels = (0..size * size).flat_map(|at| {
        let (x, y) = (at % size * 8 / size, at / size * 8 / size);
        let odd = match n % 3 {
            0 => (x + y) % 2,
            1 => x % 2,
            _ => x.abs_diff(4).max(y.abs_diff(4)) % 2,
        };
        let [r, g, b] = if odd == 0 { first } else { second };
        [r, g, b, 255]
    });
    Texture { size, pixels: pixels.collect() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped just before")]
fn byte(part: f32) -> u8 {
    (part.clamp(0.0, 1.0) * 255.0) as u8
}
