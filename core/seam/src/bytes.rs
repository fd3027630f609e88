//! Copies of bytes that others may read and write at the same time: devices, other processes, other threads.
//!
//! Mapped memory is shared with a device, and safe code may map it several times. A plain copy would be a data race, which is
//! undefined behaviour. These functions access each shared byte atomically and without any order: a race leaves a mixture of
//! old and new bytes, and nothing worse. See `docs/decisions/0502-mapped-bytes.md`.
//!
//! *Shared* bytes are valid for reads and writes, no Rust reference to them is in use, and this process accesses them only by
//! these functions or as [`AtomicU8`]. What a device or another process does to them does not matter.
#![expect(unsafe_code, reason = "accesses memory that Rust has no references to")]
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Most bytes for which a loop is as fast as the machine's own copy on every machine.
const SHORT: usize = 16;

/// Copies shared bytes from `from` on into a slice.
///
/// # Safety
///
/// From `from` on, `bytes.len()` bytes are shared, as this module means it.
pub unsafe fn read(from: NonNull<u8>, bytes: &mut [u8]) {
    // SAFETY: the caller's promise about the source; the slice is the target.
    let done = unsafe { copy_most(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    for (at, byte) in bytes.iter_mut().enumerate().skip(done) {
        // SAFETY: inside the caller's range.
        *byte = unsafe { shared(from, at) }.load(Relaxed);
    }
}

/// Copies a slice to shared bytes from `to` on.
///
/// # Safety
///
/// From `to` on, `bytes.len()` bytes are shared, as this module means it.
pub unsafe fn write(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: the caller's promise about the target; the slice is the source.
    let done = unsafe { copy_most(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    for (at, byte) in bytes.iter().enumerate().skip(done) {
        // SAFETY: inside the caller's range.
        unsafe { shared(to, at) }.store(*byte, Relaxed);
    }
}

/// Copies `size` shared bytes to others.
///
/// # Safety
///
/// From `from` and from `to` on, `size` bytes are shared, as this module means it. The ranges do not overlap.
pub unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    for at in unsafe { copy_most(from.as_ptr(), to.as_ptr(), size) }..size {
        // SAFETY: inside the caller's range.
        let byte = unsafe { shared(from, at) }.load(Relaxed);
        // SAFETY: as above.
        unsafe { shared(to, at) }.store(byte, Relaxed);
    }
}

/// Sets `size` shared bytes.
///
/// # Safety
///
/// From `to` on, `size` bytes are shared, as this module means it.
pub unsafe fn fill(to: NonNull<u8>, size: usize, value: u8) {
    // SAFETY: the caller's promise.
    let done = if size > SHORT { unsafe { machine::fill(to.as_ptr(), size, value) } } else { 0 };
    for at in done..size {
        // SAFETY: inside the caller's range.
        unsafe { shared(to, at) }.store(value, Relaxed);
    }
}

/// One shared byte.
///
/// # Safety
///
/// `base + at` is a shared byte.
unsafe fn shared<'a>(base: NonNull<u8>, at: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's promise.
    let byte = unsafe { base.add(at) };
    // SAFETY: valid for reads and writes, by the caller's promise, and always aligned.
    unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
}

/// Copies the first bytes of a range by the machine's own instructions; returns how many.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `size` bytes, shared or nobody else's. The ranges do not overlap.
unsafe fn copy_most(from: *const u8, to: *mut u8, size: usize) -> usize {
    // SAFETY: the caller's promise.
    if size > SHORT { unsafe { machine::copy(from, to, size) } } else { 0 }
}

/// Instructions that the compiler does not look into. No machine tears a byte, so they do what a loop over atomic bytes does.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use core::arch::asm;

    /// From this size on a copy does not fit the caches, and goes past them.
    const LARGE: usize = 8 << 20;
    /// Bytes that are copied past the caches by one call: two pages, side by side, keep more of memory busy than one.
    const PAIR: usize = 8192;

    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, size: usize) -> usize {
        // The instructions that write past the caches want aligned targets.
        let head = if size < LARGE { size } else { to.align_offset(64) };
        let end = size - (size - head) % PAIR;
        // SAFETY: the first bytes of the caller's ranges.
        unsafe { copy_cached(from, to, head) };
        for start in (head..end).step_by(PAIR) {
            // SAFETY: a pair of pages inside the caller's ranges; the target is aligned, see above.
            unsafe { copy_pair(from.wrapping_add(start), to.wrapping_add(start)) };
        }
        if head < size {
            // SAFETY: orders the stores of `copy_pair`, which are not ordered by themselves, before whatever follows.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) };
            // SAFETY: the rest of the caller's ranges.
            unsafe { copy_cached(from.wrapping_add(end), to.wrapping_add(end), size - end) };
        }
        size
    }

    unsafe fn copy_cached(from: *const u8, to: *mut u8, size: usize) {
        // SAFETY: reads and writes exactly the caller's ranges. The direction flag is clear, as at every `asm!`.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") size => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
    }

    unsafe fn copy_pair(from: *const u8, to: *mut u8) {
        // SAFETY: 64 turns read and write 64 bytes of both pages each: exactly `PAIR` bytes. Prefetching beyond them is harmless.
        unsafe {
            asm!(
                "2:",
                "prefetcht0 [{from} + 128]",
                "prefetcht0 [{from} + 4096 + 128]",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu {e}, [{from} + 4096]",
                "movdqu {f}, [{from} + 4096 + 16]",
                "movdqu {g}, [{from} + 4096 + 32]",
                "movdqu {h}, [{from} + 4096 + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                "movntdq [{to} + 4096], {e}",
                "movntdq [{to} + 4096 + 16], {f}",
                "movntdq [{to} + 4096 + 32], {g}",
                "movntdq [{to} + 4096 + 48], {h}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {turns:e}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                turns = inout(reg) 64u32 => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    pub(super) unsafe fn fill(to: *mut u8, size: usize, value: u8) -> usize {
        // SAFETY: writes exactly the caller's range. The direction flag is clear, as at every `asm!`.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") size => _,
                inout("rdi") to => _,
                in("al") value,
                options(nostack, preserves_flags),
            );
        }
        size
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod machine {
    use core::arch::asm;

    /// Bytes of one turn of the loops below.
    const STEP: usize = 32;

    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, size: usize) -> usize {
        let whole = size / STEP * STEP;
        if whole > 0 {
            // SAFETY: reads and writes the first `whole` bytes of the caller's ranges.
            unsafe {
                asm!(
                    "2:",
                    "ldp {a:q}, {b:q}, [{from}], #32",
                    "stp {a:q}, {b:q}, [{to}], #32",
                    "subs {left}, {left}, #32",
                    "b.ne 2b",
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    left = inout(reg) whole => _,
                    a = out(vreg) _,
                    b = out(vreg) _,
                    options(nostack),
                );
            }
        }
        whole
    }

    pub(super) unsafe fn fill(to: *mut u8, size: usize, value: u8) -> usize {
        let whole = size / STEP * STEP;
        if whole > 0 {
            // SAFETY: writes the first `whole` bytes of the caller's range.
            unsafe {
                asm!(
                    "dup {a:v}.16b, {value:w}",
                    "2:",
                    "stp {a:q}, {a:q}, [{to}], #32",
                    "subs {left}, {left}, #32",
                    "b.ne 2b",
                    value = in(reg) u32::from(value),
                    to = inout(reg) to => _,
                    left = inout(reg) whole => _,
                    a = out(vreg) _,
                    options(nostack),
                );
            }
        }
        whole
    }
}

/// Elsewhere there is only what the language has.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod machine {
    pub(super) const unsafe fn copy(_: *const u8, _: *mut u8, _: usize) -> usize {
        0
    }

    pub(super) const unsafe fn fill(_: *mut u8, _: usize, _: u8) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    type Way = fn(&mut [u8], &mut [u8], usize);
    const SIZES: [usize; 12] = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 257, 600];

    fn pattern(seed: u32) -> Vec<u8> {
        (0..700u32).map(|at| (at.wrapping_mul(151) ^ seed).to_le_bytes()[0]).collect()
    }

    fn pointer(bytes: &mut [u8], at: usize) -> NonNull<u8> {
        NonNull::from(&mut bytes[at..]).cast()
    }

    #[test]
    fn every_size_and_offset_is_copied_exactly() {
        for size in SIZES {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (16, 31)] {
                let (mut source, target) = (pattern(0), pattern(77));
                let mut expected = target.clone();
                expected[to..to + size].copy_from_slice(&source[from..from + size]);
                let ways: [Way; 3] = [
                    // SAFETY: nobody else has the vectors that these slices are of, here and below.
                    |from, to, size| unsafe { copy(pointer(from, 0), pointer(to, 0), size) },
                    // SAFETY: as above.
                    |from, to, size| unsafe { read(pointer(from, 0), &mut to[..size]) },
                    // SAFETY: as above.
                    |from, to, size| unsafe { write(pointer(to, 0), &from[..size]) },
                ];
                for way in ways {
                    let mut target = target.clone();
                    way(&mut source[from..], &mut target[to..], size);
                    assert_eq!(target, expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of bytes")]
    fn large_copies_are_exact_too() {
        let size = (8 << 20) + 12_345;
        let source: Vec<u8> =
            (0..size + 8).map(|at: usize| (at * 151 + at / 251).to_le_bytes()[0]).collect();
        for (from, to) in [(0, 0), (1, 3), (5, 64)] {
            let mut target = alloc::vec![0x55; size + 128];
            // SAFETY: nobody else has the vectors, and the range lies inside them.
            unsafe { write(pointer(&mut target, to), &source[from..from + size]) };
            assert!(target[to..to + size] == source[from..from + size], "from {from} to {to}");
            let rest = target[..to].iter().chain(&target[to + size..]);
            assert!(rest.into_iter().all(|byte| *byte == 0x55), "nothing beside it");
        }
    }

    #[test]
    fn every_size_and_offset_is_filled_exactly() {
        for size in SIZES {
            for to in [0, 1, 7, 31] {
                let mut target = pattern(0);
                let mut expected = target.clone();
                expected[to..to + size].fill(0xa7);
                // SAFETY: nobody else has the vector, and the range lies inside it.
                unsafe { fill(pointer(&mut target, to), size, 0xa7) };
                assert_eq!(target, expected, "{size} bytes to {to}");
            }
        }
    }
}
