//! Reads of a load, planned over all files: sorted, neighbours merged, aligned for direct I/O. Pure.

/// Start and length of every read are multiples of this, so that direct I/O takes them.
pub(crate) const ALIGN: u64 = 4096;
/// Most bytes of one read, which is one copy: the cost of a copy that does not depend on its length is paid seldom. With the bytes
/// that align it, a slot for it is a whole number of megabytes, so that blocks of pinned memory hold nothing else.
pub(crate) const READ: u64 = (8 << 20) - ALIGN;
/// Bytes that one thread reads from the page cache at a time: several fill one slot, so that the first copies start soon and all
/// threads end together.
pub(crate) const PART: u64 = 1 << 20;
/// Bytes that one thread reads past the page cache at a time: disks are faster with many short reads than with as many bytes in long ones.
pub(crate) const COLD_PART: u64 = 512 << 10;
/// Start of reads through the page cache: any byte. What is copied on then starts at the beginning of its slot.
const ANY: u64 = 1;
/// Reading a gap of this length costs less than another read.
const GAP: u64 = 64 << 10;

/// Bytes of a file that go to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Number of the destination.
    pub(crate) target: usize,
    /// First byte there.
    pub(crate) target_offset: u64,
}

/// Adds a want. Neighbours in the file that are neighbours in the target are one: files have tens of thousands of small tensors.
pub(crate) fn add(wants: &mut Vec<Want>, next: Want) {
    match wants.last_mut() {
        Some(last)
            if (last.file, last.target) == (next.file, next.target)
                && last.offset + last.size == next.offset
                && last.target_offset + last.size == next.target_offset =>
        {
            last.size += next.size;
        }
        _ => wants.push(next),
    }
}

/// Bytes of a read that go to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte inside the read.
    pub(crate) at: u64,
    pub(crate) size: u64,
    pub(crate) target: usize,
    pub(crate) target_offset: u64,
}

/// One read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) file: usize,
    /// A multiple of [`ALIGN`] where the read may be direct.
    pub(crate) offset: u64,
    /// Bytes that the pieces need from `offset` on.
    pub(crate) needs: u64,
    pub(crate) pieces: Vec<Piece>,
}

impl Read {
    /// Returns the bytes to ask for: whole units of [`ALIGN`], at most [`READ`]. The end of the file may come earlier.
    pub(crate) const fn length(&self) -> u64 {
        self.needs.next_multiple_of(ALIGN)
    }

    /// Returns what it reads for.
    pub(crate) fn wants(&self) -> impl Iterator<Item = Want> {
        self.pieces.iter().map(|piece| Want {
            file: self.file,
            offset: self.offset + piece.at,
            size: piece.size,
            target: piece.target,
            target_offset: piece.target_offset,
        })
    }

    /// Returns the bytes that arrive at targets.
    pub(crate) fn payload(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.size).sum()
    }
}

/// Plans reads that may be direct, for `wants`.
pub(crate) fn plan(wants: Vec<Want>) -> Vec<Read> {
    plan_aligned(wants, READ, ALIGN)
}

/// Plans reads of at most `longest` bytes through the page cache, for `wants`.
pub(crate) fn plan_cached(wants: Vec<Want>, longest: u64) -> Vec<Read> {
    plan_aligned(wants, longest, ANY)
}

/// Plans reads of at most `longest` bytes that start at multiples of `align`.
fn plan_aligned(mut wants: Vec<Want>, longest: u64, align: u64) -> Vec<Read> {
    wants.retain(|want| want.size > 0);
    wants.sort_by_key(|want| (want.file, want.offset, want.target, want.target_offset));
    let mut reads: Vec<Read> = Vec::new();
    for mut want in wants {
        while want.size > 0 {
            if !reads.last().is_some_and(|read| reaches(read, &want, longest)) {
                let offset = want.offset - want.offset % align;
                reads.push(Read { file: want.file, offset, needs: 0, pieces: Vec::new() });
            }
            let read = reads.last_mut().expect("one was pushed if there was none");
            take(read, &mut want, longest);
        }
    }
    reads
}

/// Returns whether a read can take at least the first bytes of `want`.
fn reaches(read: &Read, want: &Want, longest: u64) -> bool {
    let end = read.offset + read.needs;
    read.file == want.file
        && want.offset >= read.offset
        && want.offset <= end + GAP
        && first_cut(read, want, longest) > 0
}

