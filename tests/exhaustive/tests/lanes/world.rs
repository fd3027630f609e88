//! A manager over the strict device, with the books of a program that keeps the rules.
use super::beside::beside;
use super::device::{Area, CELL, Call, Device, Lasting, PAGE, SECRET, Twist, When, caps};
use super::store::Store;
use omniheap_core::{
    Align, AllocateError, Allocation, Budget, Decision, Epoch, ErrorKind, HeapId, InsideBlock,
    Manager, ManagerConfig, Pass, Point, PoolConfig, Remapping, Request, Sleep, Span, SpanState,
    TimelineId, UserPool, Wake,
};
use omniheap_exhaustive::{Key, World};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Allocations that live at the same time.
const SLOTS: usize = 4;
/// The slot of what another thread asks for in the middle of an operation.
const ASKED: usize = SLOTS - 1;

/// Kind of a request, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Plain,
    Secret,
    Dedicated,
    SecretDedicated,
    /// Moves only where its owner copies it.
    Consent,
}

impl Kind {
    const fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::SecretDedicated)
    }

    const fn is_dedicated(self) -> bool {
        matches!(self, Self::Dedicated | Self::SecretDedicated)
    }
}

/// One operation. Slots and timelines are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Allocate {
        cells: u8,
        on: Option<u8>,
        kind: Kind,
    },
    Free {
        slot: u8,
    },
    /// A request of another thread.
    AllocateBeside {
        cells: u8,
        on: Option<u8>,
    },
    /// Frees and asks for the same again, for this timeline, with nothing between.
    Swap {
        slot: u8,
        on: Option<u8>,
    },
    /// An undeclared use on a timeline, and a free after it.
    FreeAfter {
        slot: u8,
        on: u8,
    },
    /// A free after work that is still to come, which comes when something of the same size was asked for on another timeline.
    FreeAhead {
        slot: u8,
        on: u8,
    },
    Use {
        slot: u8,
        on: u8,
    },
    Publish {
        slot: u8,
    },
    Run {
        on: u8,
    },
    Close {
        on: u8,
    },
    Retire,
    Trim,
    Defragment,
    Begin,
    Recall,
    Start,
    Commit,
    Abort,
    Sleep,
    Wake,
    /// Gives the addresses of a pool of pages back.
    GiveUp,
    /// Destroys the pool and makes it again.
    Destroy,
}

/// Reason why a driver refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Why {
    Memory,
    Driver,
    Busy,
}

impl Why {
    const fn kind(self) -> ErrorKind {
        match self {
            Self::Memory => ErrorKind::OutOfDeviceMemory,
            Self::Driver => ErrorKind::Driver,
            Self::Busy => ErrorKind::Busy,
        }
    }
}

/// Fault in a step, or act of another thread meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Bend {
    Refuse {
        call: Call,
        nth: u8,
        why: Why,
        lasting: Lasting,
    },
    /// Another thread does something just before a call or just after it.
    Meanwhile {
        when: When,
        call: u8,
        other: Other,
    },
}

/// What another thread does in the middle of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Other {
    Run {
        on: u8,
    },
    Close {
        on: u8,
    },
    Free {
        slot: u8,
    },
    /// Uses an allocation once more, and frees it.
    Spend {
        slot: u8,
    },
    /// Frees an allocation, and trims.
    Clear {
        slot: u8,
    },
    Trim,
    Defragment,
    Wake,
    GiveUp,
    /// Asks for memory, which it gets where a hole serves at once.
    Ask {
        cells: u8,
        on: u8,
    },
}

/// A step of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) bend: Option<Bend>,
}

impl From<Op> for Step {
    fn from(op: Op) -> Self {
        Self { op, bend: None }
    }
}

/// A family of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Use,
    Swap,
    FreeAfter,
    FreeAhead,
    Publish,
    Close,
    Retire,
    Trim,
    Defragment,
    Pass,
    Recall,
    Sleep,
    GiveUp,
    Destroy,
    /// Requests of another thread.
    Beside,
    /// Requests of another thread in the middle of an operation.
    Ask,
}

/// Faults that may occur, once in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayBend {
    Nothing,
    Refusals,
    Threads,
}

/// One world.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// Bytes of a cell.
    pub(crate) cell: u64,
    /// Bytes of each heap, and of its largest block.
    pub(crate) heaps: &'static [(u64, u64)],
    pub(crate) pages: bool,
    /// The way in which the device copies inside a block, if it does.
    pub(crate) inside: InsideBlock,
    pub(crate) pool: PoolConfig,
    /// True if requests go to a pool that the program made; false if they go to the manager.
    pub(crate) own_pool: bool,
    pub(crate) slots: usize,
    /// Timelines, the main one among them.
    pub(crate) lines: u8,
    pub(crate) sizes: &'static [u8],
    pub(crate) homes: &'static [Option<u8>],
    pub(crate) kinds: &'static [Kind],
    pub(crate) may: &'static [May],
    pub(crate) bends: MayBend,
}

/// A live allocation in the program's books.
struct Entry {
    one: Allocation<Device>,
    cells: u8,
    home: Option<u8>,
    kind: Kind,
    value: u8,
    published: bool,
    /// Whether it was there when the last step began.
    is_older: bool,
    /// By timeline: the end of its last use there.
    ends: BTreeMap<u8, Point>,
    place: Area,
}

