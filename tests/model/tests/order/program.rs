//! A program that keeps every rule, and so must never see a byte that is not its own.
//!
//! The program orders its own uses of an allocation among each other, as programs have to. That bytes come to it and
//! leave it in order is the manager's business, and what is tested.
use super::device::{Adversary, Temper, Wanted};
use omniheap_core::{
    Align, Allocation, Backend, Budget, Caps, Contents, CopyCaps, CopyRegion, DeviceInfo,
    ErrorKind, HeapId, HeapKind, InsideBlock, Limits, Manager, ManagerConfig, Pass, Point, Privacy,
    Request, TimelineId, Timelines, Transfer, Usage, Uses, Waiting,
};
use omniheap_extras::Staging;
use omniheap_host::heap;
use omniheap_model::Random;
use std::sync::Arc;

type Device = Arc<Adversary>;

const DEVICE: HeapId = HeapId(0);
const UNIFIED: HeapId = HeapId(2);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Change that a coin makes to a request.
type Word = fn(Request<'static>) -> Request<'static>;

/// Live allocations of a program, at most.
const MOST: usize = 40;
/// Bytes that go through the host, at most.
const SMALL: u64 = 16 * KIB;
/// Byte that secrets hold, and nothing else does.
const SECRET: u8 = 0xEE;

/// State that programs share.
pub(crate) struct Stage {
    device: Device,
    manager: Manager<Device>,
    staging: Staging<Device>,
    uses: Uses,
    lines: Vec<TimelineId>,
    /// The sizes of requests: each of these, or a part of it.
    sizes: Vec<u64>,
}

/// Part of some bytes that a use changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A live allocation, what it is full of, and whose work may not have passed.
struct Entry {
    one: Allocation<Device>,
    value: u8,
    writer: Option<TimelineId>,
    readers: Vec<TimelineId>,
    align: Align,
}

impl Entry {
    /// Bytes that the program has not written; they come in the order of the allocation's own timeline.
    fn new(one: Allocation<Device>, value: u8, align: Align) -> Self {
        let writer = one.timeline();
        Self { one, value, writer, readers: Vec::new(), align }
    }
}

pub(crate) struct Program<'a> {
    stage: &'a Stage,
    random: Random,
    /// The stage's timelines, then its own.
    lines: Vec<TimelineId>,
    live: Vec<Entry>,
    pass: Option<Pass<Device>>,
    next: u8,
    alone: bool,
    refused: u64,
}

fn caps(random: &mut Random) -> Caps {
    let inside_block = random.pick(&[InsideBlock::Allowed, InsideBlock::Forbidden]);
    let (name, driver) = ("adversary".into(), String::new());
    let device = heap(HeapKind::Device, random.pick(&[48, 96, 256]) * MIB);
    let [staging, unified] = [HeapKind::Staging, HeapKind::Unified].map(|kind| {
        let mut heap = heap(kind, 12 * MIB);
        (heap.page, heap.physical) = (None, 1);
        heap
    });
    let info = DeviceInfo { backend: "test", name, driver, uuid: None };
    Caps::new(info, vec![device, staging, unified])
        .max_blocks(4096)
        .copy(CopyCaps { align: Align::ONE, inside_block })
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let temper = random.pick(&[Temper::Late, Temper::Early, Temper::Moody, Temper::Moody]);
        let device = Arc::new(Adversary::new(caps(&mut random), temper, random.number()));
        let mut config = ManagerConfig::default();
        config.pool.paged = random.below(2) == 0;
        config.pool.lanes = random.pick(&[Some(1), Some(2), None]);
        config.pool.waiting = random.pick(&[Waiting::LastResort, Waiting::Thrift]);
        config.pool.uses = random.pick(&[Uses::Declared, Uses::Declared, Uses::Undeclared]);
        let uses = config.pool.uses;
        let manager = Manager::with_config(Arc::clone(&device), config);
        let staging = Staging::new(&manager, 4 * KIB).expect("there is staging memory");
        let opened = [(); 2].map(|()| device.open().expect("there is no limit"));
        let lines = core::iter::once(TimelineId::MAIN).chain(opened).collect();
        let sizes = vec![KIB, KIB, 64 * KIB, MIB, 4 * MIB, 20 * MIB];
        Self { device, manager, staging, uses, lines, sizes }
    }

    /// Many timelines that hand few bytes on: holes are of several of them, and most requests run after some.
    pub(crate) fn crowded(seed: u64) -> Self {
        let mut random = Random(seed);
        let temper = random.pick(&[Temper::Late, Temper::Moody]);
        let device = Arc::new(Adversary::new(caps(&mut random), temper, random.number()));
        let mut config = ManagerConfig::default();
        (config.pool.paged, config.pool.lanes) = (random.below(2) == 0, Some(1));
        let manager = Manager::with_config(Arc::clone(&device), config);
        let staging = Staging::new(&manager, 4 * KIB).expect("there is staging memory");
        let opened = [(); 6].map(|()| device.open().expect("there is no limit"));
        let lines = core::iter::once(TimelineId::MAIN).chain(opened).collect();
        let sizes = vec![MIB, 2 * MIB];
        Self { device, manager, staging, uses: Uses::Declared, lines, sizes }
    }

    /// Checks what must hold when nobody uses it any more.
    pub(crate) fn end(self) -> Result<(), String> {
        let Self { device, manager, staging, .. } = self;
        drop(staging);
        device.wait_idle().expect("it is never lost");
        manager.trim().expect("nothing is in use");
        manager.validate()?;
        match (device.fault(), manager.totals().live, manager.report().quarantined_bytes) {
            (Some(fault), ..) => Err(fault),
            (None, 0, 0) => Ok(()),
            (None, live, lost) => {
                Err(format!("{live} allocations are left, {lost} bytes quarantined"))
            }
        }
    }
}

