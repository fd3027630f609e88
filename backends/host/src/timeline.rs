//! Timelines: each runs its work in order, on a thread of its own, beside all others.
use crate::block::Claim;
use crate::hold::{Gate, Status};
use crate::programs::Run;
use crate::work;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{Epoch, ErrorKind, Result, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// One piece of work, with everything that it keeps alive.
pub(crate) struct Job {
    pub(crate) status: Arc<Status>,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    /// Bytes to a block.
    Write(Claim, Box<[u8]>),
    /// One value to every byte.
    Fill(Claim, u8),
    /// From the first to the second, one pair after the other.
    Copy(Vec<(Claim, Claim)>),
    /// Wait for another timeline.
    After(Arc<Line>, Epoch),
    /// Wait for a guard to be dropped.
    Hold(Arc<Gate>),
    /// Run a kernel.
    Run(Box<Run>),
}

impl Job {
    /// Does the work, or skips it when the device is lost.
    pub(crate) fn run(self) {
        if self.status.is_lost() {
            return;
        }
        match self.task {
            Task::Write(to, bytes) => work::write(&to, &bytes),
            Task::Fill(to, value) => work::fill(&to, value),
            Task::Copy(moves) => moves.iter().for_each(|(from, to)| work::copy(from, to)),
            Task::After(line, epoch) => line.wait(epoch),
            Task::Hold(gate) => gate.wait(),
            Task::Run(run) => run.run(&self.status),
        }
    }
}

/// One timeline. Its epoch is the number of jobs it has finished, so marking costs nothing.
pub(crate) struct Line {
    submitted: AtomicU64,
    finished: AtomicU64,
    queue: Mutex<Queue>,
    /// Signalled when there is work, or none will come any more.
    work: Condvar,
    /// Signalled when a job has finished.
    progress: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Absent until the first job: an unused timeline has no thread.
    worker: Option<JoinHandle<()>>,
    closed: bool,
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            submitted: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            queue: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
        })
    }

    /// Appends a job, which runs after all earlier ones.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<()> {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        if queue.worker.is_none() {
            let line = Arc::clone(self);
            let worker = Builder::new().name("omniheap-timeline".into()).spawn(move || line.run());
            queue.worker = Some(worker.map_err(|_| ErrorKind::OutOfHostMemory)?);
        }
        queue.jobs.push_back(job);
        self.submitted.fetch_add(1, Ordering::Release);
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    /// Reached once everything submitted so far has finished.
    pub(crate) fn mark(&self) -> Epoch {
        Epoch(self.submitted.load(Ordering::Acquire))
    }

    /// Returns the latest epoch reached.
    pub(crate) fn reached(&self) -> Epoch {
        Epoch(self.finished.load(Ordering::Acquire))
    }

    /// Blocks until `epoch` is reached.
    pub(crate) fn wait(&self, epoch: Epoch) {
        if self.reached() >= epoch {
            return;
        }
        let mut queue = lock(&self.queue);
        while self.reached() < epoch {
            queue = self.progress.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts no more work, finishes the rest, and ends the thread; `false` if another call does so already.
    pub(crate) fn close(&self) -> bool {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return false;
        }
        queue.closed = true;
        let worker = queue.worker.take();
        drop(queue);
        self.work.notify_all();
        if let Some(worker) = worker {
            worker
                .join()
                .expect("a worker does not panic: jobs are checked when they are submitted");
        }
        true
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            // Runs and drops the job, so that its bytes count as unused before the epoch says so.
            job.run();
            let queue = lock(&self.queue);
            self.finished.fetch_add(1, Ordering::Release);
            drop(queue);
            self.progress.notify_all();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
