//! Random work over several timelines against a shadow, for as long as one likes.
//!
//! After every hand-out the shadow checks that no live span overlaps (O1) and that every earlier use of the bytes is
//! ordered before (O4); contents are stamped and checked (O2); counters are compared with a walk (O5). The same seed
//! repeats the same run on one thread.
//!
//! Work comes in rounds, so that a device moves and compares hundreds of stamps with a handful of calls: what leaves in a
//! round is compared first, then frees and allocations alternate, then what is new is stamped.
mod round;
mod shadow;
mod stamps;
mod threads;

use crate::rig::{Held, Rig};
use crate::rng::Rng;
use crate::world::{Mode, Stack, World};
use omniheap_core::{Allocation, Backend, Manager, Point, Span, TimelineId, Waiting};
use round::ROUND;
use shadow::Shadow;
use stamps::{STAMPED, Stamp, Stamps};

pub use threads::soak_threads;

/// Counts of a soak's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Soaked {
    /// Operations in all.
    pub operations: u64,
    /// Allocations made.
    pub allocated: u64,
    /// Contents compared.
    pub checked: u64,
    /// Times that a timeline was held.
    pub held: u64,
}

impl core::ops::Add for Soaked {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            allocated: self.allocated + other.allocated,
            checked: self.checked + other.checked,
            held: self.held + other.held,
        }
    }
}

/// One live allocation and what is known of it.
struct Entry<B: Backend + 'static> {
    one: Allocation<Stack<B>>,
    id: u64,
    /// Number of the allocation whose stamp is at its start; a copy brings another's.
    first: u64,
    block: u64,
    span: Span,
    home: Option<TimelineId>,
    used_on: Vec<TimelineId>,
}

struct Soak<'a, B: Backend + 'static> {
    world: &'a World<B>,
    stack: Stack<B>,
    manager: Manager<Stack<B>>,
    rng: Rng,
    lines: Vec<TimelineId>,
    held: Option<(TimelineId, Option<Held>)>,
    /// True if the manager lets timelines run after each other: a held one may then hold up all, so it goes on when the
    /// manager waits.
    orders: bool,
    live: Vec<Entry<B>>,
    /// None where the device moves no bytes.
    stamps: Option<Stamps<B>>,
    shadow: Shadow,
    done: Soaked,
}

/// Runs `operations` random operations on one thread.
///
/// # Errors
///
/// The findings of the oracles, with the seed and the number of the operation.
///
/// # Panics
///
/// Panics when the device refuses something that always works.
pub fn soak<B: Backend + 'static>(
    rig: Rig<B>,
    mode: Mode,
    seed: u64,
    operations: u64,
) -> Result<Soaked, String> {
    soak_until(rig, mode, seed, operations, &|| false)
}

/// As [`soak`], but ends after the round in which `stop` says so.
///
/// # Errors
///
/// As for [`soak`].
///
/// # Panics
///
/// As for [`soak`].
pub fn soak_until<B: Backend + 'static>(
    rig: Rig<B>,
    mode: Mode,
    seed: u64,
    operations: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Soaked, String> {
    let guards = rig.extras.guards;
    let world = World::new(rig, mode, seed).with_guards(guards);
    let done = run(&world, seed, operations, stop);
    let done = done.map_err(|why| format!("seed {seed}: {why}"))?;
    world.gate().map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(done)
}

fn run<B: Backend + 'static>(
    world: &World<B>,
    seed: u64,
    operations: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Soaked, String> {
    let stack = world.stack();
    let lines = stack.as_timelines().map_or_else(Vec::new, |lines| {
        let opened = (0..3).filter_map(|_| lines.open().ok());
        core::iter::once(TimelineId::MAIN).chain(opened).collect()
    });
    let manager = world.manager_over(&stack);
    // Every other seed; without, each timeline is free of the others.
    let orders = seed & 1 == 0;
    if !orders {
        manager.set_waiting(Waiting::LastResort);
    }
    let mut rng = Rng::new(seed);
    let gathered = if lines.is_empty() { &[TimelineId::MAIN][..] } else { &lines };
    let stamps = world.backend().as_transfer().is_some();
    let stamps = stamps.then(|| Stamps::new(world, &manager, gathered, &mut rng)).transpose()?;
    let mut soak = Soak {
        world,
        stack,
        manager,
        rng,
        lines,
        held: None,
        orders,
        live: Vec::new(),
        stamps,
        shadow: Shadow::default(),
        done: Soaked::default(),
    };
    let mut ran = Ok(());
    while ran.is_ok() && soak.done.operations < operations && !stop() {
        let first = soak.done.operations;
        ran = soak.round(ROUND.min(operations - first));
        ran = ran.map_err(|why| format!("operation {first} or one of the next {ROUND}: {why}"));
    }
    let done = soak.finish();
    ran?;
    done.map_err(|why| format!("at the end: {why}"))
}

