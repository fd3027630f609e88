//! Positions of bytes in blocks, and copies from one to another.

/// A byte position inside a block.
#[derive(Debug)]
pub struct BlockOffset<'a, B: ?Sized> {
    /// The block.
    pub block: &'a B,
    /// Bytes from its base.
    pub offset: u64,
}

impl<B: ?Sized> Clone for BlockOffset<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: ?Sized> Copy for BlockOffset<'_, B> {}

/// One copy to perform.
#[derive(Debug)]
pub struct Move<'a, B: ?Sized> {
    /// Source of the bytes.
    pub from: BlockOffset<'a, B>,
    /// Destination of the bytes.
    pub to: BlockOffset<'a, B>,
    /// Number of them.
    pub size: u64,
}

impl<B: ?Sized> Clone for Move<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: ?Sized> Copy for Move<'_, B> {}
