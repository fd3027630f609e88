//! Code shared by both engines: the scene, its shader, and pictures.
//!
//! `cargo run -p omniheap-engines --example vulkan_engine`, or `wgpu_engine`: each writes a picture and says what its
//! memory cost. Neither needs a window or a GPU; Mesa's lavapipe is enough.
mod matrix;
mod picture;
mod scene;

pub use picture::Picture;
pub use scene::{Mesh, OBJECT, Object, STRIDE, Scene, Texture};

/// The shader of both engines.
pub const SHADER: &str = include_str!("scene.wgsl");

/// Pixels of the picture.
pub const SIZE: (u32, u32) = (1280, 720);

/// Compiles [`SHADER`] for Vulkan.
///
/// # Errors
///
/// Those of naga.
pub fn spirv() -> Result<Vec<u32>, Box<dyn core::error::Error>> {
    let module = naga::front::wgsl::parse_str(SHADER)?;
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::empty());
    let info = validator.validate(&module)?;
    Ok(naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shader_compiles_and_the_scene_is_whole() {
        assert!(!spirv().expect("valid WGSL").is_empty());
        let scene = Scene::new();
        assert_eq!(scene.meshes.len(), scene.objects.len());
        for (mesh, object) in scene.meshes.iter().zip(&scene.objects) {
            assert_eq!(mesh.bytes.len() as u64, mesh.indices_at + u64::from(mesh.indices) * 4);
            assert_eq!(object.uniforms().len() as u64, u64::from(OBJECT));
            assert!(object.texture < scene.textures.len());
        }
        let sides = scene.textures.iter().map(|texture| u64::from(texture.size));
        let pixels = scene.textures.iter().map(|texture| texture.pixels.len() as u64 / 4);
        assert!(pixels.eq(sides.map(|side| side * side)));
    }
}
