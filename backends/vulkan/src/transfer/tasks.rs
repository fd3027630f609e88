//! Division of moves between the compaction kernel and the driver's own copies. Pure.
#![forbid(unsafe_code)]

/// Bytes of a task in the kernel's list: two addresses, a count, a unit.
pub(crate) const TASK: u64 = TASK_BYTES as u64;
const TASK_BYTES: usize = 24;
/// Bytes that one group of the kernel copies at most.
///
/// Groups that run together then read and write within tens of megabytes; the kernel's bandwidth was measured so.
const STRETCH: u32 = 32 << 10;
/// The longest task: its count fits the list's 32 bits many times over.
const LONGEST: u64 = 1 << 30;
/// The kernel copies quads where both ends are aligned alike, else words.
const QUAD: u64 = 16;
const WORD: u64 = 4;

/// A copy between two device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) size: u64,
}

impl Span {
    /// Returns the part that begins `skip` bytes in and has `size` bytes.
    const fn part(self, skip: u64, size: u64) -> Self {
        Self { from: self.from + skip, to: self.to + skip, size }
    }

    /// Returns the bytes up to the first multiple of `unit`.
    fn before(self, unit: u64) -> u64 {
        (self.from.wrapping_neg() % unit).min(self.size)
    }

    const fn is_alike(self, unit: u64) -> bool {
        self.from % unit == self.to % unit
    }
}

/// Lengths of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Bytes of a task at most.
    task: u64,
    /// Groups that share one, each of which copies [`stretch`](Self::stretch) bytes.
    pub(crate) sharing: u32,
}

impl Lengths {
    /// Returns the bytes that one group copies.
    pub(crate) const fn stretch(self) -> u32 {
        STRETCH
    }

    /// Returns the shortest tasks that keep `bytes` of `moves` within `most` of them, where some do.
    ///
    /// Each move adds one task for its last part and at most two for its edges.
    pub(crate) fn of(bytes: u64, moves: u64, most: u64) -> Self {
        let room = most.saturating_sub(moves.saturating_mul(3)).max(1);
        let stretch = u64::from(STRETCH);
        let task = bytes.div_ceil(room).clamp(stretch, LONGEST).next_multiple_of(stretch);
        let sharing = u32::try_from(task / stretch).expect("LONGEST has few stretches");
        Self { task, sharing }
    }
}

/// The kernel's list, as it lies in memory.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
}

impl Tasks {
    /// Creates an empty list with room for one task per move.
    pub(crate) fn for_moves(moves: usize) -> Self {
        Self { bytes: Vec::with_capacity(moves.saturating_mul(TASK_BYTES)), count: 0 }
    }

    /// Adds a move; returns what is left for the driver's own copy, as offset and size inside the move: edges that are no
    /// whole words, or all of it where words do not line up.
    pub(crate) fn add(&mut self, span: Span, lengths: Lengths) -> [(u64, u64); 2] {
        if !span.is_alike(WORD) {
            return [(0, span.size), (0, 0)];
        }
        let head = span.before(WORD);
        let tail = (span.size - head) % WORD;
        let words = span.part(head, span.size - head - tail);
        if words.is_alike(QUAD) {
            let first = words.before(QUAD);
            let last = (words.size - first) % QUAD;
            let middle = words.size - first - last;
            self.push(words.part(0, first), WORD, lengths.task);
            self.push(words.part(first, middle), QUAD, lengths.task);
            self.push(words.part(first + middle, last), WORD, lengths.task);
        } else {
            self.push(words, WORD, lengths.task);
        }
        [(0, head), (span.size - tail, tail)]
    }

