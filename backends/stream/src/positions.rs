//! Mapped positions of a reserved block, and their page groups. Pure: the driver is called elsewhere.
#![forbid(unsafe_code)]
use crate::lock;
use core::ops::Range;
use omniheap_seam::{Error, ErrorKind, Page, Result};
use std::sync::Mutex;

/// Mapped positions of a reserved block.
#[derive(Debug)]
pub struct Positions {
    page: u64,
    count: u64,
    mapped: Mutex<Mapped>,
}

/// Three bits for each position.
#[derive(Debug)]
pub struct Mapped {
    /// Set for a position that is mapped.
    set: Vec<u64>,
    /// Set for a position in the same page group as the position before it.
    continued: Vec<u64>,
    /// Set for a position that counts as mapped, and that the driver has unmapped: a call that was to unmap more failed
    /// half-way.
    torn: Vec<u64>,
}

impl Mapped {
    fn new(words: usize) -> Result<Self> {
        let zeros = || {
            let mut bits = Vec::new();
            bits.try_reserve_exact(words).map_err(|_| ErrorKind::OutOfHostMemory)?;
            bits.resize(words, 0);
            Ok::<_, Error>(bits)
        };
        Ok(Self { set: zeros()?, continued: zeros()?, torn: zeros()? })
    }

    fn is_any(&self, mut range: Range<u64>) -> bool {
        range.any(|position| is_set(&self.set, position))
    }

    fn is_all(&self, mut range: Range<u64>) -> bool {
        range.all(|position| is_set(&self.set, position))
    }

    /// Returns whether there is memory at a position.
    fn is_there(&self, position: u64) -> bool {
        is_set(&self.set, position) && !is_set(&self.torn, position)
    }

    /// Returns the number of mapped positions directly before `first`.
    #[must_use]
    pub fn before(&self, first: u64) -> u64 {
        (0..first).rev().take_while(|&position| self.is_there(position)).count() as u64
    }

    /// Returns the first position from `first` on that the driver has mapped, and how many follow it, up to `end`.
    fn run(&self, first: u64, end: u64) -> Option<(u64, u64)> {
        let start = (first..end).find(|&position| self.is_there(position))?;
        let count = (start..end).take_while(|&position| self.is_there(position)).count() as u64;
        Some((start, count))
    }

    /// Notes pages at unmapped positions from `first` on.
    fn map(&mut self, first: u64, pages: &[Page]) {
        let mut at = first;
        for length in lengths(pages) {
            (at..at + length).for_each(|position| flip(&mut self.set, position));
            (at + 1..at + length).for_each(|position| flip(&mut self.continued, position));
            at += length;
        }
    }

    /// Notes that mapped positions are not mapped any more.
    fn unmap(&mut self, first: u64, count: u64) {
        for position in first..first + count {
            flip(&mut self.set, position);
            for bits in [&mut self.continued, &mut self.torn] {
                if is_set(bits, position) {
                    flip(bits, position);
                }
            }
        }
    }

    /// Returns the number of pages of each page group from `first` on.
    #[must_use]
    pub fn groups(&self, first: u64, count: u64) -> Vec<u64> {
        let mut lengths = Vec::new();
        for position in first..first + count {
            match lengths.last_mut() {
                Some(length) if is_set(&self.continued, position) => *length += 1,
                _ => lengths.push(1),
            }
        }
        lengths
    }
}

/// Splits pages into page groups. The pages of one group are equal and side by side.
pub fn groups(pages: &[Page]) -> impl Iterator<Item = &[Page]> {
    pages.chunk_by(PartialEq::eq)
}

/// Returns the number of pages of each page group.
#[must_use]
pub fn lengths(pages: &[Page]) -> Vec<u64> {
    groups(pages).map(|group| group.len() as u64).collect()
}

