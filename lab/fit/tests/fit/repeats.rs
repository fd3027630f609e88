//! Programs whose last step is replayed again and again, and orders of their blocks.

use omniheap_fit::{Ranges, completes};
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::model::{BlockOrder, PyTorch};
use omniheap_trace::{Alignment, LabelId, Limits, StreamId, Trace};

const MIB: u64 = 1 << 20;

/// Act of a program.
enum Act {
    Step,
    /// An allocation of so many MiB on a stream.
    Take(u64, u64, u16),
    Free(u64, u16),
}
use Act::{Free, Step, Take};

fn trace(acts: &[Act]) -> Trace {
    let mut writer = Writer::new(Vec::new());
    for act in acts {
        let record = match *act {
            Step => Record::Step,
            Take(id, size, stream) => Record::Allocate {
                id,
                size: size * MIB,
                stream: StreamId(stream),
                align: Alignment::UNKNOWN,
                label: LabelId::NONE,
            },
            Free(id, stream) => Record::FreeCompleted { id, stream: StreamId(stream) },
        };
        writer.record(1, &record);
    }
    Trace::read(&writer.finish().unwrap()[..], &Limits::default()).unwrap()
}

/// Returns the least MiB in which it completes.
fn least(trace: &Trace) -> u64 {
    (1..).find(|size| completes(trace, PyTorch::with_capacity(size * MIB))).unwrap()
}

#[test]
fn what_a_step_leaves_is_freed_by_the_next() {
    let keeps = [Take(0, 10, 0), Step, Take(1, 30, 0), Step, Take(2, 30, 0), Free(1, 0)];
    assert_eq!(least(&trace(&keeps)), 70);
    // Nothing frees what the last step leaves: it may be state that is made once.
    let makes =
        [Take(0, 10, 0), Step, Take(1, 30, 0), Step, Take(2, 30, 0), Take(3, 20, 0), Free(3, 0)];
    assert_eq!(least(&trace(&makes)), 90);
    assert!(completes(&trace(&makes), Ranges::expandable(100 * MIB)));
    assert!(!completes(&trace(&makes), Ranges::expandable(80 * MIB)));
    let unmarked = [Take(0, 10, 0), Take(1, 30, 0), Take(2, 30, 0)];
    assert_eq!(least(&trace(&unmarked)), 70);
}

#[test]
fn streams_and_sizes_free_their_own() {
    // Four pieces share a block. Were stream 0's own freed where stream 1's is, five would be there at once, in two blocks.
    for frees in [0, 1] {
        let begin = [Take(0, 5, 1), Step, Take(1, 5, 0), Take(2, 5, 1)];
        let others = (3..6).map(|id| Take(id, 5, 0)).chain([Free(0, frees)]);
        let acts = begin.into_iter().chain(others).chain((3..6).map(|id| Free(id, 0)));
        let least = least(&trace(&acts.collect::<Vec<_>>()));
        assert_eq!(least, 40, "stream {frees} frees what stream 1 took");
    }
    let size = [Take(0, 30, 0), Step, Take(1, 32, 0), Free(0, 0)];
    assert_eq!(least(&trace(&size)), 62, "32 MiB do not replace 30");
}

#[test]
fn an_empty_step_and_frees_alone_change_nothing() {
    assert_eq!(least(&trace(&[Take(0, 10, 0), Step])), 10);
    assert_eq!(least(&trace(&[Take(0, 10, 0), Step, Free(0, 0)])), 10);
}

#[test]
fn among_pieces_of_one_size_the_order_of_blocks_decides() {
    // 30 MiB are free in two blocks. Only where the second is taken, the first is whole again when it is needed.
    let begin = [Take(0, 40, 0), Take(1, 30, 0), Free(0, 0), Take(2, 10, 0), Free(1, 0)];
    let end = [Take(3, 30, 0), Free(2, 0), Take(4, 40, 0)];
    let trace = trace(&begin.into_iter().chain(end).collect::<Vec<_>>());
    let fits = |order, mib| completes(&trace, PyTorch::with_order(mib * MIB, order));
    assert!(fits(BlockOrder::Below, 70));
    assert!(!fits(BlockOrder::Above, 70));
    assert!(BlockOrder::TRIED.into_iter().all(|order| fits(order, 80)));
}

