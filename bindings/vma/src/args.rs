//! Reads and writes through a program's pointers.
#![expect(unsafe_code, reason = "reads and writes through the caller's pointers")]
use crate::abi::VmaAllocationCreateInfo;
use crate::call::Refused;
use ash::vk;
use core::ffi::{CStr, c_char, c_void};
use core::mem::{MaybeUninit, offset_of};

/// Layout of [`VmaAllocationCreateInfo`] in a program's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Until 3.3: without `min_alignment`.
    Short,
    /// Since 3.4.
    #[default]
    Full,
}

impl Layout {
    /// Returns the layout that a program's header names.
    pub(crate) const fn of(number: u32) -> Self {
        if number < 3004 { Self::Short } else { Self::Full }
    }
}

#[inline]
fn check<T>(pointer: *const T, name: &'static str) -> Result<(), Refused> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(bad(pointer.is_null(), name));
    }
    Ok(())
}

#[cold]
fn bad(is_null: bool, name: &'static str) -> Refused {
    let why = if is_null { "null" } else { "not aligned for what it points to" };
    Refused::invalid(format!("{name} is {why}"))
}

/// Reads a value.
///
/// # Safety
///
/// `from` is null or points to a value.
#[inline]
pub(crate) unsafe fn read<T: Copy>(from: *const T, name: &'static str) -> Result<T, Refused> {
    check(from, name)?;
    // SAFETY: the caller's promise; checked for null and alignment.
    Ok(unsafe { from.read() })
}

/// Reads the description of a new allocation, in the layout of the program's header.
///
/// # Safety
///
/// `from` is null or points to a value of that layout.
#[inline]
pub(crate) unsafe fn read_info(
    from: *const VmaAllocationCreateInfo,
    layout: Layout,
) -> Result<VmaAllocationCreateInfo, Refused> {
    let short = offset_of!(VmaAllocationCreateInfo, min_alignment);
    match layout {
        // SAFETY: the caller's promise.
        Layout::Full => unsafe { read(from, "pCreateInfo") },
        // SAFETY: as above; zero means nothing in the field behind.
        Layout::Short => unsafe { read_prefix(from, short, "pCreateInfo") },
    }
}

/// Borrows a struct.
///
/// # Safety
///
/// `from` is null or points to a value that stays as it is meanwhile.
pub(crate) unsafe fn borrow<'a, T>(from: *const T, name: &'static str) -> Result<&'a T, Refused> {
    check(from, name)?;
    // SAFETY: the caller's promise; checked for null and alignment.
    Ok(unsafe { &*from })
}

/// Reads a value; `None` for null.
///
/// # Safety
///
/// As for [`read`].
pub(crate) unsafe fn read_if<T: Copy>(
    from: *const T,
    name: &'static str,
) -> Result<Option<T>, Refused> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read(from, name) }.map(Some)
}

/// Borrows an array; an empty one may be null.
///
/// # Safety
///
/// `from` is null or points to `count` values that stay as they are meanwhile.
pub(crate) unsafe fn array<'a, T>(
    from: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Refused> {
    if count == 0 {
        return Ok(&[]);
    }
    check(from, name)?;
    // SAFETY: the caller's promise; checked for null and alignment.
    Ok(unsafe { core::slice::from_raw_parts(from, count) })
}

/// Writes a value.
///
/// # Safety
///
/// `to` is null or may be written.
#[inline]
pub(crate) unsafe fn put<T>(to: *mut T, value: T, name: &'static str) -> Result<(), Refused> {
    check(to, name)?;
    // SAFETY: the caller's promise; checked for null and alignment.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a value where the program wants it.
///
/// # Safety
///
/// As for [`put`].
#[inline]
pub(crate) unsafe fn put_if<T>(to: *mut T, value: impl FnOnce() -> T) {
    if !to.is_null() && to.is_aligned() {
        // SAFETY: the caller's promise; checked for null and alignment.
        unsafe { to.write(value()) };
    }
}

/// Borrows a text; none for null.
///
/// # Safety
///
/// `text` is null or a C string that stays as it is meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise, and not null.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Finds a structure in a chain by its type.
///
/// # Safety
///
/// `chain` is null or a chain of Vulkan structures; `T` is the structure whose type `kind` is.
pub(crate) unsafe fn chained<'a, T>(
    mut chain: *const c_void,
    kind: vk::StructureType,
) -> Option<&'a T> {
    while !chain.is_null() {
        // SAFETY: every structure of a chain starts so.
        let base = unsafe { &*chain.cast::<vk::BaseInStructure<'_>>() };
        if base.s_type == kind {
            // SAFETY: its type says what it is.
            return Some(unsafe { &*chain.cast::<T>() });
        }
        chain = base.p_next.cast();
    }
    None
}

/// Reads the first bytes of a struct; the fields behind them are zero.
///
/// # Safety
///
/// `from` is null or points to `bytes` bytes of a value. All bits zero are valid for every field behind them.
#[cold]
pub(crate) unsafe fn read_prefix<T: Copy>(
    from: *const T,
    bytes: usize,
    name: &'static str,
) -> Result<T, Refused> {
    check(from, name)?;
    let mut whole = MaybeUninit::<T>::zeroed();
    let (bytes, to) = (bytes.min(size_of::<T>()), whole.as_mut_ptr());
    // SAFETY: the caller's promise, and `whole` has room for as much.
    unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.cast(), bytes) };
    // SAFETY: zero is a value of the fields behind, and the others were copied from a value.
    Ok(unsafe { whole.assume_init() })
}
