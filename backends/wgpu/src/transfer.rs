//! Byte movement: everything is checked first, because wgpu's own refusals come late and name no kind.
#![expect(unsafe_code, reason = "signs the contract of Transfer")]
use crate::{
    Block, Wgpu,
    staging::{READ_CHUNK, UPLOAD_CHUNK},
};
use omniheap_seam::{Align, BlockOffset, Error, ErrorKind, Move, Result, TimelineId, Transfer};
use std::sync::MutexGuard;
use wgpu::{Buffer, BufferUsages, CommandEncoder, MapMode, SubmissionIndex};

/// Mappings start at multiples of this.
const MAP_ALIGN: Align = Align::of(wgpu::MAP_ALIGNMENT);

// SAFETY: every range is checked against its block by `span` before wgpu sees it, and wgpu checks it again.
unsafe impl Transfer for Wgpu {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.clock.check(on)?;
        self.span(to, bytes.len() as u64)?;
        self.put(to, bytes)
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        self.clock.check(on)?;
        self.span(from, bytes.len() as u64)?;
        self.get(from, bytes)
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        self.clock.check(on)?;
        self.span(to, size)?;
        if size == 0 {
            return Ok(());
        }
        if !takes_copies(to.block) {
            return self.on_host(to, size, |buffer, start, end| {
                let mut view = buffer.get_mapped_range_mut(start..end).map_err(refused)?;
                view.slice(index(to.offset - start)..).fill(value);
                Ok(())
            });
        }
        if value == 0 {
            let clear = |e: &mut CommandEncoder| {
                e.clear_buffer(to.block.buffer(), to.offset, Some(size));
            };
            return self.submit([to.block], clear).map(drop);
        }
        self.paint(to, size, value)
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.clock.check(on)?;
        self.driver.check()?;
        let size_of = |block: &Block| self.own(block).map(|()| block.size());
        self.caps.copy.check_batch(moves, size_of)?;
        let some = || moves.iter().filter(|m| m.size != 0);
        // wgpu copies neither from a MAP_READ nor to a MAP_WRITE buffer: such bytes go through the host.
        for m in some().filter(|m| !is_direct(m)) {
            self.bounce(m)?;
        }
        let direct = || some().filter(|m| is_direct(m));
        if direct().next().is_none() {
            return Ok(());
        }
        let blocks = direct().flat_map(|m| [m.from.block, m.to.block]);
        let record = |e: &mut CommandEncoder| {
            for m in direct() {
                let (from, to) = (m.from.block.buffer(), m.to.block.buffer());
                e.copy_buffer_to_buffer(from, m.from.offset, to, m.to.offset, m.size);
            }
        };
        self.submit(blocks, record).map(drop)
    }
}

impl Wgpu {
    /// Refuses a range that is not whole words inside a block of this device.
    fn span(&self, place: BlockOffset<'_, Block>, size: u64) -> Result<()> {
        self.driver.check()?;
        self.own(place.block)?;
        self.caps.copy.check_range(place.block.size(), place.offset, size)
    }

