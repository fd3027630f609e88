//! Memory that processes of one user publish and attach; Linux only.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{Holder, Native, OmniheapManager, Owner, holder};
use crate::request::{OMNIHEAP_ANY, heap};
use crate::status::{Failure, OmniheapStatus, call, check, check_many, put, text};
use crate::table::{Kind, Table};
use core::ffi::{c_char, c_void};
use omniheap::arbiter::frame::Refusal;
use omniheap::arbiter::{AnyAttached, ArbiterError, ShareError, attach, publish_whole, withdraw};
use omniheap::seam::HeapKind;
use omniheap::{ErrorKind, HeapId};
use std::sync::Arc;

/// Published memory that is attached. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapAttached {
    /// Opaque.
    pub id: u64,
}

/// Attached memory with a handle. The owner goes last.
struct Attachment {
    bytes: Box<dyn AnyAttached>,
    _owner: Owner,
}

static ATTACHED: Table<Attachment> = Table::new(Kind::Attached);

impl From<ShareError> for Failure {
    fn from(error: ShareError) -> Self {
        let status = match &error {
            ShareError::Name(_) => OmniheapStatus::InvalidArgument,
            ShareError::Device(error) => error.kind().into(),
            ShareError::Arbiter(ArbiterError::Refused(why)) => match why {
                Refusal::NotPublished => OmniheapStatus::NotPublished,
                Refusal::Published => OmniheapStatus::NameTaken,
                Refusal::Never => OmniheapStatus::ExceedsLimit,
                Refusal::OverQuota | Refusal::TooMany => OmniheapStatus::OverBudget,
                Refusal::Shortage | Refusal::Debtor => OmniheapStatus::OutOfDeviceMemory,
                _ => OmniheapStatus::InvalidConfig,
            },
            _ => OmniheapStatus::InvalidConfig,
        };
        Self::new(status, error.to_string())
    }
}

/// Runs the same expression on a device whose memory can be published.
macro_rules! on {
    ($holder:expr, $device:ident => $body:expr) => {
        match &$holder.native {
            Native::Cuda($device) => $body,
            Native::Hip($device) => $body,
            Native::Host($device) => $body,
            Native::Vulkan($device) => $body,
            Native::Other => {
                let why =
                    "memory of this backend cannot be published; use cuda, hip, vulkan or host";
                Err(Failure::new(OmniheapStatus::Unsupported, why))
            }
        }
    };
}

/// The heap that a number names; any is the first that kernels use.
fn chosen(holder: &Holder, number: u32) -> Result<HeapId, Failure> {
    if number != OMNIHEAP_ANY {
        return heap(number);
    }
    let mut heaps = holder.manager.caps().heap_ids();
    let device = heaps.find(|(_, heap)| heap.kind == HeapKind::Device);
    device.map(|(id, _)| id).ok_or_else(|| ErrorKind::NoSuchHeap.into())
}

/// Publishes bytes under a name, as memory of the device, for other processes of this user. They are copied.
///
/// The copy stays until `omniheap_share_withdraw`, also when this process ends. The device is under an arbiter (`OMNIHEAP_ARBITER`). `heap` may be
/// `OMNIHEAP_ANY`. `NAME_TAKEN` where something is published under the name.
///
/// # Safety
///
/// `name` is null or a C string; `bytes` is null or `length` bytes may be read there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_publish(
    manager: OmniheapManager,
    heap: u32,
    name: *const c_char,
    bytes: *const c_void,
    length: usize,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name") }?;
        check_many(bytes.cast::<u8>(), length, "bytes")?;
        // SAFETY: not null nor too long, and otherwise the caller's promise.
        let mut bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        let heap = chosen(&holder, heap)?;
        on!(holder, device => {
            Ok(publish_whole(device, heap, name, length as u64, &mut bytes)?)
        })
    })
}

