//! Streams as a driver sees them: work that waits until a case lets it run, streams that die, captures that calls spoil.
use std::collections::{HashMap, HashSet};

/// So much work of a stream.
type Point = (u32, u64);

/// Streams and events of a fake driver. Panics on misuse that crashes real drivers or breaks a capture.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    submitted: HashMap<u32, u64>,
    finished: HashMap<u32, u64>,
    dead: HashSet<u32>,
    captured: HashMap<u32, u64>,
    /// Points that a stream waits for.
    after: HashMap<u32, Vec<Point>>,
    /// Points that an event was recorded behind.
    behind: HashMap<u32, Vec<Point>>,
    /// True if all work can be followed at once.
    pub(crate) follows_all: bool,
}

impl Streams {
    /// Work that does not finish before [`finish`](Self::finish).
    pub(crate) fn submit(&mut self, stream: u32) {
        self.touch(stream);
        *self.submitted.entry(stream).or_default() += 1;
    }

    pub(crate) fn finish(&mut self) {
        self.finished.clone_from(&self.submitted);
    }

    /// Destroys a stream; what was submitted to it still runs.
    pub(crate) fn destroy(&mut self, stream: u32) {
        self.touch(stream);
        self.dead.insert(stream);
    }

    pub(crate) fn begin_capture(&mut self, stream: u32) {
        let id = self.captured.len() as u64 + 1;
        self.captured.insert(stream, id);
    }

    pub(crate) fn end_capture(&mut self, stream: u32) {
        self.captured.remove(&stream);
    }

    pub(crate) fn capture(&self, stream: u32) -> Option<u64> {
        self.touch(stream);
        self.captured.get(&stream).copied()
    }

    fn touch(&self, stream: u32) {
        assert!(
            !self.dead.contains(&stream),
            "stream {stream} is gone, and was handed to the driver"
        );
    }

    pub(crate) fn record(&mut self, event: u32, stream: u32) {
        self.touch(stream);
        assert!(!self.captured.contains_key(&stream), "an event of ours is in a capture");
        let mut behind = self.after.get(&stream).cloned().unwrap_or_default();
        behind.push((stream, self.submitted.get(&stream).copied().unwrap_or(0)));
        self.behind.insert(event, behind);
    }

    pub(crate) fn record_all(&mut self, event: u32) {
        assert!(self.captured.is_empty(), "a capture was spoiled");
        let all = self.submitted.iter().map(|(stream, count)| (*stream, *count)).collect();
        self.behind.insert(event, all);
    }

    pub(crate) fn order(&mut self, stream: u32, event: u32) {
        self.touch(stream);
        assert!(!self.captured.contains_key(&stream), "a capture waits for an event of ours");
        let behind = self.behind.get(&event).cloned().unwrap_or_default();
        self.after.entry(stream).or_default().extend(behind);
    }

    pub(crate) fn is_finished(&self, event: u32) -> bool {
        let done = |stream| self.finished.get(stream).copied().unwrap_or(0);
        let behind = self.behind.get(&event).into_iter().flatten();
        behind.into_iter().all(|(stream, count)| done(stream) >= *count)
    }

    pub(crate) fn wait(&mut self, event: u32) {
        for (stream, count) in self.behind.get(&event).into_iter().flatten() {
            let done = self.finished.entry(*stream).or_default();
            *done = (*done).max(*count);
        }
    }

    pub(crate) fn synchronize(&mut self) {
        assert!(self.captured.is_empty(), "a capture was spoiled");
        self.finish();
    }

    pub(crate) fn synchronize_stream(&mut self, stream: u32) {
        self.touch(stream);
        let count = self.submitted.get(&stream).copied().unwrap_or(0);
        self.finished.insert(stream, count);
    }
}
