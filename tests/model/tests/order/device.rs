//! A device whose timelines run as late or as early as the seam allows, as a seed decides.
//!
//! Work is queued when it is submitted and touches bytes when it is run. Nothing runs by itself: every call lets a scheduler run
//! some of what may run now, and a wait runs what it has to. So whoever relies on an order that was never asked for finds
//! bytes that somebody else wrote, or that are not written yet, and the same seed shows it again.
#![expect(unsafe_code, reason = "signs the contract of Backend")]
use super::memory::{HostBytes, Memory, Run, lock, runs_of};
use core::ptr::NonNull;
use omniheap_core::{
    Backend, BlockOffset, Caps, Epoch, ErrorKind, HeapId, Map, Move, Page, Point, Remap, Result,
    TimelineId, Timelines, Transfer,
};
use omniheap_model::Random;
use omniheap_null::Null;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Time at which work runs that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    /// Never.
    Late,
    /// At once, where nothing that it runs after is late.
    Early,
    /// Sometimes; one timeline at a time lags behind.
    Moody,
}

/// Contents that a range of bytes must have when its timeline comes to look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    All(u8),
    None(u8),
}

/// A range of a block's bytes.
#[derive(Clone)]
struct Area {
    memory: Arc<Memory>,
    offset: u64,
    size: u64,
}

impl Area {
    fn new(place: &BlockOffset<'_, Block>, size: u64) -> Self {
        Self { memory: Arc::clone(&place.block.memory), offset: place.offset, size }
    }

    fn meets(&self, memory: &Arc<Memory>, start: u64, end: u64) -> bool {
        Arc::ptr_eq(&self.memory, memory) && self.offset < end && start < self.offset + self.size
    }
}

enum Work {
    Set(Area, Vec<Run>),
    /// From and to.
    Copy(Vec<[Area; 2]>),
    Expect(Area, Wanted, &'static str),
    After(Point),
}

impl Work {
    fn touches(&self, memory: &Arc<Memory>, start: u64, end: u64) -> bool {
        match self {
            Self::Set(area, _) | Self::Expect(area, ..) => area.meets(memory, start, end),
            Self::Copy(moves) => moves.as_flattened().iter().any(|a| a.meets(memory, start, end)),
            Self::After(_) => false,
        }
    }

    /// Does it; what is wrong, where something is.
    fn run(&self) -> Result<(), String> {
        let unmapped = || "work touches pages that are not mapped".to_owned();
        match self {
            Self::Set(to, runs) => to.memory.set(to.offset, runs).ok_or_else(unmapped),
            Self::Copy(moves) => {
                let read = |[from, _]: &[Area; 2]| from.memory.get(from.offset, from.size);
                let bytes: Option<Vec<_>> = moves.iter().map(read).collect();
                let mut written = moves.iter().zip(bytes.ok_or_else(unmapped)?);
                written
                    .try_for_each(|([_, to], runs)| to.memory.set(to.offset, &runs))
                    .ok_or_else(unmapped)
            }
            Self::Expect(of, wanted, what) => {
                let found = of.memory.get(of.offset, of.size).ok_or_else(unmapped)?;
                let right = found.iter().all(|(_, value)| match wanted {
                    Wanted::All(byte) => value == byte,
                    Wanted::None(byte) => value != byte,
                });
                if right {
                    Ok(())
                } else {
                    Err(format!("{what}: wanted {wanted:x?} in {found:x?}"))
                }
            }
            Self::After(_) => Ok(()),
        }
    }
}

#[derive(Default)]
struct Line {
    queue: VecDeque<Work>,
    done: u64,
}

impl Line {
    fn submitted(&self) -> Epoch {
        Epoch(self.done + self.queue.len() as u64)
    }
}

struct State {
    lines: BTreeMap<TimelineId, Line>,
    opened: u32,
    /// Marks of all timelines that were not all reached when somebody looked last, and how many were.
    all: VecDeque<Vec<Point>>,
    all_reached: u64,
    pages: BTreeMap<u64, Arc<Memory>>,
    random: Random,
    temper: Temper,
    /// The timeline that lags behind.
    slow: TimelineId,
    faults: Vec<String>,
}

/// The device.
pub(crate) struct Adversary {
    accounts: Null,
    state: Mutex<State>,
}

/// One of its blocks.
pub(crate) struct Block {
    account: omniheap_null::Block,
    size: u64,
    memory: Arc<Memory>,
}

impl Adversary {
    pub(crate) fn new(caps: Caps, temper: Temper, seed: u64) -> Self {
        let state = State {
            lines: BTreeMap::from([(TimelineId::MAIN, Line::default())]),
            opened: TimelineId::MAIN.0,
            all: VecDeque::new(),
            all_reached: 0,
            pages: BTreeMap::new(),
            random: Random(seed),
            temper,
            slow: TimelineId::MAIN,
            faults: Vec::new(),
        };
        Self { accounts: Null::new(caps), state: Mutex::new(state) }
    }

