//! Abilities of the general-purpose strategy beyond the trait: carve, split and join, against a map of live spans.
use core::cell::RefCell;
use omniheap_core::strategy::{BlockId, Grant, Key, LastUse, PieceState, Strategy, Tlsf};
use omniheap_core::{Align, Class, ErrorKind, Layout, Span};
use omniheap_model::seed;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the only block.
const SIZE: u64 = 256;

struct World {
    tlsf: Tlsf,
    block: BlockId,
    live: BTreeMap<u64, (u64, Key)>,
    dead: Vec<Key>,
}

impl World {
    fn new() -> Self {
        let mut tlsf = Tlsf::new(Align::ONE);
        let block = tlsf.add_block(SIZE).expect("a plain block");
        Self { tlsf, block, live: BTreeMap::new(), dead: Vec::new() }
    }

    fn pick(&self, pick: u8) -> Option<(Span, Key)> {
        let count = self.live.len().max(1);
        let (&offset, &(size, key)) = self.live.iter().nth(usize::from(pick) % count)?;
        Some((Span { offset, size }, key))
    }

    fn allocate(&mut self, size: u64) {
        match self.tlsf.allocate(Layout::new(size), Class::Linear) {
            Ok(grant) => {
                assert_eq!(grant.span.size, size);
                self.live.insert(grant.span.offset, (size, grant.key));
            }
            Err(kind) => assert!(kind.is_out_of_memory(), "{kind:?}"),
        }
    }

    fn carve(&mut self, span: Span) {
        let free =
            !self.live.iter().any(|(&offset, &(size, _))| span.overlaps(Span { offset, size }));
        match self.tlsf.carve(self.block, span, Class::Linear) {
            Ok(grant) => {
                assert!(free && span.end() <= SIZE, "{span:?} was carved out of what is live");
                assert_eq!(grant.span, span);
                self.live.insert(span.offset, (span.size, grant.key));
            }
            Err(kind) if span.size == 0 => assert_eq!(kind, ErrorKind::ZeroSize),
            Err(ErrorKind::OutOfRange) => assert!(span.end() > SIZE, "{span:?} is in range"),
            Err(kind) => {
                assert_eq!(kind, ErrorKind::Busy);
                assert!(!free || span.end() > SIZE, "{span:?} is free");
            }
        }
    }

    fn split(&mut self, pick: u8, at: u64) {
        let Some((span, key)) = self.pick(pick) else { return };
        match self.tlsf.split(key, at) {
            Ok(rest) => {
                assert_eq!(Some(rest.span), span.part(at, span.size - at));
                self.live.insert(span.offset, (at, key));
                self.live.insert(rest.span.offset, (rest.span.size, rest.key));
            }
            Err(kind) => {
                assert_eq!((kind, at == 0 || at >= span.size), (ErrorKind::OutOfRange, true));
            }
        }
    }

    fn join(&mut self, first: u8, second: u8) {
        let (Some((span, key)), Some((next, last))) = (self.pick(first), self.pick(second)) else {
            return;
        };
        match self.tlsf.join(key, last) {
            Ok(grant) => {
                assert_eq!(span.end(), next.offset, "spans that do not touch were joined");
                self.live.remove(&next.offset);
                self.dead.push(last);
                self.live.insert(span.offset, (span.size + next.size, key));
                assert_eq!((grant.key, grant.span.size), (key, span.size + next.size));
            }
            Err(kind) => {
                assert_eq!(kind, ErrorKind::OutOfRange);
                assert_ne!(span.end(), next.offset, "spans that touch were not joined");
            }
        }
    }