impl<'a> Program<'a> {
    pub(crate) fn new(stage: &'a Stage, seed: u64, alone: bool) -> Self {
        let mut lines = stage.lines.clone();
        lines.extend([(); 2].map(|()| stage.device.open().expect("there is no limit")));
        let (random, live) = (Random(seed), Vec::new());
        Self { stage, random, lines, live, pass: None, next: 0, alone, refused: 0 }
    }

    /// Does so many random things; what the device found wrong, or the program.
    pub(crate) fn run(&mut self, operations: u64) -> Result<(), String> {
        for number in 0..operations {
            self.step().map_err(|why| format!("operation {number}: {why}"))?;
            if let Some(fault) = self.stage.device.fault() {
                return Err(format!("operation {number}: {fault}"));
            }
            if number % 64 == 0 {
                self.stage.manager.validate()?;
            }
        }
        self.pass = None;
        while !self.live.is_empty() {
            self.free()?;
        }
        let full = self.refused * 2 > operations;
        if full { Err("most requests were refused".into()) } else { Ok(()) }
    }

    fn step(&mut self) -> Result<(), String> {
        let (what, done) = match self.random.below(100) {
            0..34 if self.live.len() < MOST => ("allocate", self.allocate()),
            0..60 => ("free", self.free()),
            60..72 => ("use_elsewhere", self.use_elsewhere()),
            72..77 => ("copy", self.copy()),
            77..80 => ("resize", self.resize()),
            80..82 => ("read", self.read()),
            82..86 => ("go_through_host", self.go_through_host()),
            86..89 => ("go_through_staging", self.go_through_staging()),
            89..93 => ("move_together", self.move_together()),
            93 => ("move_at_once", self.move_at_once()),
            94..96 => ("tidy", self.tidy()),
            96 => ("change_timelines", self.change_timelines()),
            97 => ("wait", self.wait()),
            _ => ("limit", self.limit()),
        };
        done.map_err(|why| format!("{what}: {why}"))
    }

    fn line(&mut self) -> TimelineId {
        self.random.pick(&self.lines)
    }

    fn value(&mut self) -> u8 {
        self.next = self.next % 199 + 1;
        self.next
    }

    fn size(&mut self) -> u64 {
        let (size, fine) = (self.random.pick(&self.stage.sizes), 64);
        1 + size * self.random.below(fine) / fine
    }