    /// The first thing that went wrong, if anything did.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.state).faults.first().cloned()
    }

    /// Has a timeline look at bytes when it comes to it, as a kernel would.
    pub(crate) fn expect(
        &self,
        on: TimelineId,
        place: BlockOffset<'_, Block>,
        size: u64,
        wanted: Wanted,
        what: &'static str,
    ) -> Result<()> {
        self.submit(on, Work::Expect(Area::new(&place, size), wanted, what))
    }

    /// The state, after the scheduler has run what it likes.
    fn stirred(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.stir();
        state
    }

    fn submit(&self, on: TimelineId, work: Work) -> Result<()> {
        self.stirred().line(on)?.queue.push_back(work);
        Ok(())
    }

    fn check(&self, place: &BlockOffset<'_, Block>, size: u64) -> Result<()> {
        self.caps().copy.check_range(place.block.size, place.offset, size)
    }
}

impl State {
    fn line(&mut self, id: TimelineId) -> Result<&mut Line> {
        self.lines.get_mut(&id).ok_or(ErrorKind::NoSuchTimeline.into())
    }

    fn is_reached(&self, point: Point) -> bool {
        match point.timeline {
            TimelineId::ALL => self.all_reached >= point.epoch.0,
            // A closed timeline has passed.
            line => self.lines.get(&line).is_none_or(|line| line.done >= point.epoch.0),
        }
    }

    /// Returns the point that the first work of a timeline still waits for.
    fn blocked_by(&self, line: &Line) -> Option<Point> {
        match line.queue.front() {
            Some(Work::After(point)) if !self.is_reached(*point) => Some(*point),
            _ => None,
        }
    }

    fn run_first(&mut self, id: TimelineId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(work) = line.queue.pop_front() else { return };
        line.done += 1;
        if let Err(why) = work.run() {
            self.faults.push(format!("{id:?}: {why}"));
        }
        self.pass_all_marks();
    }

    fn pass_all_marks(&mut self) {
        while self.all.front().is_some_and(|mark| mark.iter().all(|one| self.is_reached(*one))) {
            self.all.pop_front();
            self.all_reached += 1;
        }
    }

    /// Runs what the scheduler likes.
    fn stir(&mut self) {
        let count = match self.temper {
            Temper::Late => 0,
            Temper::Early => usize::MAX,
            Temper::Moody => self.random.index(4),
        };
        if self.random.below(256) == 0 {
            let lines: Vec<_> = self.lines.keys().copied().collect();
            self.slow = self.random.pick(&lines);
        }
        for _ in 0..count {
            let may = |(id, line): (&TimelineId, &Line)| {
                let may = !line.queue.is_empty() && self.blocked_by(line).is_none();
                (may && (self.temper == Temper::Early || *id != self.slow)).then_some(*id)
            };
            let ready: Vec<_> = self.lines.iter().filter_map(may).collect();
            if ready.is_empty() {
                return;
            }
            let next = self.random.pick(&ready);
            self.run_first(next);
        }
    }

