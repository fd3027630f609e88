//! Structs that may grow: the caller says how many bytes it has of them.
//!
//! As with Linux's `openat2`, a struct starts with its size. A shorter struct of an older header gets the usual values for the
//! rest. A longer one of a newer header is accepted if the bytes that this library does not know are zero, which says
//! nothing. New fields go to the end, never into padding, and zero in them means what was before.
//!
//! A struct that the library fills says its size as well, and gets as many of its fields. What only a newer header knows stays
//! as it is, which is zero.
#![expect(unsafe_code, reason = "reads and writes the caller's structs by their bytes")]
use crate::status::{Failure, OmniheapStatus, call, check};
use core::mem::MaybeUninit;

/// The largest size of a struct that is believed; no caller means a larger one.
const MOST: usize = 4096;

/// A struct that the caller passes with its size.
///
/// # Safety
///
/// The struct is `repr(C)`, starts with `struct_size: usize`, and every pattern of bits is a value of it.
pub(crate) unsafe trait Grows: Copy {
    /// The bytes of its first version.
    const FIRST: usize;
    /// Name of an argument of this kind, and the function to start from.
    const NAMES: [&'static str; 2];
}

/// Returns the bytes of a field.
pub(crate) const fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Makes structs [`Grows`]: up to which field the first version went, and its names. One that is `filled` by the library is empty by default.
macro_rules! grows {
    (filled $name:ident to $last:ident: $argument:literal from $start:literal) => {
        crate::sized::grows!($name to $last: $argument from $start);

        impl Default for $name {
            fn default() -> Self {
                crate::sized::empty()
            }
        }
    };
    ($name:ident to $last:ident: $argument:literal from $start:literal) => {
        const _: () = assert!(core::mem::offset_of!($name, struct_size) == 0);

        // SAFETY: it starts with its size, as was checked just above. It is `repr(C)`, or the header would not have its fields; they are
        // numbers and raw pointers, which is all that C is passed in a struct.
        unsafe impl crate::sized::Grows for $name {
            const FIRST: usize =
                core::mem::offset_of!($name, $last) + crate::sized::bytes_of(|it: &$name| &it.$last);
            const NAMES: [&'static str; 2] = [$argument, $start];
        }
    };
}
pub(crate) use grows;

/// The bytes that both sides know of a struct.
fn known<T: Grows>(struct_size: usize) -> Result<usize, Failure> {
    if !(T::FIRST..=MOST).contains(&struct_size) {
        let [name, start] = T::NAMES;
        let message = format!("{name}.struct_size is {struct_size}; start from {start}()");
        return Err(Failure::invalid(message));
    }
    Ok(struct_size.min(size_of::<T>()))
}

/// Reads a struct of the caller; what an older header does not have is as in `usual`.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or starts with a size and has as many bytes.
pub(crate) unsafe fn read_sized<T: Grows>(pointer: *const T, usual: T) -> Result<T, Failure> {
    let [name, _] = T::NAMES;
    check(pointer, name)?;
    // SAFETY: not null and aligned, and a `Grows` struct starts with its size, which the caller says is there.
    let struct_size = unsafe { pointer.cast::<usize>().read() };
    let known = known::<T>(struct_size)?;
    for at in size_of::<T>()..struct_size {
        // SAFETY: `at` is below the size that the caller says the struct has.
        if unsafe { pointer.cast::<u8>().wrapping_add(at).read() } != 0 {
            let message = format!(
                "{name} has a setting at byte {at}, and this library knows {} bytes: install the library of your header",
                size_of::<T>()
            );
            return Err(Failure::new(OmniheapStatus::Unsupported, message));
        }
    }
    let mut value = MaybeUninit::new(usual);
    // SAFETY: `known` bytes are in both: no more than the caller's size, and than the size of a `T`.
    unsafe { pointer.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr().cast(), known) };
    // SAFETY: it was a `T` before, and every pattern of bits is one.
    Ok(unsafe { value.assume_init() })
}

/// Writes the usual values into a struct of the caller, zeros into what this library does not know, and its size.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or `struct_size` bytes may be written there.
pub(crate) unsafe fn write_usual<T: Grows>(
    pointer: *mut T,
    struct_size: usize,
    usual: &T,
) -> OmniheapStatus {
    call(|| {
        check(pointer, T::NAMES[0])?;
        let known = known::<T>(struct_size)?;
        // SAFETY: the caller says that so many bytes may be written.
        unsafe { pointer.cast::<u8>().write_bytes(0, struct_size) };
        // SAFETY: `known` bytes are in both: no more than the caller's size, and than the size of a `T`.
        unsafe { pointer.cast::<u8>().copy_from_nonoverlapping((&raw const *usual).cast(), known) };
        // SAFETY: not null and aligned, and a `Grows` struct starts with its size.
        unsafe { pointer.cast::<usize>().write(struct_size) };
        Ok(())
    })
}

/// A struct for the library to fill: its size, and zeros.
pub(crate) fn empty<T: Grows>() -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: a `Grows` struct starts with its size.
    unsafe { value.as_mut_ptr().cast::<usize>().write(size_of::<T>()) };
    // SAFETY: every byte is written, and every pattern of bits is a `T`.
    unsafe { value.assume_init() }
}

