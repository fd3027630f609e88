//! Virtual blocks: the functions `vma…Virtual…`, which divide ranges of the program's own.
//!
//! The handle of a block is a number that names a slot of a table, and the use of that slot: a handle that is null, stale or made up is
//! refused, and nothing is read through it. VMA wants a program to use a block from one thread at a time; here each block has a lock.
#![expect(unsafe_code, reason = "reads and writes what the program passes")]
mod parts;

use self::parts::{Algorithm, Choice, Parts, Wish};
use crate::abi::{
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MASK,
    VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT,
    VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT, VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT,
    VmaDetailedStatistics, VmaStatistics, VmaVirtualAllocation, VmaVirtualAllocationCreateInfo,
    VmaVirtualAllocationInfo, VmaVirtualBlock, VmaVirtualBlockCreateInfo,
};
use crate::call::{Refused, call, complain, run};
use crate::linear::Side;
use crate::text::{hand_out, take_back};
use ash::vk;
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_seam::{Align, Error, ErrorKind, lock};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError, RwLock};

/// All blocks. A slot that is empty is used again, with another stamp.
static BLOCKS: RwLock<Vec<Slot>> = RwLock::new(Vec::new());

struct Slot {
    stamp: u32,
    parts: Option<Mutex<Parts>>,
}

/// Bits of a handle that name a slot; those above are its stamp.
const SLOT_BITS: u32 = usize::BITS / 2;

fn handle(slot: usize, stamp: u32) -> Option<VmaVirtualBlock> {
    let stamp = usize::try_from(stamp).ok().filter(|stamp| *stamp < 1 << SLOT_BITS)?;
    let low = slot.checked_add(1).filter(|low| *low < 1 << SLOT_BITS)?;
    Some(VmaVirtualBlock(ptr::without_provenance_mut(stamp << SLOT_BITS | low)))
}

fn slot_of(block: VmaVirtualBlock, slots: &[Slot]) -> Result<usize, Refused> {
    let slot = (block.0.addr() & ((1 << SLOT_BITS) - 1)).checked_sub(1);
    let is_named = |slot: &usize| {
        let held = slots.get(*slot).filter(|held| held.parts.is_some());
        held.is_some_and(|held| handle(*slot, held.stamp) == Some(block))
    };
    slot.filter(is_named).ok_or_else(|| {
        Refused::invalid("the virtual block was destroyed already, or never existed")
    })
}

fn insert(parts: Parts) -> Result<VmaVirtualBlock, Refused> {
    let mut slots = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
    // A slot whose stamps have run out has no handle, and stays empty.
    let is_usable = |(at, slot): (usize, &Slot)| {
        slot.parts.is_none().then(|| handle(at, slot.stamp))?.map(|block| (at, block))
    };
    let found = slots.iter().enumerate().find_map(is_usable);
    let (at, block) = match found {
        Some(found) => found,
        None => {
            let block = handle(slots.len(), 0)
                .ok_or_else(|| Refused::invalid("too many virtual blocks; destroy some"))?;
            slots.push(Slot { stamp: 0, parts: None });
            (slots.len() - 1, block)
        }
    };
    slots[at].parts = Some(Mutex::new(parts));
    Ok(block)
}

/// Runs `work` on a block.
fn with<R>(
    block: VmaVirtualBlock,
    work: impl FnOnce(&mut Parts) -> Result<R, Refused>,
) -> Result<R, Refused> {
    let slots = BLOCKS.read().unwrap_or_else(PoisonError::into_inner);
    let at = slot_of(block, &slots)?;
    let parts = slots[at].parts.as_ref().ok_or_else(|| Refused::invalid("no such block"))?;
    work(&mut lock(parts))
}

fn no_such_part() -> Refused {
    Refused::invalid("the virtual allocation was freed already, or is not of this block")
}

fn null(what: &str) -> Refused {
    Refused::invalid(format!("{what} is null"))
}

