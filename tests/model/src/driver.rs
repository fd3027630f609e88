//! Runs operations on a strategy and on the shadow, and compares the two.
use crate::check::{self, Walk};
use crate::{Alike, Shadow, Subject};
use omniheap_core::strategy::{BlockId, Key, Strategy};
use omniheap_core::{Align, Class, ErrorKind, Layout};

/// One thing to do. Numbers pick among what is there, modulo how much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Adds a block of this size.
    AddBlock(u64),
    /// Removes one of the blocks, or asks for one that is not there.
    RemoveBlock(usize),
    /// Takes a span.
    Allocate(Layout, Class),
    /// Frees one of the live spans; 0 is the oldest.
    Free(usize),
    /// Frees the newest live span.
    FreeNewest,
    /// Frees with a key that is not live any more.
    FreeStale(usize),
}

/// Outcome of an [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A block was added.
    Added(BlockId),
    /// A block was removed.
    Removed(BlockId),
    /// A span was granted.
    Granted(omniheap_core::strategy::Grant),
    /// A span was freed.
    Freed(omniheap_core::strategy::Grant),
    /// The strategy refused.
    Refused(ErrorKind),
    /// There was nothing to pick from.
    Skipped,
}

/// A strategy and its shadow.
#[derive(Debug)]
pub struct Driver {
    subject: Subject,
    granularity: Align,
    strategy: Box<dyn Strategy>,
    shadow: Shadow,
    dead: Vec<Key>,
    /// The classes that were granted so far.
    classes: Vec<Class>,
    walk: Walk,
}

impl Driver {
    /// A strategy without blocks.
    #[must_use]
    pub fn new(subject: Subject, granularity: Align) -> Self {
        Self {
            subject,
            granularity,
            strategy: subject.make(granularity),
            shadow: Shadow::default(),
            dead: Vec::new(),
            classes: Vec::new(),
            walk: Walk::default(),
        }
    }

    /// Returns the shadow of everything live.
    #[must_use]
    pub const fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// Does one thing and checks every promise afterwards.
    ///
    /// # Panics
    ///
    /// Panics when a promise is broken.
    pub fn apply(&mut self, op: Op) -> Outcome {
        let outcome = self.step(op);
        if let (Op::Allocate(layout, class), Outcome::Refused(kind)) = (op, outcome) {
            self.check_refusal(layout, class, kind);
        }
        let walk = Walk::of(&*self.strategy, &self.walk);
        if matches!(outcome, Outcome::Refused(_) | Outcome::Skipped) {
            assert_eq!(walk, self.walk, "{op:?} was refused and still changed something");
        }
        check::walk(self.subject, &walk, &self.shadow);
        check::state(&*self.strategy, &self.shadow, &self.dead);
        self.walk = walk;
        outcome
    }

    /// Does one thing that was checked before, and trusts the rest.
    pub fn replay(&mut self, op: Op) -> Outcome {
        self.step(op)
    }

    /// Looks around after replays, so that the next [`Driver::apply`] knows what was there.
    pub fn look(&mut self) {
        self.walk = Walk::of(&*self.strategy, &self.walk);
    }

    /// Frees everything and removes every block, checking each step.
    ///
    /// # Panics
    ///
    /// Panics when a promise is broken, among them that an empty block can serve as large a request as when it was new.
    pub fn drain(&mut self) {
        while !self.shadow.live().is_empty() {
            let outcome = self.apply(Op::FreeNewest);
            assert!(
                matches!(outcome, Outcome::Freed(_)),
                "the newest span was not freed: {outcome:?}"
            );
        }
        let largest = |(_, size)| self.subject.empty_block(size).map(|(_, largest)| largest);
        if let Some(size) = self.shadow.blocks().filter_map(largest).max() {
            let outcome = self.apply(Op::Allocate(Layout::new(size), Class::Tiled));
            let room = self.subject.granted(Layout::new(size), Class::Tiled, self.granularity);
            let granted = matches!(outcome, Outcome::Granted(_));
            assert_eq!(granted, room == Some(size), "a full-block request: {outcome:?}");
            self.apply(Op::FreeNewest);
        }
        while self.shadow.blocks().next().is_some() {
            let outcome = self.apply(Op::RemoveBlock(0));
            assert!(matches!(outcome, Outcome::Removed(_)), "an empty block stayed: {outcome:?}");
        }
    }

