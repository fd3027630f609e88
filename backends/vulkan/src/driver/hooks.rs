//! An engine's part in the driver's memory calls: callbacks, exports, and structures of its own.
#![expect(unsafe_code, reason = "chains structures that the caller answers for")]
use super::error;
use ash::vk;
use core::{
    cell::Cell,
    ffi::c_void,
    fmt, ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use omniheap_seam::Result;

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

/// Bytes that some memory types hold together, and the most that they may.
#[derive(Debug)]
struct Limited {
    memory_types: u32,
    most: u64,
    held: AtomicU64,
}

/// An engine's part in every memory call of a device. Start from [`Hooks::default`].
#[derive(Default)]
pub struct Hooks {
    callbacks: Option<vk::AllocationCallbacks<'static>>,
    told: Option<Told>,
    exports: Vec<vk::ExternalMemoryHandleTypeFlags>,
    limits: Vec<Limited>,
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

    /// Limits the bytes that the memory types whose bits are set hold together. What goes beyond is refused as the driver refuses
    /// what it does not have.
    #[must_use]
    pub fn limit(mut self, memory_types: u32, most: u64) -> Self {
        self.limits.push(Limited { memory_types, most, held: AtomicU64::new(0) });
        self
    }

    /// Returns the limits of a memory type.
    fn limits_of(&self, memory_type: u32) -> impl Iterator<Item = &Limited> {
        let bit = 1u32.checked_shl(memory_type).unwrap_or(0);
        self.limits.iter().filter(move |limited| limited.memory_types & bit != 0)
    }

    /// Counts bytes that are about to be allocated, unless a limit forbids them.
    pub(crate) fn reserve(&self, memory_type: u32, size: u64) -> Result<()> {
        for (reserved, limited) in self.limits_of(memory_type).enumerate() {
            let more = |held: u64| held.checked_add(size).filter(|held| *held <= limited.most);
            if limited.held.fetch_update(Relaxed, Relaxed, more).is_err() {
                let counted = self.limits_of(memory_type).take(reserved);
                counted.for_each(|limited| {
                    limited.held.fetch_sub(size, Relaxed);
                });
                return Err(error(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
            }
        }
        Ok(())
    }

    /// Takes back what [`reserve`](Self::reserve) counted.
    pub(crate) fn release(&self, memory_type: u32, size: u64) {
        for limited in self.limits_of(memory_type) {
            limited.held.fetch_sub(size, Relaxed);
        }
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
    fn a_limit_counts_the_types_that_share_it_and_takes_nothing_back_twice() {
        let hooks = Hooks::default().limit(0b011, 100).limit(0b110, 50).limit(0, 0);
        assert!(hooks.reserve(0, 60).is_ok() && hooks.reserve(1, 40).is_ok());
        assert!(hooks.reserve(0, 1).is_err(), "the first two have 100 together");
        assert!(hooks.reserve(2, 10).is_ok() && hooks.reserve(2, 1).is_err());
        hooks.release(0, 60);
        // The second limit refuses it, so the first takes it back.
        assert!(hooks.reserve(1, 60).is_err() && hooks.reserve(0, 60).is_ok());
        assert!(hooks.reserve(0, u64::MAX).is_err() && hooks.reserve(3, u64::MAX).is_ok());
        assert!(hooks.reserve(32, u64::MAX).is_ok(), "a type that no limit names");
    }

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
