//! What moving live data needs: one block's pieces, a span's class, and holes kept out of a search.
use super::Tlsf;
use super::nodes::Node;
use crate::strategy::{BlockId, Grant, Key, LastUse, Piece, PieceState};
use crate::{Class, ErrorKind, Span};

impl Tlsf {
    /// A node as others see it.
    pub(super) fn piece(&self, at: u32) -> Piece {
        let node = self.nodes.get(at);
        let state = match node.is_hole() {
            true => PieceState::Hole,
            false => PieceState::Live(self.nodes.key(at)),
        };
        Piece { block: node.block(), span: node.span(), state }
    }

    /// Visits every piece of one block, lowest offset first, with its key and what it holds: nothing, for a hole. An
    /// unknown block has no pieces.
    ///
    /// The key of a live span frees it, that of a hole goes to [`carve_in`](Self::carve_in).
    pub fn for_each_in(&self, block: BlockId, mut visit: impl FnMut(Key, Span, Option<Class>)) {
        let Ok(edge) = self.edge(block) else { return };
        for at in self.pieces(edge) {
            let node = self.nodes.get(at);
            let holds = if node.is_hole() { None } else { Some(node.class()) };
            visit(self.nodes.key(at), node.span(), holds);
        }
    }

    /// The class that a live span was taken with.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn class(&self, key: Key) -> Result<Class, ErrorKind> {
        self.live_index(key).map(|index| self.nodes.get(index).class())
    }

    /// Lets a live span grow over the holes beside it, so that no search finds them until it is freed.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn widen(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        self.absorb_holes(index, |_| true);
        Ok(self.grant_of(index))
    }

    /// Lets a live span grow over the holes beside it whose last use `may` accepts.
    pub(super) fn absorb_holes(&mut self, index: u32, may: impl Fn(LastUse) -> bool) {
        let usable = |node: &Node| node.is_hole() && may(node.last_use);
        let (at, node) = (self.nodes.previous(index), self.nodes.get(self.nodes.previous(index)));
        if usable(&node) {
            self.remove_hole(at);
            self.used += node.size;
            self.nodes.absorb_previous(index, at, node);
        }
        let (at, node) = (self.nodes.next(index), self.nodes.get(self.nodes.next(index)));
        if usable(&node) {
            self.remove_hole(at);
            self.used += node.size;
            self.nodes.absorb_next(index);
        }
    }
}
