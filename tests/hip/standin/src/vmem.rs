//! Virtual memory: reserved addresses, physical memory as files, and mappings of one to the other.
//!
//! Checks and answers follow AMD's library: a range must lie in one reservation, mappings are found by their exact start,
//! physical memory lives until it is neither held nor mapped.

#![expect(unsafe_code, reason = "exports C symbols")]

mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{AccessDesc, Address, AgentHandle, Answer, PhysicalHandle, PoolHandle, Status};
use crate::agent::Agent;
use crate::ffi::{In, Out, export};
use crate::pages::{self, Access};
use crate::pool::Pool;
use crate::table;

/// Memory without an address.
#[derive(Debug)]
struct Physical {
    file: File,
    size: u64,
    /// Pool whose budget it was taken from; memory of another process was paid for there.
    pool: Option<Pool>,
    /// Times it was created, imported or retained, less the times it was released.
    held: u64,
    mapped: u64,
}

/// Physical memory at an address.
#[derive(Debug)]
struct Mapping {
    size: u64,
    physical: u64,
    reservation: u64,
    access: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Reservation {
    size: u64,
    mapped: u64,
}

#[derive(Debug)]
struct Space {
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    physicals: BTreeMap<u64, Physical>,
    next: u64,
}

static SPACE: Mutex<Space> = Mutex::new(Space {
    reservations: BTreeMap::new(),
    mappings: BTreeMap::new(),
    physicals: BTreeMap::new(),
    next: 0x1000,
});

fn space() -> MutexGuard<'static, Space> {
    SPACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the reservation that `address` lies in: its start and size.
pub(crate) fn find_reserved(address: u64) -> Option<(u64, u64)> {
    space().reservation(address, 1).ok().map(|(base, reservation)| (base, reservation.size))
}

impl Space {
    /// Finds the reservation that holds the whole range.
    fn reservation(&mut self, address: u64, size: u64) -> Result<(u64, &mut Reservation), Status> {
        let (&base, found) =
            self.reservations.range_mut(..=address).next_back().ok_or(Status::INVALID_ARGUMENT)?;
        let end = address.checked_add(size).ok_or(Status::INVALID_ARGUMENT)?;
        if end <= base + found.size { Ok((base, found)) } else { Err(Status::INVALID_ARGUMENT) }
    }

    fn add(&mut self, physical: Physical) -> PhysicalHandle {
        self.next += 0x10;
        self.physicals.insert(self.next, physical);
        PhysicalHandle(self.next)
    }

    /// Lets physical memory go when nobody holds or maps it.
    fn collect(&mut self, handle: u64) {
        let idle = |physical: &Physical| physical.held == 0 && physical.mapped == 0;
        if self.physicals.get(&handle).is_some_and(idle)
            && let Some(Physical { pool: Some(pool), size, .. }) = self.physicals.remove(&handle)
        {
            table::refund(pool, size);
        }
    }

    fn map(&mut self, address: u64, size: u64, physical: u64) -> Answer {
        let (reservation, _) = self.reservation(address, size)?;
        let before = self
            .mappings
            .range(..address)
            .next_back()
            .is_some_and(|(base, map)| base + map.size > address);
        let after =
            self.mappings.range(address..).next().is_some_and(|(&base, _)| address + size > base);
        if before || after || size == 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        let found = self.physicals.get_mut(&physical).ok_or(Status::INVALID_ARGUMENT)?;
        if size > found.size {
            return Err(Status::OUT_OF_RESOURCES);
        }
        pages::map_file(address, size, found.file.as_fd()).ok_or(Status::ERROR)?;
        found.mapped += 1;
        self.mappings
            .insert(address, Mapping { size, physical, reservation, access: BTreeMap::new() });
        self.reservations.entry(reservation).and_modify(|entry| entry.mapped += 1);
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64) -> Answer {
        let found = self.mappings.get(&address).ok_or(Status::INVALID_ALLOCATION)?;
        if found.size != size {
            return Err(Status::INVALID_ARGUMENT);
        }
        pages::clear(address, size).ok_or(Status::ERROR)?;
        let Some(gone) = self.mappings.remove(&address) else { return Err(Status::ERROR) };
        self.reservations.entry(gone.reservation).and_modify(|entry| entry.mapped -= 1);
        self.physicals.entry(gone.physical).and_modify(|entry| entry.mapped -= 1);
        self.collect(gone.physical);
        Ok(())
    }

    /// Lists the mappings that cover the range without a gap.
    fn covering(&mut self, address: u64, size: u64) -> Result<Vec<u64>, Status> {
        self.reservation(address, size)?;
        let (mut at, mut list) = (address, Vec::new());
        while at < address + size {
            let found = self.mappings.get(&at).ok_or(Status::INVALID_ALLOCATION)?;
            list.push(at);
            at += found.size;
        }
        Ok(list)
    }

    fn grant(&mut self, address: u64, size: u64, grants: &[AccessDesc]) -> Answer {
        for base in self.covering(address, size)? {
            let Some(mapping) = self.mappings.get_mut(&base) else { return Err(Status::ERROR) };
            for grant in grants {
                mapping.access.insert(grant.agent.0, grant.permissions);
            }
            // All agents are this process, so the pages carry the widest of their rights.
            let access = match mapping.access.values().fold(0, |rights, right| rights | right) {
                0 => Access::None,
                1 => Access::Read,
                _ => Access::ReadWrite,
            };
            pages::protect(base, mapping.size, access).ok_or(Status::ERROR)?;
        }
        Ok(())
    }