    /// Exchanges one with `count` others in the order of addresses.
    fn exchange(&mut self, pick: u8, first: u8, count: usize) {
        let Some((one, key)) = self.pick(pick) else { return };
        let start = usize::from(first) % self.live.len();
        let run: Vec<_> = self.live.iter().skip(start).take(count).map(|(a, b)| (*a, *b)).collect();
        let (from, to) = (run[0].0, run.last().map_or(0, |(at, (size, _))| at + size));
        let is_whole = run.iter().map(|(_, (size, _))| size).sum::<u64>() == to - from;
        let is_apart = !run.iter().any(|(at, _)| *at == one.offset);
        let (follows, is_as_long) = (from == one.end(), to - from == one.size);
        let last = run[run.len() - 1].1.1;
        let exchanged = self.tlsf.exchange(key, run[0].1.1, last);
        if !(is_whole && is_apart && (follows || is_as_long)) {
            return assert_eq!(exchanged, Err(ErrorKind::OutOfRange));
        }
        for (at, _) in &run {
            self.live.remove(at);
        }
        self.live.remove(&one.offset);
        self.live.extend(run.into_iter().map(|(at, it)| (at - from + one.offset, it)));
        let new = if follows { to - one.size } else { from };
        assert_eq!(exchanged.map(|grant| grant.span), Ok(Span { offset: new, ..one }));
        self.live.insert(new, (one.size, key));
    }

    fn free(&mut self, pick: u8) {
        let Some((span, key)) = self.pick(pick) else { return };
        assert_eq!(self.tlsf.free(key).map(|grant| grant.span), Ok(span));
        self.live.remove(&span.offset);
        self.dead.push(key);
    }

    fn check(&self) {
        assert_eq!(self.tlsf.validate(), Ok(()));
        let (mut live, mut at) = (BTreeMap::new(), 0);
        self.tlsf.for_each(&mut |piece| {
            assert_eq!(piece.span.offset, at, "the pieces do not tile the block");
            at = piece.span.end();
            if let PieceState::Live(key) = piece.state {
                live.insert(piece.span.offset, (piece.span.size, key));
            }
        });
        assert_eq!((at, &live), (SIZE, &self.live));
        for &key in &self.dead {
            assert_eq!(self.tlsf.grant(key), Err(ErrorKind::Stale), "a dead key has a grant");
        }
    }
}

fn runner(name: &str) -> TestRunner {
    let mut start = [0; 32];
    start[..8].copy_from_slice(&seed(name).to_le_bytes());
    let config = Config { cases: 256, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &start))
}

#[test]
fn carved_split_and_joined_spans_follow_the_map() {
    let input = vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..200);
    let result = runner("carving").run(&input, |ops| {
        let mut world = World::new();
        for (op, a, b) in ops {
            match op % 8 {
                0 => world.allocate(u64::from(a % 40) + 1),
                1 => world.carve(Span { offset: u64::from(a), size: u64::from(b % 32) }),
                2 => world.split(a, u64::from(b % 24)),
                3 => world.join(a, b),
                // Neighbours, so that many joins succeed.
                4 => world.join(a, a.wrapping_add(1)),
                5 => world.exchange(a, b, 1 + usize::from(op / 64)),
                6 => world.exchange(a, a.wrapping_add(1), 1 + usize::from(op / 64)),
                _ => world.free(a),
            }
            world.check();
        }
        while !world.live.is_empty() {
            world.free(0);
        }
        prop_assert_eq!((world.tlsf.usage().holes, world.tlsf.usage().largest_hole), (1, SIZE));
        Ok(())
    });
    result.expect("every promise holds");
}

/// Users that allocate and free side by side.
struct Shared {
    tlsf: Tlsf,
    block: BlockId,
    granularity: Align,
    /// Last user of each byte, and the time of the use.
    uses: Vec<(u16, u64)>,
    clock: u64,
    passed: u64,
    live: Vec<(Grant, Class)>,
}

impl Shared {
    fn new(granularity: Align) -> Self {
        let mut tlsf = Tlsf::new(granularity);
        let block = tlsf.add_block(SIZE).expect("a plain block");
        let uses = (0..SIZE).map(|_| (0, 0)).collect();
        Self { tlsf, block, granularity, uses, clock: 0, passed: 0, live: Vec::new() }
    }

    /// Nobody is given a byte that another may still use.
    fn allocate(&mut self, user: u16, size: u64, class: Class) {
        let passed = self.passed;
        let may = |last: LastUse| last.user() == Some(user) || last.time() <= passed;
        let Ok(grant) = self.tlsf.allocate_where(Layout::new(size), class, may) else { return };
        for (last, time) in bytes_of(grant.span).map(|at| self.uses[at]) {
            assert!(last == user || time <= passed, "used by {last} at {time}");
        }
        self.live.push((grant, class));
    }