#[test]
fn scattered_blocks_are_in_no_order() {
    // Block after block, the lowest of all that are free is taken again: which, depends on the number.
    let blocks = |order| {
        let acts: Vec<_> = (0..16)
            .map(|id| Take(id, 20, 0))
            .chain((0..16).map(|id| Free(id, 0)))
            .chain([Take(16, 20, 0)])
            .collect();
        let mut seen = Last(0);
        omniheap_trace::model::replay(
            &trace(&acts),
            PyTorch::with_order(u64::MAX, order),
            &mut seen,
        );
        seen.0
    };
    assert_eq!((blocks(BlockOrder::Below), blocks(BlockOrder::Above)), (15, 0));
    let scattered: std::collections::BTreeSet<_> =
        (0..16).map(|seed| blocks(BlockOrder::Scattered(seed))).collect();
    assert!(scattered.len() > 4, "{scattered:?}");
}

/// The block of the last allocation.
struct Last(u32);

impl omniheap_trace::model::Observe for Last {
    fn bound(&mut self, _: omniheap_trace::AllocationId, block: u32, _: u64) {
        self.0 = block;
    }
}

#[test]
fn later_steps_may_need_more() {
    // The piece that a step leaves lies where the next one begins, and 9 MiB no longer fit beside it.
    let once =
        [Take(0, 4, 0), Take(1, 4, 0), Take(2, 15, 0), Take(3, 9, 0), Free(2, 0), Free(0, 0)];
    let [first, rest @ ..] = once;
    let marked: Vec<_> = [first, Step].into_iter().chain(rest).chain([Free(3, 0)]).collect();
    assert_eq!(least(&trace(&marked)), 56);
    let unmarked: Vec<_> = marked.into_iter().filter(|act| !matches!(act, Step)).collect();
    assert_eq!(least(&trace(&unmarked)), 36);
}

/// Act of a step: takes an allocation of so many MiB, or frees that of this step or of the one before.
#[derive(Clone, Copy)]
enum Does {
    Takes(u64, u64),
    Frees(u64, bool),
}

/// Returns a random step. It leaves some of its allocations, each of another size, to the next one.
fn random_step(seed: u64) -> Vec<Does> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    let (takes, kept) = (4 + draw(8), draw(4));
    let (mut does, mut frees) = (Vec::new(), Vec::new());
    for number in 0..takes {
        let size = if number < kept { 2 + 4 * number + draw(4) } else { 2 + draw(15) };
        does.push(Does::Takes(number, size));
        frees.push(Does::Frees(number, number < kept));
        if draw(2) == 0 {
            let at = draw(frees.len() as u64) as usize;
            does.push(frees.swap_remove(at));
        }
    }
    does.extend(frees);
    does
}

/// Returns a program of so many steps.
fn program(step: &[Does], steps: u64) -> Vec<Act> {
    let id = |number, step| step * 16 + number;
    let act = |does, at: u64| match does {
        Does::Takes(number, size) => Some(Take(id(number, at), size, 0)),
        Does::Frees(number, true) => Some(Free(id(number, at.checked_sub(1)?), 0)),
        Does::Frees(number, false) => Some(Free(id(number, at), 0)),
    };
    let steps = (0..steps).map(|at| step.iter().filter_map(move |does| act(*does, at)));
    steps.flat_map(|acts| [Step].into_iter().chain(acts)).collect()
}

#[test]
fn repeats_are_what_a_program_of_so_many_steps_does() {
    // In the last one, only calls of the driver tell that a repeat changed something.
    for seed in (0..100).chain([8582]) {
        let step = random_step(seed);
        let (two, all) = (trace(&program(&step, 2)), program(&step, 20));
        let all = trace(&all.into_iter().filter(|act| !matches!(act, Step)).collect::<Vec<_>>());
        for mib in (20..120).step_by(4) {
            let expected = completes(&all, PyTorch::with_capacity(mib * MIB));
            assert_eq!(
                completes(&two, PyTorch::with_capacity(mib * MIB)),
                expected,
                "{seed} {mib}"
            );
            let expected = completes(&all, Ranges::expandable(mib * MIB));
            assert_eq!(completes(&two, Ranges::expandable(mib * MIB)), expected, "{seed} {mib}");
        }
    }
}
