//! Host memory with streams of another owner: they die, their handles come back, and others capture them. What would
//! crash a process or spoil a capture panics.
#![expect(unsafe_code, reason = "signs the contract of a backend")]
use crate::lock;
use crate::seats::Handle;
use crate::streams::{Life, Streams};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap::cuda::{Capture, Standing};
use omniheap::host::{Block, Host};
use omniheap::seam::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) host: Host,
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    /// Numbers of the streams that live.
    alive: HashMap<Handle, u64>,
    created: u64,
    /// Timelines, by the stream's number.
    timelines: HashMap<u64, TimelineId>,
    /// The capture that a stream takes part in.
    captured: HashMap<Handle, u64>,
    /// Flag that watches the graph of a capture.
    watched: HashMap<u64, Arc<AtomicBool>>,
    held: usize,
    /// Marks of all work: what the host calls them; the last one may have been given out, but not recorded.
    marks: Vec<Epoch>,
    is_owed: bool,
}

/// The handle as this thread means it.
fn named(handle: usize) -> Handle {
    Handle::of(core::ptr::without_provenance_mut(handle))
}

impl Scripted {
    pub(super) fn create_stream(&self, handle: usize) {
        let mut script = lock(&self.script);
        script.created += 1;
        let number = script.created;
        assert!(script.alive.insert(named(handle), number).is_none(), "it lives already");
    }

    pub(super) fn destroy_stream(&self, handle: usize) {
        lock(&self.script).alive.remove(&named(handle)).expect("it lives");
    }

    pub(super) fn begin_capture_of(&self, handle: usize, id: u64) {
        lock(&self.script).captured.insert(named(handle), id);
    }

    pub(super) fn end_capture_of(&self, handle: usize) {
        lock(&self.script).captured.remove(&named(handle));
    }

    /// Nothing is left of a capture's graph.
    pub(super) fn destroy_graph(&self, id: u64) {
        lock(&self.script).watched[&id].store(true, Ordering::Release);
    }

    /// Announced captures that have not ended.
    pub(super) fn held(&self) -> usize {
        lock(&self.script).held
    }

    /// The timeline of a stream that has allocated.
    pub(super) fn timeline(&self, handle: usize) -> TimelineId {
        let script = lock(&self.script);
        script.timelines[&script.alive[&named(handle)]]
    }

    /// Timelines that were ever opened.
    pub(super) fn opened(&self) -> usize {
        let script = lock(&self.script);
        let mut opened: Vec<TimelineId> = script.timelines.values().copied().collect();
        opened.sort_unstable();
        opened.dedup();
        opened.len()
    }

    fn number(script: &Script, stream: *mut c_void) -> u64 {
        let handle = stream.addr();
        *script
            .alive
            .get(&Handle::of(stream))
            .unwrap_or_else(|| panic!("stream {handle} is gone, and was used"))
    }

    fn lines(&self) -> &dyn Timelines {
        self.host.as_timelines().expect("the host has timelines")
    }

    fn record(&self, script: &mut Script) -> Result<()> {
        assert!(script.captured.is_empty(), "a capture was spoiled");
        script.marks.push(self.lines().mark(TimelineId::ALL)?);
        script.is_owed = false;
        Ok(())
    }

    /// Records what is owed, where it may be.
    fn settle(&self, script: &mut Script) -> Result<()> {
        if script.is_owed && script.held == 0 { self.record(script) } else { Ok(()) }
    }

    /// Returns true if a timeline has no marks of its own: that of a stream, which may be gone, and all at once.
    fn is_whole(script: &Script, timeline: TimelineId) -> bool {
        timeline == TimelineId::ALL || script.timelines.values().any(|known| *known == timeline)
    }

