//! The trace as a file of checked chunks: compact, bounded, appended to while a program runs.
//!
//! `docs/trace-format.md` describes every byte. A file that was cut off gives what came before the cut, and says so
//! in [`Meta::ending`](crate::Meta); a file that was changed is refused.

mod reader;
mod record;
mod varint;
mod writer;

pub use reader::{read, write};
pub(crate) use reader::{read_input, request_of};
pub use record::Record;
pub(crate) use varint::put as put_varint;
pub use writer::Writer;
pub(crate) use writer::copy_labels;

/// The first bytes of every file.
pub const MAGIC: &[u8; 8] = b"OMNITRC\n";
/// The version that is written, and the newest that is read.
pub const VERSION: u16 = 1;
/// Payload bytes of one chunk at most.
pub const MAX_CHUNK: usize = 1 << 20;

/// Bytes of a chunk before its payload: payload bytes, records, checksum; each 32 bits, little-endian.
const CHUNK_HEAD: usize = 12;
/// Bytes of the file before its first chunk: magic, version, six bytes that are zero.
const FILE_HEAD: usize = 16;
/// In the place of a chunk's record count: the recorder closed the file.
const END: u32 = u32::MAX;

/// Returns the checksum of a chunk: CRC-32 over its first eight bytes and its payload.
pub fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(head);
    crc.update(payload);
    crc.sum()
}