impl<B: Backend + 'static> Soak<'_, B> {
    fn is_held(&self, line: Option<TimelineId>) -> bool {
        let line = line.unwrap_or(TimelineId::MAIN);
        self.held.as_ref().is_some_and(|(held, _)| self.orders || *held == line)
    }

    fn mark(&self, line: TimelineId) -> Option<Point> {
        let epoch = self.stack.as_timelines()?.mark(line).ok()?;
        Some(Point { timeline: line, epoch })
    }

    /// Compares the stamps of some allocations, timeline by timeline; those of a held one are not looked at.
    fn compare(&mut self, entries: &[&Entry<B>]) -> Result<(), String> {
        let Some(stamps) = &self.stamps else { return Ok(()) };
        let (mut checked, manager) = (0, &self.manager);
        each_line(entries, |line, of_line| {
            if self.is_held(Some(line)) {
                return Ok(());
            }
            let wanted: Vec<_> = of_line.iter().flat_map(|entry| stamped(stamps, entry)).collect();
            checked += of_line.len() as u64;
            match stamps.find_lost(manager, line, &wanted)? {
                None => Ok(()),
                Some(at) => {
                    let Stamp { one, offset, id } = &wanted[at];
                    Err(format!("{:?} lost stamp {id} at its byte {offset}", one.id()))
                }
            }
        })?;
        self.done.checked += checked;
        Ok(())
    }

    /// Compares the counters with what is known.
    fn audit(&mut self) -> Result<(), String> {
        self.manager.validate()?;
        let lines = self.stack.as_timelines();
        self.shadow.tidy(|line| lines.and_then(|lines| lines.reached(line).ok()));
        let (totals, live) = (self.manager.totals(), self.live.len() as u64);
        let bytes: u64 = self.live.iter().map(|entry| entry.one.size()).sum();
        let bytes = bytes + self.stamps.as_ref().map_or(0, Stamps::held);
        let waiting = totals.deferred_bytes;
        if totals.live_bytes != bytes + waiting || totals.live < live {
            return Err(format!(
                "{live} live with {bytes} bytes and {waiting} waiting, but {totals:?}"
            ));
        }
        Ok(())
    }

    /// Checks everything once more and frees it, also after a loss.
    fn finish(mut self) -> Result<Soaked, String> {
        self.let_go();
        let live = core::mem::take(&mut self.live);
        let checked = self.compare(&live.iter().collect::<Vec<_>>());
        drop(live);
        self.stamps = None;
        let _ = self.world.backend().wait_idle();
        let _ = self.manager.trim();
        if let Some(lines) = self.stack.as_timelines() {
            for line in self.lines.iter().skip(1) {
                let _ = lines.close(*line);
            }
        }
        checked.map(|()| self.done)
    }
}

/// The stamps that an allocation should have.
fn stamped<'a, B: Backend + 'static>(
    stamps: &Stamps<B>,
    entry: &'a Entry<B>,
) -> impl Iterator<Item = Stamp<'a, B>> {
    let (one, (start, end)) = (&entry.one, stamps.ends(entry.one.size()));
    let last = end.map(|offset| Stamp { one, offset, id: entry.id });
    core::iter::once(Stamp { one, offset: start, id: entry.first }).chain(last)
}

/// Calls `work` for each timeline with those of the entries that are used in its order.
fn each_line<B: Backend + 'static>(
    entries: &[&Entry<B>],
    mut work: impl FnMut(TimelineId, &[&Entry<B>]) -> Result<(), String>,
) -> Result<(), String> {
    let line_of = |entry: &Entry<B>| entry.home.unwrap_or(TimelineId::MAIN);
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|entry| line_of(entry));
    for group in sorted.chunk_by(|a, b| line_of(a) == line_of(b)) {
        work(line_of(group[0]), group)?;
    }
    Ok(())
}