    fn free(&mut self, user: u16, pick: u8) {
        let at = usize::from(pick) % self.live.len().max(1);
        if at >= self.live.len() {
            return;
        }
        let (grant, _) = self.live.swap_remove(at);
        self.clock += 1;
        self.tlsf.free_used(grant.key, LastUse::new(user, self.clock)).expect("live");
        bytes_of(grant.span).for_each(|at| self.uses[at] = (user, self.clock));
    }

    /// Gives a span back that nobody has used: its bytes have the uses from before.
    fn undo(&mut self, pick: u8) {
        let at = usize::from(pick) % self.live.len().max(1);
        if at < self.live.len() {
            let (grant, _) = self.live.swap_remove(at);
            self.tlsf.free(grant.key).expect("live");
        }
    }

    fn pass(&mut self, time: u64) {
        self.passed = self.passed.max(time);
        self.tlsf.set_passed(time);
    }

    /// Spans of different classes share no granule.
    fn check(&self) {
        assert_eq!(self.tlsf.validate(), Ok(()));
        let granules = |grant: &Grant| {
            [grant.span.offset, grant.span.end() - 1].map(|at| self.granularity.down(at))
        };
        let of =
            |class| self.live.iter().filter(move |(_, of)| *of == class).map(|(grant, _)| grant);
        for [first, last] in of(Class::Linear).map(granules) {
            assert!(of(Class::Tiled).map(granules).all(|[start, end]| last < start || end < first));
        }
    }
}

/// Holes of several users stay apart until they have finished; none is lost.
#[test]
fn holes_of_several_users_stay_apart_until_they_have_finished() {
    let steps = vec(any::<(u8, u8, u8)>(), 1..200);
    let result = runner("users").run(&(steps, 0..5u32), |(steps, granularity)| {
        let mut shared = Shared::new(Align::of(1 << granularity));
        for (what, size, pick) in steps {
            let user = u16::from(pick % 3) + 1;
            match what % 8 {
                0 => shared.allocate(user, u64::from(size % 48) + 1, Class::Tiled),
                1..=3 => shared.allocate(user, u64::from(size % 48) + 1, Class::Linear),
                4 if size < 64 => shared.undo(pick),
                4..=5 => shared.free(user, pick),
                6 => shared.pass(shared.clock * u64::from(size % 4) / 3),
                _ if size < 16 => shared.tlsf.merge_touching(),
                _ => {}
            }
            shared.check();
        }
        while !shared.live.is_empty() {
            shared.free(1, 0);
        }
        shared.pass(shared.clock);
        prop_assert_eq!((shared.tlsf.usage().holes, shared.tlsf.usage().largest_hole), (1, SIZE));
        prop_assert_eq!(shared.tlsf.remove_block(shared.block), Ok(()));
        Ok(())
    });
    result.expect("every promise holds");
}

fn bytes_of(span: Span) -> impl Iterator<Item = usize> {
    (span.offset..span.end()).map(|at| usize::try_from(at).expect("within the block"))
}

#[test]
fn the_edges_of_spans_and_blocks_are_exact() {
    let mut tlsf = Tlsf::new(Align::ONE);
    tlsf.add_block(100).expect("a plain block");
    let fits = |tlsf: &Tlsf, size| tlsf.would_fit(Layout::new(size), Class::Linear);
    assert_eq!([0, 1, 100, 101].map(|size| fits(&tlsf, size)), [false, true, true, false]);
    let key = tlsf.allocate(Layout::new(60), Class::Linear).expect("fits").key;
    for size in [0, 60, 61] {
        assert_eq!(tlsf.split(key, size).err(), Some(ErrorKind::OutOfRange), "{size} of 60");
    }
    let rest = tlsf.split(key, 59).expect("a byte is left");
    assert_eq!(rest.span, Span { offset: 59, size: 1 });
    tlsf.free(key).expect("live");
    for offset in [59, 60] {
        let slid = tlsf.slide_to(rest.key, offset);
        assert_eq!(slid.err(), Some(ErrorKind::OutOfRange), "to {offset}, where it is or behind");
    }
    for offset in [58, 1, 0] {
        let slid = tlsf.slide_to(rest.key, offset).expect("the hole reaches down to there");
        assert_eq!((slid.span.offset, tlsf.validate()), (offset, Ok(())));
    }
    assert_eq!(
        tlsf.slide_to(rest.key, 0).err(),
        Some(ErrorKind::OutOfRange),
        "no hole is before it"
    );
}

