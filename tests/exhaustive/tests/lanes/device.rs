//! A strict device. Work runs when a step says so, and the device finds out what nobody may do.
//!
//! Bytes come in cells, and each cell has a value. Work that is submitted must be ordered behind all work that touches the same
//! cells, unless both only read. Memory that goes back to the driver must be out of use, unmapped, and free of secrets.
#![expect(unsafe_code, reason = "signs the contract of Backend")]
#![expect(clippy::cast_possible_truncation, reason = "worlds are small")]
use core::cell::RefCell;
use omniheap_core::{
    Align, Backend, BlockOffset, Caps, DeviceInfo, Epoch, ErrorKind, Heap, HeapId, HeapKind, Move,
    Page, Point, Remap, Result, TimelineId, Timelines, Transfer, act_between_locks,
};
use omniheap_exhaustive::Key;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a cell in most worlds. A cell is the unit of the manager.
pub(crate) const CELL: u64 = 16;
/// Cells of a page.
pub(crate) const PAGE: u64 = 2;
/// Marks values that must not outlive their owner.
pub(crate) const SECRET: u8 = 0x80;
/// The value of memory that the driver gives out.
const FRESH: u8 = 0x7F;

/// A call of the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Allocate,
    Free,
    WaitIdle,
    Write,
    Read,
    Fill,
    Copy,
    Open,
    Close,
    Mark,
    Reached,
    Wait,
    Order,
    Reserve,
    Create,
    Destroy,
    Map,
    Unmap,
    /// No call: the manager takes its next lock, and holds none.
    Lock,
}

/// Duration of a driver's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lasting {
    Once,
    /// Until the step ends.
    ForTheStep,
    /// Until the step ends, and every other call from then on.
    Deaf,
}

/// Whether something happens just before a call or just after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum When {
    Before,
    After,
}

/// Event at one call of a step.
pub(crate) enum Twist {
    Refuse(Call, u8, ErrorKind, Lasting),
    /// Something that another thread does at this call.
    Meanwhile(When, u8, Box<dyn FnOnce() + Send>),
}

/// A call that runs. What another thread does just after it comes when this is dropped.
struct Running<'a> {
    device: &'a Device,
    at: u8,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let other = self.device.lock().meanwhile(When::After, self.at);
        if let Some(other) = other {
            other();
        }
    }
}

/// Cells side by side in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    pub(crate) block: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Area {
    fn of(block: &Block, offset: u64, bytes: u64) -> Self {
        let [first, count] = [offset, bytes].map(|it| cells(it, block.cell));
        Self { block: block.number, first, count }
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.block == other.block
            && self.first < other.first + other.count
            && other.first < self.first + self.count
    }
}

/// Returns bytes in cells.
fn cells(bytes: u64, cell: u64) -> u32 {
    u32::try_from(bytes / cell).expect("worlds are small")
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Set(Area, u8),
    /// Values of the cells, from the host.
    Put(Area, Vec<u8>),
    Copy(Vec<[Area; 2]>),
    /// A kernel: finds this value, unless it is the first user, and leaves that one.
    Kernel(Area, Option<u8>, u8),
    After(Point),
}

impl Work {
    /// Areas that are read, and those that are written.
    fn touches(&self) -> (Vec<Area>, Vec<Area>) {
        match self {
            Self::Set(area, _) | Self::Put(area, _) => (vec![], vec![*area]),
            Self::Kernel(area, Some(old), new) if old == new => (vec![*area], vec![]),
            Self::Kernel(area, ..) => (vec![], vec![*area]),
            Self::Copy(moves) => {
                (moves.iter().map(|one| one[0]).collect(), moves.iter().map(|one| one[1]).collect())
            }
            Self::After(_) => (vec![], vec![]),
        }
    }
}

/// A queue, and what the manager was told of it.
#[derive(Default)]
struct Line {
    queue: VecDeque<Work>,
    done: u64,
    /// The latest mark, and the latest answer.
    marked: u64,
    told: u64,
}

impl Line {
    fn submitted(&self) -> u64 {
        self.done + self.queue.len() as u64
    }
}

enum Memory {
    Own(HeapId, Vec<u8>),
    /// Pages by position.
    Addresses(Vec<Option<u32>>),
}

struct Sheet {
    heap: HeapId,
    cells: Vec<u8>,
    /// Positions where it is mapped.
    mapped: u32,
}