/// Creates a block.
///
/// # Safety
///
/// `info` is null or may be read, `block` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCreateVirtualBlock(
    info: *const VmaVirtualBlockCreateInfo,
    block: *mut VmaVirtualBlock,
) -> vk::Result {
    call("vmaCreateVirtualBlock", || {
        // SAFETY: the caller's promise.
        let block = unsafe { block.as_mut() }.ok_or_else(|| null("pVirtualBlock"))?;
        *block = VmaVirtualBlock::NULL;
        // SAFETY: the caller's promise.
        let info = unsafe { info.as_ref() }.ok_or_else(|| null("pCreateInfo"))?;
        let algorithm = match info.flags {
            0 => Algorithm::General,
            VMA_VIRTUAL_BLOCK_CREATE_LINEAR_ALGORITHM_BIT => Algorithm::Linear,
            other => return Err(Refused::invalid(format!("no such flags: {other:#x}"))),
        };
        *block = insert(Parts::new(info.size, algorithm).map_err(refused)?)?;
        Ok(())
    })
}

/// Destroys a block; null does nothing. Parts that are still in use are logged.
#[unsafe(no_mangle)]
pub extern "C" fn vmaDestroyVirtualBlock(block: VmaVirtualBlock) {
    run("vmaDestroyVirtualBlock", || {
        if block.is_null() {
            return Ok(());
        }
        let mut slots = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
        let at = slot_of(block, &slots)?;
        let parts = slots[at].parts.take();
        slots[at].stamp = slots[at].stamp.saturating_add(1);
        drop(slots);
        let parts = parts.map(|parts| parts.into_inner().unwrap_or_else(PoisonError::into_inner));
        match parts.map_or(0, |parts| parts.count()) {
            0 => Ok(()),
            count => {
                let why = format!("{count} allocations were not freed");
                complain("vmaDestroyVirtualBlock", &why);
                Ok(())
            }
        }
    });
}

/// Returns `VK_TRUE` if no part of a block is in use.
#[unsafe(no_mangle)]
pub extern "C" fn vmaIsVirtualBlockEmpty(block: VmaVirtualBlock) -> vk::Bool32 {
    let mut is_empty = false;
    run("vmaIsVirtualBlockEmpty", || {
        is_empty = with(block, |parts| Ok(parts.count() == 0))?;
        Ok(())
    });
    vk::Bool32::from(is_empty)
}

/// Returns offset, size and user data of a part.
///
/// # Safety
///
/// `info` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetVirtualAllocationInfo(
    block: VmaVirtualBlock,
    allocation: VmaVirtualAllocation,
    info: *mut VmaVirtualAllocationInfo,
) {
    run("vmaGetVirtualAllocationInfo", || {
        // SAFETY: the caller's promise.
        let info = unsafe { info.as_mut() }.ok_or_else(|| null("pVirtualAllocInfo"))?;
        *info = VmaVirtualAllocationInfo { offset: 0, size: 0, p_user_data: ptr::null_mut() };
        *info = with(block, |parts| {
            let part = parts.get(allocation).ok_or_else(no_such_part)?;
            let p_user_data = part.user_data.load(Relaxed);
            Ok(VmaVirtualAllocationInfo {
                offset: part.span.offset,
                size: part.span.size,
                p_user_data,
            })
        })?;
        Ok(())
    });
}

/// Takes a part of a block. On failure the part is null, and its offset `UINT64_MAX`.
///
/// # Safety
///
/// `info` is null or may be read, `allocation` and `offset` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaVirtualAllocate(
    block: VmaVirtualBlock,
    info: *const VmaVirtualAllocationCreateInfo,
    allocation: *mut VmaVirtualAllocation,
    offset: *mut vk::DeviceSize,
) -> vk::Result {
    call("vmaVirtualAllocate", || {
        // SAFETY: the caller's promise.
        let offset = unsafe { offset.as_mut() };
        // SAFETY: the caller's promise.
        let allocation = unsafe { allocation.as_mut() };
        // SAFETY: the caller's promise.
        let info = unsafe { info.as_ref() };
        let (named, at) = match allocate(block, info, allocation.is_some()) {
            Ok((named, at)) => (Ok(named), at),
            Err(why) => (Err(why), u64::MAX),
        };
        if let Some(offset) = offset {
            *offset = at;
        }
        if let Some(allocation) = allocation {
            *allocation = *named.as_ref().unwrap_or(&0);
        }
        named.map(drop)
    })
}

