//! Physical memory, reserved addresses, and mappings of one to the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::space::{self, Access, GRANULE, Kind, Range};
use crate::{budget, count, file, handle};

/// Memory without an address.
#[derive(Debug)]
struct Physical {
    file: File,
    size: u64,
    /// Device that pays for the bytes. `None` for memory of the host, and for memory that another process has paid for.
    device: Option<u32>,
    is_exportable: bool,
    /// Times it was created, imported or retained, less the times it was released.
    held: u64,
    mapped: u64,
}

#[derive(Debug)]
struct State {
    physicals: BTreeMap<u64, Physical>,
    reservations: BTreeMap<u64, u64>,
    /// Bytes and physical memory of each mapping.
    mappings: BTreeMap<u64, (u64, u64)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    physicals: BTreeMap::new(),
    reservations: BTreeMap::new(),
    mappings: BTreeMap::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports a broken rule, and refuses the call.
fn refuse<T>(rule: &str) -> Answer<T> {
    count::broken(rule);
    Err(Code::INVALID_VALUE)
}

const fn is_whole(number: u64) -> bool {
    number.is_multiple_of(GRANULE)
}

impl State {
    /// Returns the start and the end of the reservation that holds the whole range.
    fn reservation(&self, address: u64, size: u64) -> Option<(u64, u64)> {
        let (&base, &length) = self.reservations.range(..=address).next_back()?;
        let end = address.checked_add(size)?;
        (end <= base + length).then_some((base, base + length))
    }

    /// Frees physical memory that has no reference and no mapping.
    fn collect(&mut self, handle: u64) {
        let idle = |physical: &Physical| physical.held == 0 && physical.mapped == 0;
        if self.physicals.get(&handle).is_some_and(idle)
            && let Some(Physical { device: Some(device), size, .. }) =
                self.physicals.remove(&handle)
        {
            budget::refund(device, size);
        }
    }

    /// Lists the mappings of a range. They must be whole, and cover the range without a gap.
    fn covering(&self, address: u64, size: u64) -> Option<Vec<(u64, u64)>> {
        let (mut at, mut list) = (address, Vec::new());
        while at < address + size {
            let &(length, physical) = self.mappings.get(&at)?;
            list.push((at, physical));
            at += length;
        }
        (at == address + size).then_some(list)
    }