    /// Returns the host's word for a mark of all work; `Busy` where it is not recorded.
    fn translate(&self, point: Point) -> Result<Point> {
        let mut script = lock(&self.script);
        if !Self::is_whole(&script, point.timeline) || point.epoch == Epoch::START {
            return Ok(point);
        }
        self.settle(&mut script)?;
        let at = usize::try_from(point.epoch.0).expect("few") - 1;
        let epoch = *script.marks.get(at).ok_or(ErrorKind::Busy)?;
        Ok(Point { epoch, timeline: TimelineId::ALL })
    }
}

// SAFETY: all of it is the host's.
unsafe impl Backend for Scripted {
    type Block = Block;

    fn caps(&self) -> &Caps {
        self.host.caps()
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.host.allocate(heap, size)
    }
    unsafe fn free(&self, block: Block) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.host.free(block) }
    }
    fn wait_idle(&self) -> Result<()> {
        assert!(lock(&self.script).captured.is_empty(), "a capture was spoiled");
        self.host.wait_idle()
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        self.host.as_transfer()
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Block>> {
        self.host.as_address()
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.host.as_remap()
    }
}

// SAFETY: the timelines are the host's. A mark of all work counts only once the host's own mark, made with it or later, is reached.
unsafe impl Timelines for Scripted {
    fn open(&self) -> Result<TimelineId> {
        self.lines().open()
    }
    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.lines().close(timeline)
    }
    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        let mut script = lock(&self.script);
        if !Self::is_whole(&script, timeline) {
            return self.lines().mark(timeline);
        }
        if script.held > 0 {
            script.is_owed = true;
            return Ok(Epoch(script.marks.len() as u64 + 1));
        }
        self.record(&mut script)?;
        Ok(Epoch(script.marks.len() as u64))
    }
    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        let mut script = lock(&self.script);
        if !Self::is_whole(&script, timeline) {
            return self.lines().reached(timeline);
        }
        self.settle(&mut script)?;
        let now = self.lines().reached(TimelineId::ALL)?;
        Ok(Epoch(script.marks.partition_point(|mark| *mark <= now) as u64))
    }
    fn wait(&self, point: Point) -> Result<()> {
        self.lines().wait(self.translate(point)?)
    }
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.lines().order(timeline, self.translate(point)?)
    }
}

impl Streams for Scripted {
    const NAME: &'static str = "scripted";

    type Graph = u64;

    fn open_device(_: u32) -> Result<Self> {
        Ok(Self { host: Host::new(), script: Mutex::default() })
    }

    unsafe fn standing(&self, stream: *mut c_void) -> Result<Standing<u64>> {
        let script = lock(&self.script);
        let number = Self::number(&script, stream);
        Ok(match script.captured.get(&Handle::of(stream)) {
            Some(id) => Standing::Captured(Capture { id: *id, graph: Some(*id) }),
            None => Standing::Running(Some(number)),
        })
    }

    unsafe fn borrow(&self, stream: *mut c_void, _: Life) -> Result<TimelineId> {
        let timeline = self.open()?;
        let mut script = lock(&self.script);
        let number = Self::number(&script, stream);
        script.timelines.insert(number, timeline);
        Ok(timeline)
    }

    unsafe fn borrow_again(&self, timeline: TimelineId, stream: *mut c_void) -> Result<()> {
        let lines = self.lines();
        assert!(lines.reached(timeline)? >= lines.mark(timeline)?, "its work has not finished");
        let mut script = lock(&self.script);
        let number = Self::number(&script, stream);
        script.timelines.insert(number, timeline);
        Ok(())
    }

    unsafe fn watch(&self, graph: u64) -> Result<Arc<AtomicBool>> {
        Ok(lock(&self.script).watched.entry(graph).or_default().clone())
    }

    fn begin_capture(&self) {
        lock(&self.script).held += 1;
    }

    fn end_capture(&self) {
        let mut script = lock(&self.script);
        script.held -= 1;
        self.settle(&mut script).expect("the host can be marked");
    }

    fn extent(block: &Self::Block) -> u64 {
        block.size()
    }
}
