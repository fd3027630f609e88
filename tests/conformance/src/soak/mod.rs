//! Random work over several timelines against a shadow, for as long as one likes.
//!
//! After every hand-out the shadow checks that no live span overlaps (O1) and that every earlier use of the bytes is
//! ordered before (O4); contents are stamped and checked (O2); counters are compared with a walk (O5). The same seed
//! repeats the same run on one thread.
mod shadow;
mod threads;

use crate::rig::{Held, Rig};
use crate::rng::{Rng, stamp};
use crate::world::{Mode, Stack, World};
use omniheap_core::{Allocation, Backend, Copy, Manager, Point, Request, Span, TimelineId};
use shadow::Shadow;

pub use threads::soak_threads;

/// What a soak did.
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
    block: u64,
    span: Span,
    home: Option<TimelineId>,
    used_on: Vec<TimelineId>,
}

/// Bytes stamped at both ends of an allocation.
const STAMPED: u64 = 64;
/// Live allocations at most.
const MOST: usize = 400;

struct Soak<'a, B: Backend + 'static> {
    world: &'a World<B>,
    stack: Stack<B>,
    manager: Manager<Stack<B>>,
    rng: Rng,
    lines: Vec<TimelineId>,
    held: Option<(TimelineId, Held)>,
    live: Vec<Entry<B>>,
    shadow: Shadow,
    done: Soaked,
}

/// Runs `operations` random operations on one thread.
///
/// # Errors
///
/// What the oracles found, with the seed and the number of the operation.
///
/// # Panics
///
/// When the device refuses something that always works.
pub fn soak<B: Backend + 'static>(
    rig: Rig<B>,
    mode: Mode,
    seed: u64,
    operations: u64,
) -> Result<Soaked, String> {
    let world = World::new(rig, mode, seed);
    let stack = world.stack();
    let lines = stack.as_timelines().map_or_else(Vec::new, |lines| {
        let opened = (0..3).filter_map(|_| lines.open().ok());
        core::iter::once(TimelineId::MAIN).chain(opened).collect()
    });
    let manager = world.manager_over(&stack);
    let mut soak = Soak {
        world: &world,
        stack,
        manager,
        rng: Rng::new(seed),
        lines,
        held: None,
        live: Vec::new(),
        shadow: Shadow::default(),
        done: Soaked::default(),
    };
    let ran = (0..operations).try_for_each(|number| {
        soak.done.operations = number + 1;
        soak.step(number).map_err(|why| format!("seed {seed}, operation {number}: {why}"))
    });
    let done = soak.finish();
    ran?;
    let done = done.map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    world.gate().map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(done)
}

impl<B: Backend + 'static> Soak<'_, B> {
    fn step(&mut self, number: u64) -> Result<(), String> {
        if number.is_multiple_of(2048) {
            self.audit()?;
        }
        match self.rng.below(100) {
            0..40 if self.live.len() < MOST => self.allocate(),
            0..70 => self.free(),
            70..80 => self.verify_one(),
            80..86 => self.use_elsewhere(),
            86..92 => self.copy(),
            92..95 => self.toggle_hold(),
            95..98 => self.manager.retire().map(|_| ()).map_err(|error| error.to_string()),
            98 => self.manager.trim().map(|_| ()).map_err(|error| error.to_string()),
            _ => self.manager.validate().map_err(String::from),
        }
    }

    fn is_held(&self, line: Option<TimelineId>) -> bool {
        let line = line.unwrap_or(TimelineId::MAIN);
        self.held.as_ref().is_some_and(|(held, _)| *held == line)
    }

    fn mark(&self, line: TimelineId) -> Option<Point> {
        let epoch = self.stack.as_timelines()?.mark(line).ok()?;
        Some(Point { timeline: line, epoch })
    }

    /// A timeline for a request, or none; never the one that is held, whose turn could come only after ours.
    fn pick_line(&mut self) -> Option<TimelineId> {
        let at = self.rng.index(self.lines.len() + 1);
        self.lines.get(at).copied().filter(|line| !self.is_held(Some(*line)))
    }

    fn allocate(&mut self) -> Result<(), String> {
        let home = self.pick_line();
        let most = if self.rng.below(50) == 0 { 4 << 20 } else { 64 << 10 };
        let size = self.world.whole(self.rng.size(most));
        let mut request = Request::new(size);
        if self.rng.below(64) == 0 {
            request = request.dedicated();
        }
        if let Some(line) = home {
            request = request.on(line);
        }
        let one =
            self.manager.allocate(&request).map_err(|error| format!("{size} bytes: {error}"))?;
        let (block, span) = {
            let binding = one.binding();
            (binding.block().id(), binding.span())
        };
        let lines = self.stack.as_timelines();
        let reached = |line| lines.and_then(|lines| lines.reached(line).ok());
        self.shadow.hand_out(block, span, home, reached)?;
        self.done.allocated += 1;
        // Memory that another timeline's lane lent is used in that timeline's order.
        let home = one.timeline();
        let entry = Entry { one, id: self.done.allocated, block, span, home, used_on: Vec::new() };
        // An allocation without a timeline is written on the main one, which must not be held then.
        if self.is_held(home) {
            self.shadow.free(block, span, Vec::new());
        } else {
            self.write(&entry)?;
            self.live.push(entry);
        }
        Ok(())
    }