    /// A point after everything that a timeline has to do now; none for one that was closed.
    fn mark(&self, timeline: TimelineId) -> Option<Point> {
        let epoch = self.stage.device.mark(timeline).ok()?;
        Some(Point { timeline, epoch })
    }

    /// Lets a timeline run after the program's own uses of an allocation.
    fn order(&self, on: TimelineId, entry: &Entry, access: Access) -> Result<(), String> {
        for point in self.uses(entry, access).filter(|point| point.timeline != on) {
            self.stage.device.order(on, point).map_err(said)?;
        }
        Ok(())
    }

    /// Waits for the program's own uses of an allocation.
    fn settle(&self, entry: &Entry, access: Access) -> Result<(), String> {
        self.uses(entry, access).try_for_each(|point| self.stage.device.wait(point)).map_err(said)
    }

    /// The points of uses that another use must come after.
    fn uses(&self, entry: &Entry, access: Access) -> impl Iterator<Item = Point> {
        let readers = entry.readers.iter().filter(move |_| access == Access::Write);
        readers.chain(&entry.writer).filter_map(|line| self.mark(*line))
    }

    /// Orders a use and declares it.
    fn prepare(&self, on: TimelineId, entry: &mut Entry, access: Access) -> Result<(), String> {
        if self.stage.uses == Uses::Declared || entry.one.timeline().is_none() {
            entry.one.use_on(on).map_err(said)?;
        }
        self.order_use(on, entry, access)
    }

    /// Orders a use that somebody else declares.
    fn order_use(&self, on: TimelineId, entry: &mut Entry, access: Access) -> Result<(), String> {
        self.order(on, entry, access)?;
        match access {
            Access::Read => entry.readers.push(on),
            Access::Write => (entry.writer, entry.readers) = (Some(on), Vec::new()),
        }
        Ok(())
    }

    /// Has a timeline look at an allocation, as a kernel would.
    fn look(&self, on: TimelineId, entry: &mut Entry, what: &'static str) -> Result<(), String> {
        self.prepare(on, entry, Access::Read)?;
        self.expect(on, entry, Wanted::All(entry.value), what)
    }

    fn expect(
        &self,
        on: TimelineId,
        entry: &Entry,
        wanted: Wanted,
        what: &'static str,
    ) -> Result<(), String> {
        let (binding, size) = (entry.one.binding(), entry.one.size());
        let place = binding.place(0, size).map_err(said)?;
        if !entry.align.divides(place.offset) {
            return Err(format!("{what}: {} is no multiple of {:?}", place.offset, entry.align));
        }
        self.stage.device.expect(on, place, size, wanted, what).map_err(said)
    }

    /// Has a timeline write an allocation, as a kernel would.
    fn put(&mut self, on: TimelineId, entry: &mut Entry) -> Result<(), String> {
        self.prepare(on, entry, Access::Write)?;
        entry.value = if entry.value == SECRET { SECRET } else { self.value() };
        let (binding, size) = (entry.one.binding(), entry.one.size());
        let place = binding.place(0, size).map_err(said)?;
        self.stage.device.fill(on, place, size, entry.value).map_err(said)
    }