#[test]
fn blocks_add_up_to_as_many_bytes_as_a_number_holds() {
    let mut tlsf = Tlsf::new(Align::ONE);
    let most = 1 << 62;
    assert_eq!(tlsf.add_block(most + 1).err(), Some(ErrorKind::ExceedsLimit));
    for _ in 0..3 {
        tlsf.add_block(most).expect("there is room in 64 bits");
    }
    assert_eq!(tlsf.add_block(most).err(), Some(ErrorKind::ExceedsLimit), "one more than 64 bits");
    tlsf.add_block(most - 1).expect("just 64 bits");
    assert_eq!((tlsf.total_bytes(), tlsf.free_bytes()), (u64::MAX, u64::MAX));
}

/// Whichever of two neighbours is freed first, their hole is free when the later of them is.
#[test]
fn a_joined_hole_is_in_use_as_long_as_any_part_of_it() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut tlsf = Tlsf::new(Align::ONE);
        tlsf.add_block(30).expect("a plain block");
        let keys =
            [(); 3].map(|()| tlsf.allocate(Layout::new(10), Class::Linear).expect("fits").key);
        for (time, at) in (1..).zip(order) {
            tlsf.free_used(keys[at], LastUse::new(1, time)).expect("live");
        }
        for passed in [1, 2] {
            tlsf.set_passed(passed);
            let may = |last: LastUse| last.user() == Some(2) || last.time() <= passed;
            let taken = tlsf.allocate_where(Layout::new(30), Class::Linear, may);
            assert!(taken.is_err(), "{order:?}: the last of them is in use until 3");
        }
        tlsf.set_passed(3);
        let taken = tlsf.allocate_where(Layout::new(30), Class::Linear, |last| last.time() <= 3);
        assert!(taken.is_ok(), "{order:?}");
    }
}

/// Every span around a hole between two live spans: what is inside is carved, everything else is refused and changes nothing.
#[test]
fn a_hole_is_carved_within_its_bounds_or_not_at_all() {
    for (start, size) in (0..24).flat_map(|start| (0..24).map(move |size| (start, size))) {
        let mut tlsf = Tlsf::new(Align::ONE);
        let block = tlsf.add_block(24).expect("a plain block");
        let mut take = || tlsf.allocate(Layout::new(8), Class::Linear).expect("fits");
        let [below, middle, above] = [take(), take(), take()];
        tlsf.free(middle.key).expect("it is live");
        let mut holes = Vec::new();
        tlsf.for_each_in(block, |key, span, class| {
            if class.is_none() {
                holes.push((key, span));
            }
        });
        let [(hole, whole)] = holes[..] else { panic!("one hole: {holes:?}") };
        assert_eq!(whole, middle.span);
        let (span, before) = (Span { offset: start, size }, tlsf.usage());
        let is_inside = size > 0 && start >= whole.offset && span.end() <= whole.end();
        let carved = tlsf.carve_in(hole, span, Class::Linear);
        assert_eq!(carved.is_ok(), is_inside, "{span:?} of {whole:?}: {carved:?}");
        match carved {
            Ok(grant) => {
                assert_eq!((grant.span, tlsf.usage().used), (span, before.used + size));
                assert!(tlsf.carve_in(hole, span, Class::Linear).is_err(), "it is live now");
            }
            Err(_) => assert_eq!(tlsf.usage(), before),
        }
        assert_eq!(tlsf.validate(), Ok(()));
        for live in [below, above] {
            assert_eq!(tlsf.grant(live.key), Ok(live));
        }
    }
}