/// Returns the number and the offset of a new part.
fn allocate(
    block: VmaVirtualBlock,
    info: Option<&VmaVirtualAllocationCreateInfo>,
    has_place_for_it: bool,
) -> Result<(VmaVirtualAllocation, u64), Refused> {
    let info = info.ok_or_else(|| null("pCreateInfo"))?;
    if !has_place_for_it {
        return Err(null("pAllocation"));
    }
    let known = VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT
        | VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MASK;
    if info.flags & !known != 0 {
        return Err(Refused::invalid(format!("no such flags: {:#x}", info.flags)));
    }
    let align = Align::new(info.alignment.max(1))
        .ok_or_else(|| Refused::invalid("the alignment is not a power of two"))?;
    let has = |flag| info.flags & flag != 0;
    let side = if has(VMA_VIRTUAL_ALLOCATION_CREATE_UPPER_ADDRESS_BIT) {
        Side::Upper
    } else {
        Side::Lower
    };
    let choice = if has(VMA_VIRTUAL_ALLOCATION_CREATE_STRATEGY_MIN_OFFSET_BIT) {
        Choice::Lowest
    } else {
        Choice::Small
    };
    let wish = Wish { size: info.size, align, side, choice };
    with(block, |parts| parts.allocate(wish, info.p_user_data).map_err(refused))
}

/// Turns the reason why an algorithm refuses into a code.
fn refused(why: ErrorKind) -> Refused {
    match why {
        ErrorKind::ZeroSize => Refused::invalid("the size is zero"),
        ErrorKind::Unsupported => {
            Refused::invalid("only blocks with the linear algorithm have an upper end")
        }
        ErrorKind::OutOfHostMemory => Error::from(why).into(),
        // Programs ask until a block is full.
        full => Refused::quietly(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, full.to_string()),
    }
}

/// Frees a part; null does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn vmaVirtualFree(block: VmaVirtualBlock, allocation: VmaVirtualAllocation) {
    run("vmaVirtualFree", || {
        if allocation == 0 {
            return Ok(());
        }
        with(block, |parts| parts.free(allocation).ok_or_else(no_such_part))
    });
}

/// Frees all parts of a block.
#[unsafe(no_mangle)]
pub extern "C" fn vmaClearVirtualBlock(block: VmaVirtualBlock) {
    run("vmaClearVirtualBlock", || with(block, |parts| parts.clear().map_err(refused)));
}

/// Replaces the user data of a part.
#[unsafe(no_mangle)]
pub extern "C" fn vmaSetVirtualAllocationUserData(
    block: VmaVirtualBlock,
    allocation: VmaVirtualAllocation,
    user_data: *mut c_void,
) {
    run("vmaSetVirtualAllocationUserData", || {
        with(block, |parts| {
            let part = parts.get(allocation).ok_or_else(no_such_part)?;
            part.user_data.store(user_data, Relaxed);
            Ok(())
        })
    });
}

/// Returns counts and bytes of a block.
///
/// # Safety
///
/// `statistics` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetVirtualBlockStatistics(
    block: VmaVirtualBlock,
    statistics: *mut VmaStatistics,
) {
    run("vmaGetVirtualBlockStatistics", || {
        // SAFETY: the caller's promise.
        let shown = unsafe { statistics.as_mut() }.ok_or_else(|| null("pStats"))?;
        *shown = VmaStatistics::default();
        *shown = with(block, |parts| Ok(sums(parts)))?;
        Ok(())
    });
}

/// Returns counts, bytes and the extremes of sizes of a block.
///
/// # Safety
///
/// `statistics` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCalculateVirtualBlockStatistics(
    block: VmaVirtualBlock,
    statistics: *mut VmaDetailedStatistics,
) {
    run("vmaCalculateVirtualBlockStatistics", || {
        // SAFETY: the caller's promise.
        let shown = unsafe { statistics.as_mut() }.ok_or_else(|| null("pStats"))?;
        *shown = VmaDetailedStatistics::default();
        *shown = with(block, |parts| Ok(details(parts)))?;
        Ok(())
    });
}

