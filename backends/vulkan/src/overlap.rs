//! Whether the moves of one batch get in each other's way. Pure.
#![forbid(unsafe_code)]
use ash::vk;
use omniheap_core::{ErrorKind, Result};

/// What a move does to a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    Target,
}

/// A range of bytes that a move reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    buffer: vk::Buffer,
    start: u64,
    end: u64,
    role: Role,
}

impl Touch {
    /// `start + size` was checked against a block.
    pub(crate) const fn new(buffer: vk::Buffer, start: u64, size: u64, role: Role) -> Self {
        Self { buffer, start, end: start + size, role }
    }
}

/// Refuses a batch in which a byte is a target twice, or a source and a target.
///
/// # Errors
///
/// `Unsupported`: the batch has no order, so its result would have no meaning.
pub(crate) fn refuse(mut touches: Vec<Touch>) -> Result<()> {
    let is_target = |touch: &&Touch| touch.role == Role::Target;
    let mut written: Vec<_> = touches.iter().filter(is_target).map(|touch| touch.buffer).collect();
    written.sort_unstable();
    written.dedup();
    // Reads of a buffer that nobody writes meet nothing; without them there is half as much to sort.
    touches.retain(|t| t.role == Role::Target || written.binary_search(&t.buffer).is_ok());
    touches.sort_unstable_by_key(|touch| (touch.buffer, touch.start));
    let mut buffer = vk::Buffer::null();
    let (mut read, mut written) = (0, 0);
    for touch in &touches {
        if touch.buffer != buffer {
            buffer = touch.buffer;
            (read, written) = (0, 0);
        }
        let (busy, end) = match touch.role {
            Role::Source => (written, &mut read),
            Role::Target => (read.max(written), &mut written),
        };
        if touch.start < busy {
            return Err(ErrorKind::Unsupported.into());
        }
        *end = touch.end.max(*end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::Handle as _;

    fn verdict(list: &[(u64, u64, u64, Role)]) -> bool {
        let touches: Vec<_> = list
            .iter()
            .map(|(b, start, size, role)| {
                Touch::new(vk::Buffer::from_raw(*b), *start, *size, *role)
            })
            .collect();
        refuse(touches).is_ok()
    }

    #[test]
    fn ranges_that_only_touch_are_fine() {
        use Role::{Source, Target};
        assert!(verdict(&[(1, 0, 8, Source), (1, 8, 8, Target)]));
        assert!(verdict(&[(1, 0, 8, Source), (2, 0, 8, Target)]));
        assert!(verdict(&[(1, 0, 8, Source), (1, 4, 8, Source)]));
    }

    #[test]
    fn a_byte_is_written_once_and_never_read_too() {
        use Role::{Source, Target};
        assert!(!verdict(&[(1, 0, 8, Source), (1, 7, 8, Target)]));
        assert!(!verdict(&[(1, 0, 8, Target), (1, 7, 8, Source)]));
        assert!(!verdict(&[(1, 0, 8, Target), (1, 0, 1, Target)]));
        assert!(!verdict(&[(1, 0, 64, Source), (1, 16, 4, Source), (1, 32, 4, Target)]));
        assert!(!verdict(&[(2, 0, 8, Target), (1, 0, 8, Source), (1, 4, 1, Target)]));
        assert!(!verdict(&[(1, 4, 8, Source), (1, 4, 8, Target)]));
    }
}