    /// Runs what has to run before a point is reached, and nothing else.
    fn force(&mut self, goal: Point) {
        let mut goals = vec![goal];
        while let Some(point) = goals.last().copied() {
            if self.is_reached(point) {
                goals.pop();
                continue;
            }
            let first = match point.timeline {
                TimelineId::ALL => {
                    let mut all = self.all.iter().flatten().copied();
                    all.find(|one| !self.is_reached(*one))
                }
                id => self.lines.get(&id).and_then(|line| self.blocked_by(line)),
            };
            match first {
                Some(first) => goals.push(first),
                None => self.run_first(point.timeline),
            }
        }
    }

    /// A point that can come.
    fn known(&self, point: Point) -> Result<()> {
        let submitted = match point.timeline {
            TimelineId::ALL => Epoch(self.all_reached + self.all.len() as u64),
            id => self.lines.get(&id).ok_or(ErrorKind::NoSuchTimeline)?.submitted(),
        };
        if point.epoch <= submitted { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) }
    }

    fn blame_users(&mut self, memory: &Arc<Memory>, start: u64, end: u64, why: &str) {
        let mut works =
            self.lines.iter().flat_map(|(id, line)| line.queue.iter().map(move |w| (id, w)));
        if let Some((id, _)) = works.find(|(_, work)| work.touches(memory, start, end)) {
            self.faults.push(format!("{id:?}: {why}"));
        }
    }

    fn run_all(&mut self) {
        let ids: Vec<_> = self.lines.iter().map(|(id, line)| (*id, line.submitted())).collect();
        ids.into_iter().for_each(|(timeline, epoch)| self.force(Point { timeline, epoch }));
    }
}

// SAFETY: blocks and pages have memory of their own; bases are aligned to 4096, which the heaps do not exceed; `caps` never
// changes; all state is behind a lock; `wait_idle` runs everything; the device is never lost.
unsafe impl Backend for Adversary {
    type Block = Block;

    fn caps(&self) -> &Caps {
        self.accounts.caps()
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let account = self.accounts.allocate(heap, size)?;
        let about = self.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        let size = about.granule.up(size).ok_or(ErrorKind::ExceedsLimit)?;
        let memory = match about.host.is_visible() {
            true => Memory::Shared(HostBytes::new(size)),
            false => Memory::device(),
        };
        Ok(Block { account, size, memory: Arc::new(memory) })
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.stirred().blame_users(&block.memory, 0, block.size, "its block is freed while in use");
        // SAFETY: the caller's promise.
        unsafe { self.accounts.free(block.account) }
    }

    fn wait_idle(&self) -> Result<()> {
        lock(&self.state).run_all();
        Ok(())
    }

    fn as_map(&self) -> Option<&dyn Map<Block = Block>> {
        Some(self)
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.accounts.as_remap().map(|_| self as _)
    }
}

