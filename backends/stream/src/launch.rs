//! Launch parameters: the shape, and arguments by value.
use core::ffi::c_void;
use omniheap_seam::{ErrorKind, Result};

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Groups in each direction; none may be zero.
    pub grid: [u32; 3],
    /// Threads of a group in each direction; none may be zero.
    pub group: [u32; 3],
    /// Bytes of dynamic shared memory per group. Above the default limit the launch opts in by itself.
    pub shared: u64,
}

impl Launch {
    /// `groups` groups of `threads` threads, without dynamic shared memory.
    #[must_use]
    pub const fn linear(groups: u32, threads: u32) -> Self {
        Self { grid: [groups, 1, 1], group: [threads, 1, 1], shared: 0 }
    }

    /// Returns the same with `bytes` of dynamic shared memory per group.
    #[must_use]
    pub const fn shared(self, bytes: u64) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Refuses what a device can never run; returns the shape that drivers take.
    ///
    /// # Errors
    ///
    /// `ZeroSize` for an empty grid or group; `ExceedsLimit` for more threads, or more shared memory together with what
    /// the kernel itself has, than there are.
    pub fn check(self, limits: Limits) -> Result<Shape> {
        if self.grid.contains(&0) || self.group.contains(&0) {
            return Err(ErrorKind::ZeroSize.into());
        }
        let threads = self.group.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
        let total = self.shared.checked_add(u64::from(limits.fixed_shared));
        match (threads, total) {
            (Some(threads), Some(total)) if threads <= limits.threads && total <= limits.shared => {
                let shared = u32::try_from(self.shared).map_err(|_| ErrorKind::ExceedsLimit)?;
                Ok(Shape { grid: self.grid, group: self.group, shared })
            }
            _ => Err(ErrorKind::ExceedsLimit.into()),
        }
    }
}

/// A launch's shape that was checked, in groups, threads and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Groups in each direction.
    pub grid: [u32; 3],
    /// Threads of a group in each direction.
    pub group: [u32; 3],
    /// Bytes of shared memory, beside those that the kernel always uses.
    pub shared: u32,
}

/// Launch limits of a kernel on its device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads of a group.
    pub threads: u32,
    /// Bytes of shared memory that the kernel has by itself.
    pub fixed_shared: u32,
    /// Bytes of shared memory that a group may have in all.
    pub shared: u64,
}

/// One kernel argument, by value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Argument {
    /// A device address, or any 64-bit number.
    U64(u64),
    /// A 64-bit number.
    I64(i64),
    /// A 64-bit number.
    F64(f64),
    /// A 32-bit number.
    U32(u32),
    /// A 32-bit number.
    I32(i32),
    /// A 32-bit number.
    F32(f32),
}

impl Argument {
    /// Returns the value's own bytes, as launches take them: not `const`, but only read.
    #[must_use]
    pub fn pointer(&self) -> *mut c_void {
        let value = match self {
            Self::U64(value) => core::ptr::from_ref(value).cast::<c_void>(),
            Self::I64(value) => core::ptr::from_ref(value).cast(),
            Self::F64(value) => core::ptr::from_ref(value).cast(),
            Self::U32(value) => core::ptr::from_ref(value).cast(),
            Self::I32(value) => core::ptr::from_ref(value).cast(),
            Self::F32(value) => core::ptr::from_ref(value).cast(),
        };
        value.cast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_point_to_their_own_bytes() {
        let arguments = [Argument::U64(7), Argument::U32(9), Argument::F32(1.5)];
        let base = arguments.as_ptr().addr();
        for (index, argument) in arguments.iter().enumerate() {
            let offset = argument.pointer().addr() - base;
            assert_eq!(offset / size_of::<Argument>(), index);
            assert_ne!(offset % size_of::<Argument>(), 0, "the tag is not the value");
        }
    }

    #[test]
    fn a_shape_is_checked_against_every_limit() {
        let limits = Limits { threads: 256, fixed_shared: 100, shared: 1000 };
        let kind =
            |launch: Launch| launch.check(limits).map(|shape| shape.shared).map_err(|e| e.kind());
        assert_eq!(kind(Launch::linear(1, 256).shared(900)), Ok(900));
        assert_eq!(kind(Launch::linear(1, 256).shared(901)), Err(ErrorKind::ExceedsLimit));
        assert_eq!(kind(Launch::linear(1, 257)), Err(ErrorKind::ExceedsLimit));
        assert_eq!(kind(Launch::linear(0, 1)), Err(ErrorKind::ZeroSize));
        let overflowing = Launch { group: [u32::MAX; 3], ..Launch::linear(1, 1) };
        assert_eq!(kind(overflowing), Err(ErrorKind::ExceedsLimit));
        assert_eq!(kind(Launch::linear(1, 1).shared(u64::MAX)), Err(ErrorKind::ExceedsLimit));
    }
}
