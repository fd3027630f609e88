//! The C++ function object with which PyTorch says which streams a capture takes.
//!
//! The object is a `std::function<bool(stream)>` of GNU's C++ library, whose layout has been fixed since 2005: 16 bytes
//! of content, a manager that copies and destroys it, and the function that calls it. A callee may move such an object
//! out of its argument by taking the content and leaving the argument empty.
#![expect(unsafe_code, reason = "calls a C++ function object")]
use core::ffi::{c_int, c_void};

/// Request to the function object's manager: destroy the content.
const DESTROY: c_int = 3;

/// The object as C++ lays it out.
#[repr(C)]
#[derive(Debug)]
pub struct Function {
    content: [usize; 2],
    manager: Option<unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool>,
    call: Option<unsafe extern "C" fn(*const [usize; 2], *mut *mut c_void) -> bool>,
}

/// A moved function object: called from any thread, destroyed once.
pub(crate) struct Filter(Function);

// SAFETY: PyTorch's filters ask the driver about a stream, or compare thread numbers; PyTorch itself calls them from
// every thread that allocates.
unsafe impl Send for Filter {}

impl Filter {
    /// Moves the object out of an argument, which is empty afterwards. Nothing where it was empty.
    ///
    /// # Safety
    ///
    /// `argument` is null or points to a live function object that only the caller uses.
    pub(crate) unsafe fn take(argument: *mut Function) -> Option<Self> {
        // SAFETY: the caller's promise.
        let argument = unsafe { argument.as_mut() }?;
        argument.call?;
        let (manager, call) = (argument.manager.take(), argument.call.take());
        Some(Self(Function { content: argument.content, manager, call }))
    }

    /// Returns true if the capture takes this stream.
    pub(crate) fn accepts(&self, stream: *mut c_void) -> bool {
        let mut stream = stream;
        // SAFETY: `take` checked that it can be called; the stream outlives the call.
        self.0.call.is_some_and(|call| unsafe { call(&raw const self.0.content, &raw mut stream) })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(manager) = self.0.manager {
            let content = &raw mut self.0.content;
            // SAFETY: the content was moved here in `take` and is destroyed once.
            unsafe { manager(content, content, DESTROY) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    static DESTROYED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn manage(_: *mut [usize; 2], _: *const [usize; 2], what: c_int) -> bool {
        DESTROYED.fetch_add(u32::from(what == DESTROY), Relaxed);
        false
    }

    unsafe extern "C" fn equals(content: *const [usize; 2], stream: *mut *mut c_void) -> bool {
        // SAFETY: `accepts` passes its own content.
        let content = unsafe { content.read() };
        // SAFETY: and a pointer to its own copy of the stream.
        let stream = unsafe { stream.read() };
        content[0] == stream.addr()
    }

    #[test]
    fn a_moved_filter_answers_and_is_destroyed_once() {
        let mut argument = Function { content: [7, 0], manager: Some(manage), call: Some(equals) };
        // SAFETY: a live object of this test.
        let filter = unsafe { Filter::take(&raw mut argument) }.expect("it is not empty");
        assert!(argument.call.is_none() && argument.manager.is_none());
        assert!(filter.accepts(core::ptr::without_provenance_mut(7)));
        assert!(!filter.accepts(core::ptr::null_mut()));
        drop(filter);
        assert_eq!(DESTROYED.load(Relaxed), 1);
        // SAFETY: as above; it is empty now.
        assert!(unsafe { Filter::take(&raw mut argument) }.is_none());
    }
}
