//! Invariants that must hold after every operation.
use crate::{Shadow, Subject};
use omniheap_core::ErrorKind;
use omniheap_core::strategy::{BlockId, Key, Piece, PieceState, Strategy, Usage};

/// Pieces and usage that a strategy shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) usage: Usage,
}

impl Walk {
    /// Looks through a strategy that shows about as many pieces as the last time.
    pub(crate) fn of(strategy: &dyn Strategy, last: &Self) -> Self {
        let mut pieces = Vec::with_capacity(last.pieces.len() + 4);
        strategy.for_each(&mut |piece| pieces.push(piece));
        Self { pieces, usage: strategy.usage() }
    }

    pub(crate) fn holes(&self) -> impl Iterator<Item = Piece> {
        self.pieces.iter().copied().filter(|piece| piece.state == PieceState::Hole)
    }
}

/// Checks what a walk shows against the shadow: tiling, live spans, holes and sums.
pub(crate) fn walk(subject: Subject, walk: &Walk, shadow: &Shadow) {
    // Blocks are visited in the order of their ids, so a block's pieces are where the last block's end.
    let mut rest = &*walk.pieces;
    for (id, size) in shadow.blocks() {
        let count = rest.iter().take_while(|piece| piece.block == id).count();
        let (pieces, others) = rest.split_at(count);
        rest = others;
        tiles(pieces, size);
        lives(pieces, id, shadow);
        holes(subject, pieces, size);
        if subject == Subject::Ring {
            ring(pieces, shadow);
        }
    }
    assert_eq!(rest, [], "the walk shows a block that is scattered or not there");
    sums(walk, shadow);
}

fn tiles(pieces: &[Piece], size: u64) {
    let mut at = 0;
    for piece in pieces {
        assert_eq!(piece.span.offset, at, "the pieces leave a gap or overlap: {pieces:?}");
        assert!(piece.span.size > 0, "a piece is empty: {pieces:?}");
        at += piece.span.size;
    }
    assert_eq!(at, size, "the pieces do not fill the block: {pieces:?}");
}

fn lives(pieces: &[Piece], id: BlockId, shadow: &Shadow) {
    let shown = pieces.iter().filter_map(|piece| match piece.state {
        PieceState::Live(key) => Some((piece.span, key)),
        _ => None,
    });
    let expected = shadow.spans(id).map(|(span, key, _)| (span, key));
    assert!(shown.eq(expected), "the walk shows other live spans than were granted: {pieces:?}");
}

fn holes(subject: Subject, pieces: &[Piece], size: u64) {
    for pair in pieces.windows(2) {
        let states = [pair[0].state, pair[1].state];
        assert!(
            !subject.coalesces() || states != [PieceState::Hole; 2],
            "two holes touch: {pieces:?}"
        );
        assert!(
            !subject.reuses_at_once() || states != [PieceState::Padding, PieceState::Hole],
            "padding outlives the span that needed it: {pieces:?}"
        );
    }
    if pieces.iter().all(|piece| !matches!(piece.state, PieceState::Live(_))) {
        let holes = pieces.iter().filter(|piece| piece.state == PieceState::Hole);
        let sizes: Vec<u64> = holes.map(|piece| piece.span.size).collect();
        let found = (sizes.len() as u64, sizes.iter().copied().max().unwrap_or(0));
        assert_eq!(
            Some(found),
            subject.empty_block(size),
            "an empty block is not whole: {pieces:?}"
        );
    }
}

/// Checks that a ring reclaimed everything older than its oldest live span: what lies before that span is a hole.
fn ring(pieces: &[Piece], shadow: &Shadow) {
    let Some(oldest) = shadow.live().first() else { return };
    let position = pieces.iter().position(|piece| piece.span == oldest.grant.span);
    let position = position.expect("`lives` found every live span");
    let before = pieces[(position + pieces.len() - 1) % pieces.len()];
    let full = pieces.iter().all(|piece| piece.state != PieceState::Hole);
    assert!(full || before.state == PieceState::Hole, "older bytes were not reclaimed: {pieces:?}");
}

fn sums(walk: &Walk, shadow: &Shadow) {
    let (mut usage, mut padding) = (Usage::default(), 0);
    for piece in &walk.pieces {
        let size = piece.span.size;
        match piece.state {
            PieceState::Live(_) => {
                usage.used += size;
                usage.live += 1;
            }
            PieceState::Hole => {
                usage.free += size;
                usage.holes += 1;
                usage.largest_hole = usage.largest_hole.max(size);
            }
            PieceState::Padding => padding += size,
        }
    }
    usage.total = shadow.blocks().map(|(_, size)| size).sum();
    assert_eq!(walk.usage, usage, "the usage disagrees with the walk");
    assert_eq!(usage.used + usage.free + padding, usage.total, "bytes were lost");
}

/// Checks what can be asked of single spans and blocks.
pub(crate) fn state(strategy: &dyn Strategy, shadow: &Shadow, dead: &[Key]) {
    assert_eq!(strategy.validate(), Ok(()), "the strategy finds itself broken");
    for live in shadow.live() {
        assert_eq!(strategy.grant(live.grant.key), Ok(live.grant), "a live key lost its grant");
    }
    for &key in dead.iter().rev().take(8) {
        assert_eq!(strategy.grant(key), Err(ErrorKind::Stale), "a dead key has a grant");
    }
    let last = shadow.blocks().last().map_or(0, |(id, _)| id.0);
    for id in (0..=last + 1).map(BlockId) {
        assert_eq!(strategy.is_empty(id), shadow.is_empty(id), "whether {id:?} is empty");
    }
}
