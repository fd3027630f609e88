//! Plain data out of a pickle: numbers, strings, lists and dictionaries. Nothing in it is ever looked up or run.
//!
//! The machine knows the opcodes that plain data of protocols 2 to 5 is made of and refuses every other one, first of
//! all those that name or call anything. Of dictionaries it keeps only the keys that its user asks for.

mod cell;
mod data;
mod machine;
mod op;

pub(crate) use cell::Cell;
pub(crate) use data::Data;
pub(crate) use machine::parse;

/// The keys that a reader cares for; a dictionary is a set of these.
pub(crate) type Keys = &'static [&'static str];
