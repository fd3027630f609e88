//! The command `omniheap`.
fn main() {}
