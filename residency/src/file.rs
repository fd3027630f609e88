//! The store in a file.
#![forbid(unsafe_code)]
use crate::checksum::checksum;
use crate::disk::{is_in_memory, punch};
use crate::lock;
use crate::pipe::{Pipe, UNIT};
use omniheap_core::strategy::{Grant, Strategy, Tlsf};
use omniheap_core::{
    Align, AllocationId, BackingStore, Class, Error, ErrorKind, GetPiece, Layout, Privacy,
    PutPiece, Result, StoreKind,
};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Bytes that have one checksum. They are copied together, so that the processor's cache has them while they are summed up.
const CHECKED: usize = 1 << 20;
/// The file is divided in extents of at least so many bytes: addresses only, the disk is not asked for them.
const EXTENT: u64 = 1 << 40;

/// Keeps bytes in a file without a name: it is gone with the process, however that ends. Several pools may share one.
///
/// Refuses secret allocations, and a process that was forked from the one that opened it. Bytes are checked when they come back: damaged ones are an error, and the pool stays asleep.
#[derive(Debug)]
pub struct FileStore {
    pipe: Pipe,
    in_memory: bool,
    /// The process that opened it: a forked child has the same file, and its own idea of what is where.
    process: u32,
    kept: Mutex<Contents>,
}

#[derive(Debug)]
struct Contents {
    strategy: Tlsf,
    /// Where extents start in the file.
    extents: Vec<u64>,
    end: u64,
    by_id: HashMap<AllocationId, Arc<Kept>>,
}

/// The bytes of one allocation.
#[derive(Debug)]
struct Kept {
    grant: Grant,
    /// Where they start in the file.
    at: u64,
    size: u64,
    /// One for each MiB.
    sums: Vec<u64>,
}

impl FileStore {
    /// Opens a file in a directory. Nothing is to be seen in the directory, now or after a crash.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` where the directory does not exist or cannot be written; `Unsupported` where its file system has no files without
    /// a name. The log says what the system said.
    pub fn open(directory: impl AsRef<Path>) -> Result<Arc<Self>> {
        let directory = directory.as_ref();
        let flags = libc::O_TMPFILE | libc::O_CLOEXEC;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(directory);
        let file = opened.map_err(|error| refused(directory, &error))?;
        let in_memory = is_in_memory(&file);
        if in_memory {
            let directory = directory.display();
            tracing::warn!(%directory, "the directory is in memory: sleeping there frees no host memory");
        }
        let (extents, by_id) = (Vec::new(), HashMap::new());
        let kept = Contents { strategy: Tlsf::new(Align::ONE), extents, end: 0, by_id };
        let pipe = if in_memory { Pipe::cached(file) } else { Pipe::direct(file) };
        let process = std::process::id();
        Ok(Arc::new(Self { pipe, in_memory, process, kept: Mutex::new(kept) }))
    }

    /// Returns whether the directory is in memory (tmpfs), so that the file takes host memory.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Writes an allocation's bytes, and returns their checksums.
    fn write(&self, at: u64, size: u64, copy: &mut PutPiece<'_>) -> Result<Vec<u64>> {
        let mut sums = Vec::new();
        let fill = |from: u64, bytes: &mut [u8]| {
            for (from, part) in (from..).step_by(CHECKED).zip(bytes.chunks_mut(CHECKED)) {
                copy(from, part)?;
                sums.push(checksum(part));
            }
            Ok(())
        };
        self.pipe.write(at, size, fill).map(|()| sums)
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Gives a place of the file back, and its bytes to the disk.
    fn give_back(&self, at: u64, grant: Grant) {
        if self.is_own() {
            punch(self.pipe.file(), at, grant.span.size);
        }
        let freed = lock(&self.kept).strategy.free(grant.key);
        debug_assert!(freed.is_ok(), "a place is live until it is given back");
    }
}

impl Contents {
    fn take(&mut self, size: u64) -> Result<(u64, Grant)> {
        let size = UNIT.up(size).ok_or(ErrorKind::SizeOverflow)?;
        let layout = Layout { size, align: UNIT };
        let grant = match self.strategy.allocate(layout, Class::Linear) {
            Ok(grant) => grant,
            Err(_) => {
                let extent = size.max(EXTENT);
                let end = self.end.checked_add(extent).ok_or(ErrorKind::SizeOverflow)?;
                self.strategy.add_block(extent)?;
                self.extents.push(self.end);
                self.end = end;
                self.strategy.allocate(layout, Class::Linear)?
            }
        };
        Ok((self.extents[grant.block.0 as usize] + grant.span.offset, grant))
    }
}

impl BackingStore for FileStore {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        if !self.accepts(privacy) {
            return Err(ErrorKind::Unsupported.because("secret bytes are not written to files"));
        }
        if !self.is_own() {
            let why = "the backing file belongs to the parent process";
            return Err(ErrorKind::Unsupported.because(why));
        }
        let (at, grant) = lock(&self.kept).take(size)?;
        match self.write(at, size, copy) {
            Ok(sums) => {
                let kept = Arc::new(Kept { grant, at, size, sums });
                lock(&self.kept).by_id.insert(id, kept);
                Ok(())
            }
            Err(error) => {
                self.give_back(at, grant);
                Err(error)
            }
        }
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let kept = lock(&self.kept).by_id.get(&id).cloned().ok_or(ErrorKind::Stale)?;
        let mut sums = kept.sums.iter();
        self.pipe.read(kept.at, kept.size, |from, bytes| {
            for (from, part) in (from..).step_by(CHECKED).zip(bytes.chunks(CHECKED)) {
                if sums.next() != Some(&checksum(part)) {
                    return Err(ErrorKind::Driver.because("the backing file's bytes are damaged"));
                }
                take(from, part)?;
            }
            Ok(())
        })
    }

