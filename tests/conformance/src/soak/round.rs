//! One round of a soak.
use super::{Entry, Soak, each_line, stamped};
use crate::look::Look;
use omniheap_core::{Backend, CopyRegion, Point, Request, TimelineId};

/// Operations of a round.
pub(super) const ROUND: u64 = 512;
/// Live allocations at most.
const MOST: usize = 1500;
/// Rounds between two audits.
const AUDIT: u64 = 8;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Allocate,
    Free,
    Compare,
    Copy,
    Use,
    Retire,
    Trim,
    Validate,
}

impl<B: Backend + 'static> Soak<'_, B> {
    /// Does so many random operations.
    pub(super) fn round(&mut self, count: u64) -> Result<(), String> {
        if (self.done.operations / ROUND).is_multiple_of(AUDIT) {
            self.audit()?;
        }
        let steps = self.plan(count);
        let of = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
        self.copy(of(Step::Copy))?;
        let mut leaving = self.choose(of(Step::Free));
        let looked_at = self.pick(of(Step::Compare));
        // Whatever else happens to them, their bytes are read now.
        let live = core::mem::take(&mut self.live);
        let compared: Vec<_> =
            leaving.iter().chain(looked_at.iter().map(|at| &live[*at])).collect();
        let compared = self.compare(&compared);
        self.live = live;
        compared?;
        let marks = self.marks();
        let known = self.live.len();
        for step in &steps {
            self.done.operations += 1;
            match step {
                Step::Allocate => self.allocate()?,
                Step::Free => self.free(leaving.pop(), &marks),
                Step::Use => self.use_elsewhere()?,
                Step::Retire => self.manager.retire().map(drop).map_err(|e| e.to_string())?,
                Step::Trim => self.manager.trim().map(drop).map_err(|e| e.to_string())?,
                Step::Validate => self.manager.validate()?,
                Step::Compare | Step::Copy => {}
            }
        }
        self.stamp(known)?;
        self.toggle_hold();
        Ok(())
    }

    /// Plans the next steps, so that as many allocations live as may.
    fn plan(&mut self, count: u64) -> Vec<Step> {
        let mut live = self.live.len();
        let mut step = || match self.rng.below(1000) {
            0..400 if live < MOST => {
                live += 1;
                Step::Allocate
            }
            0..750 if live > 0 => {
                live -= 1;
                Step::Free
            }
            0..850 => Step::Compare,
            850..910 => Step::Use,
            910..970 => Step::Copy,
            999 if self.rng.below(4) == 0 => Step::Trim,
            999 => Step::Validate,
            _ => Step::Retire,
        };
        (0..count).map(|_| step()).collect()
    }

    /// Takes random allocations out of the live ones.
    fn choose(&mut self, count: usize) -> Vec<Entry<B>> {
        let count = count.min(self.live.len());
        let take = |_| {
            let at = self.rng.index(self.live.len());
            self.live.swap_remove(at)
        };
        (0..count).map(take).collect()
    }

    /// Random positions among the live ones.
    fn pick(&mut self, count: usize) -> Vec<usize> {
        let count = if self.live.is_empty() { 0 } else { count };
        (0..count).map(|_| self.rng.index(self.live.len())).collect()
    }

    /// A point after everything that each timeline has to do now.
    fn marks(&self) -> Vec<Point> {
        self.lines.iter().filter_map(|line| self.mark(*line)).collect()
    }

    /// A timeline for a request, or none; never the one that is held, whose turn could come only after ours, unless others may
    /// have to run after it anyhow.
    fn pick_line(&mut self) -> Option<TimelineId> {
        let at = self.rng.index(self.lines.len() + 1);
        let line = self.lines.get(at).copied();
        line.filter(|line| self.orders || !self.is_held(Some(*line)))
    }