impl Positions {
    /// Positions of `page` bytes each, none of them mapped.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit`, `OutOfHostMemory`.
    pub fn new(page: u64, count: u64) -> Result<Self> {
        let words = usize::try_from(count.div_ceil(64)).map_err(|_| ErrorKind::ExceedsLimit)?;
        Ok(Self { page, count, mapped: Mutex::new(Mapped::new(words)?) })
    }

    /// Returns the bytes of each.
    #[must_use]
    pub const fn page(&self) -> u64 {
        self.page
    }

    /// Maps pages at positions from `first` on, and records them on success. Holds the lock meanwhile.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for positions outside the block, `Busy` where something is mapped; what `map` says.
    pub fn map(
        &self,
        first: u64,
        pages: &[Page],
        map: impl FnOnce(&Mapped) -> Result<()>,
    ) -> Result<()> {
        let count = pages.len() as u64;
        self.require_inside(first, count)?;
        if pages.is_empty() {
            return Ok(());
        }
        let mut mapped = lock(&self.mapped);
        if mapped.is_any(first..first + count) {
            return Err(ErrorKind::Busy.into());
        }
        map(&mapped)?;
        mapped.map(first, pages);
        Ok(())
    }

    /// Unmaps positions from `first` on: `unmap` gets a first one and a number of those that the driver has mapped, and reports how many it
    /// unmapped. Where it fails, all of them count as mapped still, and another call unmaps the rest. Holds the lock meanwhile.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for positions outside the block, or not mapped; what `unmap` says.
    pub fn unmap(
        &self,
        first: u64,
        count: u64,
        unmap: impl Fn(&Mapped, u64, u64) -> (u64, Result<()>),
    ) -> Result<()> {
        self.require_inside(first, count)?;
        if count == 0 {
            return Ok(());
        }
        let mut mapped = lock(&self.mapped);
        if !mapped.is_all(first..first + count) {
            return Err(ErrorKind::OutOfRange.into());
        }
        while let Some((start, length)) = mapped.run(first, first + count) {
            let (unmapped, result) = unmap(&mapped, start, length);
            let unmapped = if result.is_ok() { length } else { unmapped };
            (start..start + unmapped).for_each(|position| flip(&mut mapped.torn, position));
            result?;
        }
        mapped.unmap(first, count);
        Ok(())
    }

    /// Refuses positions outside the block.
    fn require_inside(&self, first: u64, count: u64) -> Result<()> {
        match first.checked_add(count) {
            Some(end) if end <= self.count => Ok(()),
            _ => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Refuses bytes whose pages are not all mapped: touching them would cost the device.
    pub(crate) fn require_mapped(&self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let (first, end) = (offset / self.page, (offset + size).div_ceil(self.page));
        let mapped = lock(&self.mapped);
        let all = (first..end).all(|position| mapped.is_there(position));
        if all { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) }
    }

    /// Returns whether anything is mapped.
    pub fn is_any_mapped(&self) -> bool {
        lock(&self.mapped).set.iter().any(|&word| word != 0)
    }
}

/// Turns `OutOfDeviceMemory` into `ExceedsLimit`: freeing device memory does not free addresses.
#[must_use]
pub fn addresses_ran_out(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfDeviceMemory => {
            Error::new(ErrorKind::ExceedsLimit).with_native(error.native())
        }
        _ => error,
    }
}

/// Returns a size as drivers take it.
///
/// # Errors
///
/// `ExceedsLimit` for one that this machine cannot address.
pub fn bytes(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| ErrorKind::ExceedsLimit.into())
}

/// Returns the word and the bit of a position inside the block.
fn bit(position: u64) -> (usize, u64) {
    let word = usize::try_from(position / 64).expect("`Positions::new` made a word for it");
    (word, 1 << (position % 64))
}

fn is_set(mapped: &[u64], position: u64) -> bool {
    let (word, mask) = bit(position);
    mapped[word] & mask != 0
}

fn flip(bits: &mut [u64], position: u64) {
    let (word, mask) = bit(position);
    bits[word] ^= mask;
}

#[cfg(test)]
mod tests;
