//! The driver's functions, under their names.

pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod ipc;
#[cfg(test)]
mod layout;
pub(crate) mod memory;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod set;
pub(crate) mod stream;
pub(crate) mod transfer;
pub(crate) mod virtual_memory;
