//! A thread that does jobs as they become ready, the earliest first.

use std::collections::VecDeque;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use crate::bell;

/// Something that is done once it is ready.
pub(crate) trait Job: Send + 'static {
    /// Says whether it can be done now.
    fn ready(&self) -> bool;
    /// Does it, and answers the job again when it is to be repeated.
    fn run(self) -> Option<Self>
    where
        Self: Sized;
}

/// One thread and its jobs.
#[derive(Debug)]
pub(crate) struct Worker<J> {
    jobs: Mutex<VecDeque<J>>,
    start: Once,
}

impl<J: Job> Worker<J> {
    pub(crate) const fn new() -> Self {
        Self { jobs: Mutex::new(VecDeque::new()), start: Once::new() }
    }

    /// Adds a job; the thread starts with the first.
    pub(crate) fn submit(&'static self, job: J) {
        self.start.call_once(|| drop(thread::spawn(|| self.serve())));
        self.push(job);
    }

    fn push(&self, job: J) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(job);
        bell::ring();
    }

    fn serve(&self) {
        loop {
            if let Some(again) = bell::wait(None, || self.next()).and_then(Job::run) {
                self.push(again);
            }
        }
    }

    fn next(&self) -> Option<J> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let index = jobs.iter().position(Job::ready)?;
        jobs.remove(index)
    }
}
