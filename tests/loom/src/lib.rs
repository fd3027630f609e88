//! Effects of threads on each other through a manager, in every order that matters: `cargo xtask test models`. Without
//! `--cfg loom` there is nothing here.
#[cfg(all(test, loom))]
mod models;
