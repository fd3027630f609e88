//! Host memory through which bytes enter and leave blocks, as a ring per timeline.
#![expect(unsafe_code, reason = "copies through a mapped pointer")]
use crate::{
    driver::{
        device::Device,
        objects::{Ask, Buffer, Kind, Memory, Share},
    },
    transfer::ring::Ring,
};
use ash::vk;
use core::ptr::NonNull;
use omniheap_seam::{Align, HostAccess, Result};
use std::sync::Arc;

/// Parameters of a staging ring, which is created on first use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) memory_type: u32,
    pub(crate) access: HostAccess,
    pub(crate) atom: Align,
    /// Bytes of one ring.
    pub(crate) size: u64,
}

/// Parameters of a timeline's rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plans {
    /// Bytes in and out: cached memory, because the host reads it.
    pub(crate) bytes: Plan,
    /// Lists of the compaction kernel: memory of the device where the host can write it, because every group reads it.
    pub(crate) lists: Plan,
}

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) ring: Ring,
    buffer: Buffer,
    memory: Memory,
    start: NonNull<u8>,
    plan: Plan,
}

// SAFETY: `start` points into `memory`, which the value owns; access goes through `&mut self` or the timeline's lock.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn open(device: &Arc<Device>, plan: Plan) -> Result<Self> {
        let buffer = Buffer::create(device, plan.size, Kind::Plain)?;
        let memory = Memory::allocate(
            device,
            Ask {
                size: buffer.requirements().size.max(plan.size),
                memory_type: plan.memory_type,
                priority: None,
                dedicated: None,
                share: Share::No,
            },
        )?;
        buffer.bind(&memory)?;
        let start = memory.map()?;
        // SAFETY: created just above.
        unsafe { device.name(buffer.raw, "omniheap staging") };
        let unit = plan.atom.max(Align::of(16));
        Ok(Self { ring: Ring::new(plan.size, unit), buffer, memory, start, plan })
    }

    pub(crate) const fn buffer(&self) -> vk::Buffer {
        self.buffer.raw
    }

    /// Returns the device address of the piece at `offset`; the device has addresses.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.buffer.address() + offset
    }

    /// Writes `bytes` to the piece at `offset`, and flushes them if needed.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checked that the piece lies in the mapping; the device no longer reads it, because the ring gives
        // a piece out only after its epoch.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        match self.plan.access {
            HostAccess::Incoherent => self.memory.flush(offset, self.atoms(bytes.len())),
            _ => Ok(()),
        }
    }

    /// Gets the bytes of the piece at `offset`, after the device has written them.
    pub(crate) fn get(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if self.plan.access == HostAccess::Incoherent {
            self.memory.invalidate(offset, self.atoms(bytes.len()))?;
        }
        let from = self.at(offset, bytes.len());
        // SAFETY: `at` checked that the piece lies in the mapping; the caller waited for the copy into it.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn at(&self, offset: u64, len: usize) -> NonNull<u8> {
        let end = offset + len as u64;
        assert!(end <= self.plan.size, "the ring gives out only its own bytes");
        let offset = usize::try_from(offset).expect("a mapping fits the address space");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.add(offset) }
    }

    fn atoms(&self, len: usize) -> u64 {
        self.plan.atom.up(len as u64).expect("a piece is shorter than the ring")
    }
}
