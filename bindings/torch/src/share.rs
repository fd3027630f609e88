//! Memory that this process publishes for others of its user, and what others published: one copy of weights for many processes.
#![expect(unsafe_code, reason = "calls functions of the caller and writes to its memory")]
use crate::guard::{failed, guarded, text};
use crate::lock;
use crate::state::{self, on};
use core::ffi::{c_char, c_int, c_void};
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap::ErrorKind;
use omniheap::arbiter::frame::Refusal;
use omniheap::arbiter::{
    AnyAttached, ArbiterError, Order, ShareError, Tenant, VARIABLE, attach, order, publish_whole,
    tenants, withdraw,
};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Nothing is published under the name that this user may attach.
const NOT_PUBLISHED: c_int = 1;
/// The name is taken.
const TAKEN: c_int = 2;
/// The bytes are not those that were published.
const CHANGED: c_int = 3;

/// Fills memory with the next bytes to publish; anything but zero ends the publication.
pub type Fill = unsafe extern "C" fn(bytes: *mut c_void, length: usize, user: *mut c_void) -> c_int;

/// This process as tenants of arbiters, kept for its life.
static TENANTS: Mutex<Vec<Arc<Tenant>>> = Mutex::new(Vec::new());

/// Sets how much of a device this process may hold by its arbiter, which `OMNIHEAP_ARBITER` names; `previous` gets what it was. Zero bytes
/// change nothing.
///
/// Makes the process a tenant without opening the device.
///
/// # Safety
///
/// `previous` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_quota(
    device: c_int,
    bytes: u64,
    previous: *mut u64,
) -> c_int {
    guarded(|| {
        let path = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty());
        let path = path.ok_or("the device is under no arbiter; set OMNIHEAP_ARBITER")?;
        let path = PathBuf::from(path.replace("%d", &device.to_string()));
        let said = |error: ArbiterError| format!("quota: {error}");
        let tenant = Tenant::shared(&path).map_err(said)?;
        let mut kept = lock(&TENANTS);
        if !kept.iter().any(|known| Arc::ptr_eq(known, &tenant)) {
            kept.push(tenant);
        }
        drop(kept);
        let pid = std::process::id();
        let all = tenants(&path).map_err(said)?;
        let own = all.iter().find(|tenant| tenant.pid == u64::from(pid));
        let quota = own.ok_or("quota: the arbiter does not know this process")?.quota;
        if bytes > 0 {
            order(&path, Order::SetQuota { pid, quota: bytes }).map_err(said)?;
        }
        if !previous.is_null() {
            // SAFETY: not null, and otherwise the caller's promise.
            unsafe { previous.write(quota) };
        }
        Ok(())
    })
}

/// Memory that is attached.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attachment {
    /// Its number in this process.
    pub id: u64,
    /// Address of its first byte.
    pub address: u64,
    /// Number of bytes that were published.
    pub length: u64,
}

/// Next number of an attachment, never used again; zero is none.
static NEXT: AtomicU64 = AtomicU64::new(1);
static ATTACHED: Mutex<BTreeMap<u64, Arc<dyn AnyAttached>>> = Mutex::new(BTreeMap::new());

/// The bytes of a caller's function.
struct Source {
    fill: Fill,
    user: *mut c_void,
}

impl Read for Source {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `omniheap_share_publish`'s caller promises that it may be called so.
        match unsafe { (self.fill)(bytes.as_mut_ptr().cast(), bytes.len(), self.user) } {
            0 => Ok(bytes.len()),
            _ => Err(io::Error::other("the caller has none left")),
        }
    }
}

/// Runs a call that may fail for a reason with a number of its own.
fn numbered(work: impl FnOnce() -> Result<(), (c_int, String)>) -> c_int {
    let mut code = -1;
    let ended = guarded(|| {
        work().map_err(|(number, line)| {
            code = number;
            line
        })
    });
    if ended == 0 { 0 } else { code }
}

fn told(error: &ShareError) -> (c_int, String) {
    let code = match error {
        ShareError::Arbiter(ArbiterError::Refused(Refusal::NotPublished)) => NOT_PUBLISHED,
        ShareError::Arbiter(ArbiterError::Refused(Refusal::Published)) => TAKEN,
        _ => -1,
    };
    (code, error.to_string())
}

fn unnumbered(line: String) -> (c_int, String) {
    (-1, line)
}