    fn get(&mut self, handle: u64) -> Answer<&mut Physical> {
        self.physicals.get_mut(&handle).filter(|found| found.held > 0).ok_or(Code::INVALID_VALUE)
    }
}

/// Reserves addresses.
pub(crate) fn reserve(size: u64, align: u64, wanted: u64) -> Answer<u64> {
    let is_right = size > 0 && is_whole(size) && (align == 0 || align.is_power_of_two());
    if !is_right {
        return Err(Code::INVALID_VALUE);
    }
    let base = space::reserve(size, align.max(GRANULE), wanted)?;
    state().reservations.insert(base, size);
    Ok(base)
}

/// Frees reserved addresses.
pub(crate) fn unreserve(base: u64, size: u64) -> Answer {
    let mut state = state();
    if state.reservations.get(&base) != Some(&size) {
        return refuse("cuMemAddressFree of no whole reservation");
    }
    if state.mappings.range(base..base + size).next().is_some() {
        return refuse("cuMemAddressFree of addresses that are mapped");
    }
    state.reservations.remove(&base);
    space::unreserve(base);
    Ok(())
}

/// Makes physical memory.
pub(crate) fn create(size: u64, device: Option<u32>, is_exportable: bool) -> Answer<u64> {
    if size == 0 || !is_whole(size) {
        return Err(Code::INVALID_VALUE);
    }
    if let Some(device) = device {
        budget::charge(device, size)?;
    }
    let file = file::create(size).inspect_err(|_| {
        if let Some(device) = device {
            budget::refund(device, size);
        }
    })?;
    let handle = handle::fresh();
    let physical = Physical { file, size, device, is_exportable, held: 1, mapped: 0 };
    state().physicals.insert(handle, physical);
    Ok(handle)
}

/// Removes one reference to physical memory.
pub(crate) fn release(handle: u64) -> Answer {
    let mut state = state();
    match state.get(handle) {
        Ok(physical) => physical.held -= 1,
        Err(_) => return refuse("cuMemRelease of what is not held"),
    }
    state.collect(handle);
    Ok(())
}

/// Maps physical memory at reserved addresses, without access.
pub(crate) fn map(address: u64, size: u64, offset: u64, handle: u64) -> Answer {
    let mut state = state();
    if size == 0 || !is_whole(size) || !is_whole(address) || offset != 0 {
        return refuse("cuMemMap of parts of granules");
    }
    if state.reservation(address, size).is_none() {
        return refuse("cuMemMap at addresses that are not reserved");
    }
    let before = state.mappings.range(..address + size).next_back();
    if before.is_some_and(|(start, (length, _))| start + length > address) {
        return refuse("cuMemMap at addresses that are mapped");
    }
    let physical = state.get(handle)?;
    if size > physical.size {
        return Err(Code::INVALID_VALUE); // Programs try this with memory of others, whose size they cannot know.
    }
    space::place(address, size, physical.file.as_fd())?;
    physical.mapped += 1;
    let device = physical.device.unwrap_or(0);
    space::map(address, Range::new(size, Kind::Mapped(handle), 0, device));
    state.mappings.insert(address, (size, handle));
    Ok(())
}

/// Unmaps whole mappings.
pub(crate) fn unmap(address: u64, size: u64) -> Answer {
    let mut state = state();
    let Some(list) = state.covering(address, size).filter(|list| !list.is_empty()) else {
        return refuse("cuMemUnmap of no whole mappings");
    };
    for (base, handle) in list {
        space::unmap(base)?;
        state.mappings.remove(&base);
        if let Some(physical) = state.physicals.get_mut(&handle) {
            physical.mapped -= 1;
        }
        state.collect(handle);
    }
    Ok(())
}

/// Changes the device's access to whole mappings.
pub(crate) fn allow(address: u64, size: u64, access: Access) -> Answer {
    let state = state();
    let Some(list) = state.covering(address, size).filter(|list| !list.is_empty()) else {
        return refuse("cuMemSetAccess of no whole mappings");
    };
    list.iter().for_each(|(base, _)| space::allow(*base, access));
    Ok(())
}

/// Returns the file of physical memory that may be shared with other processes.
pub(crate) fn export(handle: u64) -> Answer<File> {
    let mut state = state();
    let physical = state.get(handle)?;
    if !physical.is_exportable {
        return refuse("export of physical memory that was not made for it");
    }
    physical.file.try_clone().map_err(|_| Code::UNKNOWN)
}

/// Imports the physical memory of a descriptor.
pub(crate) fn import(descriptor: i32) -> Answer<u64> {
    let file = file::borrow(descriptor)?;
    let about = file.metadata().map_err(|_| Code::INVALID_VALUE)?;
    if about.len() == 0 || !is_whole(about.len()) {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = state();
    let same = |physical: &Physical| {
        physical.file.metadata().is_ok_and(|other| other.ino() == about.ino())
    };
    if let Some((&handle, physical)) = state.physicals.iter_mut().find(|(_, one)| same(one)) {
        physical.held += 1;
        return Ok(handle);
    }
    let handle = handle::fresh();
    let size = about.len();
    let physical = Physical { file, size, device: None, is_exportable: true, held: 1, mapped: 0 };
    state.physicals.insert(handle, physical);
    Ok(handle)
}

/// Returns the physical memory at an address, with one more reference.
pub(crate) fn retain(address: u64) -> Answer<u64> {
    let mut state = state();
    let (&base, &(size, handle)) =
        state.mappings.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    if address - base >= size {
        return Err(Code::INVALID_VALUE);
    }
    state.physicals.get_mut(&handle).ok_or(Code::INVALID_VALUE)?.held += 1;
    Ok(handle)
}