    fn push(&mut self, span: Span, unit: u64, longest: u64) {
        let mut done = 0;
        while done < span.size {
            let size = longest.min(span.size - done);
            let part = span.part(done, size);
            let count = u32::try_from(size / unit).expect("no task is longer than LONGEST");
            let unit = u32::try_from(unit).expect("4 or 16");
            let mut task = [0; TASK_BYTES];
            // The device reads addresses as two words, the low one first.
            task[..8].copy_from_slice(&part.from.to_le_bytes());
            task[8..16].copy_from_slice(&part.to.to_le_bytes());
            task[16..20].copy_from_slice(&count.to_le_bytes());
            task[20..].copy_from_slice(&unit.to_le_bytes());
            self.bytes.extend_from_slice(&task);
            self.count += 1;
            done += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list back.
    fn parts(tasks: &Tasks) -> Vec<(Span, u32)> {
        let word = |bytes: &[u8], i: usize| {
            u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
        };
        let wide = |b: &[u8], i| u64::from(word(b, i)) | u64::from(word(b, i + 1)) << 32;
        assert_eq!(tasks.bytes.len() as u64, u64::from(tasks.count) * TASK);
        let chunks = tasks.bytes.chunks(usize::try_from(TASK).unwrap());
        let part = |b| {
            let size = u64::from(word(b, 4)) * u64::from(word(b, 5));
            (Span { from: wide(b, 0), to: wide(b, 2), size }, word(b, 5))
        };
        chunks.map(part).collect()
    }

    #[test]
    fn every_byte_is_copied_once_by_whoever_can() {
        for (from, to) in [(0, 0), (1, 1), (4, 8), (3, 7), (5, 21), (1, 2), (12, 28)] {
            for size in [1, 3, 4, 15, 16, 17, 63, 64, 100, 200, 1000] {
                let base = 0x12_3456_7000;
                let span = Span { from: base + from, to: 2 * base + to, size };
                let mut tasks = Tasks::default();
                let left = tasks.add(span, Lengths { task: 48, sharing: 1 });
                let mut seen = vec![0u8; usize::try_from(size).unwrap()];
                let mut see = |at: u64, count: u64| {
                    let range = usize::try_from(at).unwrap()..usize::try_from(at + count).unwrap();
                    seen[range].iter_mut().for_each(|byte| *byte += 1);
                };
                for (part, unit) in parts(&tasks) {
                    assert_eq!(part.from - span.from, part.to - span.to);
                    assert!(part.size > 0 && part.size <= 48);
                    let unit = u64::from(unit);
                    assert!(part.from.is_multiple_of(unit) && part.to.is_multiple_of(unit));
                    see(part.from - span.from, part.size);
                }
                left.into_iter().for_each(|(at, count)| see(at, count));
                assert!(seen.iter().all(|count| *count == 1), "{span:?}: {seen:?}");
            }
        }
    }

    #[test]
    fn aligned_moves_are_all_quads() {
        let mut tasks = Tasks::default();
        let left = tasks
            .add(Span { from: 4096, to: 1 << 40, size: 8192 }, Lengths { task: 4096, sharing: 1 });
        assert_eq!(left, [(0, 0), (8192, 0)]);
        assert_eq!(parts(&tasks).iter().map(|(_, unit)| *unit).collect::<Vec<_>>(), [16, 16]);
    }

    #[test]
    fn a_list_stays_within_its_room() {
        for (bytes, moves, most) in [(1 << 40, 10, 4096), (1 << 20, 1000, 4096), (1 << 31, 1, 8)] {
            let lengths = Lengths::of(bytes, moves, most);
            assert!(bytes / lengths.task + 3 * moves <= most, "{bytes} in {moves}");
            assert_eq!(u64::from(lengths.sharing) * u64::from(STRETCH), lengths.task);
        }
    }

    #[test]
    fn groups_copy_no_more_because_a_list_is_full() {
        let short = Lengths::of(10_000 << 16, 10_000, 87_381);
        assert_eq!((short.task, short.sharing), (32 << 10, 1));
        let long = Lengths::of(10_000 << 20, 10_000, 87_381);
        assert_eq!((long.task, long.sharing, long.stretch()), (192 << 10, 6, 32 << 10));
    }
}