/// The bytes that both sides know of a struct that is to be filled; for calls that change something before they fill it.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or starts with a size.
pub(crate) unsafe fn fillable<T: Grows>(pointer: *const T) -> Result<usize, Failure> {
    check(pointer, T::NAMES[0])?;
    // SAFETY: not null and aligned, and a `Grows` struct starts with its size, which the caller says is there.
    known::<T>(unsafe { pointer.cast::<usize>().read() })
}

/// Fills a struct of the caller: as much as it has, and this library knows.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or starts with a size, and as many bytes may be written there.
pub(crate) unsafe fn fill<T: Grows>(pointer: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let known = unsafe { fillable(pointer) }?;
    let (from, to) = ((&raw const *value).cast::<u8>(), pointer.cast::<u8>());
    let first = size_of::<usize>();
    let (from, to) = (from.wrapping_add(first), to.wrapping_add(first));
    // SAFETY: `known` bytes are in both, the size among them: no more than the caller's size, and than the size of a `T`.
    unsafe { to.copy_from_nonoverlapping(from, known - first) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct that has grown by two fields since its first version.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Grown {
        struct_size: usize,
        first: u64,
        second: u64,
        third: u64,
    }

    grows!(Grown to first: "grown" from "grown_default");

    const USUAL: Grown = Grown { struct_size: size_of::<Grown>(), first: 1, second: 2, third: 3 };

    #[test]
    fn what_an_older_header_does_not_have_is_as_usual() {
        for (fields, expected) in [(1, [9, 2, 3]), (2, [9, 9, 3]), (3, [9, 9, 9])] {
            let struct_size = size_of::<usize>() + fields * size_of::<u64>();
            // Beyond the size is what the caller's stack happens to have.
            let given = Grown { struct_size, first: 9, second: 9, third: 9 };
            // SAFETY: the struct is longer than its size.
            let Ok(read) = (unsafe { read_sized(&raw const given, USUAL) }) else {
                panic!("an older header's struct is taken");
            };
            assert_eq!([read.first, read.second, read.third], expected);
        }
    }

    #[test]
    fn an_older_header_gets_its_own_bytes_only() {
        let mut given = Grown { struct_size: 0, first: 0, second: 77, third: 77 };
        // SAFETY: the struct is longer than the size.
        let status = unsafe { write_usual(&raw mut given, Grown::FIRST, &USUAL) };
        assert_eq!(status, OmniheapStatus::Ok);
        let expected = Grown { struct_size: Grown::FIRST, first: 1, second: 77, third: 77 };
        assert_eq!(given, expected);
    }

    #[test]
    fn an_older_header_is_filled_to_its_own_end() {
        for (fields, expected) in [(1, [1, 77, 77]), (2, [1, 2, 77]), (3, [1, 2, 3])] {
            let struct_size = size_of::<usize>() + fields * size_of::<u64>();
            let mut given = Grown { struct_size, first: 0, second: 77, third: 77 };
            // SAFETY: the struct is longer than its size.
            assert!(unsafe { fill(&raw mut given, &USUAL) }.is_ok());
            assert_eq!([given.first, given.second, given.third], expected);
            assert_eq!(given.struct_size, struct_size, "the size is the caller's");
        }
    }
}
