//! Packets that HIP writes into a queue: 64 bytes that say what to do.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::abi::{Condition, SignalHandle};

/// `HSA_PACKET_TYPE_INVALID`: the slot is free, or not written yet.
const INVALID: u32 = 1;
/// `HSA_AMD_PACKET_TYPE_BARRIER_VALUE`
const BARRIER_VALUE: u32 = 2;

/// One slot of a queue, written by HIP and read by the queue's thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    words: [AtomicU32; 16],
}

/// A kernel to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) group: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) group_memory: u32,
    pub(crate) kernel: u64,
    pub(crate) arguments: u64,
}

/// Work that a packet asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Launch(Launch),
    /// Wait until every signal is 0.
    WaitAll([SignalHandle; 5]),
    /// Wait until one of the signals is 0.
    WaitAny([SignalHandle; 5]),
    /// Wait until a signal's masked value satisfies the condition.
    WaitValue(SignalHandle, Condition, i64, i64),
    /// Something this stand-in does not know; it is completed without doing anything.
    Unknown(u32),
}

impl Slot {
    /// Makes the slot free.
    pub(crate) fn clear(&self) {
        self.words[0].store(INVALID, Ordering::Release);
    }

    /// Reads the packet once it is written.
    pub(crate) fn read(&self) -> Option<(Work, SignalHandle)> {
        // HIP writes the header last, with release semantics, so the rest is there when the header is.
        let header = self.words[0].load(Ordering::Acquire);
        let work = match header & 0xff {
            INVALID => return None,
            0 if (header >> 16) & 0xff == BARRIER_VALUE => self.wait_value(),
            2 => Work::Launch(self.launch(header)),
            3 => Work::WaitAll(self.signals()),
            5 => Work::WaitAny(self.signals()),
            other => Work::Unknown(other),
        };
        Some((work, SignalHandle(self.wide(14))))
    }

    fn launch(&self, _header: u32) -> Launch {
        let (first, second) = (self.word(1), self.word(2));
        Launch {
            group: [first & 0xffff, first >> 16, second & 0xffff],
            grid: [self.word(3), self.word(4), self.word(5)],
            group_memory: self.word(7),
            kernel: self.wide(8),
            arguments: self.wide(10),
        }
    }

    fn signals(&self) -> [SignalHandle; 5] {
        core::array::from_fn(|index| SignalHandle(self.wide(2 + 2 * index)))
    }

    fn wait_value(&self) -> Work {
        let signed = |word| i64::from_ne_bytes(self.wide(word).to_ne_bytes());
        Work::WaitValue(SignalHandle(self.wide(2)), Condition(self.word(8)), signed(4), signed(6))
    }

    fn word(&self, index: usize) -> u32 {
        self.words[index].load(Ordering::Relaxed)
    }

    fn wide(&self, index: usize) -> u64 {
        u64::from(self.word(index)) | u64::from(self.word(index + 1)) << 32
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::{Slot, Work};
    use crate::abi::{Condition, SignalHandle};

    fn slot(words: [u32; 16]) -> Slot {
        Slot { words: words.map(Into::into) }
    }

    #[test]
    fn packets_are_read_by_offset() {
        let launch =
            slot([2, 0x0002_0100, 3, 40, 50, 60, 0, 1024, 0x10, 0x1, 0x20, 0x2, 0, 0, 0x30, 0x3]);
        let Some((Work::Launch(launch), done)) = launch.read() else { panic!("a launch") };
        assert_eq!(
            (launch.group, launch.grid, launch.group_memory),
            ([256, 2, 3], [40, 50, 60], 1024)
        );
        assert_eq!((launch.kernel, launch.arguments), (0x1_0000_0010, 0x2_0000_0020));
        assert_eq!(done, SignalHandle(0x3_0000_0030));
        let wait = slot([2 << 16, 0, 7, 0, 5, 0, u32::MAX, u32::MAX, 3, 0, 0, 0, 0, 0, 0, 0]);
        let Some((Work::WaitValue(signal, condition, value, mask), _)) = wait.read() else {
            panic!("a wait")
        };
        assert_eq!((signal, condition, value, mask), (SignalHandle(7), Condition(3), 5, -1));
    }

    #[test]
    fn a_free_slot_holds_nothing() {
        let slot = slot([3; 16]);
        assert!(matches!(slot.read(), Some((Work::WaitAll(_), _))));
        slot.clear();
        assert!(slot.read().is_none());
        assert_eq!(slot.words[1].load(Ordering::Relaxed), 3);
    }
}
