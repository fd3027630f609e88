//! An engine's part in the driver's memory calls: callbacks, exports, and structures of its own.
#![expect(unsafe_code, reason = "chains structures that the caller answers for")]
use ash::vk;
use core::{cell::Cell, ffi::c_void, fmt, ptr};

/// A driver allocation that was made, or is about to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryEvent {
    /// Kind of the event.
    pub kind: MemoryEventKind,
    /// The memory.
    pub memory: vk::DeviceMemory,
    /// Index of its memory type.
    pub memory_type: u32,
    /// Bytes.
    pub size: u64,
}

/// Kind of a [`MemoryEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryEventKind {
    /// The driver has just allocated it.
    Allocated,
    /// The driver is about to free it.
    Freed,
}

type Told = Box<dyn Fn(MemoryEvent) + Send + Sync>;

/// An engine's part in every memory call of a device. Start from [`Hooks::default`].
#[derive(Default)]
pub struct Hooks {
    callbacks: Option<vk::AllocationCallbacks<'static>>,
    told: Option<Told>,
    exports: Vec<vk::ExternalMemoryHandleTypeFlags>,
}

// SAFETY: of the parts only the callbacks hold pointers; who gave them promised that any thread may call them.
unsafe impl Send for Hooks {}
// SAFETY: as above.
unsafe impl Sync for Hooks {}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("exports", &self.exports).finish_non_exhaustive()
    }
}

impl Hooks {
    /// Passes host allocation callbacks to the driver with every memory call.
    ///
    /// # Safety
    ///
    /// The functions and their pointer stay valid as long as the device's memory, and may be called from any thread.
    #[must_use]
    pub unsafe fn callbacks(self, callbacks: vk::AllocationCallbacks<'static>) -> Self {
        Self { callbacks: Some(callbacks), ..self }
    }

    /// Calls `told` after each driver allocation and before each free. It may run under locks of the manager: it must be quick, and
    /// must not call the manager.
    #[must_use]
    pub fn told(self, told: impl Fn(MemoryEvent) + Send + Sync + 'static) -> Self {
        Self { told: Some(Box::new(told)), ..self }
    }

    /// Makes all memory of a type exportable as handles of these kinds, by index of the type.
    #[must_use]
    pub fn exports(self, exports: Vec<vk::ExternalMemoryHandleTypeFlags>) -> Self {
        Self { exports, ..self }
    }

    pub(crate) fn for_driver(&self) -> Option<&vk::AllocationCallbacks<'static>> {
        self.callbacks.as_ref()
    }

    pub(crate) fn tell(
        &self,
        kind: MemoryEventKind,
        memory: vk::DeviceMemory,
        memory_type: u32,
        size: u64,
    ) {
        if let Some(told) = &self.told {
            told(MemoryEvent { kind, memory, memory_type, size });
        }
    }

    pub(crate) fn export_of(&self, memory_type: u32) -> vk::ExternalMemoryHandleTypeFlags {
        let at = usize::try_from(memory_type).unwrap_or(usize::MAX);
        self.exports.get(at).copied().unwrap_or_default()
    }
}

/// Additions to the driver allocations that one thread makes inside [`scoped`](Self::scoped).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MemoryExtras {
    /// Residency priority, 0 to 1, where the device takes hints.
    pub priority: Option<f32>,
    next: *const c_void,
}

impl Default for MemoryExtras {
    fn default() -> Self {
        Self::NONE
    }
}

thread_local! {
    static EXTRAS: Cell<MemoryExtras> = const { Cell::new(MemoryExtras::NONE) };
}

impl MemoryExtras {
    const NONE: Self = Self { priority: None, next: ptr::null() };

    /// Hints how much an eviction would hurt, 0 to 1.
    #[must_use]
    pub const fn priority(self, priority: f32) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// Chains structures to `VkMemoryAllocateInfo`.
    ///
    /// # Safety
    ///
    /// `next` is null or a chain that may extend `VkMemoryAllocateInfo`, with no structure that this backend adds itself. It stays
    /// valid and unchanged as long as the extras are used.
    #[must_use]
    pub const unsafe fn next(self, next: *const c_void) -> Self {
        Self { next, ..self }
    }

    /// Runs `work`. Driver allocations that this thread makes meanwhile get these additions.
    pub fn scoped<R>(self, work: impl FnOnce() -> R) -> R {
        struct Back(MemoryExtras);
        impl Drop for Back {
            fn drop(&mut self) {
                EXTRAS.set(self.0);
            }
        }
        let _back = Back(EXTRAS.replace(self));
        work()
    }

    pub(crate) fn current() -> Self {
        EXTRAS.get()
    }

    pub(crate) const fn chain(self) -> *const c_void {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_end_with_their_scope_also_by_a_panic() {
        let priority = || MemoryExtras::current().priority;
        MemoryExtras::default().priority(0.25).scoped(|| {
            assert_eq!(priority(), Some(0.25));
            let inner = || MemoryExtras::default().scoped(|| panic!("ends the scope"));
            assert!(std::panic::catch_unwind(inner).is_err());
            assert_eq!(priority(), Some(0.25));
        });
        assert_eq!(priority(), None);
    }
}