/// Attaches what is published under a name. `NOT_PUBLISHED` where there is nothing that this user may attach.
///
/// The bytes are there once, whoever attaches them: read them, and never write them. The manager cannot be closed before they are detached.
///
/// # Safety
///
/// `name` is null or a C string; `attached` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_attach(
    manager: OmniheapManager,
    heap: u32,
    name: *const c_char,
    attached: *mut OmniheapAttached,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name") }?;
        check(attached, "attached")?;
        let heap = chosen(&holder, heap)?;
        let bytes: Box<dyn AnyAttached> = on!(holder, device => {
            Ok(Box::new(attach(Arc::clone(device), heap, name)?) as _)
        })?;
        let id = ATTACHED.insert(Attachment { bytes, _owner: Owner::new(&holder) })?;
        // SAFETY: as above.
        unsafe { put(attached, OmniheapAttached { id }, "attached") }
    })
}

/// Says how many bytes are attached, and the address that kernels see: zero where the backend has none, or where they were published in
/// several blocks by another library.
///
/// # Safety
///
/// `address` and `length` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_place(
    attached: OmniheapAttached,
    address: *mut u64,
    length: *mut u64,
) -> OmniheapStatus {
    call(|| {
        let held = ATTACHED.get(attached.id)?;
        // SAFETY: the caller's promise.
        unsafe { put(length, held.bytes.length(), "length") }?;
        // SAFETY: as above.
        unsafe { put(address, held.bytes.address().unwrap_or(0), "address") }
    })
}

/// Reads attached bytes from an offset on. `OUT_OF_RANGE` leaves `bytes` alone; where the device fails, they are unspecified.
///
/// # Safety
///
/// `bytes` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_read(
    attached: OmniheapAttached,
    offset: u64,
    bytes: *mut c_void,
    length: usize,
) -> OmniheapStatus {
    call(|| {
        let held = ATTACHED.get(attached.id)?;
        check_many(bytes.cast::<u8>(), length, "bytes")?;
        let end = offset.checked_add(length as u64);
        end.filter(|end| *end <= held.bytes.length()).ok_or(ErrorKind::OutOfRange)?;
        // SAFETY: not null nor too long, and otherwise the caller's promise. The bytes may never have been written: they are set first, so
        // that the slice holds values.
        unsafe { bytes.cast::<u8>().write_bytes(0, length) };
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts_mut(bytes.cast::<u8>(), length) };
        Ok(held.bytes.read(offset, bytes)?)
    })
}

/// Reads all attached bytes and compares their digest with that of publication: `CHANGED` where it differs.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_share_check(attached: OmniheapAttached) -> OmniheapStatus {
    call(|| match ATTACHED.get(attached.id)?.bytes.is_unchanged()? {
        true => Ok(()),
        false => {
            let why = "the bytes are not those that were published; publish them again";
            Err(Failure::new(OmniheapStatus::Changed, why))
        }
    })
}

/// Lets attached memory go, after the device has finished all work. The address is stale then. Where another thread is in a call with it, it is
/// let go when that call ends.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_share_detach(attached: OmniheapAttached) -> OmniheapStatus {
    call(|| ATTACHED.remove(attached.id).map(drop))
}

/// Ends a publication of this user. Its memory is free once no process has it attached. `NOT_PUBLISHED` where there is
/// none.
///
/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_share_withdraw(
    manager: OmniheapManager,
    name: *const c_char,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name") }?;
        on!(holder, device => Ok(withdraw(device, name)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_heap_is_one_that_kernels_use() {
        // SAFETY: null stands for the usual settings.
        let settings = unsafe { crate::open::settings(core::ptr::null()) }.expect("the usual ones");
        let holder = Holder::host(settings).expect("host memory is always there");
        let any = chosen(&holder, OMNIHEAP_ANY).expect("there is one");
        let kind = holder.manager.caps().heap(any).map(|heap| heap.kind);
        assert_eq!(kind, Some(HeapKind::Device));
        assert_eq!(chosen(&holder, 1).ok(), Some(HeapId(1)));
    }
}
