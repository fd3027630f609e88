//! Plain data out of a pickle: numbers, strings, lists and dictionaries. Nothing in it is ever looked up or run.
//!
//! The machine knows the opcodes that plain data of protocols 2 to 5 is made of. It refuses every other one, first of all those
//! that name or call something. A reader may list [globals](Global) that it understands: then a call of one of them is data too.
#![forbid(unsafe_code)]

mod cell;
mod data;
mod machine;
mod op;
pub mod tight;

pub use cell::{Cell, Value};
pub use data::Data;
pub use machine::parse;

/// Keys of dictionaries that a reader keeps.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// These, at most 32; all others are dropped. Read them with [`Data::get`].
    Only(&'static [&'static str]),
    /// Every key, in order. Read them with [`Data::pairs`].
    All,
}

/// A Python class or function that a reader understands. It is never called.
#[derive(Debug, Clone, Copy)]
pub struct Global {
    /// Its module.
    pub module: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The result of a call.
    pub result: CallResult,
}

/// The result of calling a [`Global`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// A [`Value::Call`] with the global and its arguments.
    Call,
    /// An empty dictionary; arguments are refused.
    Dict,
    /// Nothing: a call is refused, the global may only be named.
    Refused,
}

/// Rules of what a reader accepts.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Keys to keep.
    pub keys: Keys,
    /// Globals to accept; empty for plain data.
    pub globals: &'static [Global],
    /// Containers inside containers.
    pub depth: usize,
    /// Bytes of bookkeeping per byte of input.
    pub expansion: usize,
}

/// Position and reason of a refusal.
#[derive(Debug)]
pub struct Failure {
    /// Byte of the opcode.
    pub at: usize,
    /// Reason.
    pub kind: Refusal,
}

/// Reason why a pickle is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are no pickle of protocols 2 to 5, or the machine's stack does not match.
    #[error("not a valid pickle")]
    Malformed,
    /// The pickle ends too early.
    #[error("the pickle ends too early")]
    Truncated,
    /// An opcode that finds or runs code; with the global it names, where it names one.
    #[error("the pickle wants to run code ({})", .0.as_deref().unwrap_or("unnamed"))]
    Forbidden(Option<String>),
    /// A limit was exceeded.
    #[error("more than {limit} {what}")]
    OverLimit {
        /// Name of the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}
