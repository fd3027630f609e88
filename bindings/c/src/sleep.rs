//! Pools whose memory leaves the device and comes back.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{Holder, OmniheapManager, OmniheapPool, POOLS, holder};
use crate::sized::{empty, fill, fillable, grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, call, text};
use core::ffi::c_char;
use omniheap::residency::{
    Arena, BackingStore, HostStore, Nothing, Residence, Sleep, Slept, Wake, available_host_memory,
};
use omniheap::seam::lock;
use std::sync::Arc;

/// The bytes go to host memory.
pub const OMNIHEAP_STORE_HOST: u32 = 0;
/// The bytes go to a file without a name in `directory`; Linux only.
pub const OMNIHEAP_STORE_FILE: u32 = 1;
/// The bytes are dropped: allocations wake up zeroed.
pub const OMNIHEAP_STORE_NOTHING: u32 = 2;

/// Bytes that `omniheap_weights_remember` names are kept nowhere: they are read again from their files. The rest goes
/// to host memory.
pub const OMNIHEAP_STORE_ORIGIN: u32 = 3;

/// Pinned and mapped allocations sleep too. The caller promises that nothing uses an address of the pool before it is awake.
pub const OMNIHEAP_SLEEP_OVER_PINS: u32 = 1;

/// For `omniheap_pool_add_resident`: a hold for which the others cannot make room gives the pool host memory for what is missing, as
/// `omniheap_pool_wake_host_mapped` does, in place of failing.
pub const OMNIHEAP_SLEEP_HOST_MAPPED_WHEN_FULL: u32 = 2;

/// Options of a sleep. Start from `omniheap_sleep_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapSleep {
    /// Bytes of this struct, which `omniheap_sleep_default` sets.
    pub struct_size: usize,
    /// `OMNIHEAP_STORE_…`.
    pub store: u32,
    /// `OMNIHEAP_SLEEP_…`, or 0.
    pub flags: u32,
    /// The directory of `OMNIHEAP_STORE_FILE`; null otherwise.
    pub directory: *const c_char,
}

/// A sleep to host memory; C has it as an inline function.
#[must_use]
pub fn omniheap_sleep_default() -> OmniheapSleep {
    let directory = core::ptr::null();
    let struct_size = size_of::<OmniheapSleep>();
    OmniheapSleep { struct_size, store: OMNIHEAP_STORE_HOST, flags: 0, directory }
}

grows!(OmniheapSleep to directory: "sleep" from "omniheap_sleep_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_sleep_default` is the short way.
///
/// # Safety
///
/// `sleep` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_sleep_init(
    sleep: *mut OmniheapSleep,
    struct_size: usize,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(sleep, struct_size, &omniheap_sleep_default()) }
}

/// Figures of a sleep. Start from `omniheap_slept_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapSlept {
    /// Bytes of this struct, which `omniheap_slept_default` sets.
    pub struct_size: usize,
    /// Bytes that live allocations asked for.
    pub live: u64,
    /// Bytes copied to the store.
    pub copied: u64,
    /// Bytes returned to the driver.
    pub returned: u64,
    /// Bytes that stay held: the driver did not unmap them, or something that was freed is still in use.
    pub kept: u64,
}

grows!(filled OmniheapSlept to kept: "slept" from "omniheap_slept_default");

/// Places of a pool's bytes. Start from `omniheap_residence_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapResidence {
    /// Bytes of this struct, which `omniheap_residence_default` sets.
    pub struct_size: usize,
    /// Bytes held from the driver.
    pub device: u64,
    /// Bytes of live allocations that are away.
    pub evicted: u64,
    /// Bytes of live allocations, with their rounding, that a backing store keeps.
    pub stored: u64,
    /// 1 while the pool is asleep.
    pub asleep: u32,
    /// Bytes of host memory at the pool's addresses.
    pub host_mapped: u64,
}

grows!(filled OmniheapResidence to asleep: "residence" from "omniheap_residence_default");

/// The settings that are passed; null is a sleep to host memory.
///
/// # Safety
///
/// `sleep` is null, or not aligned, or settings.
pub(crate) unsafe fn asked(sleep: *const OmniheapSleep) -> Result<OmniheapSleep, Failure> {
    let usual = omniheap_sleep_default();
    // SAFETY: the caller's promise.
    if sleep.is_null() { Ok(usual) } else { unsafe { read_sized(sleep, usual) } }
}

/// The store that is asked for by a pool of a manager.
///
/// # Safety
///
/// `directory` is null or a text.
pub(crate) unsafe fn store(
    sleep: &OmniheapSleep,
    holder: &Holder,
) -> Result<Arc<dyn BackingStore>, Failure> {
    match sleep.store {
        OMNIHEAP_STORE_ORIGIN => Ok(Arc::clone(&holder.origin) as _),
        OMNIHEAP_STORE_HOST => Ok(HostStore::new()),
        OMNIHEAP_STORE_NOTHING => Ok(Nothing::new()),
        OMNIHEAP_STORE_FILE => {
            // SAFETY: the caller's promise.
            let directory = unsafe { text(sleep.directory, "sleep.directory") }?;
            file(directory)
        }
        other => Err(Failure::invalid(format!("sleep.store is {other}, which is none"))),
    }
}