    fn ends(&self, entry: &Entry<B>) -> [(u64, usize); 2] {
        let size = entry.one.size();
        let count = self.world.whole(STAMPED).min(size);
        let length = usize::try_from(count).expect("small");
        [(0, length), (self.world.backend().caps().copy.align.down(size - count), length)]
    }

    fn write(&self, entry: &Entry<B>) -> Result<(), String> {
        if self.world.backend().as_transfer().is_none() {
            return Ok(());
        }
        for (offset, length) in self.ends(entry) {
            let mut bytes = [0; 4096];
            stamp(entry.id, offset / 8 * 8, &mut bytes[..length]);
            entry.one.write(offset, &bytes[..length]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn verify(&mut self, at: usize) -> Result<(), String> {
        let entry = &self.live[at];
        if self.is_held(entry.home) || self.world.backend().as_transfer().is_none() {
            return Ok(());
        }
        // The first stamp may be covered by the second where the ends meet.
        let [first, last] = self.ends(entry);
        let is_apart = last.0 >= first.0 + first.1 as u64;
        let (offset, length) = if is_apart && self.rng.below(2) == 0 { first } else { last };
        let (mut found, mut wanted) = ([0; 4096], [0; 4096]);
        stamp(entry.id, offset / 8 * 8, &mut wanted[..length]);
        entry.one.read(offset, &mut found[..length]).map_err(|error| error.to_string())?;
        if found[..length] != wanted[..length] {
            return Err(format!("allocation {} at {:?} lost its bytes", entry.id, entry.span));
        }
        self.done.checked += 1;
        Ok(())
    }

    fn verify_one(&mut self) -> Result<(), String> {
        if self.live.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.live.len());
        self.verify(at)
    }

    fn free(&mut self) -> Result<(), String> {
        if self.live.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.live.len());
        let entry = &self.live[at];
        // Without a timeline only what is out of use may be freed: reading waits for it.
        let must_wait = entry.home.is_none();
        if must_wait && self.is_held(None) {
            return Ok(());
        }
        if must_wait || self.rng.below(4) == 0 {
            self.verify(at)?;
        }
        let Entry { one, block, span, home, used_on, .. } = self.live.swap_remove(at);
        let mut points: Vec<_> = used_on.iter().filter_map(|line| self.mark(*line)).collect();
        let own = home.and_then(|line| self.mark(line));
        points.extend(own);
        self.shadow.free(block, span, points);
        match own {
            Some(point) if self.rng.below(3) == 0 => one.free_after(point),
            _ => one.free(),
        }
        Ok(())
    }

    /// Reads an allocation on another timeline: its bytes stay until that has passed.
    fn use_elsewhere(&mut self) -> Result<(), String> {
        if self.live.is_empty() || self.lines.len() < 2 {
            return Ok(());
        }
        let (at, line) =
            (self.rng.index(self.live.len()), self.lines[self.rng.index(self.lines.len())]);
        let entry = &mut self.live[at];
        entry.one.use_on(line).map_err(|error| error.to_string())?;
        if entry.home != Some(line) && !entry.used_on.contains(&line) {
            entry.used_on.push(line);
        }
        Ok(())
    }

    /// Copies one end of an allocation over the other's and writes its own stamp again, in one timeline's order.
    fn copy(&mut self) -> Result<(), String> {
        if self.live.len() < 2 || self.world.backend().as_transfer().is_none() {
            return Ok(());
        }
        let (a, b) = (self.rng.index(self.live.len()), self.rng.index(self.live.len()));
        let (from, to) = (&self.live[a], &self.live[b]);
        let line = to.home.unwrap_or(TimelineId::MAIN);
        let same_home = from.home.unwrap_or(TimelineId::MAIN) == line;
        if a == b || from.block == to.block || !same_home || self.is_held(to.home) {
            return Ok(());
        }
        let size = self.world.whole(STAMPED).min(from.one.size()).min(to.one.size());
        let copy = Copy { from: &from.one, from_offset: 0, to: &to.one, to_offset: 0, size };
        self.manager.copy(line, &[copy]).map_err(|error| error.to_string())?;
        self.write(to)
    }

    fn toggle_hold(&mut self) -> Result<(), String> {
        if self.held.take().is_some() || self.world.extras().hold.is_none() || self.lines.len() < 2
        {
            return Ok(());
        }
        let line = self.lines[1 + self.rng.index(self.lines.len() - 1)];
        self.held = Some((line, self.world.hold(line)));
        self.done.held += 1;
        Ok(())
    }

    /// Compares the counters with what is known.
    fn audit(&mut self) -> Result<(), String> {
        self.manager.validate()?;
        let lines = self.stack.as_timelines();
        self.shadow.tidy(|line| lines.and_then(|lines| lines.reached(line).ok()));
        let (totals, live) = (self.manager.totals(), self.live.len() as u64);
        let bytes: u64 = self.live.iter().map(|entry| entry.one.size()).sum();
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
        self.held = None;
        let mut checked = Ok(());
        while !self.live.is_empty() {
            checked = checked.and(self.verify(self.live.len() - 1));
            self.live.pop();
        }
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