struct State {
    lines: Vec<Option<Line>>,
    memories: Vec<Option<Memory>>,
    sheets: Vec<Option<Sheet>>,
    cell: u64,
    used: Vec<u64>,
    lost: u64,
    fault: Option<String>,
    twist: Option<Twist>,
    /// Calls of the step so far, each with the timelines that could run something before it.
    calls: Vec<(Call, Vec<TimelineId>)>,
    fired: bool,
}

thread_local! {
    /// The device of the thread's step, while its locks are counted.
    static WATCHED: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// A handle of the device.
#[derive(Clone)]
pub(crate) struct Device {
    shared: Arc<(Caps, Mutex<State>)>,
}

/// A block or a reservation.
pub(crate) struct Block {
    pub(crate) number: u32,
    bytes: u64,
    cell: u64,
}

/// Describes heaps of so many bytes, blocks of these at most, with pages or without.
pub(crate) fn caps(heaps: &[(u64, u64)], cell: u64, pages: bool) -> Caps {
    let info =
        DeviceInfo { backend: "strict", name: "strict".into(), driver: String::new(), uuid: None };
    let align = Align::of(cell * PAGE);
    let heap = |(at, (size, most)): (usize, &(u64, u64))| {
        let heap = Heap::new(HeapKind::Device, *size).max_block(*most).align(align);
        let heap = heap.physical(u8::try_from(at).expect("few heaps"));
        heap.page(pages.then_some(align))
    };
    Caps::new(info, heaps.iter().enumerate().map(heap).collect())
}

impl Device {
    pub(crate) fn new(caps: Caps) -> Self {
        let used = vec![0; caps.heaps.len()];
        let cell = caps.heaps[0].align.get() / PAGE;
        let state = State {
            lines: vec![Some(Line::default())],
            memories: Vec::new(),
            sheets: Vec::new(),
            cell,
            used,
            lost: 0,
            fault: None,
            twist: None,
            calls: Vec::new(),
            fired: false,
        };
        Self { shared: Arc::new((caps, Mutex::new(state))) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of each heap.
    pub(crate) fn heaps(&self) -> impl Iterator<Item = HeapId> + '_ {
        self.shared.0.heap_ids().map(|(heap, _)| heap)
    }

    /// Returns the bytes of a cell.
    pub(crate) fn cell(&self) -> u64 {
        self.shared.0.heaps[0].align.get() / PAGE
    }

    /// Returns the bytes of a page.
    pub(crate) fn page(&self) -> u64 {
        self.cell() * PAGE
    }

    /// Returns the first thing that went wrong.
    pub(crate) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Returns the bytes that are held, and those that were lost in refused calls.
    pub(crate) fn held(&self) -> (u64, u64) {
        let state = self.lock();
        (state.used.iter().sum(), state.lost)
    }

    /// Arms a twist for the next step.
    pub(crate) fn arm(&self, twist: Option<Twist>) {
        let mut state = self.lock();
        (state.twist, state.fired) = (twist, false);
        state.calls.clear();
    }

    /// Counts the locks that the calling thread takes among the calls of the next step.
    pub(crate) fn watch_locks(&self) {
        WATCHED.set(Some(self.clone()));
        act_between_locks(|| {
            let watched = WATCHED.with_borrow(Clone::clone);
            drop(watched.as_ref().map(|device| device.enter(Call::Lock)));
        });
    }

    /// Disarms it; returns whether it fired.
    pub(crate) fn disarm(&self) -> bool {
        act_between_locks(|| ());
        WATCHED.set(None);
        let mut state = self.lock();
        let (twist, fired) = (state.twist.take(), state.fired);
        drop(state);
        drop(twist); // It may own an allocation, and free it now.
        fired
    }

    /// Has a timeline run a kernel over an area: see [`Work::Kernel`].
    pub(crate) fn kernel(&self, on: TimelineId, area: Area, old: Option<u8>, new: u8) {
        self.lock()
            .submit(on, Work::Kernel(area, old, new))
            .expect("the program knows its timelines");
    }

    /// Has the program copy cells on a timeline, and waits for it.
    pub(crate) fn copy_now(&self, on: TimelineId, from: Area, to: Area) {
        let mut state = self.lock();
        state.submit(on, Work::Copy(vec![[from, to]])).expect("the program knows its timelines");
        let epoch = state.line(on).map_or(0, Line::submitted);
        state.force(Point { timeline: on, epoch: Epoch(epoch) });
    }

    /// Returns a number for each block that there is, in their order.
    pub(crate) fn block_names(&self) -> BTreeMap<u32, u32> {
        let state = self.lock();
        let held = (0u32..).zip(&state.memories).filter(|(_, memory)| memory.is_some());
        held.map(|(number, _)| number).zip(0..).collect()
    }

    /// Says where a secret is, if there is one.
    pub(crate) fn secret(&self) -> Option<String> {
        let state = self.lock();
        let is_secret = |cells: &[u8]| cells.iter().any(|value| value & SECRET != 0);
        let block = state
            .memories
            .iter()
            .position(|memory| matches!(memory, Some(Memory::Own(_, cells)) if is_secret(cells)));
        let page = state.sheets.iter().flatten().position(|sheet| is_secret(&sheet.cells));
        block.map(|at| format!("block {at}")).or_else(|| page.map(|at| format!("page {at}")))
    }

    /// Runs the first work of a timeline.
    pub(crate) fn run_one(&self, id: TimelineId) {
        self.lock().run_first(id);
    }

    /// Timelines that can run something now.
    pub(crate) fn ready(&self) -> Vec<TimelineId> {
        self.lock().ready()
    }

    pub(crate) fn is_open(&self, id: TimelineId) -> bool {
        self.lock().line(id).is_ok()
    }

    pub(crate) fn run_all(&self) {
        self.lock().run_all();
    }

    /// The point after everything that a timeline has to do now, as the program sees it.
    pub(crate) fn tail(&self, id: TimelineId) -> Option<Point> {
        let epoch = Epoch(self.lock().line(id).ok()?.submitted());
        Some(Point { timeline: id, epoch })
    }

    /// Has the program order a timeline behind a point.
    pub(crate) fn come_after(&self, id: TimelineId, point: Point) {
        let mut state = self.lock();
        if !state.is_reached(point) {
            let _ = state.submit(id, Work::After(point));
        }
    }

    pub(crate) fn has_reached(&self, point: Point) -> bool {
        self.lock().is_reached(point)
    }

    /// Returns whether the manager was told that a point was reached, has a mark behind it, or neither.
    pub(crate) fn knowledge(&self, point: Point) -> u8 {
        match self.lock().line(point.timeline) {
            Err(_) => 0,
            Ok(line) if line.told >= point.epoch.0 => 1,
            Ok(line) => {
                2 + u8::from(line.marked >= point.epoch.0)
                    + 2 * u8::from(line.done >= point.epoch.0)
            }
        }
    }

    /// Closes a timeline after its work, as another thread of the program would.
    pub(crate) fn close_line(&self, id: TimelineId) {
        let mut state = self.lock();
        if let Some(epoch) = state.line(id).ok().map(Line::submitted) {
            state.force(Point { timeline: id, epoch: Epoch(epoch) });
            state.lines[id.0 as usize] = None;
        }
    }

    /// Returns why an area cannot be used on a timeline now, or by the host where there is none: work that touches it is not
    /// ordered before.
    pub(crate) fn conflict(&self, on: Option<TimelineId>, area: Area) -> Option<String> {
        self.lock().race(on, &[], &[area])
    }

    /// Returns the values of an area, or nothing where a page is not mapped or work is yet to write there.
    pub(crate) fn settled(&self, area: Area) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let writes = |work: &Work| work.touches().1.iter().any(|one| one.meets(&area));
        if state.lines.iter().flatten().any(|line| line.queue.iter().any(writes)) {
            return None;
        }
        state.values(area)
    }

    pub(crate) fn area(&self, block: &Block, offset: u64, bytes: u64) -> Area {
        Area::of(block, offset, bytes)
    }

    /// Tells states of the device apart. `values` names the values of live allocations; all others are alike, but for secrets.
    #[expect(clippy::too_many_lines, reason = "one part after the other")]
    pub(crate) fn describe(&self, mut key: Key, values: &[u8; 256]) -> Key {
        let state = self.lock();
        let value = |value: &u8| match values[*value as usize] {
            0 if *value == 0 => 0,
            0 => value & SECRET | 1,
            name => name,
        };
        let mut names = vec![u32::MAX; state.memories.len()];
        for (name, (at, memory)) in
            (0u32..).zip(state.memories.iter().enumerate().filter(|(_, memory)| memory.is_some()))
        {
            names[at] = name;
            match memory.as_ref().expect("filtered") {
                Memory::Own(heap, cells) => {
                    key = key.with((0, heap.0)).with(cells.iter().map(value).collect::<Vec<_>>());
                }
                Memory::Addresses(map) => {
                    for (at, page) in
                        map.iter().enumerate().filter_map(|(at, page)| Some((at, (*page)?)))
                    {
                        let sheet = state.sheets[page as usize].as_ref();
                        let cells =
                            sheet.map(|sheet| sheet.cells.iter().map(value).collect::<Vec<_>>());
                        key = key.with((at, cells));
                    }
                    key = key.with(map.len());
                }
            }
        }
        let area = |area: &Area| (names[area.block as usize], area.first, area.count);
        let spare = state.sheets.iter().flatten().filter(|sheet| sheet.mapped == 0).count();
        key = key.with((spare, &state.used, state.lost));
        for line in &state.lines {
            let Some(line) = line else {
                key = key.with(u64::MAX);
                continue;
            };
            key =
                key.with((line.queue.len(), line.done > line.told, line.submitted() > line.marked));
            for work in &line.queue {
                key = match work {
                    Work::Set(at, set) => key.with((1, area(at), value(set))),
                    Work::Put(at, put) => {
                        key.with((2, area(at), put.iter().map(value).collect::<Vec<_>>()))
                    }
                    Work::Copy(moves) => key.with(
                        moves.iter().map(|one| (area(&one[0]), area(&one[1]))).collect::<Vec<_>>(),
                    ),
                    Work::Kernel(at, old, new) => {
                        key.with((3, area(at), old.map(|old| value(&old)), value(new)))
                    }
                    Work::After(point) => {
                        let done = state.line(point.timeline).map_or(0, |line| line.done);
                        key.with((4, point.timeline, point.epoch.0.saturating_sub(done)))
                    }
                };
            }
        }
        key
    }

    /// Calls of the last step, each with the timelines that could run something before it.
    pub(crate) fn calls(&self) -> Vec<(Call, Vec<TimelineId>)> {
        self.lock().calls.clone()
    }

    /// Begins a call: what another thread does comes first, then a refusal.
    fn enter(&self, call: Call) -> Result<Running<'_>> {
        let mut state = self.lock();
        let at = u8::try_from(state.calls.len()).unwrap_or(u8::MAX);
        let number = state.calls.iter().filter(|(known, _)| *known == call).count();
        let ready = state.ready();
        state.calls.push((call, ready));
        if let Some(Twist::Refuse(which, nth, kind, lasting)) = state.twist {
            let is_first = which == call && number == nth.into();
            let is_later = which == call && number > nth.into();
            let goes_on = match lasting {
                Lasting::Once => false,
                Lasting::ForTheStep => is_later,
                Lasting::Deaf => state.fired,
            };
            if is_first || goes_on {
                state.fired = true;
                return Err(kind.into());
            }
        }
        let other = state.meanwhile(When::Before, at);
        drop(state);
        if let Some(other) = other {
            other();
        }
        Ok(Running { device: self, at })
    }

    fn about(&self, heap: HeapId) -> Result<&Heap> {
        self.shared.0.heap(heap).ok_or(ErrorKind::NoSuchHeap.into())
    }

    fn check(&self, place: &BlockOffset<'_, Block>, size: u64) -> Result<()> {
        self.shared.0.copy.check_range(place.block.bytes, place.offset, size)
    }
}