#[cfg(target_os = "linux")]
fn file(directory: &str) -> Result<Arc<dyn BackingStore>, Failure> {
    Ok(omniheap::residency::FileStore::open(directory)?)
}

#[cfg(not(target_os = "linux"))]
fn file(_: &str) -> Result<Arc<dyn BackingStore>, Failure> {
    let why = "sleeping to files needs Linux; sleep to host memory";
    Err(omniheap::ErrorKind::Unsupported.because(why).into())
}

/// Moves all bytes of a pool to a store and returns its memory to the driver; allocations live on. The pool was created with
/// `sleepable`. On failure it is awake and has all its bytes: `Busy` where allocations are pinned or have blocks of their
/// own, and `omniheap_error` names one of them.
///
/// # Safety
///
/// `sleep` is null, which is a sleep to host memory, or settings whose `directory` is null or a text; `slept` is null, or starts with its size and may be written. With
/// `OMNIHEAP_SLEEP_OVER_PINS`, nothing uses an address of the pool's allocations before the pool is awake.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_sleep(
    pool: OmniheapPool,
    sleep: *const OmniheapSleep,
    slept: *mut OmniheapSlept,
) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        // SAFETY: the caller's promise.
        let given = unsafe { asked(sleep) }?;
        if !slept.is_null() {
            // SAFETY: the caller's promise.
            unsafe { fillable(slept) }?;
        }
        if given.flags & !OMNIHEAP_SLEEP_OVER_PINS != 0 {
            return Err(Failure::invalid("sleep.flags has bits that stand for nothing"));
        }
        // SAFETY: as above.
        let mut how = Sleep::to(unsafe { store(&given, entry.owner.holder()) }?);
        if given.flags & OMNIHEAP_SLEEP_OVER_PINS != 0 {
            // SAFETY: the caller promises that nothing uses an address meanwhile.
            how = unsafe { how.over_pins() };
        }
        let Slept { live, copied, returned, kept, .. } = entry.with(|pool| pool.sleep(&how))??;
        if slept.is_null() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { fill(slept, &OmniheapSlept { live, copied, returned, kept, ..empty() }) }
    })
}

/// Takes host memory for sleeps ahead of time, until the process has `bytes` of it, and has the device pin it: the first sleep is then as fast as those behind it.
///
/// With `wait` zero, a thread does so in the background until the manager is closed, failures are logged, and a sleep that comes earlier uses what is ready. Otherwise
/// the call returns when it is done: `OUT_OF_HOST_MEMORY` where the machine has less, before any memory is touched.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_sleep_prepare(
    manager: OmniheapManager,
    bytes: u64,
    wait: u32,
) -> OmniheapStatus {
    call(|| {
        let (holder, arena) = (holder(manager)?, Arena::of_process());
        if wait != 0 {
            return Ok(arena.prepare_pinned(holder.manager.backend(), bytes)?);
        }
        let mut preparations = lock(&holder.preparations);
        preparations.retain(|one| !one.is_finished());
        preparations.push(arena.prepare_pinned_ahead(&holder.manager, bytes));
        Ok(())
    })
}

/// Gives the allocations of a sleeping pool memory and their bytes, at the same addresses. On failure the pool is asleep and
/// has all its bytes.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_wake(pool: OmniheapPool) -> OmniheapStatus {
    omniheap_pool_wake_host_mapped(pool, 0)
}

/// As `omniheap_pool_wake`. Where the device has too little memory, up to `most` bytes of host memory take its place at the pool's addresses, as far as the host
/// has them: kernels and copies reach it over the link, until the pool sleeps and wakes up again. A device that cannot do so refuses as without it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_pool_wake_host_mapped(pool: OmniheapPool, most: u64) -> OmniheapStatus {
    call(|| {
        let entry = POOLS.get(pool.id)?;
        let how = Wake::all().host_mapped(most.min(available_host_memory().unwrap_or(u64::MAX)));
        Ok(entry.with(|pool| pool.wake(&how))??)
    })
}

/// Says where the bytes of a pool are.
///
/// # Safety
///
/// `residence` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_residence(
    pool: OmniheapPool,
    residence: *mut OmniheapResidence,
) -> OmniheapStatus {
    call(|| {
        let Residence { asleep, device, host_mapped, evicted, stored, .. } =
            POOLS.get(pool.id)?.with(|pool| pool.residence())?;
        let asleep = asleep.into();
        let said = OmniheapResidence { device, evicted, stored, asleep, host_mapped, ..empty() };
        // SAFETY: the caller's promise.
        unsafe { fill(residence, &said) }
    })
}