    fn step(&mut self, op: Op) -> Outcome {
        match op {
            Op::AddBlock(size) => self.add_block(size),
            Op::RemoveBlock(pick) => self.remove_block(pick),
            Op::Allocate(layout, class) => self.allocate(layout, class),
            Op::Free(pick) => match self.shadow.live().len() {
                0 => Outcome::Skipped,
                count => self.free(pick % count),
            },
            Op::FreeNewest => match self.shadow.live().len().checked_sub(1) {
                None => Outcome::Skipped,
                Some(newest) => self.free(newest),
            },
            Op::FreeStale(pick) => match self.dead.len() {
                0 => Outcome::Skipped,
                count => {
                    let freed = self.strategy.free(self.dead[pick % count]);
                    assert_eq!(freed, Err(ErrorKind::Stale), "a stale key freed something");
                    Outcome::Refused(ErrorKind::Stale)
                }
            },
        }
    }

    fn add_block(&mut self, size: u64) -> Outcome {
        let (count, total) = self
            .shadow
            .blocks()
            .fold((0, 0), |(count, total), (_, size)| (count + 1, total + size));
        let expected = if size == 0 {
            Some(ErrorKind::ZeroSize)
        } else {
            let takes =
                count < self.subject.most_blocks() && self.subject.empty_block(size).is_some();
            let fits = u64::checked_add(total, size).is_some();
            (!takes || !fits).then_some(ErrorKind::ExceedsLimit)
        };
        let added = self.strategy.add_block(size);
        assert_eq!(added.err(), expected, "adding a block of {size} bytes");
        match added {
            Ok(block) => {
                self.shadow.add_block(block, size);
                Outcome::Added(block)
            }
            Err(kind) => Outcome::Refused(kind),
        }
    }

    fn remove_block(&mut self, pick: usize) -> Outcome {
        let blocks: Vec<BlockId> = self.shadow.blocks().map(|(block, _)| block).collect();
        // One past the last picks a block that is not there.
        let unknown = BlockId(blocks.last().map_or(0, |last| last.0 + 1));
        let block = *blocks.get(pick % (blocks.len() + 1)).unwrap_or(&unknown);
        let expected = match (self.shadow.knows(block), self.shadow.is_empty(block)) {
            (false, _) => Err(ErrorKind::Stale),
            (true, false) => Err(ErrorKind::Busy),
            (true, true) => Ok(()),
        };
        let removed = self.strategy.remove_block(block);
        assert_eq!(removed, expected, "removing {block:?}");
        match removed {
            Ok(()) => {
                self.shadow.remove_block(block);
                Outcome::Removed(block)
            }
            Err(kind) => Outcome::Refused(kind),
        }
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Outcome {
        match self.strategy.allocate(layout, class) {
            Ok(grant) => {
                assert_ne!(layout.size, 0, "nothing was granted");
                let expected = self.subject.granted(layout, class, self.granularity);
                assert_eq!(Some(grant.span.size), expected, "{layout:?} was rounded otherwise");
                self.shadow.grant(grant, layout, class, self.granularity);
                assert!(!self.dead.contains(&grant.key), "{:?} lives twice", grant.key);
                if !self.classes.contains(&class) {
                    self.classes.push(class);
                }
                Outcome::Granted(grant)
            }
            Err(kind) => Outcome::Refused(kind),
        }
    }

    fn free(&mut self, position: usize) -> Outcome {
        let key = self.shadow.live()[position].grant.key;
        let grant = self.strategy.free(key).expect("a live key is freed");
        self.shadow.free(grant);
        self.dead.push(key);
        Outcome::Freed(grant)
    }

    /// Checks that the kind of a refusal is right, and that no hole had to serve the request.
    fn check_refusal(&self, layout: Layout, class: Class, kind: ErrorKind) {
        let need = self.subject.granted(layout, class, self.granularity);
        let largest = self.shadow.blocks().filter_map(|(_, size)| self.subject.empty_block(size));
        let largest = largest.map(|(_, largest)| largest).max().unwrap_or(0);
        let expected = match need {
            _ if layout.size == 0 => ErrorKind::ZeroSize,
            None => ErrorKind::ExceedsLimit,
            Some(need) if need > largest => ErrorKind::ExceedsLimit,
            Some(need) if need > self.walk.usage.free => ErrorKind::OutOfDeviceMemory,
            Some(_) => ErrorKind::Fragmented,
        };
        assert_eq!(kind, expected, "{layout:?} {class:?} was refused for the wrong reason");
        if layout.size == 0 {
            return;
        }
        for hole in self.walk.holes() {
            let mut spans = self.shadow.spans(hole.block);
            let unlike = if self.subject.remembers() {
                self.classes.iter().any(|&other| other != class)
            } else {
                spans.any(|(_, _, other)| other != class)
            };
            let alike = if unlike { Alike::No } else { Alike::Yes };
            let must = self.subject.must_fit(hole, layout, class, self.granularity, alike);
            assert!(!must, "{layout:?} {class:?} was refused as {kind:?} beside {hole:?}");
        }
    }
}
