//! One memory manager for every GPU.
