//! Guards: bytes behind an allocation that must stay unchanged, and the overwrites they find.
//!
//! A guard is laid by the device itself, in the order in which the allocation is used, so it works in memory that the host
//! never sees. It is looked at when the allocation's bytes go back to their lane: everything that used them is over by then,
//! or comes before in the lane's own order.
mod checker;
mod log;
mod sent;

use checker::Checker;
use core::any::Any;
use core::fmt;
use omniheap_core::{
    AllocationId, Backend, ErrorKind, HeapId, Manager, ManagerConfig, Result, Sanitize, Sanitizer,
};
use std::sync::Arc;

/// Value of fresh bytes and of guards.
const FRESH: u8 = 0xFB;
/// Value of freed bytes until they are reused.
const FREED: u8 = 0xDD;
/// Bytes of a guard at least, where the pool can give them.
const LEAST: u64 = 16;
/// Bytes of a guard that are looked at.
const MOST: u64 = 256;

type Told = Arc<dyn Fn(&Overwrite) + Send + Sync>;

/// Returns the same settings with guards behind all allocations, for [`overwrites`].
///
/// Every allocation has a guard from its last byte to the end of what it occupies, where there is room for one. Requests fail
/// with `Unsupported` where the device moves no bytes, and with what it says where a guard cannot be laid.
///
/// # Cost
///
/// Every request takes the slow path and has all its bytes filled, as much when it is freed; it occupies at least sixteen
/// bytes more than it asks for, which rounding often has anyway.
#[must_use]
pub fn guarded(config: ManagerConfig) -> ManagerConfig {
    with(config, Guards { told: None })
}

/// As [`guarded`], and calls `told` with each finding when it is noticed, which may be after the allocation's end.
///
/// It must be quick, and must not call the manager.
#[must_use]
pub fn guarded_with(
    config: ManagerConfig,
    told: impl Fn(&Overwrite) + Send + Sync + 'static,
) -> ManagerConfig {
    with(config, Guards { told: Some(Arc::new(told)) })
}

fn with(mut config: ManagerConfig, guards: Guards) -> ManagerConfig {
    config.sanitizer = Some(Arc::new(guards));
    config
}

/// Returns the writes found behind the end of allocations: of those that were freed, and of those that
/// live. Waits for what uses them.
///
/// Each allocation is named once. What a pass is moving is looked at when it is asked for again, or ends.
///
/// # Errors
///
/// `InvalidConfig` when the manager's settings are not [`guarded`]; what the device says.
pub fn overwrites<B: Backend>(manager: &Manager<B>) -> Result<Vec<Overwrite>> {
    let checker = checker(manager)
        .ok_or(ErrorKind::InvalidConfig.because(
            "the manager has no guards; make it with `guarded(ManagerConfig::default())`",
        ))?;
    manager.look_at_live()?;
    Ok(checker.found())
}

/// Counts how guards fared; all zero when the manager's settings are not [`guarded`].
#[must_use]
pub fn guard_report<B: Backend>(manager: &Manager<B>) -> GuardReport {
    checker(manager).map(Checker::report).unwrap_or_default()
}

fn checker<B: Backend>(manager: &Manager<B>) -> Option<&Checker> {
    let sanitizer: &dyn Any = manager.sanitizer()?;
    sanitizer.downcast_ref()
}

/// Makes a checker for each manager.
struct Guards {
    told: Option<Told>,
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guards").finish_non_exhaustive()
    }
}

impl Sanitize for Guards {
    fn start(&self) -> Arc<dyn Sanitizer> {
        Arc::new(Checker::new(self.told.clone()))
    }
}

/// Somebody wrote behind the end of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overwrite {
    /// The allocation behind whose end it happened.
    pub id: AllocationId,
    /// The name that its owner gave it.
    pub name: Option<Box<str>>,
    /// Bytes that it asked for.
    pub size: u64,
    /// The heap that it lies in.
    pub heap: HeapId,
    /// Bytes between its end and the first byte that was overwritten: zero for the byte right behind it.
    pub distance: u64,
    /// Expected value of that byte.
    pub expected: u8,
    /// Value found.
    pub found: u8,
}

impl Overwrite {
    /// Emits the stable `tracing` event (`docs/tracing.md`).
    fn say(&self) {
        let Self { id, name, size, heap, distance, expected, found } = self;
        let (heap, name) = (heap.0, name.as_deref().unwrap_or("unnamed"));
        tracing::error!(
            name: "omniheap.overwrite", target: "omniheap",
            ?id, name, size, heap, distance, expected, found,
            "somebody wrote behind the end of an allocation"
        );
    }
}

/// Counts of checked and unchecked guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardReport {
    /// Guards that were looked at when their allocation ended.
    pub checked: u64,
    /// Allocations with a write behind their end.
    pub overwritten: u64,
    /// Guards that could not be looked at, because the device refused.
    pub missed: u64,
    /// Allocations without a guard, because nothing is left between them and the next.
    pub unguarded: u64,
}
