//! Where bytes are, and where they go.

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
    /// Where the bytes are.
    pub from: BlockOffset<'a, B>,
    /// Where they go.
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