impl State {
    /// Takes out what another thread does at a call.
    fn meanwhile(&mut self, when: When, at: u8) -> Option<Box<dyn FnOnce() + Send>> {
        let is_now = |twist: &mut Twist| matches!(twist, Twist::Meanwhile(then, which, _) if (*then, *which) == (when, at));
        let Some(Twist::Meanwhile(.., other)) = self.twist.take_if(is_now) else { return None };
        self.fired = true;
        Some(other)
    }

    fn blame(&mut self, why: impl Into<String>) {
        self.fault.get_or_insert_with(|| why.into());
    }

    fn line(&self, id: TimelineId) -> Result<&Line> {
        let line = self.lines.get(id.0 as usize).and_then(Option::as_ref);
        line.ok_or(ErrorKind::NoSuchTimeline.into())
    }

    fn line_mut(&mut self, id: TimelineId) -> Result<&mut Line> {
        let line = self.lines.get_mut(id.0 as usize).and_then(Option::as_mut);
        line.ok_or(ErrorKind::NoSuchTimeline.into())
    }

    fn submit(&mut self, on: TimelineId, work: Work) -> Result<()> {
        self.line(on)?;
        let (reads, writes) = work.touches();
        // A pass whose move is cancelled may still read what its owner writes: nobody uses the copy.
        let writes = if matches!(work, Work::Kernel(_, Some(_), _)) {
            (&[][..], &writes[..])
        } else {
            (&writes[..], &[][..])
        };
        // Two that zero a secret leave the same.
        let zeros = |race: &String| {
            matches!(work, Work::Set(_, 0))
                && race.contains("behind Set(")
                && race.contains(", 0) on")
        };
        let race = self.race_of(Some(on), &reads, writes.0, writes.1);
        if let Some(race) = race.filter(|race| !zeros(race)) {
            self.blame(format!("{work:?} on {on:?} {race}"));
        }
        self.line_mut(on)?.queue.push_back(work);
        self.settle();
        Ok(())
    }

