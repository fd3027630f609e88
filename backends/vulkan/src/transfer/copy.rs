//! Bytes across: a batch of moves, as the driver's own copies or as one dispatch of the compaction kernel.
#![expect(unsafe_code, reason = "records the kernel")]
use crate::{
    Block, Vulkan,
    timeline::queue::{QueueTimeline, State},
    transfer::{
        kernel::Kernel,
        region,
        tasks::{Lengths, Span, TASK, Tasks},
    },
};
use ash::vk;
use omniheap_seam::{Move, Result};
use std::{collections::BTreeMap, sync::Arc};

/// Moves that were checked.
pub(crate) struct Batch<'a> {
    moves: &'a [Move<'a, Block>],
    /// Number of moves that move something.
    count: usize,
    bytes: u64,
}

/// A move that was checked, with its buffers.
#[derive(Clone, Copy)]
struct Checked {
    from: (vk::Buffer, u64),
    to: (vk::Buffer, u64),
    span: Span,
}

/// Each move of a batch that moves something: made again where it is needed, so that no second list is kept.
fn checked<'a>(moves: &'a [Move<'a, Block>]) -> impl Iterator<Item = Checked> + 'a {
    let buffer = |block: &Block| block.buffer().expect("`batch` refuses blocks without one");
    moves.iter().filter(|m| m.size > 0).map(move |m| {
        let (from, to) = (m.from.block.address(), m.to.block.address());
        Checked {
            from: (buffer(m.from.block), m.from.offset),
            to: (buffer(m.to.block), m.to.offset),
            span: Span { from: from + m.from.offset, to: to + m.to.offset, size: m.size },
        }
    })
}

/// Regions for the driver's own copies, by source and target.
type Regions = BTreeMap<(vk::Buffer, vk::Buffer), Vec<vk::BufferCopy>>;

impl Checked {
    fn leave(&self, regions: &mut Regions, skip: u64, size: u64) {
        if size > 0 {
            let region = region(self.from.1 + skip, self.to.1 + skip, size);
            regions.entry((self.from.0, self.to.0)).or_default().push(region);
        }
    }
}

impl Vulkan {
    /// Checks all moves; `None` where there is nothing to move.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`, `Overlap`, `Unsupported` for a block without a buffer.
    pub(crate) fn batch<'a>(&self, moves: &'a [Move<'a, Block>]) -> Result<Option<Batch<'a>>> {
        let (mut count, mut bytes) = (0, 0u64);
        for m in moves.iter().filter(|m| m.size > 0) {
            self.target(m.from, m.size)?;
            self.target(m.to, m.size)?;
            (count, bytes) = (count + 1, bytes.saturating_add(m.size));
        }
        self.table.caps.copy.check_batch(moves, |block| Ok(block.size()))?;
        Ok((count > 0).then_some(Batch { moves, count, bytes }))
    }

    /// Runs a batch on a timeline.
    pub(crate) fn run_batch(&self, timeline: &QueueTimeline, batch: &Batch<'_>) -> Result<()> {
        let mut state = timeline.hold();
        let Some(kernel) =
            self.copier.kernel(&self.device, timeline.home, (batch.count, batch.bytes))
        else {
            return self.run_commands(timeline, &mut state, batch.moves);
        };
        // A move adds at most three tasks beyond its whole stretches; more moves than fit go as several lists.
        let together =
            usize::try_from(timeline.longest_list() / TASK / 4).unwrap_or(usize::MAX).max(1);
        for moves in batch.moves.chunks(together) {
            self.run_kernel(timeline, &mut state, &kernel, moves)?;
        }
        Ok(())
    }

    fn run_commands(
        &self,
        timeline: &QueueTimeline,
        state: &mut State,
        moves: &[Move<'_, Block>],
    ) -> Result<()> {
        let mut regions = Regions::new();
        checked(moves).for_each(|m| m.leave(&mut regions, 0, m.span.size));
        timeline.run(state, |commands| self.record_regions(commands, &regions)).map(drop)
    }

    fn run_kernel(
        &self,
        timeline: &QueueTimeline,
        state: &mut State,
        kernel: &Arc<Kernel>,
        moves: &[Move<'_, Block>],
    ) -> Result<()> {
        let bytes = moves.iter().map(|m| m.size).fold(0, u64::saturating_add);
        let lengths = Lengths::of(bytes, moves.len() as u64, timeline.longest_list() / TASK);
        let (mut tasks, mut regions) = (Tasks::for_moves(moves.len()), Regions::new());
        for m in checked(moves) {
            for (skip, size) in tasks.add(m.span, lengths) {
                m.leave(&mut regions, skip, size);
            }
        }
        let Some((start, address)) = self.put_list(timeline, state, &tasks)? else {
            return self.run_commands(timeline, state, moves);
        };
        let sent = timeline.run(state, |commands| {
            self.record_regions(commands, &regions);
            // SAFETY: recording on a queue that computes (`Copier::kernel` asked); the list was put there above, and
            // `batch` checked every range; blocks and kernel outlive the work that uses them.
            unsafe { kernel.record(commands, address, tasks.count, lengths) };
        });
        if let Some(lists) = &mut state.lists {
            lists.ring.seal(start, *sent.as_ref().unwrap_or(&0));
        }
        sent.map(drop)
    }

    /// Writes a list where the kernel finds it: its piece of the ring and its address.
    ///
    /// `None` where it is empty or there is no room for it: the driver's own copies still work then.
    fn put_list(
        &self,
        timeline: &QueueTimeline,
        state: &mut State,
        tasks: &Tasks,
    ) -> Result<Option<(u64, u64)>> {
        if tasks.count == 0 {
            return Ok(None);
        }
        let (start, lists) = match timeline.list(state, tasks.bytes.len() as u64) {
            Ok(Some(room)) => room,
            Ok(None) => return Ok(None),
            Err(why) if why.kind().is_out_of_memory() => return Ok(None),
            Err(why) => return Err(why),
        };
        match lists.put(start, &tasks.bytes) {
            Ok(()) => Ok(Some((start, lists.address(start)))),
            Err(why) => {
                lists.ring.seal(start, 0);
                Err(why)
            }
        }
    }

    fn record_regions(&self, commands: vk::CommandBuffer, regions: &Regions) {
        for ((from, to), regions) in regions {
            self.record_copy(commands, *from, *to, regions);
        }
    }
}