/// A caller may wait for the first use that it is asked about and refuses, so that must be one of a hole that would do.
#[test]
fn nobody_is_asked_about_a_hole_that_does_not_fit() {
    let mut tlsf = Tlsf::new(Align::ONE);
    tlsf.add_block(4096).expect("a block");
    // Holes of one bin: the one that was freed last is looked at first, and is a little too small.
    let sizes = [1000, 8, 1010, 8, 990];
    let keys = sizes.map(|size| tlsf.allocate(Layout::new(size), Class::Linear).expect("room").key);
    let rest = 4096 - sizes.iter().sum::<u64>();
    tlsf.allocate(Layout::new(rest), Class::Linear).expect("room");
    for (user, at) in [(1, 2), (2, 0), (3, 4)] {
        tlsf.free_used(keys[at], LastUse::new(user, u64::from(user))).expect("it is live");
    }
    let asked = RefCell::new(BTreeSet::new());
    let refuse = |last: LastUse| {
        asked.borrow_mut().insert(last.user());
        false
    };
    assert!(tlsf.allocate_where(Layout::new(1005), Class::Linear, refuse).is_err());
    assert_eq!(asked.take(), BTreeSet::from([Some(1)]), "the other holes are too small");
    assert!(tlsf.search_where(Layout::new(995), Class::Linear, refuse).is_err());
    let fit = BTreeSet::from([Some(1), Some(2)]);
    assert_eq!(asked.take(), fit, "the third hole is too small");
}

/// Pairs of live spans of two blocks: what is taken is the first hole that fits between them, as a walk finds it, and nobody is asked
/// about holes elsewhere.
#[test]
fn the_first_hole_between_two_spans_is_taken_and_no_other_is_looked_at() {
    let mut tlsf = Tlsf::new(Align::ONE);
    let blocks = [0, 1].map(|_| tlsf.add_block(SIZE).expect("a plain block"));
    let mut take = |size: u64| tlsf.allocate(Layout::new(size), Class::Linear).expect("fits");
    let grants: Vec<_> = (0..64).map(|at| take([4, 12][at % 2])).collect();
    let (live, gone): (Vec<_>, Vec<_>) = (0..64).zip(grants).partition(|(at, _)| at % 3 == 0);
    for (_, one) in &gone {
        tlsf.free(one.key).expect("it is live");
    }
    for at in 0..live.len() * live.len() {
        let [(_, after), (_, before)] = [at / live.len(), at % live.len()].map(|at| live[at]);
        let (mut holes, asked) = (Vec::new(), RefCell::new(0));
        tlsf.for_each_in(before.block, |_, span, class| {
            let is_between = span.offset > after.span.offset && span.offset < before.span.offset;
            holes.extend(Some(span).filter(|_| class.is_none() && is_between));
        });
        let fit: Vec<_> = holes.iter().filter(|hole| hole.size >= 14).collect();
        let may = |_| asked.replace_with(|count| *count + 1) == 1;
        let between = (Some(after.key), before.key);
        let taken = tlsf.allocate_between(Layout::new(14), Class::Linear, between, may);
        let wanted = fit.get(1).map(|hole| (before.block, hole.offset));
        match taken {
            Ok(grant) => {
                // The second is the first that may be taken.
                assert_eq!(Some((grant.block, grant.span.offset)), wanted);
                tlsf.free(grant.key).expect("it is live");
            }
            Err(ErrorKind::Stale) => assert_ne!(after.block, before.block),
            Err(kind) => assert!(kind.is_out_of_memory() && wanted.is_none(), "{kind:?}"),
        }
        let most = if after.block == before.block { fit.len().min(2) } else { 0 };
        assert_eq!(asked.into_inner(), most, "{after:?} {before:?}");
    }
    assert!(blocks.iter().all(|block| live.iter().any(|(_, one)| one.block == *block)));
}

/// A strategy whose unused nodes come in another order than those of a new one.
fn shuffled() -> Tlsf {
    let mut tlsf = Tlsf::new(Align::ONE);
    let block = tlsf.add_block(64).expect("a block");
    let mut take = || tlsf.allocate(Layout::new(1), Class::Linear).expect("room").key;
    let keys: [Key; 40] = core::array::from_fn(|_| take());
    (0..40).for_each(|at| assert!(tlsf.free(keys[at * 7 % 40]).is_ok()));
    tlsf.remove_block(block).expect("nothing is live");
    tlsf
}

