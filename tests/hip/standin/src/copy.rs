//! Copies beside the queues: the copy engine, one thread that takes copies as their dependencies are met.

#![expect(unsafe_code, reason = "exports C symbols")]

use crate::abi::{Address, AgentHandle, Answer, Condition, Dim3, Pitched, SignalHandle, Status};
use crate::agent::Agent;
use crate::ffi::{In, Out, export};
use crate::pages;
use crate::signal::{Signal, now};
use crate::worker::{Job, Worker};

/// Bytes in rows: where they start, and how far rows and slices are apart.
#[derive(Clone, Copy, Debug)]
struct Box3 {
    start: u64,
    pitch: u64,
    slice: u64,
}

impl Box3 {
    fn at(pitched: Pitched, offset: Dim3) -> Self {
        let Pitched { base, pitch, slice } = pitched;
        let start =
            base + u64::from(offset.z) * slice + u64::from(offset.y) * pitch + u64::from(offset.x);
        Self { start, pitch, slice }
    }

    const fn row(self, y: u64, z: u64) -> u64 {
        self.start + z * self.slice + y * self.pitch
    }
}

/// A copy of `width` bytes in each of `height` rows of each of `depth` slices.
struct Copy {
    to: Box3,
    from: Box3,
    width: u64,
    height: u64,
    depth: u64,
    after: Vec<&'static Signal>,
    done: Option<&'static Signal>,
}

impl Job for Copy {
    fn ready(&self) -> bool {
        self.after.iter().all(|signal| Condition::LESS.holds(signal.load(), 1))
    }

    fn run(self) -> Option<Self> {
        let start = now();
        for z in 0..self.depth {
            for y in 0..self.height {
                pages::copy(self.to.row(y, z), self.from.row(y, z), self.width);
            }
        }
        if let Some(done) = self.done {
            done.complete(start);
        }
        None
    }
}

static ENGINE: Worker<Copy> = Worker::new();

/// Starts a copy of `size` bytes after `after`; 0 bytes only complete `done`.
pub(crate) fn start(
    to: u64,
    from: u64,
    size: u64,
    after: Vec<&'static Signal>,
    done: Option<&'static Signal>,
) {
    let line = |start| Box3 { start, pitch: 0, slice: 0 };
    ENGINE.submit(Copy {
        to: line(to),
        from: line(from),
        width: size,
        height: 1,
        depth: 1,
        after,
        done,
    });
}

/// Finds the signals that a copy waits for.
pub(crate) fn dependencies(
    count: u32,
    list: In<SignalHandle>,
) -> Result<Vec<&'static Signal>, Status> {
    let count = usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
    list.list(count)?.into_iter().map(Signal::find).collect()
}

fn submit(
    to: Address,
    from: Address,
    size: u64,
    count: u32,
    list: In<SignalHandle>,
    done: SignalHandle,
) -> Answer {
    if to.0 == 0 || from.0 == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    start(to.0, from.0, size, dependencies(count, list)?, Some(Signal::find(done)?));
    Ok(())
}

export! {
    fn hsa_amd_memory_async_copy(
        to: Address, to_agent: AgentHandle, from: Address, from_agent: AgentHandle, size: u64, count: u32,
        list: In<SignalHandle>, done: SignalHandle,
    ) {
        Agent::find(to_agent).and(Agent::find(from_agent))?;
        submit(to, from, size, count, list, done)
    }

    fn hsa_amd_memory_async_copy_on_engine(
        to: Address, to_agent: AgentHandle, from: Address, from_agent: AgentHandle, size: u64, count: u32,
        list: In<SignalHandle>, done: SignalHandle, _engine: u32, _force: bool,
    ) {
        Agent::find(to_agent).and(Agent::find(from_agent))?;
        submit(to, from, size, count, list, done)
    }

    fn hsa_amd_memory_async_copy_rect(
        to: In<Pitched>, to_offset: In<Dim3>, from: In<Pitched>, from_offset: In<Dim3>, range: In<Dim3>,
        agent: AgentHandle, _direction: u32, count: u32, list: In<SignalHandle>, done: SignalHandle,
    ) {
        Agent::find(agent)?;
        let range = range.get()?;
        let (to, from) = (Box3::at(to.get()?, to_offset.get()?), Box3::at(from.get()?, from_offset.get()?));
        let (width, height, depth) = (range.x.into(), range.y.into(), range.z.into());
        let (after, done) = (dependencies(count, list)?, Some(Signal::find(done)?));
        ENGINE.submit(Copy { to, from, width, height, depth, after, done });
        Ok(())
    }

    fn hsa_amd_memory_copy_engine_status(to: AgentHandle, from: AgentHandle, out: Out<u32>) {
        Agent::find(to).and(Agent::find(from))?;
        out.set(3)
    }

    fn hsa_amd_memory_get_preferred_copy_engine(to: AgentHandle, from: AgentHandle, out: Out<u32>) {
        Agent::find(to).and(Agent::find(from))?;
        out.set(1)
    }

    fn hsa_memory_copy(to: Address, from: Address, size: u64) {
        if to.0 == 0 || from.0 == 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        pages::copy(to.0, from.0, size);
        Ok(())
    }
}