    /// Says which work touches areas and is not ordered before the end of a timeline.
    fn race(&self, on: Option<TimelineId>, reads: &[Area], writes: &[Area]) -> Option<String> {
        self.race_of(on, reads, writes, &[])
    }

    /// As [`race`](Self::race); `over_copies` are written too, and copies may still read them.
    fn race_of(
        &self,
        on: Option<TimelineId>,
        reads: &[Area],
        writes: &[Area],
        over_copies: &[Area],
    ) -> Option<String> {
        let mut covered: Option<Vec<u64>> = None;
        for (at, line) in self.lines.iter().enumerate() {
            if on.is_some_and(|on| on.0 as usize == at) {
                continue;
            }
            for (number, work) in line.iter().flat_map(|line| line.queue.iter().enumerate()) {
                let (theirs, written) = work.touches();
                let meets = |ours: &[Area], others: &[Area]| {
                    ours.iter().any(|one| others.iter().any(|other| one.meets(other)))
                };
                let is_read = meets(writes, &theirs)
                    || (!matches!(work, Work::Copy(_)) && meets(over_copies, &theirs));
                let is_written =
                    [reads, writes, over_copies].iter().any(|ours| meets(ours, &written));
                if !is_read && !is_written {
                    continue;
                }
                let done = line.as_ref().map_or(0, |line| line.done);
                let covered = covered.get_or_insert_with(|| self.before(on));
                if covered[at] < done + number as u64 + 1 {
                    return Some(format!("is not ordered behind {work:?} on timeline {at}"));
                }
            }
        }
        None
    }