    fn allocate(&mut self) -> Result<(), String> {
        let home = self.pick_line();
        let most = if self.rng.below(50) == 0 { 4 << 20 } else { 64 << 10 };
        let size = self.world.whole(self.rng.size(most));
        let mut request = Request::new(size);
        if self.rng.below(256) == 0 {
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
        for (timeline, point) in self.look().take_orders() {
            self.shadow.order(timeline, point);
        }
        self.shadow.hand_out(block, span, home, reached)?;
        self.done.allocated += 1;
        let id = self.done.allocated;
        // Memory that another timeline's lane lent is used in that timeline's order.
        let home = one.timeline();
        // An allocation that cannot be stamped now is given back at once.
        if self.is_held(home) {
            self.shadow.free(block, span, Vec::new());
        } else {
            let used_on = Vec::new();
            self.live.push(Entry { one, id, first: id, block, span, home, used_on });
        }
        Ok(())
    }

    /// Stamps everything from position `known` on.
    fn stamp(&self, known: usize) -> Result<(), String> {
        let Some(stamps) = &self.stamps else { return Ok(()) };
        each_line(&self.live[known..].iter().collect::<Vec<_>>(), |line, of_line| {
            let all: Vec<_> = of_line.iter().flat_map(|entry| stamped(stamps, entry)).collect();
            stamps.write(&self.manager, line, &all)
        })
    }

    fn free(&mut self, entry: Option<Entry<B>>, marks: &[Point]) {
        let Some(Entry { one, block, span, home, used_on, .. }) = entry else { return };
        let mark = |line: TimelineId| marks.iter().find(|point| point.timeline == line).copied();
        let mut points: Vec<_> = used_on.iter().filter_map(|line| mark(*line)).collect();
        // Without a timeline its stamps were written and read on the main one.
        points.extend(mark(home.unwrap_or(TimelineId::MAIN)).filter(|_| self.stamps.is_some()));
        self.shadow.free(block, span, points);
        match home.and_then(mark) {
            Some(point) if self.rng.below(3) == 0 => one.free_after(point),
            _ => one.free(),
        }
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

    /// Copies the first stamps of allocations over others', a batch for each timeline.
    fn copy(&mut self, count: usize) -> Result<(), String> {
        if self.stamps.is_none() {
            return Ok(());
        }
        let length = self.world.whole(super::STAMPED);
        let fits = |entry: &Entry<B>| entry.one.size() >= length;
        let mut touched = vec![false; self.live.len()];
        let mut pairs = Vec::new();
        for _ in 0..if self.live.len() < 2 { 0 } else { count } {
            let (a, b) = (self.rng.index(self.live.len()), self.rng.index(self.live.len()));
            let (from, to) = (&self.live[a], &self.live[b]);
            let is_held = self.is_held(to.home);
            let alike = from.home == to.home && from.block != to.block && fits(from) && fits(to);
            if a != b && alike && !is_held && !touched[a] && !touched[b] {
                (touched[a], touched[b]) = (true, true);
                pairs.push((to.home.unwrap_or(TimelineId::MAIN), a, b));
            }
        }
        pairs.sort_unstable();
        for group in pairs.chunk_by(|one, other| one.0 == other.0) {
            let copy = |(_, a, b): &(TimelineId, usize, usize)| CopyRegion {
                from: &self.live[*a].one,
                from_offset: 0,
                to: &self.live[*b].one,
                to_offset: 0,
                size: length,
            };
            let copies: Vec<_> = group.iter().map(copy).collect();
            self.manager.copy(group[0].0, &copies).map_err(|error| error.to_string())?;
        }
        for (_, a, b) in pairs {
            self.live[b].first = self.live[a].first;
        }
        Ok(())
    }

    /// Holds a timeline for a few rounds, or lets it go on.
    fn toggle_hold(&mut self) {
        if self.rng.below(3) > 0 || self.let_go() {
            return;
        }
        if self.world.extras().hold.is_some() && self.lines.len() > 1 {
            let line = self.lines[1 + self.rng.index(self.lines.len() - 1)];
            let mut held = Some(self.world.hold(line));
            if self.orders {
                held.take().into_iter().for_each(|held| self.look().hold_until_waited_for(held));
            }
            self.held = Some((line, held));
            self.done.held += 1;
        }
    }

    /// Lets the held timeline go on; whether one was held.
    pub(super) fn let_go(&mut self) -> bool {
        self.look().let_go();
        self.held.take().is_some()
    }

    fn look(&self) -> &Look {
        self.stack.inner().inner().inner().hooks()
    }
}