    /// Finds the mapping that `address` lies in.
    fn mapping(&self, address: u64) -> Result<&Mapping, Status> {
        let (base, found) =
            self.mappings.range(..=address).next_back().ok_or(Status::INVALID_ALLOCATION)?;
        if address - base < found.size { Ok(found) } else { Err(Status::INVALID_ALLOCATION) }
    }
}

fn create(pool: Pool, size: u64) -> Result<PhysicalHandle, Status> {
    table::charge(pool, size)?;
    let file = file::create(size).inspect_err(|_| table::refund(pool, size))?;
    Ok(space().add(Physical { file, size, pool: Some(pool), held: 1, mapped: 0 }))
}

fn import(descriptor: i32) -> Result<PhysicalHandle, Status> {
    if descriptor < 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    let file = file::borrow(descriptor)?;
    let found = file.metadata().map_err(|_| Status::INVALID_ARGUMENT)?;
    let mut space = space();
    let same = |physical: &Physical| {
        physical.file.metadata().is_ok_and(|other| other.ino() == found.ino())
    };
    let known = space.physicals.iter_mut().find(|(_, physical)| same(physical));
    if let Some((&handle, physical)) = known {
        physical.held += 1;
        return Ok(PhysicalHandle(handle));
    }
    Ok(space.add(Physical { file, size: found.len(), pool: None, held: 1, mapped: 0 }))
}

/// An alignment of zero is a page's; a smaller one than that, or one that is no power of two, is refused.
fn require_reservable(size: u64, align: u64) -> Answer {
    let is_aligned = align == 0 || (align.is_power_of_two() && align >= pages::PAGE);
    let is_right = is_aligned && size > 0 && size.is_multiple_of(pages::PAGE);
    if is_right { Ok(()) } else { Err(Status::INVALID_ARGUMENT) }
}

/// Hint and flag (do not tell the driver) change nothing that a program sees.
fn reserve(out: Out<u64>, size: u64, align: u64) -> Answer {
    require_reservable(size, align)?;
    if out.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    let address = pages::reserve(size, align.max(pages::PAGE)).ok_or(Status::OUT_OF_RESOURCES)?;
    space().reservations.insert(address, Reservation { size, mapped: 0 });
    out.set(address)
}

export! {
    fn hsa_amd_vmem_address_reserve(out: Out<u64>, size: u64, _hint: u64, _flags: u64) {
        reserve(out, size, 0)
    }

    fn hsa_amd_vmem_address_reserve_align(out: Out<u64>, size: u64, _hint: u64, align: u64, _flags: u64) {
        reserve(out, size, align)
    }

    fn hsa_amd_vmem_address_free(address: Address, size: u64) {
        let mut space = space();
        let found = space.reservations.get(&address.0).ok_or(Status::INVALID_ALLOCATION)?;
        if found.size != size {
            return Err(Status::INVALID_ARGUMENT);
        }
        if found.mapped > 0 {
            return Err(Status::RESOURCE_FREE);
        }
        space.reservations.remove(&address.0);
        pages::unmap(address.0, size);
        Ok(())
    }

    fn hsa_amd_vmem_handle_create(pool: PoolHandle, size: u64, _kind: u32, _flags: u64, out: Out<PhysicalHandle>) {
        let pool = Pool::find(pool)?;
        if out.is_null() || size == 0 || !size.is_multiple_of(pool.granule()) || pool.is_group() {
            return Err(Status::INVALID_ARGUMENT);
        }
        out.set(create(pool, size)?)
    }

    fn hsa_amd_vmem_handle_release(handle: PhysicalHandle) {
        let mut space = space();
        let found = space.physicals.get_mut(&handle.0).ok_or(Status::INVALID_ALLOCATION)?;
        found.held = found.held.checked_sub(1).ok_or(Status::INVALID_ALLOCATION)?;
        space.collect(handle.0);
        Ok(())
    }

    fn hsa_amd_vmem_map(address: Address, size: u64, offset: u64, handle: PhysicalHandle, _flags: u64) {
        if offset != 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        space().map(address.0, size, handle.0)
    }

    fn hsa_amd_vmem_unmap(address: Address, size: u64) {
        space().unmap(address.0, size)
    }

    fn hsa_amd_vmem_set_access(address: Address, size: u64, list: In<AccessDesc>, count: usize) {
        let grants = list.list(count)?;
        for grant in &grants {
            Agent::find(grant.agent)?;
        }
        space().grant(address.0, size, &grants)
    }

    fn hsa_amd_vmem_get_access(address: Address, out: Out<u32>, agent: AgentHandle) {
        let space = space();
        let found = space.mapping(address.0)?;
        Agent::find(agent)?.device()?;
        out.set(found.access.get(&agent.0).copied().unwrap_or(0))
    }

    fn hsa_amd_vmem_retain_alloc_handle(out: Out<PhysicalHandle>, address: Address) {
        let mut space = space();
        let physical = space.mappings.get(&address.0).ok_or(Status::INVALID_ALLOCATION)?.physical;
        space.physicals.entry(physical).and_modify(|entry| entry.held += 1);
        out.set(PhysicalHandle(physical))
    }

    fn hsa_amd_vmem_export_shareable_handle(out: Out<i32>, handle: PhysicalHandle, _flags: u64) {
        let space = space();
        let found = space.physicals.get(&handle.0).ok_or(Status::INVALID_ALLOCATION)?;
        out.set(found.file.try_clone().map_err(|_| Status::OUT_OF_RESOURCES)?.into_raw_fd())
    }

    fn hsa_amd_vmem_import_shareable_handle(descriptor: i32, out: Out<PhysicalHandle>) {
        if out.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        out.set(import(descriptor)?)
    }
}
