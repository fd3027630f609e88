//! Stand-ins for systems without sockets for packets and process descriptors: every call says so.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]

use crate::frame::{PublicationInfo, TenantInfo};
use crate::{ArbiterError, Arbitrated, DriverCount, OnPress, Order, Policy};
use omniheap_layers::{Hooks, Layer};
use omniheap_seam::Backend;
use std::path::Path;
use std::sync::Arc;

/// A process as an arbiter knows it, which cannot be here.
#[derive(Debug)]
pub enum Tenant {}

impl Tenant {
    /// Answers that there is no arbiter here.
    ///
    /// # Errors
    /// Always [`ArbiterError::NotHere`].
    pub fn shared(_: &Path) -> Result<Arc<Self>, ArbiterError> {
        Err(ArbiterError::NotHere)
    }

    /// Calls `on_press` when an arbiter asks for memory; there is no tenant to call it on.
    pub fn on_press(self: &Arc<Self>, _: OnPress) -> Attending {
        match **self {}
    }
}

/// A callback that answers an arbiter's presses, which cannot be made here.
#[derive(Debug)]
pub enum Attending {}

/// Hooks that ask an arbiter, which cannot be made here.
#[derive(Debug)]
pub enum Tenancy {}

// SAFETY: there is none.
unsafe impl Hooks for Tenancy {}

/// Wraps a backend; there is no arbiter to ask.
pub fn arbitrated<B: Backend>(backend: B, tenant: impl Into<Option<Arc<Tenant>>>) -> Arbitrated<B> {
    Layer::wrap(backend, tenant.into().map(|tenant| match *tenant {}))
}

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

    /// Compares what tenants say with what the driver counts; there is no server to call it on.
    #[must_use]
    pub fn compared_with(self, _: DriverCount) -> Self {
        match self {}
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
pub fn publications(_: &Path) -> Result<Vec<PublicationInfo>, ArbiterError> {
    Err(ArbiterError::NotHere)
}

/// Answers that there is no arbiter here.
///
/// # Errors
/// Always [`ArbiterError::NotHere`].
pub fn order(_: &Path, _: Order) -> Result<(), ArbiterError> {
    Err(ArbiterError::NotHere)
}
