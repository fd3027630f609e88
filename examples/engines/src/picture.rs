//! Rendered pictures.
use std::{fs::File, io::BufWriter, path::Path};

/// Pixels of four bytes, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    size: (u32, u32),
    pixels: Vec<u8>,
}

impl Picture {
    /// Takes pixels of red, green, blue and alpha.
    ///
    /// # Panics
    ///
    /// Panics when there are more or fewer than `size` says.
    #[must_use]
    pub fn new(size: (u32, u32), pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len() as u64, u64::from(size.0) * u64::from(size.1) * 4, "whole rows");
        Self { size, pixels }
    }

    /// Writes a PNG file.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Box<dyn core::error::Error>> {
        let mut encoder =
            png::Encoder::new(BufWriter::new(File::create(path)?), self.size.0, self.size.1);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        Ok(writer.finish()?)
    }

    /// Returns the number of pixels that differ from another picture of the same size.
    #[must_use]
    pub fn differing(&self, other: &Self) -> usize {
        let pairs = self.pixels.chunks(4).zip(other.pixels.chunks(4));
        pairs.filter(|(mine, theirs)| mine != theirs).count()
    }

    /// Returns the number of pixels that are not background.
    #[must_use]
    pub fn covered(&self) -> usize {
        let background = &self.pixels[..4];
        self.pixels.chunks(4).filter(|pixel| *pixel != background).count()
    }
}
