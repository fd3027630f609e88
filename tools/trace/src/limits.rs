//! Limits of readers.

/// Limits of a reader. The defaults exceed real recordings many times; raise one if an error names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events in one trace; at most [`Limits::MAX_EVENTS`] counts.
    pub events: u64,
    /// Allocations live at once.
    pub live: u64,
    /// Bytes of input, after decompression.
    pub bytes: u64,
    /// Decompressed bytes per compressed byte, once [`Limits::FREE_EXPANSION`] bytes are out.
    pub expansion: u64,
    /// Bytes of one line in a text format.
    pub line: usize,
    /// Bytes of one string in a format with names.
    pub string: usize,
    /// Containers inside containers in a format that nests.
    pub depth: usize,
}

impl Limits {
    /// The most events that a trace can hold whatever `events` says: event numbers take 30 bits.
    pub const MAX_EVENTS: u64 = (1 << 30) - 1;
    /// Decompressed bytes that any compressed file may give, whatever the ratio.
    pub const FREE_EXPANSION: u64 = 64 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 200_000_000,
            live: 50_000_000,
            bytes: 16 << 30,
            expansion: 100,
            line: 1024,
            string: 1 << 16,
            depth: 64,
        }
    }
}