/// Makes one of a few calls; returns the span that it was about.
fn call(tlsf: &mut Tlsf, live: &mut Vec<Key>, numbers: [u64; 3], time: u64) -> Option<Span> {
    let [what, size, pick] = numbers;
    let user = u16::try_from(1 + pick % 4).expect("small");
    let grant = match what {
        0..=3 => {
            let may = |last: LastUse| [LastUse::NONE.user(), Some(user)].contains(&last.user());
            let grant = tlsf.search_where(Layout::new(1 + size), Class::Linear, may).ok()?;
            live.push(grant.key);
            grant
        }
        4..=6 if !live.is_empty() => {
            let at = usize::try_from(pick).expect("small") % live.len();
            tlsf.free_used(live.swap_remove(at), LastUse::new(user, time)).expect("it is live")
        }
        _ => {
            tlsf.set_passed(time.saturating_sub(size));
            return None;
        }
    };
    Some(grant.span)
}

#[test]
fn places_do_not_depend_on_the_numbers_of_nodes() {
    for seed in 0..if cfg!(miri) { 4 } else { 200 } {
        let mut random: u64 = seed;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % end
        };
        let mut worlds = [Tlsf::new(Align::ONE), shuffled()].map(|tlsf| (tlsf, Vec::new()));
        for (tlsf, _) in &mut worlds {
            tlsf.add_block(1 << 14).expect("a block");
        }
        for time in 1..600 {
            let numbers = [below(8), below(400), below(1 << 20)];
            let [one, other] =
                worlds.each_mut().map(|(tlsf, live)| call(tlsf, live, numbers, time));
            assert_eq!(one, other, "seed {seed}, step {time}");
        }
    }
}

#[test]
fn blocks_that_come_and_go_are_listed_as_a_walk_finds_them() {
    for seed in 0..if cfg!(miri) { 4 } else { 100 } {
        let mut random: u64 = seed;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % end
        };
        let (mut tlsf, mut live, mut sizes) = (Tlsf::new(Align::ONE), Vec::new(), BTreeMap::new());
        for time in 1..300 {
            let id = BlockId(u32::try_from(below(12)).expect("small"));
            match below(4) {
                0 if sizes.len() < 12 => {
                    let size = 1 + below(600);
                    let id = tlsf.add_block(size).expect("a block");
                    let lowest = (0..).find(|id| !sizes.contains_key(&BlockId(*id)));
                    assert_eq!(Some(id.0), lowest, "seed {seed}, step {time}");
                    sizes.insert(id, size);
                }
                1 if tlsf.remove_block(id).is_ok() => drop(sizes.remove(&id)),
                _ => drop(call(&mut tlsf, &mut live, [below(8), below(200), below(1 << 20)], time)),
            }
            assert_eq!(tlsf.validate(), Ok(()), "seed {seed}, step {time}");
            assert_eq!(tlsf.largest_block(), sizes.values().copied().max().unwrap_or(0));
            let mut listed: Vec<_> = tlsf.empty_blocks().map(|(id, size, _)| (id, size)).collect();
            listed.sort_unstable();
            let walked = sizes.iter().filter(|(id, _)| tlsf.is_empty(**id));
            let walked = walked.map(|(id, size)| (*id, *size));
            assert!(walked.eq(listed), "seed {seed}, step {time}");
        }
    }
}

#[test]
fn an_empty_block_is_in_use_as_long_as_any_of_its_holes() {
    let mut tlsf = Tlsf::new(Align::ONE);
    let block = tlsf.add_block(256).expect("a block");
    let half = || Span { offset: 0, size: 128 };
    let first = tlsf.carve(block, half(), Class::Linear).expect("it is free");
    let uses = [LastUse::new(1, 1), LastUse::new(2, 2)];
    let rest = tlsf.allocate(Layout::new(128), Class::Linear).expect("the other half");
    tlsf.free_used(first.key, uses[0]).expect("it is live");
    assert_eq!(tlsf.empty_blocks().count(), 0, "its second half is live");
    tlsf.free_used(rest.key, uses[1]).expect("it is live");
    let empty: Vec<_> = tlsf.empty_blocks().collect();
    assert_eq!(empty, [(block, 256, uses[0].join(uses[1]))]);
}
