//! Where there are no sockets for packets and no process descriptors: every call says so.
#![forbid(unsafe_code)]

use crate::frame::TenantInfo;
use crate::{ArbiterError, Order, Policy};
use std::path::Path;

/// An arbiter, which cannot be made here.
#[derive(Debug)]
pub enum Server {}

impl Server {
    /// Answers that there is no arbiter here.
    ///
    /// # Errors
    /// Always [`ArbiterError::NotHere`].
    pub fn bind(_: &Path, _: Policy, _: Option<u32>) -> Result<Self, ArbiterError> {
        Err(ArbiterError::NotHere)
    }

    /// Serves until `stop` returns true; there is no server to call it on.
    ///
    /// # Errors
    /// None: it cannot be called.
    pub fn run(&mut self, _: impl Fn() -> bool) -> Result<(), ArbiterError> {
        match *self {}
    }
}

/// Answers that there is no arbiter here.
///
/// # Errors
/// Always [`ArbiterError::NotHere`].
pub fn tenants(_: &Path) -> Result<Vec<TenantInfo>, ArbiterError> {
    Err(ArbiterError::NotHere)
}

/// Answers that there is no arbiter here.
///
/// # Errors
/// Always [`ArbiterError::NotHere`].
pub fn order(_: &Path, _: Order) -> Result<(), ArbiterError> {
    Err(ArbiterError::NotHere)
}
