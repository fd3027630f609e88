//! A strategy from outside, whose answers are checked before anything relies on them.
use crate::{BlockId, Grant, Key, Piece, Strategy, TakeSpan, Usage};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use omniheap_seam::{Class, ErrorKind, Layout, Span};

/// Wraps a strategy that a program wrote.
///
/// The wrapper remembers each block and each live grant, and answers from that memory where it can. So a strategy that
/// breaks its contract makes requests fail with `BadStrategy`; it never makes an allocation leave its block or lose it.
/// Overlapping spans are not noticed: that would cost a second search for each request.
#[derive(Debug)]
pub struct Checked {
    inner: Box<dyn Strategy>,
    /// No grant may have it.
    reserved: Key,
    /// Reports the promise that was broken, and the grant that broke it.
    report: fn(&'static str, Option<Grant>),
    blocks: Vec<Option<BlockState>>,
    live: BTreeMap<Key, Grant>,
}

#[derive(Debug)]
struct BlockState {
    size: u64,
    /// Live spans, and those that the strategy refused to free.
    live: u64,
}

impl Checked {
    /// Wraps a strategy, none of whose grants may have the key `reserved`. `report` is told which promise was broken, and by which grant.
    pub fn new(
        inner: Box<dyn Strategy>,
        reserved: Key,
        report: fn(&'static str, Option<Grant>),
    ) -> Self {
        Self { inner, reserved, report, blocks: Vec::new(), live: BTreeMap::new() }
    }

    /// Reports a broken promise.
    fn bad(&self, what: &'static str, grant: Option<Grant>) -> ErrorKind {
        (self.report)(what, grant);
        ErrorKind::BadStrategy
    }

    fn block(&self, id: BlockId) -> Option<&BlockState> {
        self.blocks.get(id.0 as usize)?.as_ref()
    }

    /// Names the first promise that a grant breaks.
    fn flaw(&self, grant: Grant, layout: Layout) -> Option<&'static str> {
        let Some(block) = self.block(grant.block) else {
            return Some("it granted a span of a block that it does not have");
        };
        let end = grant.span.offset.checked_add(grant.span.size);
        if end.is_none_or(|end| end > block.size) {
            return Some("it granted a span that leaves its block");
        }
        if grant.span.size < layout.size || !layout.align.divides(grant.span.offset) {
            return Some("it granted a span that is too small or not aligned");
        }
        let is_taken = grant.key == self.reserved || self.live.contains_key(&grant.key);
        is_taken.then_some("it granted a key that is live or reserved")
    }

    /// Accepts a grant of the inner strategy, or gives it back.
    fn accept(&mut self, grant: Grant, layout: Layout) -> Result<Grant, ErrorKind> {
        if let Some(flaw) = self.flaw(grant, layout) {
            if !self.live.contains_key(&grant.key) {
                // The grant is refused either way.
                let _ = self.inner.free(grant.key);
            }
            return Err(self.bad(flaw, Some(grant)));
        }
        if let Some(Some(block)) = self.blocks.get_mut(grant.block.0 as usize) {
            block.live += 1;
        }
        self.live.insert(grant.key, grant);
        Ok(grant)
    }
}

impl Strategy for Checked {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let id = self.inner.add_block(size)?;
        let at = id.0 as usize;
        if self.block(id).is_some() {
            return Err(self.bad("it gave a new block the id of one that it has", None));
        }
        if at > self.blocks.len() {
            // The block is refused either way.
            let _ = self.inner.remove_block(id);
            return Err(self.bad("it gave a new block an id that is not the next one", None));
        }
        if at == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[at] = Some(BlockState { size, live: 0 });
        Ok(id)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if self.block(block).ok_or(ErrorKind::Stale)?.live > 0 {
            return Err(ErrorKind::Busy);
        }
        self.inner.remove_block(block)?;
        self.blocks[block.0 as usize] = None;
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        let grant = self.inner.allocate(layout, class)?;
        self.accept(grant, layout)
    }

    /// A strategy that does not free a live span keeps its bytes until the pool ends; they are not reused.
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.live.remove(&key).ok_or(ErrorKind::Stale)?;
        if self.inner.free(key).is_err() {
            self.bad("it did not free a live span", Some(grant));
        } else if let Some(Some(block)) = self.blocks.get_mut(grant.block.0 as usize) {
            block.live -= 1;
        }
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.live.get(&key).copied().ok_or(ErrorKind::Stale)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.block(block).is_some_and(|block| block.live == 0)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.inner.for_each(visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        self.inner.validate()
    }

    fn as_take(&mut self) -> Option<&mut dyn TakeSpan> {
        self.inner.as_take()?;
        Some(self)
    }
}

impl TakeSpan for Checked {
    fn take(&mut self, block: BlockId, span: Span) -> Result<Grant, ErrorKind> {
        let taker = self.inner.as_take().ok_or(ErrorKind::Unsupported)?;
        let grant = taker.take(block, span)?;
        let grant = self.accept(grant, Layout::new(span.size))?;
        if (grant.block, grant.span) != (block, span) {
            // The span is refused either way.
            let _ = self.free(grant.key);
            return Err(self.bad("it took another span than the one that was named", Some(grant)));
        }
        Ok(grant)
    }
}
