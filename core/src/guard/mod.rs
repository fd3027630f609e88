//! Guards: bytes behind an allocation that nobody may write, and what is found when somebody did.
//!
//! A guard is laid by the device itself, in the order in which the allocation is used, so it works in memory that the host
//! never sees. It is looked at when the allocation's bytes go back to their lane: everything that used them is over by then,
//! or comes before in the lane's own order.
#![forbid(unsafe_code)]
mod log;
mod sent;
mod sentry;

pub(crate) use sentry::{Facts, Sentry, Suspect};

use crate::{AllocationId, HeapId};
use alloc::boxed::Box;

/// Whether allocations have guards: a setting for whoever looks for writes behind their end.
///
/// # Cost
///
/// Off, nothing. On, every request takes the slow path and has all its bytes filled, as much when it is freed; it occupies at
/// least sixteen bytes more than it asks for, which rounding often has anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guards {
    /// None: nothing is filled and nothing is looked at.
    #[default]
    Off,
    /// Every allocation has a guard from its last byte to the end of what it occupies, where there is room for one. Requests
    /// fail with `Unsupported` where the device moves no bytes, and with what it says where a guard cannot be laid.
    On,
}

/// What fresh bytes and guards hold.
pub(crate) const FRESH: u8 = 0xFB;
/// What freed bytes hold until somebody gets them.
pub(crate) const FREED: u8 = 0xDD;
/// Bytes of a guard at least, where the pool can give them.
pub(crate) const LEAST: u64 = 16;
/// Bytes of a guard that are looked at.
pub(crate) const MOST: u64 = 256;

/// Somebody wrote behind the end of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overwrite {
    /// The allocation behind whose end it happened.
    pub id: AllocationId,
    /// What its owner called it.
    pub name: Option<Box<str>>,
    /// Bytes that it asked for.
    pub size: u64,
    /// The heap that it lies in.
    pub heap: HeapId,
    /// Bytes between its end and the first byte that was overwritten: zero for the byte right behind it.
    pub distance: u64,
    /// What that byte held.
    pub expected: u8,
    /// What it holds now.
    pub found: u8,
}

/// How guards fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardReport {
    /// Guards that were looked at when their allocation ended.
    pub checked: u64,
    /// Allocations behind whose end somebody wrote.
    pub overwritten: u64,
    /// Guards that could not be looked at, because the device refused.
    pub missed: u64,
    /// Allocations without a guard, because nothing is left between them and the next.
    pub unguarded: u64,
}
