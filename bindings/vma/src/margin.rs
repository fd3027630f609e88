//! The debug macros of a program: margins behind allocations that must stay unchanged, and known bytes in new and freed allocations.
#![expect(unsafe_code, reason = "writes and reads mapped memory")]
use crate::abi::{OmniheapVmaProgram, VmaAllocator, VmaPool};
use crate::allocator::{Allocator, with};
use crate::call::{Refused, complain};
use crate::memory::{About, Memory};
use crate::slots::{Facts, Slot};
use ash::vk::{self, MemoryPropertyFlags as F};
use core::sync::atomic::Ordering::Relaxed;

/// Byte of new allocations, of freed ones, and of margins.
const NEW: u8 = 0xDC;
const FREED: u8 = 0xEF;
const MARGIN: u8 = 0xA7;

/// The debug macros of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debug {
    /// Bytes behind each allocation.
    pub(crate) margin: u64,
    /// Least alignment of every allocation.
    pub(crate) min_align: u64,
    detects: bool,
    fills: bool,
    pub(crate) always_alone: bool,
}

impl Debug {
    pub(crate) const fn of(program: &OmniheapVmaProgram) -> Self {
        Self {
            margin: program.debug_margin,
            min_align: program.min_alignment,
            detects: program.detect_corruption != 0 && program.debug_margin > 0,
            fills: program.initialize_allocations != 0,
            always_alone: program.always_dedicated_memory != 0,
        }
    }

    /// Returns whether anything is written to or read from allocations.
    pub(crate) const fn looks(&self) -> bool {
        self.detects || self.fills
    }
}

/// Returns true if the host may read and write bytes of this memory type without a flush.
fn is_plain(of: &Allocator, memory_type: u32) -> bool {
    of.type_flags(memory_type).contains(F::HOST_VISIBLE | F::HOST_COHERENT)
}

impl Allocator {
    /// Fills a new allocation.
    #[cold]
    pub(crate) fn fill_new(&self, slot: &Slot<Memory>) {
        let plain = is_plain(self, About::of(&slot.facts).memory_type());
        if let (true, true, Ok(base)) = (self.debug.fills, plain, self.mapping(slot)) {
            fill(base, 0, slot.facts.size.load(Relaxed), NEW);
        }
    }

    /// Lays the margin behind an allocation, or behind the place that it is moved to.
    #[cold]
    pub(crate) fn lay_margin(&self, slot: &Slot<Memory>) {
        let about = About::of(&slot.facts);
        let wanted = self.debug.detects && !about.is_alone();
        let plain = is_plain(self, about.memory_type());
        if let (true, true, Ok(base)) = (wanted, plain, self.mapping(slot)) {
            fill(base, slot.facts.size.load(Relaxed), self.debug.margin, MARGIN);
        }
    }

    /// Checks the margin of an allocation that is about to be freed, and fills its bytes.
    #[cold]
    pub(crate) fn look_at_margin(&self, slot: &Slot<Memory>) {
        if !self.is_whole(slot) {
            complain("vmaFreeMemory", "somebody wrote behind the end of an allocation");
        }
        let plain = is_plain(self, About::of(&slot.facts).memory_type());
        if let (true, true, Ok(base)) = (self.debug.fills, plain, self.mapping(slot)) {
            fill(base, 0, slot.facts.size.load(Relaxed), FREED);
        }
    }

    /// Returns true if the margin of an allocation is intact.
    fn is_whole(&self, slot: &Slot<Memory>) -> bool {
        let about = About::of(&slot.facts);
        if !self.debug.detects || about.is_alone() || !is_plain(self, about.memory_type()) {
            return true;
        }
        let handle = slot.handle();
        let Ok(base) = self.mapping(slot) else { return true };
        let (size, margin) = (slot.facts.size.load(Relaxed), self.debug.margin);
        // The lock also holds the block: a free on another thread waits for it. A later allocation in this slot has another handle.
        let seen = slot.with_of(handle, |_| {
            let is_the_same = slot.facts.host.load(Relaxed) == base.addr();
            !is_the_same || (size..size + margin).all(|at| byte(base, at) == MARGIN)
        });
        seen.unwrap_or(true)
    }

    /// Checks the margins of allocations.
    fn check(&self, is_asked: impl Fn(&Facts) -> bool) -> Result<(), Refused> {
        let slots = self.slots.iter().filter(|slot| is_asked(&slot.facts));
        let mut broken = slots.filter(|slot| !self.is_whole(slot));
        match broken.next() {
            None => Ok(()),
            Some(slot) => {
                let (size, name) = (slot.facts.size.load(Relaxed), slot.name_text());
                let name = name.as_deref().unwrap_or("unnamed");
                let why = format!("somebody wrote behind the end of `{name}` of {size} bytes");
                Err(Refused::new(vk::Result::ERROR_UNKNOWN, why))
            }
        }
    }

    fn check_detects(&self, memory_types: u32) -> Result<(), Refused> {
        let mut asked = (0..self.type_count()).filter(|at| memory_types & (1 << at) != 0);
        if self.debug.detects && asked.any(|at| is_plain(self, at)) {
            return Ok(());
        }
        let why = "VMA_DEBUG_DETECT_CORRUPTION and VMA_DEBUG_MARGIN are off, or the memory is not host-visible and coherent";
        Err(Refused::quietly(vk::Result::ERROR_FEATURE_NOT_PRESENT, why))
    }
}

fn fill(base: *mut u8, from: u64, bytes: u64, value: u8) {
    let at = |number: u64| usize::try_from(number).expect("a mapping fits the address space");
    let start = base.wrapping_add(at(from));
    // SAFETY: the bytes belong to the allocation and its margin, which are mapped, and the program does not use them yet or any more.
    unsafe { start.write_bytes(value, at(bytes)) };
}

fn byte(base: *mut u8, at: u64) -> u8 {
    let at = base.wrapping_add(usize::try_from(at).expect("a mapping fits the address space"));
    // SAFETY: the byte lies in the margin, which is mapped.
    unsafe { at.read_volatile() }
}

/// Checks the margins of all allocations in the memory types whose bits are set.
///
/// # Safety
///
/// No other thread destroys the allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCheckCorruption(allocator: VmaAllocator, types: u32) -> vk::Result {
    let work = |of: &Allocator| {
        of.check_detects(types)?;
        of.check(|facts| types & (1 << About::of(facts).memory_type()) != 0)
    };
    // SAFETY: the caller's promise.
    unsafe { with("vmaCheckCorruption", allocator, work) }
}

/// Checks the margins of all allocations in a pool.
///
/// # Safety
///
/// As for [`vmaCheckCorruption`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCheckPoolCorruption(
    allocator: VmaAllocator,
    pool: VmaPool,
) -> vk::Result {
    let work = |of: &Allocator| {
        let (pool, number) = of.pool(pool)?;
        of.check_detects(1 << pool.memory_type)?;
        of.check(|facts| About::of(facts).pool() == number)
    };
    // SAFETY: the caller's promise.
    unsafe { with("vmaCheckPoolCorruption", allocator, work) }
}
