//! Grey images as numbers between zero and one.
use crate::Outcome;
use std::fs::File;
use std::io::BufReader;

/// A grey image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Row by row, each between zero and one.
    pub pixels: Vec<f32>,
}

impl Image {
    /// Reads a PNG; of colours, the first.
    ///
    /// # Errors
    ///
    /// Fails when the file is not there, or is no PNG.
    pub fn read(path: &str) -> Outcome<Self> {
        let mut decoder = png::Decoder::new(BufReader::new(File::open(path)?));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let mut bytes = vec![0; reader.output_buffer_size().ok_or("the image is too large")?];
        let frame = reader.next_frame(&mut bytes)?;
        let pixels = bytes[..frame.buffer_size()].chunks_exact(frame.color_type.samples());
        let pixels = pixels.map(|pixel| f32::from(pixel[0]) / 255.0).collect();
        Ok(Self {
            width: usize::try_from(frame.width)?,
            height: usize::try_from(frame.height)?,
            pixels,
        })
    }

    /// Writes a PNG.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written.
    pub fn write(&self, path: &str) -> Outcome {
        let (width, height) = (self.width.try_into()?, self.height.try_into()?);
        let mut encoder = png::Encoder::new(File::create(path)?, width, height);
        encoder.set_color(png::ColorType::Grayscale);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and one, scaled to a byte; the cast saturates"
        )]
        let bytes: Vec<u8> = self.pixels.iter().map(|value| (value * 255.0) as u8).collect();
        Ok(encoder.write_header()?.write_image_data(&bytes)?)
    }
}
