//! What the general-purpose strategy can do beyond the trait: carve, split and join, against a map of live spans.
use omniheap_core::strategy::{BlockId, Key, PieceState, Strategy, Tlsf};
use omniheap_core::{Align, Class, ErrorKind, Layout, Span};
use omniheap_model::seed;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;

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

#[test]
fn carved_split_and_joined_spans_follow_the_map() {
    let mut start = [0; 32];
    start[..8].copy_from_slice(&seed("carving").to_le_bytes());
    let config = Config { cases: 256, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &start);
    let input = vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..200);
    let result = TestRunner::new_with_rng(config, rng).run(&input, |ops| {
        let mut world = World::new();
        for (op, a, b) in ops {
            match op % 6 {
                0 => world.allocate(u64::from(a % 40) + 1),
                1 => world.carve(Span { offset: u64::from(a), size: u64::from(b % 32) }),
                2 => world.split(a, u64::from(b % 24)),
                3 => world.join(a, b),
                // Neighbours, so that many joins succeed.
                4 => world.join(a, a.wrapping_add(1)),
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