/// A device, and a name that is UTF-8.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn arguments<'a>(
    device: c_int,
    name: *const c_char,
) -> Result<(&'static state::AnyDevice, &'a str), (c_int, String)> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "name") }.map_err(unnumbered)?;
    Ok((state::device(device).map_err(failed("opening the device")).map_err(unnumbered)?, name))
}

/// Publishes `length` bytes that `fill` gives under a name. Returns 0; 2 where the name is taken; -1 for other failures.
///
/// # Safety
///
/// `name` is null or a C string; `fill` may be called with memory to fill and `user` until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_publish(
    device: c_int,
    name: *const c_char,
    length: u64,
    fill: Option<Fill>,
    user: *mut c_void,
) -> c_int {
    numbered(|| {
        // SAFETY: the caller's promise.
        let (found, name) = unsafe { arguments(device, name) }?;
        let fill = fill.ok_or_else(|| unnumbered("fill is a null pointer".into()))?;
        let mut source = Source { fill, user };
        on!(found, it => publish_whole(it.backend(), it.heap(), name, length, &mut source))
            .map_err(|error| told(&error))
    })
}

/// Attaches what is published under a name. Returns 0; 1 where nothing is published that this user may attach; -1 for other failures.
///
/// # Safety
///
/// `name` is null or a C string; `attachment` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_attach(
    device: c_int,
    name: *const c_char,
    attachment: *mut Attachment,
) -> c_int {
    numbered(|| {
        // SAFETY: the caller's promise.
        let (found, name) = unsafe { arguments(device, name) }?;
        if attachment.is_null() {
            return Err(unnumbered("attachment is a null pointer".into()));
        }
        let held: Arc<dyn AnyAttached> = on!(found, it => {
            Arc::new(attach(it.backend(), it.heap(), name).map_err(|error| told(&error))?)
        });
        let address = held.address().ok_or_else(|| {
            unnumbered(format!(
                "{name:?} was published in several blocks; publish it with this package"
            ))
        })?;
        let length = held.length();
        let id = NEXT.fetch_add(1, Relaxed);
        lock(&ATTACHED).insert(id, held);
        // SAFETY: not null, and otherwise the caller's promise.
        unsafe { attachment.write(Attachment { id, address, length }) };
        Ok(())
    })
}

fn attached(id: u64) -> Result<Arc<dyn AnyAttached>, (c_int, String)> {
    let found = lock(&ATTACHED).get(&id).map(Arc::clone);
    found.ok_or_else(|| unnumbered(format!("nothing is attached as number {id}")))
}

/// Reads attached bytes from an offset on.
///
/// # Safety
///
/// `bytes` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_read(
    id: u64,
    offset: u64,
    bytes: *mut u8,
    length: usize,
) -> c_int {
    numbered(|| {
        let held = attached(id)?;
        if bytes.is_null() {
            return Err(unnumbered("bytes is a null pointer".into()));
        }
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > held.length()) {
            let error = ErrorKind::OutOfRange.into();
            return Err(unnumbered(failed("reading attached bytes")(error)));
        }
        // A caller need not have written its memory, and a slice is of bytes that were.
        // SAFETY: not null, and the caller promises room for `length` bytes.
        unsafe { bytes.write_bytes(0, length) };
        // SAFETY: as above, and they were written just now.
        let bytes = unsafe { slice::from_raw_parts_mut(bytes, length) };
        held.read(offset, bytes).map_err(failed("reading attached bytes")).map_err(unnumbered)
    })
}

/// Reads all attached bytes. Returns 0 where they are those that were published, 3 where not, -1 for failures.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_share_check(id: u64) -> c_int {
    numbered(|| {
        let held = attached(id)?;
        match held.is_unchanged().map_err(failed("reading attached bytes")).map_err(unnumbered)? {
            true => Ok(()),
            false => Err((
                CHANGED,
                "the bytes are not those that were published: their digest differs".into(),
            )),
        }
    })
}

/// Lets attached memory go. Nothing must use it any more.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_share_detach(id: u64) -> c_int {
    numbered(|| {
        let held = attached(id)?;
        lock(&ATTACHED).remove(&id);
        // Outside of the lock: it waits for the device.
        drop(held);
        Ok(())
    })
}

/// Ends a publication of this user. Returns 0; 1 where there is none; -1 for other failures.
///
/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_withdraw(device: c_int, name: *const c_char) -> c_int {
    numbered(|| {
        // SAFETY: the caller's promise.
        let (found, name) = unsafe { arguments(device, name) }?;
        on!(found, it => withdraw(it.backend(), name)).map_err(|error| told(&error))
    })
}