    /// Returns the epoch of each timeline that comes before the end of one, by the orders in the queues.
    fn before(&self, on: Option<TimelineId>) -> Vec<u64> {
        let mut covered = vec![0; self.lines.len()];
        let Some(on) = on else { return covered };
        let mut todo = vec![(on, u64::MAX)];
        while let Some((id, up_to)) = todo.pop() {
            let Ok(line) = self.line(id) else { continue };
            let count = usize::try_from(up_to.saturating_sub(line.done)).unwrap_or(usize::MAX);
            for work in line.queue.iter().take(count) {
                if let Work::After(point) = work
                    && let Some(known) = covered.get_mut(point.timeline.0 as usize)
                    && *known < point.epoch.0
                {
                    *known = point.epoch.0;
                    todo.push((point.timeline, point.epoch.0));
                }
            }
        }
        covered
    }

    fn is_reached(&self, point: Point) -> bool {
        self.line(point.timeline).map_or(true, |line| line.done >= point.epoch.0)
    }

    fn ready(&self) -> Vec<TimelineId> {
        let ids = 0..u32::try_from(self.lines.len()).expect("few timelines");
        ids.map(TimelineId).filter(|id| self.may_run(*id)).collect()
    }

    fn may_run(&self, id: TimelineId) -> bool {
        match self.line(id).ok().and_then(|line| line.queue.front()) {
            Some(Work::After(point)) => self.is_reached(*point),
            first => first.is_some(),
        }
    }

