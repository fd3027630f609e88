//! Nodes near the end of their stamps: no key lives twice, and no note is believed of a node that something else has.
use super::*;
use alloc::collections::{BTreeMap, BTreeSet};

const SIZE: u64 = 64;

/// A strategy whose unused nodes have few lives left, and what a map of spans knows of it.
struct World {
    tlsf: Tlsf,
    block: BlockId,
    live: BTreeMap<u64, (u64, Key)>,
    dead: BTreeSet<Key>,
    random: u64,
}

impl World {
    fn new(lives: u32, seed: u64) -> Self {
        let mut tlsf = Tlsf::new(Align::ONE);
        tlsf.reserve(16).expect("host memory");
        tlsf.nodes.wear(lives);
        let block = tlsf.add_block(SIZE).expect("a plain block");
        let (live, dead) = (BTreeMap::new(), BTreeSet::new());
        Self { tlsf, block, live, dead, random: seed }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % end
    }

    fn own(&mut self, Grant { span, key, .. }: Grant) {
        assert!(!self.dead.contains(&key), "{key:?} lives a second time");
        let overlaps =
            |(&offset, &(size, _)): (&u64, &(u64, Key))| span.overlaps(Span { offset, size });
        assert!(!self.live.iter().any(overlaps), "{span:?} overlaps a live span");
        self.live.insert(span.offset, (span.size, key));
    }

    fn allocate(&mut self, size: u64) -> Option<Key> {
        let granted = self.tlsf.allocate(Layout::new(size), Class::Linear).ok()?;
        self.own(granted);
        Some(granted.key)
    }

    fn end(&mut self, offset: u64) -> Key {
        let (_, key) = self.live.remove(&offset).expect("it is live");
        self.dead.insert(key);
        key
    }

    fn free(&mut self, offset: u64, user: u16, time: u64) {
        let key = self.end(offset);
        self.tlsf.free_used(key, LastUse::new(user, time)).expect("it is live");
    }

    fn pick(&mut self) -> Option<(u64, (u64, Key))> {
        let at = self.below(self.live.len().max(1) as u64);
        self.live.iter().nth(usize::try_from(at).expect("few")).map(|(at, it)| (*at, *it))
    }

    fn join(&mut self, offset: u64, (size, key): (u64, Key)) {
        let Some(&(more, next)) = self.live.get(&(offset + size)) else { return };
        self.tlsf.join(key, next).expect("they touch");
        self.end(offset + size);
        self.live.insert(offset, (size + more, key));
    }

    fn widen(&mut self, offset: u64, key: Key) {
        let wide = self.tlsf.widen(key).expect("it is live");
        self.live.remove(&offset);
        self.own(wide);
    }

    fn take_around(&mut self, offset: u64, key: Key, size: u64) {
        self.end(offset);
        let taken = self.tlsf.take_around(key, Layout::new(size), Class::Linear, |_| true);
        taken.into_iter().for_each(|grant| self.own(grant));
    }

    fn slide(&mut self, offset: u64, to: u64, (size, key): (u64, Key)) {
        if self.tlsf.slide_to(key, to).is_ok() {
            self.live.remove(&offset);
            self.live.insert(to, (size, key));
        }
    }

    /// Removes the block, and adds another.
    fn renew(&mut self) {
        while let Some((&offset, _)) = self.live.first_key_value() {
            self.free(offset, 0, 0);
        }
        self.tlsf.remove_block(self.block).expect("nothing is live");
        self.block = self.tlsf.add_block(SIZE).expect("a plain block");
    }

    fn check(&self) {
        assert_eq!(self.tlsf.validate(), Ok(()));
        for (&offset, &(size, key)) in &self.live {
            let granted = self.tlsf.grant(key).map(|grant| grant.span);
            assert_eq!(granted, Ok(Span { offset, size }), "{key:?} lost its span");
        }
        for &key in &self.dead {
            assert_eq!(self.tlsf.grant(key), Err(ErrorKind::Stale), "{key:?} has a span");
        }
        assert_eq!(self.tlsf.usage().live, self.live.len() as u64);
    }

    fn step(&mut self, time: u64) {
        let (what, size, user) = (self.below(12), 1 + self.below(9), 1 + self.below(2));
        let Some((offset, it)) = self.pick().filter(|_| what > 2) else {
            self.allocate(size);
            return;
        };
        match what {
            3..=5 => self.free(offset, if user == 1 { 1 } else { 2 }, time),
            6 => self.join(offset, it),
            7 => self.widen(offset, it.1),
            8 => self.take_around(offset, it.1, size),
            9 => self.slide(offset, offset.saturating_sub(size), it),
            10 if size < it.0 => {
                let rest = self.tlsf.split(it.1, size).expect("something is left");
                self.live.insert(offset, (size, it.1));
                self.own(rest);
            }
            _ if user == 1 => self.tlsf.set_passed(time.saturating_sub(size)),
            _ if size == 9 => self.renew(),
            _ => self.tlsf.merge_touching(),
        }
    }
}

/// A way to end the nodes of the spans at 0, 4 and 8.
type Way = (&'static str, fn(&mut World));

#[test]
fn each_way_to_end_a_node_in_its_last_life_leaves_its_key_stale() {
    let ways: [Way; 7] = [
        ("alone between live spans", |world| world.free(4, 0, 0)),
        ("into the hole after it", |world| world.free(8, 0, 0)),
        ("into the hole before it", |world| [4, 8].into_iter().for_each(|at| world.free(at, 0, 0))),
        ("between two holes", |world| [0, 8, 4].into_iter().for_each(|at| world.free(at, 0, 0))),
        ("joined to the span before it", |world| world.join(4, world.live[&4])),
        ("beside another user's hole, merged later", |world| {
            world.free(4, 1, 7);
            world.free(8, 2, 9);
            world.tlsf.set_passed(9);
        }),
        ("with its block", World::renew),
    ];
    for (way, end) in ways {
        for lives in 1..4 {
            let mut world = World::new(lives, 0);
            for _ in 0..8 {
                while world.live.len() < 3 && world.allocate(4).is_some() {}
                assert_eq!(world.live.keys().copied().collect::<Vec<_>>(), [0, 4, 8], "{way}");
                end(&mut world);
                world.check();
                world.renew();
                world.check();
            }
        }
    }
}

#[test]
fn a_hole_in_its_last_life_is_taken_under_a_fresh_key() {
    let mut world = World::new(1, 0);
    let key = world.allocate(SIZE).expect("all of it is free");
    world.free(0, 1, 5);
    let next = world.allocate(SIZE).expect("all of it is free");
    assert_ne!(key.index, next.index, "a node without lives is retired");
    world.check();
}

#[test]
fn many_nodes_that_wear_out_together_need_no_memory_to_be_freed() {
    let mut world = World::new(1, 0);
    while world.tlsf.nodes.has(2) {
        world.allocate(1).expect("there is room");
    }
    while let Some((&offset, _)) = world.live.first_key_value() {
        let other = world.live.keys().copied().nth(1).unwrap_or(offset);
        world.free(other, 0, 0);
        world.check();
    }
}

#[test]
fn worn_nodes_follow_a_map_of_spans() {
    for seed in 0..if cfg!(miri) { 4 } else { 400 } {
        let mut world = World::new(1 + u32::try_from(seed % 3).expect("small"), seed);
        for time in 1..150 {
            world.step(time);
            world.check();
        }
    }
}