fn sums(parts: &Parts) -> VmaStatistics {
    VmaStatistics {
        block_count: 1,
        allocation_count: parts.count(),
        block_bytes: parts.size(),
        allocation_bytes: parts.bytes(),
    }
}

fn details(parts: &Parts) -> VmaDetailedStatistics {
    let mut all = VmaDetailedStatistics {
        statistics: sums(parts),
        unused_range_count: 0,
        allocation_size_min: vk::WHOLE_SIZE,
        allocation_size_max: 0,
        unused_range_size_min: vk::WHOLE_SIZE,
        unused_range_size_max: 0,
    };
    parts.for_each(|span, part| {
        let (least, largest) = if part.is_some() {
            (&mut all.allocation_size_min, &mut all.allocation_size_max)
        } else {
            all.unused_range_count += 1;
            (&mut all.unused_range_size_min, &mut all.unused_range_size_max)
        };
        (*least, *largest) = (span.size.min(*least), span.size.max(*largest));
    });
    all
}

/// Writes a block as JSON in VMA's schema; the detailed one has its parts and holes.
///
/// # Safety
///
/// `text` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaBuildVirtualBlockStatsString(
    block: VmaVirtualBlock,
    text: *mut *mut c_char,
    detailed: vk::Bool32,
) {
    run("vmaBuildVirtualBlockStatsString", || {
        // SAFETY: the caller's promise.
        let text = unsafe { text.as_mut() }.ok_or_else(|| null("ppStatsString"))?;
        *text = ptr::null_mut();
        let shown = with(block, |parts| {
            let mut shown = json!({ "Stats": json_of(&details(parts)) });
            if detailed != vk::FALSE {
                shown["Details"] = map(parts);
            }
            Ok(shown)
        })?;
        *text = hand_out(&format!("{shown:#}"));
        Ok(())
    });
}

/// Statistics as VMA writes them: extremes only where there are two or more.
fn json_of(all: &VmaDetailedStatistics) -> Value {
    let mut shown = json!({
        "BlockCount": all.statistics.block_count,
        "BlockBytes": all.statistics.block_bytes,
        "AllocationCount": all.statistics.allocation_count,
        "AllocationBytes": all.statistics.allocation_bytes,
        "UnusedRangeCount": all.unused_range_count,
    });
    if all.statistics.allocation_count > 1 {
        shown["AllocationSizeMin"] = all.allocation_size_min.into();
        shown["AllocationSizeMax"] = all.allocation_size_max.into();
    }
    if all.unused_range_count > 1 {
        shown["UnusedRangeSizeMin"] = all.unused_range_size_min.into();
        shown["UnusedRangeSizeMax"] = all.unused_range_size_max.into();
    }
    shown
}

fn map(parts: &Parts) -> Value {
    let (mut pieces, mut holes) = (Vec::new(), 0_u32);
    parts.for_each(|span, part| {
        let mut piece = json!({ "Offset": span.offset, "Size": span.size });
        match part {
            None => {
                holes += 1;
                piece["Type"] = "FREE".into();
            }
            Some(part) => {
                let user_data = part.user_data.load(Relaxed);
                if !user_data.is_null() {
                    piece["CustomData"] = format!("{user_data:p}").into();
                }
            }
        }
        pieces.push(piece);
    });
    json!({
        "TotalBytes": parts.size(),
        "UnusedBytes": parts.size() - parts.bytes(),
        "Allocations": parts.count(),
        "UnusedRanges": holes,
        "Suballocations": pieces,
    })
}

/// Frees a text of [`vmaBuildVirtualBlockStatsString`]; null does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn vmaFreeVirtualBlockStatsString(_: VmaVirtualBlock, text: *mut c_char) {
    run("vmaFreeVirtualBlockStatsString", || take_back(text));
}

#[cfg(test)]
mod tests;