/// Returns how many bytes of `want` a read takes.
fn first_cut(read: &Read, want: &Want, longest: u64) -> u64 {
    let room = (read.offset + longest).saturating_sub(want.offset);
    if want.size <= room {
        return want.size;
    }
    // The rest starts at an aligned offset of its target: devices copy whole units, and fast only from aligned starts.
    room.saturating_sub((want.target_offset + room) % ALIGN)
}

/// Moves the first bytes of `want` to a read.
fn take(read: &mut Read, want: &mut Want, longest: u64) {
    let size = first_cut(read, want, longest);
    let at = want.offset - read.offset;
    read.needs = read.needs.max(at + size);
    match read.pieces.last_mut() {
        // Neighbours in the file that are neighbours in the target are one copy.
        Some(last)
            if last.target == want.target
                && last.at + last.size == at
                && last.target_offset + last.size == want.target_offset =>
        {
            last.size += size;
        }
        _ => read.pieces.push(Piece {
            at,
            size,
            target: want.target,
            target_offset: want.target_offset,
        }),
    }
    want.offset += size;
    want.target_offset += size;
    want.size -= size;
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, PART, READ, Want, add, plan, plan_cached};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn want(file: usize, offset: u64, size: u64, target: usize) -> Want {
        Want { file, offset, size, target, target_offset: 0 }
    }

    #[test]
    fn neighbours_are_one_read_and_one_copy() {
        let wants = (0..50_000_u64).map(|number| Want {
            file: 0,
            offset: 1000 + number * 4096,
            size: 4096,
            target: 0,
            target_offset: number * 4096,
        });
        let reads = plan(wants.collect());
        assert!(reads.len() <= 26, "{} reads for 195 MiB", reads.len());
        assert!(reads.iter().all(|read| read.pieces.len() == 1));
    }

    #[test]
    fn neighbours_are_one_want() {
        let first = Want { file: 0, offset: 1000, size: 24, target: 3, target_offset: 256 };
        let next = Want { offset: 1024, size: 8, target_offset: 280, ..first };
        let mut wants = Vec::new();
        [first, next].into_iter().for_each(|want| add(&mut wants, want));
        assert_eq!(wants, [Want { size: 32, ..first }]);
        for other in [
            Want { file: 1, ..next },
            Want { target: 4, ..next },
            Want { offset: 1025, ..next },
            Want { target_offset: 288, ..next },
        ] {
            let mut wants = vec![first];
            add(&mut wants, other);
            assert_eq!(wants, [first, other]);
        }
    }

    #[test]
    fn distant_tensors_and_files_are_reads_of_their_own() {
        let reads = plan(vec![want(0, 0, 10, 0), want(0, 1 << 20, 10, 1), want(1, 0, 10, 2)]);
        assert_eq!(reads.len(), 3);
    }

    proptest! {
        #[test]
        fn every_byte_arrives_once_and_reads_are_aligned(
            sizes in proptest::collection::vec((0..3_usize, 0_u64..200_000, 0_u64..20_000_000), 1..20)
        ) {
            let mut at = HashMap::new();
            let mut wants = Vec::new();
            for (target, (file, gap, size)) in sizes.into_iter().enumerate() {
                let end = at.entry(file).or_insert(0);
                wants.push(want(file, *end + gap, size, target));
                *end += gap + size;
            }
            let reads = plan(wants.clone());
            prop_assert!(reads.iter().all(|read| read.offset % ALIGN == 0));
            let again = reads.iter().flat_map(super::Read::wants).collect();
            let parts: Vec<_> = plan_cached(again, PART);
            prop_assert!(parts.iter().all(|read| read.needs <= PART && read.pieces[0].at == 0));
            for reads in [reads, parts] {
            for want in &wants {
                let mut next = 0;
                for read in &reads {
                    prop_assert!(read.length() <= READ);
                    for piece in read.pieces.iter().filter(|piece| piece.target == want.target) {
                        prop_assert_eq!(piece.target_offset, next);
                        prop_assert_eq!(read.offset + piece.at, want.offset + next);
                        prop_assert!(piece.at + piece.size <= read.needs);
                        prop_assert!(next % ALIGN == 0);
                        next += piece.size;
                    }
                }
                prop_assert_eq!(next, want.size);
            }
            }
        }
    }
}
