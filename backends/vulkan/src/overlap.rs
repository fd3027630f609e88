//! Whether the moves of one batch get in each other's way. Pure.
#![forbid(unsafe_code)]
use ash::vk::{self, Handle as _};
use omniheap_core::{ErrorKind, Result};

/// A range of bytes that a move reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    buffer: vk::Buffer,
    start: u64,
    end: u64,
}

impl Touch {
    /// `start + size` was checked against a block.
    pub(crate) const fn new(buffer: vk::Buffer, start: u64, size: u64) -> Self {
        Self { buffer, start, end: start + size }
    }
}

/// Refuses a batch in which a byte is a target twice, or a source and a target.
///
/// # Errors
///
/// `Unsupported`: the batch has no order, so its result would have no meaning.
pub(crate) fn refuse(
    mut targets: Vec<Touch>,
    sources: impl IntoIterator<Item = Touch>,
) -> Result<()> {
    sort(&mut targets);
    let meets = |pair: &[Touch]| pair[0].buffer == pair[1].buffer && pair[0].end > pair[1].start;
    if targets.windows(2).any(meets) {
        return Err(ErrorKind::Unsupported.into());
    }
    // The targets in the buffer that is read: most sources in a row share it, and often nobody writes there.
    let (mut buffer, mut there): (_, &[Touch]) = (vk::Buffer::null(), &[]);
    for source in sources {
        if source.buffer != buffer {
            let first = targets.partition_point(|target| target.buffer < source.buffer);
            let count = targets[first..].partition_point(|target| target.buffer == source.buffer);
            (buffer, there) = (source.buffer, &targets[first..first + count]);
        }
        // Targets are disjoint, so their ends are in order too.
        let next = there.partition_point(|target| target.end <= source.start);
        if there.get(next).is_some_and(|target| target.start < source.end) {
            return Err(ErrorKind::Unsupported.into());
        }
    }
    Ok(())
}

/// One wide number: a batch of thousands is sorted in half the time.
fn order(touch: &Touch) -> u128 {
    u128::from(touch.buffer.as_raw()) << 64 | u128::from(touch.start)
}

/// Sorts by place. A plan fills holes from low to high, block by block, so its rows are moved whole.
fn sort(targets: &mut Vec<Touch>) {
    let rows = targets.chunk_by(|a, b| a.buffer == b.buffer && a.start <= b.start);
    let mut rows: Vec<&[Touch]> = rows.collect();
    if rows.len() > 1 && rows.len() < targets.len() / 8 {
        rows.sort_unstable_by_key(|row| order(&row[0]));
        *targets = rows.concat();
    }
    // Rows that reach into each other, or too short to gain anything.
    if !targets.is_sorted_by_key(order) {
        targets.sort_unstable_by_key(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Role {
        Source,
        Target,
    }

    fn verdict(list: &[(u64, u64, u64, Role)]) -> bool {
        let of = |role| {
            let some = list.iter().filter(move |(.., is)| *is == role);
            some.map(|(b, start, size, _)| Touch::new(vk::Buffer::from_raw(*b), *start, *size))
        };
        refuse(of(Role::Target).collect(), of(Role::Source)).is_ok()
    }

    #[test]
    fn the_verdict_is_that_of_every_pair() {
        use Role::{Source, Target};
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut seen = [0; 2];
        for _ in 0..4000 {
            let count = 2 + below(5);
            let list: Vec<_> = (0..count)
                .map(|_| {
                    let role = if below(2) == 0 { Source } else { Target };
                    (1 + below(2), below(40), 1 + below(8), role)
                })
                .collect();
            let clash = |a: &(u64, u64, u64, Role), b: &(u64, u64, u64, Role)| {
                let written = a.3 == Target || b.3 == Target;
                written && a.0 == b.0 && a.1 < b.1 + b.2 && b.1 < a.1 + a.2
            };
            let clashes = (0..list.len()).any(|i| (0..i).any(|j| clash(&list[i], &list[j])));
            assert_eq!(
                verdict(&list),
                !clashes,
                "{:?}",
                list.iter().map(|t| (t.0, t.1, t.2)).collect::<Vec<_>>()
            );
            seen[usize::from(clashes)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 400), "both verdicts are seen: {seen:?}");
    }

    #[test]
    fn rows_are_sorted_like_anything_else() {
        let row = |buffer, first: u64| {
            (first..first + 100)
                .map(move |n| Touch::new(vk::Buffer::from_raw(buffer), n * 10, 4))
                .collect()
        };
        // Apart, in the wrong order, and two that reach into each other.
        for rows in [[(2, 0), (1, 500), (1, 0)], [(1, 50), (2, 0), (1, 0)]] {
            let mut sorted: Vec<Touch> = Vec::new();
            rows.iter().for_each(|(buffer, first)| sorted.extend::<Vec<_>>(row(*buffer, *first)));
            let mut expected = sorted.clone();
            expected.sort_by_key(order);
            sort(&mut sorted);
            assert_eq!(sorted, expected);
        }
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