    fn kind(&self) -> StoreKind {
        StoreKind::File
    }

    fn forget(&self, id: AllocationId) {
        let kept = lock(&self.kept).by_id.remove(&id);
        if let Some(kept) = kept {
            self.give_back(kept.at, kept.grant);
        }
    }

    fn accepts(&self, privacy: Privacy) -> bool {
        privacy == Privacy::Open
    }
}

/// Why a directory does not do.
fn refused(directory: &Path, error: &io::Error) -> Error {
    let shown = directory.display();
    tracing::error!(directory = %shown, %error, "no backing file in this directory");
    let native = i64::from(error.raw_os_error().unwrap_or(0));
    let error = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EISDIR) => ErrorKind::Unsupported
            .because("the directory's file system has no files without a name; choose another one"),
        _ => ErrorKind::InvalidConfig
            .because("the backing store's directory does not exist or cannot be written"),
    };
    error.with_native(native)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{PIECE, failed};
    use omniheap_core::{Manager, Request};
    use omniheap_host::Host;
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = PIECE + 5000;

    fn id() -> AllocationId {
        let manager = Manager::new(Host::new());
        manager.allocate(&Request::new(64)).expect("small").id()
    }

    fn put(store: &FileStore, id: AllocationId) -> Result<()> {
        store.put(id, SIZE, Privacy::Open, &mut |at, bytes| {
            bytes.fill(u8::try_from(at / PIECE + 3).expect("few pieces"));
            Ok(())
        })
    }

    fn get(store: &FileStore, id: AllocationId) -> Result<u64, ErrorKind> {
        let mut seen = 0;
        let got = store.get(id, &mut |at, bytes| {
            let wanted = u8::try_from(at / PIECE + 3).expect("few pieces");
            assert!(at == seen && bytes.iter().all(|byte| *byte == wanted));
            seen += bytes.len() as u64;
            Ok(())
        });
        got.map(|()| seen).map_err(|error| error.kind())
    }

    #[test]
    fn bytes_stay_until_they_are_forgotten_and_the_directory_stays_empty() {
        let directory = std::env::temp_dir().join(format!("omniheap-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a folder");
        let (store, one, other) = (FileStore::open(&directory).expect("a file"), id(), id());
        put(&store, one).expect("room");
        put(&store, other).expect("room");
        assert_eq!((get(&store, one), get(&store, other)), (Ok(SIZE), Ok(SIZE)));
        store.forget(one);
        store.forget(one);
        assert_eq!((get(&store, one), get(&store, other)), (Err(ErrorKind::Stale), Ok(SIZE)));
        // So nothing is left after a kill, either.
        assert_eq!(std::fs::read_dir(&directory).expect("the folder").count(), 0);
        std::fs::remove_dir(&directory).expect("it is empty");
    }

    #[test]
    fn damage_is_noticed() {
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        put(&store, one).expect("room");
        let (mut byte, file) = ([0], store.pipe.file());
        file.read_exact_at(&mut byte, PIECE + 1).expect("written");
        file.write_all_at(&[byte[0] ^ 1], PIECE + 1).expect("open");
        assert_eq!(get(&store, one), Err(ErrorKind::Driver), "one bit");
        file.write_all_at(&byte, PIECE + 1).expect("open");
        assert_eq!(get(&store, one), Ok(SIZE));
        file.set_len(PIECE).expect("open");
        assert_eq!(get(&store, one), Err(ErrorKind::Driver), "cut short");
    }

    #[test]
    fn what_can_not_be_stored_is_refused() {
        let kind = |result: Result<Arc<FileStore>>| result.map(drop).map_err(|error| error.kind());
        assert_eq!(kind(FileStore::open("/no/such/folder")), Err(ErrorKind::InvalidConfig));
        let (store, one) = (FileStore::open(std::env::temp_dir()).expect("a file"), id());
        let secret = store.put(one, 64, Privacy::Secret, &mut |_, _| Ok(()));
        assert_eq!(secret.map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
        let failed = store.put(one, 64, Privacy::Open, &mut |_, _| Err(ErrorKind::Busy.into()));
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::Busy));
        assert_eq!(get(&store, one), Err(ErrorKind::Stale), "nothing of it is kept");
        assert_eq!(failed_kind(libc::ENOSPC), ErrorKind::OutOfHostMemory);
        assert_eq!(failed_kind(libc::EIO), ErrorKind::Driver);
    }

    fn failed_kind(code: i32) -> ErrorKind {
        failed(&io::Error::from_raw_os_error(code)).kind()
    }

    #[test]
    fn memory_is_said_to_be_memory() {
        let shared = Path::new("/dev/shm");
        if shared.is_dir() {
            assert!(FileStore::open(shared).expect("a file").is_in_memory());
        }
    }
}
