//! Buffers between host and device, kept for reuse.
//!
//! wgpu's own `write_buffer` allocates on every call and loses the device when that allocation fails; these buffers
//! fail with an error, are bounded in number, and come back when the device is done with them.
use crate::driver::{Driver, Start};
use omniheap_seam::{ErrorKind, Result, lock};
use std::sync::{Arc, Mutex};
use wgpu::{Buffer, BufferUsages, MapMode};

/// Bytes that one upload buffer carries at most; longer writes take several.
pub(crate) const UPLOAD_CHUNK: u64 = 4 << 20;

/// Bytes that one read-back buffer carries at most.
pub(crate) const READ_CHUNK: u64 = 16 << 20;

/// Bytes of uploads that may be under way before a write waits for the device.
const UPLOAD_LIMIT: u64 = 64 << 20;

/// Buffers kept of each direction.
const KEPT: usize = 8;

const SMALLEST: u64 = 4 << 10;

/// The staging buffers of one device.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    uploads: Arc<Mutex<Uploads>>,
    reads: Mutex<Vec<Buffer>>,
}

/// Upload buffers: mapped while they wait here, unmapped while the device has them.
#[derive(Debug, Default)]
struct Uploads {
    ready: Vec<Buffer>,
    /// Bytes of the buffers that are lent.
    lent: u64,
    /// Number of buffers returned so far.
    returns: u64,
}

/// An upload buffer, mapped, on loan.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) buffer: Buffer,
    home: Arc<Mutex<Uploads>>,
}

/// Takes the smallest buffer that holds `size` bytes.
fn fitting(buffers: &mut Vec<Buffer>, size: u64) -> Option<Buffer> {
    let fits = buffers.iter().enumerate().filter(|(_, buffer)| buffer.size() >= size);
    let (index, _) = fits.min_by_key(|(_, buffer)| buffer.size())?;
    Some(buffers.swap_remove(index))
}

/// Keeps a buffer, in place of the oldest when there are enough.
fn keep(buffers: &mut Vec<Buffer>, buffer: Buffer) {
    if buffers.len() >= KEPT {
        buffers.remove(0);
    }
    buffers.push(buffer);
}

impl Staging {
    /// Returns the bytes of all buffers that are kept, and of the uploads that are lent.
    pub(crate) fn bytes(&self) -> u64 {
        let uploads = lock(&self.uploads);
        let reads = lock(&self.reads);
        let kept = uploads.ready.iter().chain(reads.iter()).map(Buffer::size);
        uploads.lent + kept.sum::<u64>()
    }

    /// Frees the idle buffers; `false` if there were none.
    pub(crate) fn trim(&self) -> bool {
        let mut uploads = lock(&self.uploads);
        let mut reads = lock(&self.reads);
        let any = !(uploads.ready.is_empty() && reads.is_empty());
        uploads.ready.clear();
        reads.clear();
        any
    }

    /// Returns a mapped buffer of at least `size` bytes, at most [`UPLOAD_CHUNK`]. Waits when too much is under way.
    ///
    /// Fails for want of memory only while none is lent, so a write that has begun can go on.
    pub(crate) fn upload(&self, driver: &Driver, size: u64) -> Result<Upload> {
        let size = size.next_power_of_two().max(SMALLEST);
        loop {
            let returns = {
                let mut uploads = lock(&self.uploads);
                if let Some(buffer) = fitting(&mut uploads.ready, size) {
                    return Ok(self.lend(&mut uploads, buffer));
                }
                uploads.returns
            };
            if lock(&self.uploads).lent < UPLOAD_LIMIT {
                let usages = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
                match driver.create(usages, size, Start::Mapped) {
                    Ok(buffer) => return Ok(self.lend(&mut lock(&self.uploads), buffer)),
                    Err(error) if !error.kind().is_out_of_memory() => return Err(error),
                    Err(_) if self.trim() => continue,
                    Err(_) if lock(&self.uploads).lent == 0 => {
                        return Err(ErrorKind::OutOfHostMemory.into());
                    }
                    Err(_) => {}
                }
            }
            driver.wait_until(|| (lock(&self.uploads).returns != returns).then_some(()))?;
        }
    }

    fn lend(&self, uploads: &mut Uploads, buffer: Buffer) -> Upload {
        uploads.lent += buffer.size();
        Upload { buffer, home: Arc::clone(&self.uploads) }
    }

    /// Returns a read-back buffer of at least `size` bytes, at most [`READ_CHUNK`], to be returned by [`done`](Self::done).
    pub(crate) fn read_back(&self, driver: &Driver, size: u64) -> Result<Buffer> {
        let size = size.next_power_of_two().max(SMALLEST);
        if let Some(buffer) = fitting(&mut lock(&self.reads), size) {
            return Ok(buffer);
        }
        let usages = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        loop {
            match driver.create(usages, size, Start::Unmapped) {
                Err(error) if !error.kind().is_out_of_memory() => return Err(error),
                Err(_) if self.trim() => {}
                Err(_) => return Err(ErrorKind::OutOfHostMemory.into()),
                created => return created,
            }
        }
    }

    /// Takes a read-back buffer, unmapped, for the next reader.
    pub(crate) fn done(&self, buffer: Buffer) {
        keep(&mut lock(&self.reads), buffer);
    }
}

impl Upload {
    /// Maps it again once the device is done with it, and takes it home then.
    pub(crate) fn recycle(self, driver: &Driver) -> Result<()> {
        let buffer = self.buffer.clone();
        driver.scoped(|| {
            buffer.map_async(MapMode::Write, .., move |mapped| {
                if mapped.is_ok() {
                    keep(&mut lock(&self.home).ready, self.buffer.clone());
                }
                // Dropping `self` counts it as returned.
            });
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut uploads = lock(&self.home);
        uploads.lent -= self.buffer.size();
        uploads.returns += 1;
    }
}
