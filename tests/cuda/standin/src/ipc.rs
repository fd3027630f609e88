//! Old-style handles: plain memory that another process opens by the exporter's process and descriptor.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::space::{self, Kind, Range};
use crate::{file, pages};

/// Bytes of a handle.
pub(crate) type Bytes = [u8; 64];

const MAGIC: u64 = 0x4950_435F_5354_414E;

static EXPORTED: Mutex<BTreeMap<u64, File>> = Mutex::new(BTreeMap::new());

fn exported() -> MutexGuard<'static, BTreeMap<u64, File>> {
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a handle of the plain memory that begins at an address.
pub(crate) fn export(base: u64) -> Answer<Bytes> {
    let range = space::at(base, |kind| kind == Kind::Plain).ok_or(Code::INVALID_VALUE)?;
    let mut exported = exported();
    // A number that no other memory ever has, so that an old file is not taken for that of new memory.
    let key = range.id;
    let file = match exported.entry(key) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(free) => {
            let file = file::create(range.size.next_multiple_of(pages::PAGE))?;
            space::share(base, file.as_fd())?;
            free.insert(file)
        }
    };
    let inode = file.metadata().map_err(|_| Code::UNKNOWN)?.ino();
    let descriptor = u64::try_from(file.as_raw_fd()).map_err(|_| Code::UNKNOWN)?;
    let words = [MAGIC, std::process::id().into(), descriptor, inode, range.size];
    let mut bytes = [0; 64];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

/// Opens the memory of a handle.
pub(crate) fn open(bytes: Bytes, context: u64, device: u32) -> Answer<u64> {
    let word =
        |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
    if word(0) != MAGIC {
        return Err(Code::INVALID_VALUE);
    }
    if word(1) == u64::from(std::process::id()) {
        return Err(Code::INVALID_CONTEXT); // Its own memory a process has already.
    }
    let path = format!("/proc/{}/fd/{}", word(1), word(2));
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|_| Code::INVALID_VALUE)?;
    if file.metadata().map_err(|_| Code::UNKNOWN)?.ino() != word(3) {
        return Err(Code::INVALID_VALUE);
    }
    let base = space::allocate(Range::new(word(4), Kind::Opened, context, device))?;
    space::place(base, word(4).next_multiple_of(pages::PAGE), file.as_fd())?;
    Ok(base)
}