    /// Orders that hold already are not worth a step.
    fn settle(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for at in 0..self.lines.len() {
                while let Some(Work::After(point)) =
                    self.lines[at].as_ref().and_then(|line| line.queue.front())
                    && self.is_reached(*point)
                {
                    let line = self.lines[at].as_mut().expect("seen just above");
                    line.queue.pop_front();
                    line.done += 1;
                    changed = true;
                }
            }
        }
    }

    fn run_first(&mut self, id: TimelineId) {
        let Ok(line) = self.line_mut(id) else { return };
        let Some(work) = line.queue.pop_front() else { return };
        line.done += 1;
        if let Err(why) = self.do_work(&work) {
            self.blame(format!("{work:?} on {id:?}: {why}"));
        }
        self.settle();
    }

    fn do_work(&mut self, work: &Work) -> Result<(), String> {
        match work {
            Work::Set(area, value) => self.set(*area, |_| *value),
            Work::Put(area, values) => self.set(*area, |at| values[at]),
            Work::Copy(moves) => {
                let read =
                    |one: &[Area; 2]| self.values(one[0]).ok_or("it reads what is not mapped");
                let values = moves.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                moves
                    .iter()
                    .zip(values)
                    .try_for_each(|(one, values)| self.set(one[1], |at| values[at]))
            }
            Work::Kernel(area, old, new) => {
                let found = self.values(*area).ok_or("it reads what is not mapped")?;
                let right = |value: &u8| old.map_or(value & SECRET == 0, |old| *value == old);
                if !found.iter().all(right) {
                    return Err(format!("it finds {found:x?}"));
                }
                self.set(*area, |_| *new)
            }
            Work::After(_) => Ok(()),
        }
    }

    fn cell(&mut self, block: u32, at: u32) -> Option<&mut u8> {
        match self.memories.get_mut(block as usize)?.as_mut()? {
            Memory::Own(_, cells) => cells.get_mut(at as usize),
            Memory::Addresses(map) => {
                let page = (*map.get(at as usize / PAGE as usize)?)?;
                self.sheets[page as usize].as_mut()?.cells.get_mut(at as usize % PAGE as usize)
            }
        }
    }

    fn values(&mut self, area: Area) -> Option<Vec<u8>> {
        (area.first..area.first + area.count).map(|at| self.cell(area.block, at).copied()).collect()
    }

    fn set(&mut self, area: Area, value: impl Fn(usize) -> u8) -> Result<(), String> {
        for at in 0..area.count {
            let cell =
                self.cell(area.block, area.first + at).ok_or("it writes what is not mapped")?;
            *cell = value(at as usize);
        }
        Ok(())
    }

    /// Runs what has to run before a point is reached.
    fn force(&mut self, goal: Point) {
        let mut goals = vec![goal];
        while let Some(point) = goals.last().copied() {
            match self.line(point.timeline).ok().and_then(|line| line.queue.front()) {
                _ if self.is_reached(point) => drop(goals.pop()),
                Some(Work::After(first)) => goals.push(*first),
                _ => self.run_first(point.timeline),
            }
        }
    }

    fn run_all(&mut self) {
        for at in 0..self.lines.len() {
            let timeline = TimelineId(u32::try_from(at).expect("few timelines"));
            if let Some(epoch) = self.lines[at].as_ref().map(Line::submitted) {
                self.force(Point { timeline, epoch: Epoch(epoch) });
            }
        }
    }

    /// Blames whoever gives memory away that is in use.
    fn check_unused(&mut self, area: Area, what: &str) {
        if let Some(race) = self.race(None, &[], &[area]) {
            self.blame(format!("{what} {race}"));
        }
    }

    fn charge(&mut self, heap: HeapId, size: u64, bytes: u64) -> Result<()> {
        let used = &mut self.used[usize::from(heap.0)];
        if *used + bytes > size {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        *used += bytes;
        Ok(())
    }

    fn add(&mut self, memory: Memory, bytes: u64) -> Block {
        self.memories.push(Some(memory));
        let number = u32::try_from(self.memories.len() - 1).expect("few blocks");
        Block { number, bytes, cell: self.cell }
    }
}