/// The manager with the program's books.
pub(crate) struct State {
    entries: [Option<Entry>; SLOTS],
    pass: Option<Pass<Device>>,
    /// Moves whose owner copies: their positions in the pass.
    owners: Vec<usize>,
    started: bool,
    pool: Option<Arc<UserPool<Device>>>,
    manager: Manager<Device>,
    device: Device,
    store: Arc<Store>,
    asleep: bool,
    bent: bool,
    /// True if places may be other than noted, because something moved while a pass was open.
    stale: bool,
    /// By cell: the last timeline of who freed it, and the end of its work then.
    freed: BTreeMap<(u32, u32), Option<Point>>,
    /// What another thread got in the middle of the step.
    asked: Arc<Mutex<Option<Entry>>>,
}

/// Returns which of two lanes the calling thread has.
fn lane_of_thread() -> u32 {
    // Both lanes of a pool exist once two threads have asked, so a thread's own says its number's last bit.
    static BOTH: LazyLock<(Manager<Device>, UserPool<Device>)> = LazyLock::new(|| {
        let manager = Manager::new(Device::new(caps(&[(1 << 20, 1 << 10)], CELL, false)));
        let pool = manager.create_pool(HeapId(0), PoolConfig::new().lanes(2));
        (manager, pool.expect("it fits"))
    });
    let one = BOTH.1.allocate(&Request::new(CELL).no_grow());
    one.or_else(|_| BOTH.1.allocate(&Request::new(CELL).dedicated())).expect("it fits").id().lane()
}

const fn line(on: u8) -> TimelineId {
    TimelineId(on as u32)
}

fn said(error: impl core::fmt::Debug) -> String {
    format!("{error:?}")
}

impl World for Setting {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let mut caps = caps(self.heaps, self.cell, self.pages);
        caps.copy.inside_block = self.inside;
        let device = Device::new(caps);
        use omniheap_core::Timelines;
        for _ in 1..self.lines {
            device.open().expect("a further timeline");
        }
        let mut config = ManagerConfig::default();
        config.unit = Align::of(self.cell);
        config.pool = self.pool;
        config.remapping = Remapping::Always;
        let manager = Manager::with_config(device.clone(), config);
        let pool = self
            .own_pool
            .then(|| Arc::new(manager.create_pool(HeapId(0), self.pool).expect("it fits")));
        State {
            entries: [const { None }; SLOTS],
            pass: None,
            owners: Vec::new(),
            started: false,
            pool,
            manager,
            device,
            store: Arc::default(),
            asleep: false,
            bent: false,
            stale: false,
            freed: BTreeMap::new(),
            asked: Arc::default(),
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        self.ops(state).into_iter().map(Step::from).collect()
    }

    fn also(&self, state: &State, taken: &Step) -> Vec<Step> {
        if state.bent || taken.bend.is_some() {
            return Vec::new();
        }
        let bends = match self.bends {
            MayBend::Nothing => Vec::new(),
            MayBend::Refusals => refusals(&state.device.calls()),
            MayBend::Threads => self.threads(state, taken.op),
        };
        bends.into_iter().map(|bend| Step { op: taken.op, bend: Some(bend) }).collect()
    }

    fn take(&self, state: &mut State, step: &Step) -> Result<(), String> {
        state.go(self, step)?;
        state.check_wake(step)?;
        state.check(self)?;
        Ok(state.manager.validate()?)
    }

    fn retake(&self, state: &mut State, step: &Step) -> Result<(), String> {
        state.go(self, step)?;
        let _ = state.manager.totals(); // Takes every lane's lock, as the checks do.
        Ok(())
    }

    fn key(&self, state: &State) -> u128 {
        state.key()
    }

    fn end(&self, state: State) -> Result<(), String> {
        state.end(self)
    }

    fn test(&self, path: &[Step]) -> String {
        let steps: Vec<_> = path.iter().map(|step| format!("            {step:?},\n")).collect();
        let (name, steps) = (self.name, steps.concat());
        format!(
            "#[test]\nfn a_path_of_{name}() {{\n    follow(\n        &crate::{name}(),\n        &[\n{steps}        ],\n    );\n}}"
        )
    }
}

impl Setting {
    fn may(&self, what: May) -> bool {
        self.may.contains(&what)
    }

    /// Bytes that the pool may keep when nothing lives.
    fn kept(&self) -> u64 {
        let piece = if self.pages { self.cell * PAGE } else { self.pool.block.unwrap_or(1) };
        self.pool.minimum.next_multiple_of(piece)
    }

    /// The operations that may be taken now.
    fn ops(&self, state: &State) -> Vec<Op> {
        let mut ops = Vec::new();
        let open = |on: &Option<u8>| on.is_none_or(|on| state.device.is_open(line(on)));
        let homes = || self.homes.iter().copied().filter(open);
        if state.entries[..self.slots].iter().any(Option::is_none) {
            for cells in self.sizes {
                for on in homes() {
                    if self.may(May::Beside) {
                        ops.push(Op::AllocateBeside { cells: *cells, on });
                    }
                    for kind in self.kinds {
                        ops.push(Op::Allocate { cells: *cells, on, kind: *kind });
                    }
                }
            }
        }
        for (slot, entry) in (0u8..).zip(&state.entries) {
            if let Some(entry) = entry {
                self.ops_of(state, slot, entry, &mut ops);
            }
        }
        ops.extend(
            state
                .device
                .ready()
                .into_iter()
                .map(|id| Op::Run { on: u8::try_from(id.0).expect("few timelines") }),
        );
        self.ops_of_manager(state, &mut ops);
        ops
    }

