//! PyTorch's own exceptions, thrown from an allocator function.
//!
//! PyTorch takes whatever the function returns, a null pointer too, so the only way to report a failure is its C++
//! exception. `c10::OutOfMemoryError` is built as a C++ compiler builds it, from the symbols that PyTorch's libraries
//! export: the base class in one, the class in the one whose own allocator throws it. Python sees
//! `torch.OutOfMemoryError`, and `RuntimeError` for the base class alone.
#![expect(unsafe_code, reason = "builds and throws a C++ exception")]
use crate::loaded::{Loaded, New, operator_new};
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use std::sync::OnceLock;

/// More than the exception needs; what is too much is freed with it.
const OBJECT: usize = 512;

/// Source location that an exception names.
#[repr(C)]
struct Location {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// A C++ string of GNU's library: where, how long, and room for short ones.
#[repr(C)]
struct Text {
    start: *mut u8,
    length: usize,
    room: [usize; 2],
}

/// Parts of which the exception is built.
struct Parts {
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    new: New,
    construct: unsafe extern "C" fn(*mut c_void, Location, *mut Text),
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !,
    out_of_memory: Class,
    error: Class,
}

/// A class of exceptions.
#[derive(Clone, Copy)]
struct Class {
    type_info: usize,
    /// The table's third entry: behind the offset and the type come destructor, deleting destructor and `what`.
    virtuals: usize,
}

impl Class {
    fn find(library: &Loaded, [type_info, table]: [&CStr; 2]) -> Option<Self> {
        let table = library.symbol(table)?.addr();
        let type_info = library.symbol(type_info)?.addr();
        Some(Self { type_info, virtuals: table + 2 * size_of::<usize>() })
    }
}

/// Kind of exception that Python sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `torch.OutOfMemoryError`.
    OutOfMemory,
    /// `RuntimeError`: with less or more memory it would be the same.
    Error,
}

impl Parts {
    /// The parts; nothing where PyTorch is not loaded, or is one that this was not made for.
    fn get() -> Option<&'static Self> {
        static PARTS: OnceLock<Option<Parts>> = OnceLock::new();
        PARTS.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        let (base, cpp) = (Loaded::find(c"libc10.so")?, Loaded::find(c"libstdc++.so.6")?);
        let vendors = [c"libc10_cuda.so", c"libc10_hip.so"];
        let vendor = vendors.into_iter().find_map(Loaded::find)?;
        let construct =
            c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
        let out_of_memory = [c"_ZTIN3c1016OutOfMemoryErrorE", c"_ZTVN3c1016OutOfMemoryErrorE"];
        Some(Self {
            // SAFETY: the C++ ABI fixes the signature of this symbol.
            allocate: unsafe { cpp.function(c"__cxa_allocate_exception") }?,
            new: operator_new()?,
            // SAFETY: the mangled name spells out the signature: a location by value, a string, which by the C++ ABI is
            // passed by address, and the object in front.
            construct: unsafe { base.function(construct) }?,
            // SAFETY: the C++ ABI fixes the signature of this symbol.
            throw: unsafe { cpp.function(c"__cxa_throw") }?,
            out_of_memory: Class::find(&vendor, out_of_memory)?,
            error: Class::find(&base, [c"_ZTIN3c105ErrorE", c"_ZTVN3c105ErrorE"])?,
        })
    }

    /// A C++ string with a copy of `message`.
    fn text(&self, message: &str) -> Option<Text> {
        // SAFETY: as `operator new`, which has no preconditions; the exception frees it.
        let start = unsafe { (self.new)(message.len() + 1) }.cast::<u8>();
        if start.is_null() {
            return None;
        }
        // SAFETY: `start` was just allocated with this length and one byte more.
        unsafe { start.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        // SAFETY: as above: the byte more.
        let end = unsafe { start.add(message.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Some(Text { start, length: message.len(), room: [message.len(), 0] })
    }
}

/// A built exception that waits to be thrown. Plain numbers, so that nothing is left behind when it flies.
#[derive(Clone, Copy)]
struct Exception {
    object: *mut c_void,
    class: Class,
    parts: &'static Parts,
}

/// Builds PyTorch's exception; nothing where PyTorch is not loaded.
fn build(kind: Kind, message: &str) -> Option<Exception> {
    let parts = Parts::get()?;
    let class = match kind {
        Kind::OutOfMemory => parts.out_of_memory,
        Kind::Error => parts.error,
    };
    let mut text = MaybeUninit::new(parts.text(message)?);
    // SAFETY: the function has no preconditions.
    let object = unsafe { (parts.allocate)(OBJECT) };
    let place = Location { function: c"allocate".as_ptr(), file: c"omniheap".as_ptr(), line: 0 };
    // SAFETY: `object` has room for the exception; the string is moved from, and what is left of it is empty and inline.
    unsafe { (parts.construct)(object, place, text.as_mut_ptr()) };
    // SAFETY: a C++ object with virtual functions begins with the address of their table; the derived class adds nothing
    // but its table.
    unsafe { object.cast::<usize>().write(class.virtuals) };
    Some(Exception { object, class, parts })
}

/// Throws PyTorch's exception; returns where PyTorch is not loaded.
///
/// # Safety
///
/// Called at most once, from a function that a C++ caller called, through which exceptions may pass, and in which nothing is left to drop.
pub(crate) unsafe fn throw(kind: Kind, line: String) {
    let exception = build(kind, &line);
    drop(line);
    if let Some(exception) = exception {
        // SAFETY: the caller's promise; built just above, thrown once.
        unsafe { exception.throw() }
    }
}

impl Exception {
    /// Throws it to the C++ caller.
    ///
    /// # Safety
    ///
    /// Thrown once, from a function that a C++ caller called and through which exceptions may pass.
    unsafe fn throw(self) -> ! {
        let table = core::ptr::with_exposed_provenance::<*const c_void>(self.class.virtuals);
        // SAFETY: the table's first entry is the destructor.
        let destructor = unsafe { table.read() };
        let type_info = core::ptr::with_exposed_provenance(self.class.type_info);
        // SAFETY: a complete exception object with its type and destructor; the caller's promise covers the way up.
        unsafe { (self.parts.throw)(self.object, type_info, destructor) }
    }
}