// SAFETY: each block and page has cells of its own, nothing shows their addresses, `caps` never changes, all state is behind a
// lock, and `wait_idle` runs everything.
unsafe impl Backend for Device {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.shared.0
    }

    fn allocate(&self, heap: HeapId, size: u64) -> Result<Block> {
        let _running = self.enter(Call::Allocate)?;
        let about = self.about(heap)?;
        if size == 0 || size > about.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let mut state = self.lock();
        state.charge(heap, about.size, size)?;
        Ok(state.add(Memory::Own(heap, vec![FRESH; cells(size, self.cell()) as usize]), size))
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        let refused = self.enter(Call::Free);
        let mut state = self.lock();
        state
            .check_unused(Area::of(&block, 0, block.bytes), "a block that goes back to the driver");
        match state.memories[block.number as usize].take() {
            Some(Memory::Own(heap, cells)) => {
                if cells.iter().any(|value| value & SECRET != 0) {
                    state.blame("a block goes back to the driver with a secret in it");
                }
                state.used[usize::from(heap.0)] -= block.bytes;
                state.lost += if refused.is_err() { block.bytes } else { 0 };
            }
            Some(Memory::Addresses(map)) if map.iter().any(Option::is_some) => {
                state.blame("addresses are freed with pages mapped");
            }
            Some(Memory::Addresses(_)) => {}
            None => state.blame("a block is freed twice"),
        }
        drop(state);
        refused.map(drop)
    }

    fn wait_idle(&self) -> Result<()> {
        let _running = self.enter(Call::WaitIdle)?;
        let mut state = self.lock();
        state.run_all();
        Ok(())
    }

    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.shared.0.heaps.iter().any(|heap| heap.page.is_some()).then_some(self as _)
    }
}

// SAFETY: ranges are checked when work is submitted, queues run in order, and slices are copied before a call returns.
unsafe impl Transfer for Device {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        let _running = self.enter(Call::Write)?;
        self.check(&to, bytes.len() as u64)?;
        let values = bytes.chunks(to.block.cell as usize).map(|cell| cell[0]).collect();
        let area = Area::of(to.block, to.offset, bytes.len() as u64);
        self.lock().submit(on, Work::Put(area, values))
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        let _running = self.enter(Call::Read)?;
        self.check(&from, bytes.len() as u64)?;
        let area = Area::of(from.block, from.offset, bytes.len() as u64);
        let mut state = self.lock();
        let epoch = Epoch(state.line(on)?.submitted());
        // A pool that falls asleep may read a secret that its owner frees meanwhile, and drops what it read.
        let race = state.race(Some(on), &[area], &[]).filter(|race| !race.contains("behind Set("));
        if let Some(race) = race {
            state.blame(format!("a read by the host {race}"));
        }
        state.force(Point { timeline: on, epoch });
        match state.values(area) {
            Some(values) => {
                let cells = bytes.chunks_mut(from.block.cell as usize);
                cells.zip(values).for_each(|(cell, value)| cell.fill(value));
            }
            None => state.blame("the host reads what is not mapped"),
        }
        Ok(())
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        let _running = self.enter(Call::Fill)?;
        self.check(&to, size)?;
        self.lock().submit(on, Work::Set(Area::of(to.block, to.offset, size), value))
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        let _running = self.enter(Call::Copy)?;
        self.shared.0.copy.check_batch(moves, |block| Ok(block.bytes))?;
        let areas = |one: &Move<'_, Block>| {
            [one.from, one.to].map(|place| Area::of(place.block, place.offset, one.size))
        };
        self.lock().submit(on, Work::Copy(moves.iter().map(areas).collect()))
    }
}

// SAFETY: an epoch is the number of works that a queue has run, `After` keeps a queue from going on before its point, a timeline
// is closed after its work, and ids are never used twice.
unsafe impl Timelines for Device {
    fn open(&self) -> Result<TimelineId> {
        let _running = self.enter(Call::Open)?;
        let mut state = self.lock();
        state.lines.push(Some(Line::default()));
        Ok(TimelineId(u32::try_from(state.lines.len() - 1).expect("few timelines")))
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        let _running = self.enter(Call::Close)?;
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        self.lock().line(timeline)?;
        self.close_line(timeline);
        Ok(())
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        let _running = self.enter(Call::Mark)?;
        let mut state = self.lock();
        let line = state.line_mut(timeline)?;
        line.marked = line.submitted();
        Ok(Epoch(line.marked))
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        let _running = self.enter(Call::Reached)?;
        let mut state = self.lock();
        let line = state.line_mut(timeline)?;
        line.told = line.done;
        Ok(Epoch(line.done))
    }