    fn ops_of(&self, state: &State, slot: u8, entry: &Entry, ops: &mut Vec<Op>) {
        ops.push(Op::Free { slot });
        let lines = || (0..self.lines).filter(|on| state.device.is_open(line(*on)));
        if self.may(May::Swap) && entry.kind == Kind::Plain {
            ops.extend(
                self.homes
                    .iter()
                    .filter(|on| on.is_none_or(|on| state.device.is_open(line(on))))
                    .map(|on| Op::Swap { slot, on: *on }),
            );
        }
        if state.asleep {
            return;
        }
        if self.may(May::Use) {
            ops.extend(lines().map(|on| Op::Use { slot, on }));
        }
        if self.may(May::FreeAfter) {
            ops.extend(
                lines().filter(|on| Some(*on) != entry.home).map(|on| Op::FreeAfter { slot, on }),
            );
        }
        if self.may(May::FreeAhead) && entry.home.is_some_and(|on| state.device.is_open(line(on))) {
            let others = lines().filter(|on| Some(*on) != entry.home);
            ops.extend(others.map(|on| Op::FreeAhead { slot, on }));
        }
        if self.may(May::Publish) && !entry.published {
            ops.push(Op::Publish { slot });
        }
    }

    fn ops_of_manager(&self, state: &State, ops: &mut Vec<Op>) {
        let single = [
            (May::Retire, Op::Retire, true),
            (May::Trim, Op::Trim, true),
            (May::Defragment, Op::Defragment, true),
            (May::Pass, Op::Begin, state.pass.is_none()),
            (May::Recall, Op::Recall, state.pass.is_none()),
            (May::Pass, Op::Start, state.pass.is_some() && !state.started),
            (May::Pass, Op::Commit, state.pass.is_some()),
            (May::Pass, Op::Abort, state.pass.is_some()),
            (
                May::Recall,
                Op::Start,
                state.pass.is_some() && !state.started && !self.may(May::Pass),
            ),
            (May::Recall, Op::Commit, state.pass.is_some() && !self.may(May::Pass)),
            (May::Recall, Op::Abort, state.pass.is_some() && !self.may(May::Pass)),
            (May::Sleep, Op::Sleep, !state.asleep),
            (May::Sleep, Op::Wake, state.asleep),
            (May::GiveUp, Op::GiveUp, state.pool.is_some()),
            (May::Close, Op::Close { on: 1 }, state.device.is_open(line(1))),
            (
                May::Destroy,
                Op::Destroy,
                state.pass.is_none() && !state.asleep && state.pool.is_some(),
            ),
        ];
        ops.extend(
            single.iter().filter(|(may, _, now)| *now && self.may(*may)).map(|(_, op, _)| *op),
        );
    }

    /// What another thread may do at each call that an operation has just made.
    fn threads(&self, state: &State, op: Op) -> Vec<Bend> {
        if matches!(op, Op::Run { .. } | Op::Close { .. } | Op::Use { .. }) {
            return Vec::new();
        }
        let free = self.acts(state, op);
        let trims = self.may(May::Trim);
        let calls = state.device.calls();
        let slides = calls.iter().position(|(call, _)| *call == Call::WaitIdle);
        let mut bends = Vec::new();
        for (call, (which, ready)) in (0u8..).zip(calls) {
            let run =
                ready.iter().filter_map(|id| u8::try_from(id.0).ok()).map(|on| Other::Run { on });
            let before = run.chain(free.iter().copied());
            bends.extend(before.map(|other| Bend::Meanwhile { when: When::Before, call, other }));
            // What comes just after a lock was taken comes before the next.
            let whens: &[_] =
                if which == Call::Lock { &[When::Before] } else { &[When::Before, When::After] };
            for when in whens.iter().copied() {
                let at = usize::from(call) + usize::from(when == When::After);
                let others = state.freed_by_others(op, slides.is_some_and(|first| at >= first));
                let clear = |other| match other {
                    Other::Free { slot } if trims => Some(Other::Clear { slot }),
                    _ => None,
                };
                let others = others.flat_map(|other| [other].into_iter().chain(clear(other)));
                bends.extend(others.map(|other| Bend::Meanwhile { when, call, other }));
            }
        }
        bends
    }

    /// What another thread may do in the middle of an operation, but for running work and freeing.
    fn acts(&self, state: &State, op: Op) -> Vec<Other> {
        // A timeline that is named in a call must not be closed during it.
        let named = match op {
            Op::Allocate { on, .. } | Op::AllocateBeside { on, .. } | Op::Swap { on, .. } => on,
            Op::FreeAfter { on, .. } => Some(on),
            _ => None,
        };
        let closes = named != Some(1) && state.device.is_open(line(1));
        let moves = self.may(May::Defragment) && state.pass.is_none() && op != Op::Defragment;
        let wakes = state.asleep && !matches!(op, Op::Sleep | Op::Wake);
        let vacates = self.may(May::GiveUp) && op != Op::Destroy;
        let all = [
            closes.then_some(Other::Close { on: 1 }),
            self.may(May::Trim).then_some(Other::Trim),
            moves.then_some(Other::Defragment),
            wakes.then_some(Other::Wake),
            vacates.then_some(Other::GiveUp),
        ];
        all.into_iter().flatten().chain(self.asks(state, op)).collect()
    }

    /// What another thread may ask for in the middle of an operation.
    fn asks(&self, state: &State, op: Op) -> Vec<Other> {
        let is_free = self.slots <= ASKED && state.entries[ASKED].is_none();
        // The program has its pool for itself when it destroys it.
        if !self.may(May::Ask) || !is_free || !self.own_pool || op == Op::Destroy {
            return Vec::new();
        }
        let homes = self.homes.iter().flatten().filter(|on| state.device.is_open(line(**on)));
        let ask = |on: &u8| {
            self.sizes.iter().map(|cells| Other::Ask { cells: *cells, on: *on }).collect::<Vec<_>>()
        };
        homes.flat_map(ask).collect()
    }
}