// SAFETY: the memory lives as long as its block, does not move, and no reference to its bytes is ever made.
unsafe impl Map for Adversary {
    type Block = Block;

    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        match &*block.memory {
            Memory::Shared(host) => Ok(host.base()),
            _ => Err(ErrorKind::NotMappable.into()),
        }
    }
    fn flush(&self, _: &Block, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn invalidate(&self, _: &Block, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

// SAFETY: ranges are checked when work is submitted; a queue runs in its order; slices are copied before a call returns.
unsafe impl Transfer for Adversary {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.check(&to, bytes.len() as u64)?;
        self.submit(on, Work::Set(Area::new(&to, bytes.len() as u64), runs_of(bytes)))
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        self.check(&from, bytes.len() as u64)?;
        let mut state = self.stirred();
        let epoch = state.line(on)?.submitted();
        state.force(Point { timeline: on, epoch });
        match from.block.memory.get(from.offset, bytes.len() as u64) {
            None => state.faults.push(format!("{on:?}: a read of pages that are not mapped")),
            Some(runs) => {
                let mut rest = bytes;
                for (size, value) in runs {
                    let (run, others) = rest.split_at_mut(usize::try_from(size).expect("small"));
                    run.fill(value);
                    rest = others;
                }
            }
        }
        Ok(())
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        self.check(&to, size)?;
        self.submit(on, Work::Set(Area::new(&to, size), vec![(size, value)]))
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.caps().copy.check_batch(moves, |block| Ok(block.size))?;
        let areas = |one: &Move<'_, Block>| [&one.from, &one.to].map(|at| Area::new(at, one.size));
        self.submit(on, Work::Copy(moves.iter().map(areas).collect()))
    }
}

// SAFETY: an epoch is the number of works that a queue has run, and `After` keeps a queue from going on before its point.
unsafe impl Timelines for Adversary {
    fn open(&self) -> Result<TimelineId> {
        let mut state = self.stirred();
        state.opened += 1;
        let id = TimelineId(state.opened);
        state.lines.insert(id, Line::default());
        Ok(id)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut state = self.stirred();
        let epoch = state.line(timeline)?.submitted();
        state.force(Point { timeline, epoch });
        state.lines.remove(&timeline);
        Ok(())
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        let mut state = self.stirred();
        if timeline != TimelineId::ALL {
            return state.line(timeline).map(|line| line.submitted());
        }
        let point =
            |(id, line): (&TimelineId, &Line)| Point { timeline: *id, epoch: line.submitted() };
        let mark = state.lines.iter().map(point).filter(|one| !state.is_reached(*one)).collect();
        state.all.push_back(mark);
        let epoch = Epoch(state.all_reached + state.all.len() as u64);
        state.pass_all_marks();
        Ok(epoch)
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        let mut state = self.stirred();
        match timeline {
            TimelineId::ALL => Ok(Epoch(state.all_reached)),
            _ => state.line(timeline).map(|line| Epoch(line.done)),
        }
    }

    fn wait(&self, point: Point) -> Result<()> {
        let mut state = self.stirred();
        state.known(point)?;
        state.force(point);
        Ok(())
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let mut state = self.stirred();
        state.known(point)?;
        state.line(timeline)?.queue.push_back(Work::After(point));
        Ok(())
    }
}

// SAFETY: a position is backed by the page that was mapped there; a page keeps its memory while it is not mapped.
unsafe impl Remap for Adversary {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let account = self.accounts.reserve(heap, size)?;
        let page =
            self.caps().heap(heap).and_then(|heap| heap.page).ok_or(ErrorKind::Unsupported)?;
        let count = usize::try_from(size / page.get()).expect("small");
        let memory = Memory::Reserved { page: page.get(), pages: Mutex::new(vec![None; count]) };
        Ok(Block { account, size, memory: Arc::new(memory) })
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let known = pages.len();
        self.accounts.create(heap, count, pages)?;
        let mut state = self.stirred();
        state.pages.extend(pages[known..].iter().map(|page| (page.0, Arc::new(Memory::device()))));
        Ok(())
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let mut state = self.stirred();
        for page in pages {
            let memory = state.pages.remove(&page.0);
            if memory.is_none_or(|memory| Arc::strong_count(&memory) > 1) {
                state.faults.push(format!("{page:?} is destroyed where it is mapped, or twice"));
            }
        }
        drop(state);
        // SAFETY: the caller's promise.
        unsafe { self.accounts.destroy(heap, pages) }
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.accounts.map_pages(&block.account, first, pages) }?;
        let mut state = self.stirred();
        let Memory::Reserved { pages: mapped, .. } = &*block.memory else {
            return Err(ErrorKind::Unsupported.into());
        };
        let mut mapped = lock(mapped);
        for (at, page) in (usize::try_from(first).expect("small")..).zip(pages) {
            let memory = state.pages.get(&page.0).cloned();
            if memory.is_none() || mapped[at].is_some() {
                state.faults.push(format!("{page:?} is mapped after its end, or over another"));
            }
            mapped[at] = memory;
        }
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.accounts.unmap_pages(&block.account, first, count) }?;
        let Memory::Reserved { page, pages } = &*block.memory else {
            return Err(ErrorKind::Unsupported.into());
        };
        let (start, end) = (first * page, (first + count) * page);
        let mut state = self.stirred();
        state.blame_users(&block.memory, start, end, "its pages are unmapped while in use");
        let mut pages = lock(pages);
        for at in pages
            .iter_mut()
            .skip(usize::try_from(first).expect("small"))
            .take(usize::try_from(count).expect("small"))
        {
            if at.take().is_none() {
                state.faults.push("a position is unmapped that is not mapped".into());
            }
        }
        Ok(())
    }
}