    fn wait(&self, point: Point) -> Result<()> {
        let _running = self.enter(Call::Wait)?;
        let mut state = self.lock();
        if point.epoch.0 > state.line(point.timeline)?.submitted() {
            return Err(ErrorKind::OutOfRange.into());
        }
        state.force(point);
        let line = state.line_mut(point.timeline)?;
        line.told = line.told.max(point.epoch.0);
        Ok(())
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let _running = self.enter(Call::Order)?;
        let mut state = self.lock();
        state.line(timeline)?;
        if point.epoch.0 > state.line(point.timeline)?.submitted() {
            return Err(ErrorKind::OutOfRange.into());
        }
        state.submit(timeline, Work::After(point))
    }
}

// SAFETY: a position shows the cells of the page that was mapped there, and pages keep theirs while they are mapped nowhere.
unsafe impl Remap for Device {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let _running = self.enter(Call::Reserve)?;
        self.about(heap)?;
        let pages = size / self.page();
        Ok(self
            .lock()
            .add(Memory::Addresses(vec![None; usize::try_from(pages).expect("small")]), size))
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let _running = self.enter(Call::Create)?;
        let mut state = self.lock();
        state.charge(heap, self.about(heap)?.size, count * self.page())?;
        for _ in 0..count {
            pages.push(Page(state.sheets.len() as u64));
            state.sheets.push(Some(Sheet { heap, cells: vec![FRESH; PAGE as usize], mapped: 0 }));
        }
        Ok(())
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let refused = self.enter(Call::Destroy);
        let mut state = self.lock();
        let bytes = state.cell * PAGE;
        for page in pages {
            match state
                .sheets
                .get_mut(usize::try_from(page.0).expect("small"))
                .and_then(Option::take)
            {
                None => state.blame("a page is destroyed twice"),
                Some(sheet) if sheet.mapped > 0 => {
                    state.blame("a page is destroyed that is mapped");
                }
                Some(sheet) if sheet.cells.iter().any(|value| value & SECRET != 0) => {
                    state.blame("a page goes back to the driver with a secret in it");
                }
                Some(sheet) if sheet.heap != heap => state.blame("a page of another heap"),
                Some(_) => {}
            }
            state.used[usize::from(heap.0)] -= bytes;
            state.lost += if refused.is_err() { bytes } else { 0 };
        }
        drop(state);
        refused.map(drop)
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        let _running = self.enter(Call::Map)?;
        let state = &mut *self.lock();
        let Some(Memory::Addresses(map)) = &mut state.memories[block.number as usize] else {
            return Err(ErrorKind::Unsupported.into());
        };
        let first = usize::try_from(first).expect("small");
        let places = map.get_mut(first..first + pages.len()).ok_or(ErrorKind::OutOfRange)?;
        if places.iter().any(Option::is_some) {
            return Err(ErrorKind::Busy.into());
        }
        for (place, page) in places.iter_mut().zip(pages) {
            let number = u32::try_from(page.0).expect("small");
            *place = Some(number);
            match &mut state.sheets[number as usize] {
                Some(sheet) if sheet.mapped < 2 => sheet.mapped += 1,
                _ => {
                    state.fault.get_or_insert_with(|| {
                        "a page is mapped that is gone, or at two places".into()
                    });
                }
            }
        }
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        let _running = self.enter(Call::Unmap)?;
        let state = &mut *self.lock();
        let bytes = block.cell * PAGE;
        state
            .check_unused(Area::of(block, first * bytes, count * bytes), "a page that is unmapped");
        let Some(Memory::Addresses(map)) = &mut state.memories[block.number as usize] else {
            return Err(ErrorKind::Unsupported.into());
        };
        let [first, count] = [first, count].map(|at| usize::try_from(at).expect("small"));
        let places = map.get_mut(first..first + count).ok_or(ErrorKind::OutOfRange)?;
        for place in places {
            match place.take().and_then(|page| state.sheets[page as usize].as_mut()) {
                Some(sheet) => sheet.mapped -= 1,
                None => {
                    state
                        .fault
                        .get_or_insert_with(|| "a position is unmapped that is not mapped".into());
                }
            }
        }
        Ok(())
    }
}