/// Every refusal that the calls of an operation may meet.
fn refusals(calls: &[(Call, Vec<TimelineId>)]) -> Vec<Bend> {
    let mut bends = Vec::new();
    for (at, (call, _)) in calls.iter().enumerate() {
        let before = calls[..at].iter().filter(|(known, _)| known == call).count();
        let nth = u8::try_from(before).expect("few calls");
        let whys: &[Why] = match call {
            Call::Allocate | Call::Create | Call::Reserve | Call::Map => {
                &[Why::Memory, Why::Driver]
            }
            Call::WaitIdle | Call::Wait => &[Why::Driver, Why::Busy],
            _ => &[Why::Driver],
        };
        for why in whys {
            for lasting in [Lasting::Once, Lasting::ForTheStep, Lasting::Deaf] {
                bends.push(Bend::Refuse { call: *call, nth, why: *why, lasting });
            }
        }
    }
    bends
}

/// Asks for memory that a hole serves at once, and has its first user write it.
fn ask(device: &Device, pool: &UserPool<Device>, cells: u8, on: u8) -> Option<Entry> {
    let mut request = Request::new(u64::from(cells) * device.cell());
    request.timeline = Some(line(on));
    let place = |block: &_, Span { offset, size }| device.area(block, offset, size);
    let (one, place) = pool.allocate_at_once(&request, place)?;
    let value = u8::try_from(2 + 2 * ASKED).expect("few slots");
    device.kernel(line(on), place, None, value);
    let ends = device.tail(line(on)).map(|end| (on, end)).into_iter().collect();
    let (home, kind) = (Some(on), Kind::Plain);
    Some(Entry { one, cells, home, kind, value, published: false, is_older: false, ends, place })
}

/// Uses an allocation once more on a timeline, where it is now, and frees it.
fn spend(device: &Device, one: Allocation<Device>, on: u8, value: u8) {
    let binding = one.binding();
    let Span { offset, size } = binding.span();
    if binding.place(0, size).is_ok() && device.is_open(line(on)) {
        device.kernel(line(on), device.area(binding.block(), offset, size), Some(value), value);
    }
    drop(binding);
}

impl State {
    fn entry(&self, slot: u8) -> &Entry {
        self.entries[slot as usize].as_ref().expect("the step was offered for a live one")
    }