    fn allocate(&mut self) -> Result<(), String> {
        let mut request = Request::new(self.size());
        if self.random.below(4) > 0 {
            request = request.on(self.line());
        }
        let words: [(u64, Word); 9] = [
            (12, Request::zeroed),
            (12, Request::secret),
            (24, Request::dedicated),
            (24, Request::pinned),
            (24, Request::moved_on_consent),
            (8, |request| request.align(Align::of(4096))),
            (24, |request| request.name("named")),
            (24, Request::no_grow),
            (24, |request| if request.layout.size <= MIB { request.may_spill() } else { request }),
        ];
        for (one_of, word) in words {
            if self.random.below(one_of) == 0 {
                request = word(request);
            }
        }
        let Some(one) = self.ask(&request)? else { return Ok(()) };
        let value = if request.privacy == Privacy::Secret { SECRET } else { 0 };
        let mut entry = Entry::new(one, value, request.layout.align);
        // Bytes that the host orders may be used on any timeline at once.
        let on = entry.writer.unwrap_or_else(|| self.line());
        let (wanted, what) = match request.contents {
            Contents::Zero => (Wanted::All(0), "zeroed memory"),
            Contents::Any => (Wanted::None(SECRET), "fresh memory"),
        };
        self.prepare(on, &mut entry, Access::Read)?;
        self.expect(on, &entry, wanted, what)?;
        self.put(on, &mut entry)?;
        self.live.push(entry);
        Ok(())
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Option<Allocation<Device>>, String> {
        match self.stage.manager.allocate(request) {
            Ok(one) => Ok(Some(one)),
            Err(error) if is_shortage(error.kind()) => {
                self.refused += 1;
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn take(&mut self) -> Option<Entry> {
        let count = self.live.len();
        (count > 0).then(|| self.live.swap_remove(self.random.index(count)))
    }

    /// Takes one that may go through the host.
    fn take_small(&mut self) -> Option<Entry> {
        let may = |entry: &Entry| entry.one.size() <= SMALL && entry.value != SECRET;
        let at = self.live.iter().position(may)?;
        Some(self.live.swap_remove(at))
    }

    fn free(&mut self) -> Result<(), String> {
        let Some(mut entry) = self.take() else { return Ok(()) };
        let (on, kind) = (self.line(), self.random.below(4));
        // A use that nobody declared, and a free after it: no pass may come between them.
        if kind == 0 && self.alone && self.stage.uses == Uses::Declared {
            self.order(on, &entry, Access::Read)?;
            self.expect(on, &entry, Wanted::All(entry.value), "the last use, undeclared")?;
            let point = self.mark(on).ok_or("it was closed")?;
            entry.one.free_after(point);
            return Ok(());
        }
        if kind == 1 {
            self.look(on, &mut entry, "the last use")?;
        }
        self.let_go(entry)
    }

    /// Frees an allocation. Uses that were not declared need not have passed, but its own timeline comes after them before
    /// it uses the bytes again: right after the free, or before it where other programs also allocate on that timeline.
    fn let_go(&mut self, entry: Entry) -> Result<(), String> {
        let home = entry.one.timeline();
        let undeclared = self.stage.uses == Uses::Undeclared && home.is_some();
        let uses: Vec<_> = self.uses(&entry, Access::Write).filter(|_| undeclared).collect();
        let home = home.filter(|home| self.mark(*home).is_some());
        if home.is_none() {
            uses.iter().try_for_each(|point| self.stage.device.wait(*point)).map_err(said)?;
        }
        let others = uses.iter().filter(|point| Some(point.timeline) != home);
        let mut orders = others.zip(home.into_iter().cycle());
        let device = &self.stage.device;
        let mut order = |(point, home): (&Point, TimelineId)| device.order(home, *point);
        if !self.alone && home.is_some_and(|home| self.stage.lines.contains(&home)) {
            orders.try_for_each(&mut order).map_err(said)?;
        }
        self.stage.manager.free(entry.one).map_err(|refused| refused.error.to_string())?;
        if undeclared && self.random.below(8) == 0 {
            self.stage.manager.trim().map_err(said)?;
        }
        orders.try_for_each(order).map_err(said)
    }

    /// Orders an allocation's own timeline after undeclared uses, before the manager uses the bytes.
    fn come_home(&self, entry: &Entry) -> Result<(), String> {
        match (self.stage.uses, entry.one.timeline()) {
            (Uses::Undeclared, Some(home)) if self.mark(home).is_some() => {
                self.order(home, entry, Access::Write)
            }
            (Uses::Undeclared, _) => self.settle(entry, Access::Write),
            (Uses::Declared, _) => Ok(()),
        }
    }

    fn use_elsewhere(&mut self) -> Result<(), String> {
        let Some(mut entry) = self.take() else { return Ok(()) };
        let on = self.line();
        self.look(on, &mut entry, "another use")?;
        if self.random.below(3) == 0 {
            self.put(on, &mut entry)?;
        }
        self.live.push(entry);
        Ok(())
    }

    fn copy(&mut self) -> Result<(), String> {
        let Some(a) = self.take() else { return Ok(()) };
        let Some(b) = self.take() else {
            self.live.push(a);
            return Ok(());
        };
        let (mut from, mut to) = if a.one.size() < b.one.size() { (b, a) } else { (a, b) };
        if from.value != SECRET && to.value != SECRET {
            let on = self.line();
            self.copy_on(on, &mut from, &mut to)?;
        }
        self.live.extend([from, to]);
        Ok(())
    }

    /// Copies one into another, if they are not in one block where the device forbids that; whether it did.
    fn copy_on(&self, on: TimelineId, from: &mut Entry, to: &mut Entry) -> Result<bool, String> {
        self.order_use(on, from, Access::Read)?;
        self.order_use(on, to, Access::Write)?;
        let (size, source, target) = (to.one.size(), &from.one, &to.one);
        let one = CopyRegion { from: source, from_offset: 0, to: target, to_offset: 0, size };
        match self.stage.manager.copy(on, &[one]).map_err(|error| error.kind()) {
            Ok(()) => to.value = from.value,
            Err(ErrorKind::Unsupported) => return Ok(false),
            Err(kind) => return Err(format!("{kind:?}")),
        }
        Ok(true)
    }

    fn resize(&mut self) -> Result<(), String> {
        let Some(entry) = self.take() else { return Ok(()) };
        self.be_read(&entry)?;
        self.come_home(&entry)?;
        let Entry { one, value, writer, readers, align } = entry;
        let (old, new) = (one.size(), self.size());
        let mut entry = match self.stage.manager.resize(one, new) {
            Ok(one) => Entry::new(one, value, align),
            Err(refused) if is_shortage(refused.error.kind()) => {
                self.live.push(Entry { one: refused.given, value, writer, readers, align });
                return Ok(());
            }
            Err(refused) => return Err(refused.error.to_string()),
        };
        let on = entry.one.timeline().unwrap_or_else(|| self.line());
        self.prepare(on, &mut entry, Access::Read)?;
        let (binding, kept) = (entry.one.binding(), old.min(new));
        let place = binding.place(0, kept).map_err(said)?;
        let wanted = Wanted::All(value);
        self.stage.device.expect(on, place, kept, wanted, "after a resize").map_err(said)?;
        drop(binding);
        self.put(on, &mut entry)?;
        self.live.push(entry);
        Ok(())
    }

    /// Makes the manager's own reads come after the program's writes.
    fn be_read(&self, entry: &Entry) -> Result<(), String> {
        match entry.one.timeline() {
            Some(home) if self.mark(home).is_some() => self.order(home, entry, Access::Read),
            _ => self.settle(entry, Access::Read),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let Some(entry) = self.take() else { return Ok(()) };
        self.be_read(&entry)?;
        let mut bytes =
            vec![!entry.value; usize::try_from(entry.one.size().min(SMALL)).expect("small")];
        entry.one.read(0, &mut bytes).map_err(said)?;
        let right = is_full_of(&bytes, entry.value);
        self.live.push(entry);
        if right { Ok(()) } else { Err("a read found bytes of somebody else".into()) }
    }

    /// Memory that the host writes or reads directly, for one copy.
    fn go_through_host(&mut self) -> Result<(), String> {
        let Some(mut entry) = self.take_small() else { return Ok(()) };
        let (on, size) = (self.line(), entry.one.size());
        let kind = self.random.below(3);
        let request = match kind {
            0 => Request::new(size).usage(Usage::Upload),
            1 => Request::new(size).usage(Usage::Readback),
            _ => Request::new(size).heap(UNIFIED),
        };
        if let Some(one) = self.ask(&request.on(on))? {
            let mut between = Entry::new(one, 0, Align::ONE);
            if kind == 1 {
                let copied = self.copy_on(on, &mut entry, &mut between)?;
                self.settle(&between, Access::Write)?;
                let mut bytes = vec![!entry.value; usize::try_from(size).expect("small")];
                between.one.map().and_then(|view| view.read(0, &mut bytes)).map_err(said)?;
                if copied && !is_full_of(&bytes, entry.value) {
                    return Err("read-back memory holds somebody else's bytes".into());
                }
            } else {
                between.value = self.value();
                let bytes = vec![between.value; usize::try_from(size).expect("small")];
                between.one.map().and_then(|view| view.write(0, &bytes)).map_err(said)?;
                self.copy_on(on, &mut between, &mut entry)?;
            }
            self.let_go(between)?;
        }
        self.live.push(entry);
        Ok(())
    }

    fn go_through_staging(&mut self) -> Result<(), String> {
        let Some(mut entry) = self.take_small() else { return Ok(()) };
        let (on, staging) = (self.line(), &self.stage.staging);
        let length = usize::try_from(entry.one.size()).expect("small");
        if self.random.below(2) == 0 {
            let value = self.value();
            self.order_use(on, &mut entry, Access::Write)?;
            staging.upload(on, &entry.one, 0, &vec![value; length]).map_err(said)?;
            entry.value = value;
        } else {
            let mut bytes = vec![!entry.value; length];
            self.order(on, &entry, Access::Read)?;
            staging.read_back(on, &entry.one, 0, &mut bytes).map_err(said)?;
            if !is_full_of(&bytes, entry.value) {
                return Err("staging read somebody else's bytes".into());
            }
        }
        self.live.push(entry);
        Ok(())
    }

    /// The next thing of a pass: other operations come between its steps.
    fn move_together(&mut self) -> Result<(), String> {
        let manager = &self.stage.manager;
        let Some(mut pass) = self.pass.take() else {
            let budget = Budget::new().moves(1 + self.random.below(32));
            let begun = match self.random.below(3) {
                0 => manager.begin_recall(&budget),
                _ => manager.begin_defragment(&budget),
            };
            self.pass = Some(begun.map_err(said)?);
            return Ok(());
        };
        match self.random.below(4) {
            0 => drop(pass),
            1 => {
                pass.start().map_err(said)?;
                self.pass = Some(pass);
            }
            _ => drop(pass.commit().map_err(said)?),
        }
        Ok(())
    }

    /// A whole pass on a device that has nothing else to do than some last uses.
    fn move_at_once(&mut self) -> Result<(), String> {
        self.pass = None;
        self.stage.device.wait_idle().map_err(said)?;
        self.stage.manager.retire().map_err(said)?;
        for _ in 0..self.random.below(4) {
            let Some(mut entry) = self.take() else { break };
            let home = entry.one.timeline().filter(|home| self.lines.contains(home));
            let on = home.filter(|_| self.random.below(2) == 0).unwrap_or_else(|| self.line());
            if self.random.below(2) == 0 {
                self.put(on, &mut entry)?;
                self.live.push(entry);
            } else {
                self.look(on, &mut entry, "the last use before a pass")?;
                self.let_go(entry)?;
            }
        }
        let pass = self.stage.manager.begin_defragment(&Budget::new()).map_err(said)?;
        pass.commit().map(drop).map_err(said)
    }

    fn tidy(&mut self) -> Result<(), String> {
        let manager = &self.stage.manager;
        match self.random.below(5) {
            0 => manager.trim().map(drop),
            1 => manager.retire().map(drop),
            2 => manager.step().map(drop),
            _ => manager.defragment().map(drop),
        }
        .map_err(said)
    }

    /// Closes one of its own timelines and opens another.
    fn change_timelines(&mut self) -> Result<(), String> {
        let own = self.stage.lines.len();
        let at = own + self.random.index(self.lines.len() - own);
        self.stage.device.close(self.lines[at]).map_err(said)?;
        self.lines[at] = self.stage.device.open().map_err(said)?;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), String> {
        let line = self.line();
        match self.mark(line) {
            Some(point) if self.random.below(8) > 0 => self.stage.device.wait(point),
            _ => self.stage.device.wait_idle(),
        }
        .map_err(said)
    }

    fn limit(&mut self) -> Result<(), String> {
        let hard = self.random.pick(&[u64::MAX, u64::MAX, 64 * MIB]);
        self.stage.manager.set_budget(DEVICE, Limits { soft: hard / 2, hard }).map_err(said)
    }
}

/// Returns true if a request was refused because there is no such memory now, or never in the heap or the pool that
/// must serve it.
fn is_shortage(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() || kind == ErrorKind::ExceedsLimit
}

fn said(error: omniheap_core::Error) -> String {
    error.to_string()
}

fn is_full_of(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|byte| *byte == value)
}