    /// Submits commands while none of their blocks is mapped.
    pub(crate) fn submit<'a>(
        &self,
        blocks: impl IntoIterator<Item = &'a Block>,
        record: impl FnOnce(&mut CommandEncoder),
    ) -> Result<SubmissionIndex> {
        let _unmapped = hold_all(blocks);
        self.driver.submit(record)
    }

    /// Writes checked bytes.
    fn put(&self, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        if !takes_copies(to.block) {
            return self.on_host(to, bytes.len() as u64, |buffer, start, end| {
                let mut view = buffer.get_mapped_range_mut(start..end).map_err(refused)?;
                view.slice(index(to.offset - start)..).copy_from_slice(bytes);
                Ok(())
            });
        }
        let mut offset = to.offset;
        for chunk in bytes.chunks(index(UPLOAD_CHUNK)) {
            let size = chunk.len() as u64;
            let upload = self.staging.upload(&self.driver, size)?;
            let mut view = upload.buffer.get_mapped_range_mut(..size).map_err(refused)?;
            view.copy_from_slice(chunk);
            drop(view);
            self.submit([to.block], |e| {
                upload.buffer.unmap();
                e.copy_buffer_to_buffer(&upload.buffer, 0, to.block.buffer(), offset, size);
            })?;
            upload.recycle(&self.driver)?;
            offset += size;
        }
        Ok(())
    }

    /// Reads checked bytes.
    fn get(&self, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !gives_copies(from.block) {
            return self.on_host(from, bytes.len() as u64, |buffer, start, end| {
                let view = buffer.get_mapped_range(start..end).map_err(refused)?;
                bytes.copy_from_slice(&view[index(from.offset - start)..]);
                Ok(())
            });
        }
        // One buffer for all chunks: nothing can run out once the first byte has arrived.
        let first = READ_CHUNK.min(bytes.len() as u64);
        let staging = self.staging.read_back(&self.driver, first)?;
        let mut offset = from.offset;
        for chunk in bytes.chunks_mut(index(READ_CHUNK)) {
            let size = chunk.len() as u64;
            let copied = self.submit([from.block], |e| {
                e.copy_buffer_to_buffer(from.block.buffer(), offset, &staging, 0, size);
            })?;
            self.driver.mapped(&staging, MapMode::Read, (0, size), Some(copied), |buffer| {
                chunk.copy_from_slice(&buffer.get_mapped_range(..size).map_err(refused)?);
                Ok(())
            })?;
            offset += size;
        }
        self.staging.done(staging);
        Ok(())
    }

    /// Fills with a value that is not zero: one painted buffer, copied as often as needed.
    fn paint(&self, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        let brush = size.min(UPLOAD_CHUNK);
        let upload = self.staging.upload(&self.driver, brush)?;
        let mut view = upload.buffer.get_mapped_range_mut(..brush).map_err(refused)?;
        view.slice(..).fill(value);
        drop(view);
        self.submit([to.block], |e| {
            upload.buffer.unmap();
            let mut done = 0;
            while done < size {
                let part = brush.min(size - done);
                let target = to.block.buffer();
                e.copy_buffer_to_buffer(&upload.buffer, 0, target, to.offset + done, part);
                done += part;
            }
        })?;
        upload.recycle(&self.driver)
    }

    /// Copies through the host.
    fn bounce(&self, m: &Move<'_, Block>) -> Result<()> {
        let mut bytes = vec![0; index(m.size.min(UPLOAD_CHUNK))];
        let mut done = 0;
        while done < m.size {
            let part = &mut bytes[..index(UPLOAD_CHUNK.min(m.size - done))];
            self.get(BlockOffset { offset: m.from.offset + done, ..m.from }, part)?;
            self.put(BlockOffset { offset: m.to.offset + done, ..m.to }, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Maps a staging block around a range and lets `touch` at it.
    fn on_host(
        &self,
        place: BlockOffset<'_, Block>,
        size: u64,
        touch: impl FnOnce(&Buffer, u64, u64) -> Result<()>,
    ) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let _alone = place.block.hold();
        let (start, end) = (MAP_ALIGN.down(place.offset), place.offset + size);
        let write = place.block.buffer().usage().contains(BufferUsages::MAP_WRITE);
        let mode = if write { MapMode::Write } else { MapMode::Read };
        self.driver.mapped(place.block.buffer(), mode, (start, end), None, |buffer| {
            touch(buffer, start, end)
        })
    }
}

fn takes_copies(block: &Block) -> bool {
    block.buffer().usage().contains(BufferUsages::COPY_DST)
}

fn gives_copies(block: &Block) -> bool {
    block.buffer().usage().contains(BufferUsages::COPY_SRC)
}

fn is_direct(m: &Move<'_, Block>) -> bool {
    gives_copies(m.from.block) && takes_copies(m.to.block)
}

/// Holds the mappable blocks, each once and in one order for all threads.
fn hold_all<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Vec<MutexGuard<'a, ()>> {
    let mut blocks: Vec<_> = blocks.into_iter().filter(|block| block.is_mappable()).collect();
    blocks.sort_by_key(|block| core::ptr::from_ref(*block).addr());
    blocks.dedup_by(|a, b| core::ptr::eq(*a, *b));
    blocks.into_iter().map(Block::hold).collect()
}

/// Returns the error for a mapped range that wgpu does not show: this call mapped the buffer, so the driver is the cause.
fn refused(error: wgpu::MapRangeError) -> Error {
    tracing::debug!(%error, "wgpu did not show a mapped range");
    ErrorKind::Driver.into()
}

/// Returns a size that is bounded by a host slice.
fn index(size: u64) -> usize {
    usize::try_from(size).expect("bounded by the length of a slice or of a chunk")
}
