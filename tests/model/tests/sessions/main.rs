//! Sessions with a manager, from random bytes and from what a fuzzer kept.
//!
//! A binary of its own: the manager that it runs is built once, in the library.
mod corpus;
mod session;