    fn entry_mut(&mut self, slot: u8) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("the step was offered for a live one")
    }

    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// Whether memory was lost in refused calls.
    fn has_lost(&self) -> bool {
        self.manager.summary().quarantined_bytes > 0
    }

    /// Takes a step, without the checks of what must hold between steps.
    fn go(&mut self, world: &Setting, step: &Step) -> Result<(), String> {
        self.entries.iter_mut().flatten().for_each(|entry| entry.is_older = true);
        let twist = step.bend.map(|bend| self.twist(bend));
        self.bent |= twist.is_some();
        self.device.arm(twist);
        if world.bends == MayBend::Threads {
            self.device.watch_locks();
        }
        let done = self.run(world, step.op);
        let fired = self.device.disarm();
        if let Some(entry) = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let Area { block, first, count } = entry.place;
            self.freed
                .retain(|(at, cell), _| *at != block || !(first..first + count).contains(cell));
            self.entries[ASKED] = Some(entry);
        }
        if let Some(pool) = self.pool.as_ref().filter(|_| self.asleep) {
            self.asleep = pool.residence().asleep;
        }
        // Who frees, runs or asks beside a call is no reason for it to fail; but what is freed may keep a pool awake for a moment.
        let may_fail = match step.bend {
            Some(Bend::Meanwhile { other: Other::Close { .. }, .. } | Bend::Refuse { .. }) => true,
            Some(Bend::Meanwhile { .. }) => step.op == Op::Sleep,
            None => false,
        };
        if let Err(error) = done
            && !(fired && may_fail)
        {
            return Err(error);
        }
        if self.pass.is_some() {
            return Ok(());
        }
        self.note_places();
        match self.live().find(|entry| entry.one.binding().place(0, 1).is_err()) {
            Some(entry) if !self.asleep => Err(format!("{:?} is away", entry.place)),
            _ => Ok(()),
        }
    }

    fn twist(&mut self, bend: Bend) -> Twist {
        let device = self.device.clone();
        match bend {
            Bend::Refuse { call, nth, why, lasting } => {
                Twist::Refuse(call, nth, why.kind(), lasting)
            }
            Bend::Meanwhile { when, call, other } => {
                Twist::Meanwhile(when, call, self.meanwhile(device, other))
            }
        }
    }

    /// What another thread does.
    fn meanwhile(&mut self, device: Device, other: Other) -> Box<dyn FnOnce() + Send> {
        match other {
            Other::Run { on } => Box::new(move || device.run_one(line(on))),
            Other::Close { on } => Box::new(move || device.close_line(line(on))),
            Other::Free { slot } | Other::Spend { slot } | Other::Clear { slot } => {
                self.freeing(device, other, slot)
            }
            Other::Trim => {
                let manager = self.manager.clone();
                Box::new(move || {
                    let _ = manager.trim();
                })
            }
            Other::Defragment => {
                let manager = self.manager.clone();
                Box::new(move || {
                    let _ = manager.defragment();
                })
            }
            Other::Wake => {
                let pool = self.own();
                Box::new(move || {
                    let _ = pool.wake(&Wake::all());
                })
            }
            Other::GiveUp => {
                let pool = self.own();
                Box::new(move || pool.give_up_addresses())
            }
            Other::Ask { cells, on } => {
                let pool = self.own();
                let asked = Arc::clone(&self.asked);
                Box::new(move || {
                    let entry = ask(&device, &pool, cells, on);
                    *asked.lock().unwrap_or_else(PoisonError::into_inner) = entry;
                })
            }
        }
    }

    /// What another thread does that frees an allocation.
    fn freeing(&mut self, device: Device, other: Other, slot: u8) -> Box<dyn FnOnce() + Send> {
        let Entry { home, value, ends, .. } = self.entry(slot);
        let (home, value, mut others) = (*home, *value, ends.clone());
        let one = self.let_go(slot);
        match other {
            Other::Spend { .. } => {
                let on = home.expect("it is offered with a timeline");
                others.remove(&on);
                Box::new(move || {
                    others.into_values().for_each(|end| device.come_after(line(on), end));
                    spend(&device, one, on, value);
                })
            }
            Other::Clear { .. } => {
                let manager = self.manager.clone();
                Box::new(move || {
                    drop(one);
                    let _ = manager.trim();
                })
            }
            _ => Box::new(move || drop(one)),
        }
    }

    /// The pool that the program made.
    fn own(&self) -> Arc<UserPool<Device>> {
        Arc::clone(self.pool.as_ref().expect("a pool of the program's"))
    }

    /// The frees of other threads that may come in the middle of an operation; allocations may be sliding meanwhile, whose places
    /// are then not shown.
    fn freed_by_others(&self, op: Op, slides: bool) -> impl Iterator<Item = Other> {
        let own = match op {
            Op::Free { slot }
            | Op::Swap { slot, .. }
            | Op::FreeAfter { slot, .. }
            | Op::FreeAhead { slot, .. }
            | Op::Publish { slot } => Some(slot),
            _ => None,
        };
        let sleeps = matches!(op, Op::Sleep | Op::Wake);
        (0u8..).zip(&self.entries).filter(move |(slot, _)| Some(*slot) != own).flat_map(
            move |(slot, entry)| {
                let entry = entry.as_ref().filter(|entry| entry.is_older);
                let spent = entry.filter(|entry| {
                    let is_open = entry.home.is_some_and(|on| self.device.is_open(line(on)));
                    is_open && !sleeps && !entry.published && (entry.kind.is_secret() || !slides)
                });
                let spent = spent.map(|_| Other::Spend { slot });
                entry.map(|_| Other::Free { slot }).into_iter().chain(spent)
            },
        )
    }

    /// Takes an entry out of the books.
    fn let_go(&mut self, slot: u8) -> Allocation<Device> {
        let entry =
            self.entries[slot as usize].take().expect("the step was offered for a live one");
        let end = entry.home.and_then(|home| self.device.tail(line(home)));
        let Area { block, first, count } = entry.place;
        self.freed.extend((first..first + count).map(|at| ((block, at), end)));
        entry.one
    }

    fn note_places(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            let binding = entry.one.binding();
            entry.place =
                self.device.area(binding.block(), binding.span().offset, binding.span().size);
        }
        self.stale = false;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn run(&mut self, world: &Setting, op: Op) -> Result<(), String> {
        match op {
            Op::Allocate { cells, on, kind } => self.allocate(world, cells, on, kind),
            Op::AllocateBeside { cells, on } => self.allocate_beside(world, cells, on),
            Op::Free { slot } => {
                drop(self.let_go(slot));
                Ok(())
            }
            Op::Swap { slot, on } => {
                let cells = self.entry(slot).cells;
                drop(self.let_go(slot));
                self.allocate(world, cells, on, Kind::Plain)
            }
            Op::FreeAfter { slot, on } => {
                self.touch(slot, on);
                let point = self.device.tail(line(on)).expect("it is open");
                self.let_go(slot).free_after(point);
                Ok(())
            }
            Op::FreeAhead { slot, on } => self.free_ahead(world, slot, on),
            Op::Use { slot, on } => {
                self.entry(slot).one.use_on(line(on)).map_err(said)?;
                self.touch(slot, on);
                Ok(())
            }
            Op::Publish { slot } => {
                self.entry(slot).one.publish().map_err(said)?;
                let entry = self.entry_mut(slot);
                entry.published = true;
                // From now on every timeline may read what its own has written.
                entry.ends.remove(&entry.home.unwrap_or(0));
                Ok(())
            }
            Op::Run { on } => {
                self.device.run_one(line(on));
                Ok(())
            }
            Op::Close { on } => {
                self.device.close_line(line(on));
                Ok(())
            }
            Op::Retire => self.manager.retire().map(drop).map_err(said),
            Op::Trim => self.trim(world),
            Op::Defragment => {
                self.stale |= self.pass.is_some();
                self.manager.defragment().map(drop).map_err(said)
            }
            Op::Begin | Op::Recall | Op::Start | Op::Commit | Op::Abort => self.move_together(op),
            Op::Sleep | Op::Wake => self.sleep(op),
            Op::GiveUp => {
                self.own().give_up_addresses();
                Ok(())
            }
            Op::Destroy => self.destroy(world),
        }
    }

    fn free_ahead(&mut self, world: &Setting, slot: u8, on: u8) -> Result<(), String> {
        let Entry { cells, home, value, place, .. } = *self.entry(slot);
        for end in self.entry(slot).ends.values().filter(|end| end.timeline != line(on)) {
            self.device.come_after(line(on), *end);
        }
        let now = self.device.tail(line(on)).expect("it is open");
        self.let_go(slot).free_after(Point { epoch: Epoch(now.epoch.0 + 1), ..now });
        let made = self.allocate(world, cells, home, Kind::Plain);
        self.device.kernel(line(on), place, Some(value), value);
        made
    }

    fn allocate(
        &mut self,
        world: &Setting,
        cells: u8,
        on: Option<u8>,
        kind: Kind,
    ) -> Result<(), String> {
        let mut request = Request::new(u64::from(cells) * world.cell);
        request.timeline = on.map(line);
        request = match kind {
            Kind::Plain => request,
            Kind::Secret => request.secret(),
            Kind::Dedicated => request.dedicated(),
            Kind::SecretDedicated => request.secret().dedicated(),
            Kind::Consent => request.moved_on_consent(),
        };
        let made = match &self.pool {
            Some(pool) => pool.allocate(&request),
            None => self.manager.allocate(&request),
        };
        self.take_in(world, made, cells, on, kind)
    }

    /// Has another thread ask, which has another lane.
    fn allocate_beside(
        &mut self,
        world: &Setting,
        cells: u8,
        on: Option<u8>,
    ) -> Result<(), String> {
        let pool = self.own();
        let bytes = u64::from(cells) * world.cell;
        let made = beside(lane_of_thread, move || {
            let mut request = Request::new(bytes);
            request.timeline = on.map(line);
            pool.allocate(&request)
        });
        self.take_in(world, made, cells, on, Kind::Plain)
    }

    /// Takes the answer to a request into the books.
    fn take_in(
        &mut self,
        world: &Setting,
        made: Result<Allocation<Device>, AllocateError>,
        cells: u8,
        on: Option<u8>,
        kind: Kind,
    ) -> Result<(), String> {
        match made {
            Ok(one) => self.admit(one, cells, on, kind),
            Err(error) if error.kind() == ErrorKind::Asleep && self.asleep => Ok(()),
            Err(error)
                if error.kind().is_out_of_memory() || error.kind() == ErrorKind::ExceedsLimit =>
            {
                match self.would_fit(world, cells, kind) {
                    Some(why) if !self.bent => Err(format!("{error:?}, though {why}")),
                    _ => Ok(()),
                }
            }
            Err(error) => Err(said(error)),
        }
    }

    /// Takes a new allocation into the books, and has its first user write it.
    fn admit(
        &mut self,
        one: Allocation<Device>,
        cells: u8,
        on: Option<u8>,
        kind: Kind,
    ) -> Result<(), String> {
        let slot = self.entries.iter().position(Option::is_none).expect("the step was offered");
        let binding = one.binding();
        let place = self.device.area(binding.block(), binding.span().offset, binding.span().size);
        drop(binding);
        if let Some(why) = self.device.conflict(on.map(line), place) {
            return Err(format!(
                "the bytes {place:?} that were handed out on {on:?}: their use {why}"
            ));
        }
        let value = u8::try_from(2 + 2 * slot).expect("few slots")
            | if kind.is_secret() { SECRET } else { 0 };
        match on {
            Some(on) => self.device.kernel(line(on), place, None, value),
            None => one.fill(0, u64::from(cells) * self.device.cell(), value).map_err(said)?,
        }
        let writer = on.unwrap_or(0);
        let ends = self.device.tail(line(writer)).map(|end| (writer, end)).into_iter().collect();
        for at in place.first..place.first + place.count {
            self.freed.remove(&(place.block, at));
        }
        let published = false;
        self.entries[slot] = Some(Entry {
            one,
            cells,
            home: on,
            kind,
            value,
            published,
            is_older: false,
            ends,
            place,
        });
        Ok(())
    }

    /// Uses an allocation on a timeline, behind its other uses.
    fn touch(&mut self, slot: u8, on: u8) {
        let device = self.device.clone();
        let entry = self.entry_mut(slot);
        let binding = entry.one.binding();
        let place = device.area(binding.block(), binding.span().offset, binding.span().size);
        for (other, end) in &entry.ends {
            if *other != on {
                device.come_after(line(on), *end);
            }
        }
        let new = if entry.published { entry.value } else { entry.value ^ 1 };
        device.kernel(line(on), place, Some(entry.value), new);
        drop(binding);
        entry.value = new;
        entry.ends.extend(device.tail(line(on)).map(|end| (on, end)));
    }

    fn trim(&self, world: &Setting) -> Result<(), String> {
        let before = self.device.held().0;
        self.manager.trim().map_err(said)?;
        let after = self.device.held().0;
        if !self.asleep && after < before.min(world.pool.minimum) {
            return Err(format!("a trim left {after} bytes of {before}, below the minimum"));
        }
        Ok(())
    }

    fn move_together(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Begin | Op::Recall => {
                let begun = match op {
                    Op::Begin => self.manager.begin_defragment(&Budget::new()),
                    _ => self.manager.begin_recall(&Budget::new()),
                };
                let mut pass = begun.map_err(said)?;
                let needs: Vec<_> = pass.moves().map(|one| one.needs_consent()).collect();
                self.owners = (0..needs.len()).filter(|at| needs[*at]).collect();
                for at in &self.owners {
                    pass.decide(*at, Decision::OwnerCopies).map_err(said)?;
                }
                self.started = false;
                self.pass = (!pass.is_empty()).then_some(pass);
                Ok(())
            }
            Op::Start => {
                self.started = true;
                let started = self.pass.as_mut().expect("offered").start();
                // As its documentation says: a pass that could not start is dropped.
                self.pass.take_if(|_| started.is_err());
                started.map_err(said)
            }
            Op::Abort => {
                self.pass = None;
                Ok(())
            }
            _ => {
                self.copy_as_owner();
                self.pass.take().expect("offered").commit().map(drop).map_err(said)
            }
        }
    }

    /// The owners copy what moves on their consent, and wait for it.
    fn copy_as_owner(&self) {
        let pass = self.pass.as_ref().expect("offered");
        for (at, planned) in pass.moves().enumerate() {
            let Some(entry) = self.live().find(|entry| entry.one.id() == planned.allocation())
            else {
                continue;
            };
            if !self.owners.contains(&at) {
                continue;
            }
            let [from, to] = [planned.from(), planned.to()]
                .map(|it| self.device.area(it.block, it.span.offset, it.span.size));
            entry.ends.values().for_each(|end| self.device.come_after(line(0), *end));
            self.device.copy_now(line(0), from, to);
        }
    }

    fn sleep(&mut self, op: Op) -> Result<(), String> {
        let pool = self.pool.as_ref().expect("a pool of the program's");
        if op == Op::Wake {
            let woken = pool.wake(&Wake::all());
            self.asleep = pool.residence().asleep;
            return woken.map_err(said);
        }
        let slept = pool.sleep(&Sleep::to(Arc::clone(&self.store) as _));
        self.asleep = pool.residence().asleep;
        match slept {
            // What a pass moves stays awake, and so does what was lost.
            Err(error)
                if error.kind() == ErrorKind::Busy && (self.pass.is_some() || self.has_lost()) =>
            {
                Ok(())
            }
            Ok(_) if self.pass.is_some() => Err("a pool fell asleep under a pass".into()),
            Ok(slept) if slept.kept > 0 => Err(format!("{} bytes stay asleep", slept.kept)),
            slept => slept.map(drop).map_err(said),
        }
    }

    fn destroy(&mut self, world: &Setting) -> Result<(), String> {
        let pool = self.pool.take().and_then(Arc::into_inner).expect("a pool of the program's");
        match self.manager.destroy_pool(pool) {
            Ok(()) => {
                let has_live = self.live().next().is_some();
                let made = self.manager.create_pool(HeapId(0), world.pool);
                self.pool = Some(Arc::new(made.map_err(said)?));
                if has_live {
                    Err("a pool was destroyed with something live".into())
                } else {
                    Ok(())
                }
            }
            Err(refused) => {
                self.pool = Some(Arc::new(refused.given));
                if refused.error.kind() == ErrorKind::Busy {
                    Ok(())
                } else {
                    Err(said(refused.error))
                }
            }
        }
    }

    /// Says where a request would fit, beside what is live, if it would.
    fn would_fit(&self, world: &Setting, cells: u8, kind: Kind) -> Option<String> {
        if self.pass.is_some() || self.asleep || world.heaps.len() > 1 {
            return None;
        }
        let (size, block) = world.heaps[0];
        let most = size.min(world.pool.maximum);
        let held = self.device.held().0;
        let need = if world.pages {
            u64::from(cells) * world.cell
        } else {
            world.pool.block.unwrap_or(block)
        };
        if !kind.is_dedicated() && world.pages {
            let mut pages: Vec<_> = self
                .live()
                .flat_map(|entry| {
                    let Area { block, first, count } = entry.place;
                    let page = u32::try_from(PAGE).expect("few cells");
                    (first / page..=(first + count - 1) / page).map(move |at| (block, at))
                })
                .collect();
            pages.sort_unstable();
            pages.dedup();
            let left = most / world.cell / PAGE - pages.len() as u64;
            return (left * PAGE >= u64::from(cells))
                .then(|| format!("{left} pages hold nothing live"));
        }
        if held + need <= most && !kind.is_dedicated() {
            return Some(format!("{held} bytes are held of {most}"));
        }
        None
    }

    /// Checks what must hold between steps.
    fn check(&mut self, world: &Setting) -> Result<(), String> {
        if let Some(fault) = self.device.fault() {
            return Err(fault);
        }
        let totals = self.manager.totals();
        let (held, refused) = self.device.held();
        let lost = if self.bent { self.manager.summary().quarantined_bytes } else { 0 };
        if lost > held + refused {
            return Err(format!("{lost} bytes are said to be lost; {held} are held"));
        }
        let heaps = self.device.heaps().filter_map(|heap| self.manager.heap_use(heap).ok());
        let known: u64 = heaps.map(|heap| heap.reserved).sum();
        if !(known..=known + lost).contains(&held) || totals.reserved_bytes > known {
            return Err(format!("the report says {known} bytes are held; it is {held}"));
        }
        if world.own_pool && held > world.pool.maximum {
            return Err(format!("{held} bytes are held, above the maximum"));
        }
        let live: u64 = self.live().map(|entry| u64::from(entry.cells) * world.cell).sum();
        if self.pass.is_none() && totals.live_bytes - totals.deferred_bytes != live && !self.bent {
            return Err(format!(
                "{} bytes are live and {} wait; it is {live}",
                totals.live_bytes, totals.deferred_bytes
            ));
        }
        let stored = if self.asleep { self.live().count() } else { 0 };
        if self.store.len() > stored {
            return Err("the store keeps bytes of what was freed, or is awake".into());
        }
        if self.stale || self.asleep {
            return Ok(());
        }
        self.check_bytes()?;
        if !world.pages && self.pool.is_some() && held < world.pool.minimum && !self.has_lost() {
            return Err(format!("{held} bytes are held, below the minimum"));
        }
        Ok(())
    }

    /// Checks that a wake that one refused call has stopped leaves no memory behind.
    fn check_wake(&self, step: &Step) -> Result<(), String> {
        let once = matches!(step.bend, Some(Bend::Refuse { lasting: Lasting::Once, .. }));
        match self.device.held().0 {
            held if held > 0 && self.asleep && once && step.op == Op::Wake => {
                Err(format!("{held} bytes stay when a wake has failed"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that only secrets and what has a block of its own stay where they are.
    fn check_pins(&self, world: &Setting) -> Result<(), String> {
        let report = self.manager.report();
        let spans = report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
        let pinned = spans.filter(|one| one.state == SpanState::Pinned).count();
        let may = self.live().filter(|entry| entry.kind.is_secret() || entry.kind.is_dedicated());
        if world.own_pool && !self.asleep && pinned > may.count() {
            return Err(format!("{pinned} allocations are pinned, some of them by nobody"));
        }
        Ok(())
    }

    /// Checks that live allocations lie apart and have their bytes.
    fn check_bytes(&self) -> Result<(), String> {
        let live: Vec<_> = self.live().collect();
        for (at, entry) in live.iter().enumerate() {
            if let Some(other) = live[..at].iter().find(|other| other.place.meets(&entry.place)) {
                return Err(format!(
                    "two allocations share bytes: {:?} and {:?}",
                    other.place, entry.place
                ));
            }
            if let Some(found) = self.device.settled(entry.place)
                && found.iter().any(|value| *value != entry.value)
            {
                return Err(format!(
                    "{:?} holds {found:x?} instead of {:x}",
                    entry.place, entry.value
                ));
            }
        }
        Ok(())
    }

    /// Tells this state from others. Slots are alike: allocations are named by their places.
    fn key(&self) -> u128 {
        let mut key = Key::new().with((self.asleep, self.bent, self.stale, self.started));
        let blocks = self.device.block_names();
        let place = |area: &Area| (blocks.get(&area.block).copied(), area.first);
        let mut live: Vec<_> = self.live().collect();
        live.sort_by_key(|entry| place(&entry.place));
        let mut names = [0; 256];
        for (name, entry) in (1u8..).zip(&live) {
            names[entry.value as usize] = 2 * name + (entry.value & 1) + (entry.value & SECRET);
            let busy = |end: &Point| !self.device.has_reached(*end);
            let ends: Vec<_> = entry.ends.iter().map(|(on, end)| (*on, busy(end))).collect();
            key = key.with((entry.cells, entry.home, entry.kind, entry.published, ends));
            key = key.with((place(&entry.place), names[entry.value as usize]));
        }
        let report = self.manager.report();
        // The thread decides which of two lanes is listed first.
        let mut parts: Vec<_> = report.pools.iter().flat_map(|pool| &pool.blocks).collect();
        parts.sort_by_key(|block| block.number);
        for block in parts {
            key = key.with((block.size, block.lane));
            for one in &block.live {
                key = key.with((one.span.offset, one.span.size, one.state));
            }
            for hole in &block.holes {
                key = key.with((hole.offset, hole.size));
            }
        }
        let (totals, peak) = (report.totals, report.peak_reserved_bytes);
        key = key.with((totals.deferred_bytes, peak, report.quarantined_bytes));
        for ((block, at), end) in &self.freed {
            let known = end.map_or(0, |end| self.device.knowledge(end));
            if known > 1 && blocks.contains_key(block) {
                key = key.with((blocks[block], at, end.map(|end| end.timeline), known));
            }
        }
        for planned in self.pass.iter().flat_map(Pass::moves) {
            let [from, to] = [planned.from(), planned.to()]
                .map(|it| self.device.area(it.block, it.span.offset, it.span.size));
            key = key.with((place(&from), place(&to)));
        }
        self.device.describe(key, &names).get()
    }

    /// Ends the state: one half of the states in peace, and the others with work in flight, some of them while the device cannot
    /// be waited for.
    fn end(self, world: &Setting) -> Result<(), String> {
        match self.key() & 3 {
            0 | 1 => self.end_in_peace(world),
            2 => self.end_at_once(None),
            _ => {
                let never = ErrorKind::Driver;
                self.end_at_once(Some(Twist::Refuse(Call::WaitIdle, 0, never, Lasting::ForTheStep)))
            }
        }
    }

    /// Drops everything, with work in flight, and checks that nothing is left.
    pub(crate) fn end_at_once(mut self, twist: Option<Twist>) -> Result<(), String> {
        self.device.arm(twist);
        self.pass = None;
        for slot in 0..SLOTS {
            if self.entries[slot].is_some() {
                drop(self.let_go(u8::try_from(slot).expect("few slots")));
            }
        }
        self.leave()
    }

    /// Drops the pool and the manager, which must leave nothing but what was lost or refused.
    fn leave(self) -> Result<(), String> {
        let Self { pool, manager, device, .. } = self;
        let lost = manager.summary().quarantined_bytes;
        drop(pool);
        drop(manager);
        let refused = device.disarm();
        match (device.fault(), device.held().0) {
            (Some(fault), _) => Err(fault),
            (None, left) if left > lost && !refused => {
                Err(format!("{left} bytes are left when the manager is gone"))
            }
            (None, _) => Ok(()),
        }
    }

    /// Runs everything, frees everything, and checks that nothing is left.
    fn end_in_peace(mut self, world: &Setting) -> Result<(), String> {
        self.pass = None;
        if self.asleep {
            self.sleep(Op::Wake)?;
        }
        self.device.run_all();
        if !self.asleep {
            self.note_places();
        }
        self.check(world)?;
        self.check_pins(world)?;
        for slot in 0..SLOTS {
            if self.entries[slot].is_some() {
                drop(self.let_go(u8::try_from(slot).expect("few slots")));
            }
        }
        self.device.run_all();
        self.manager.trim().map_err(said)?;
        self.check(world)?;
        let report = self.manager.summary();
        if let Some(secret) = self.device.secret() {
            return Err(format!("a secret outlives its owner in {secret}"));
        }
        let (totals, held) = (self.manager.totals(), self.device.held().0);
        let given_up = report.quarantined_bytes;
        if given_up == 0 && (totals.live > 0 || held > world.kept()) {
            return Err(format!(
                "{} allocations and {held} bytes stay when all is freed",
                totals.live
            ));
        }
        if totals.live_bytes > given_up && self.bent {
            return Err(format!(
                "{} bytes wait for ever, and {given_up} count as lost",
                totals.live_bytes
            ));
        }
        if given_up > 0 && !self.bent {
            return Err(format!("{given_up} bytes are given up"));
        }
        self.leave()
    }
}
