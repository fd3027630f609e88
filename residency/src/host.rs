//! The store in host memory.
#![forbid(unsafe_code)]
use crate::arena::{Arena, ArenaReport, Stretch, ahead, round};
use crate::lock;
use omniheap_core::{
    AllocationId, Backend, BackingStore, ErrorKind, GetPiece, HostPinner, Manager, Privacy,
    PutPiece, Result,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Keeps bytes in host memory of an [`Arena`]. Several pools may share one.
#[derive(Debug)]
pub struct HostStore {
    arena: Arena,
    kept: Mutex<HashMap<AllocationId, Arc<Kept>>>,
}

/// The bytes of one allocation.
#[derive(Debug)]
struct Kept {
    stretches: Vec<Stretch>,
    privacy: Privacy,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.privacy == Privacy::Secret {
            self.stretches.iter_mut().for_each(Stretch::wipe);
        }
    }
}

impl HostStore {
    /// Creates a store in the arena of this process.
    #[must_use]
    #[expect(clippy::new_ret_no_self, reason = "a pool takes stores behind a shared pointer")]
    pub fn new() -> Arc<dyn BackingStore> {
        Self::within(Arena::of_process())
    }

    /// Creates a store in an arena.
    #[must_use]
    pub fn within(arena: &Arena) -> Arc<dyn BackingStore> {
        Arc::new(Self { arena: arena.clone(), kept: Mutex::new(HashMap::new()) })
    }

    fn fill(&self, size: u64, copy: &mut PutPiece<'_>, into: &mut Vec<Stretch>) -> Result<()> {
        let mut at = 0;
        while at < size {
            let mut stretch = self.arena.take((size - at).min(self.arena.longest()))?;
            let copied = copy(at, stretch.bytes_mut());
            at += stretch.bytes().len() as u64;
            into.push(stretch);
            copied?;
        }
        Ok(())
    }
}

impl Arena {
    /// Has the arena hold at least `bytes` bytes, lent ones included, and a device pin them, piece after piece. A sleep at the same
    /// time uses what is ready.
    ///
    /// # Errors
    ///
    /// As for [`prepare`](Self::prepare). What the device does not pin is logged, and copied slower.
    pub fn hold(&self, backend: &impl Backend, bytes: u64) -> Result<()> {
        let store = HostStore::within(self);
        self.check_room(round(bytes.saturating_sub(self.report().held))?)?;
        std::thread::scope(|scope| {
            loop {
                let ArenaReport { held, used, .. } = self.report();
                if held >= bytes {
                    return Ok(());
                }
                self.prepare(held - used + round(bytes - held)?.min(self.longest()))?;
                // The next piece is touched meanwhile.
                scope.spawn(|| HostPinner::lend(backend, &*store));
            }
        })
    }

    /// As [`hold`](Self::hold), by a thread in the background: call it while the program loads, and the first sleep is as fast as
    /// those behind it. Failures are logged, and met again by whoever takes.
    pub fn hold_ahead<B: Backend + 'static>(&self, manager: &Manager<B>, bytes: u64) {
        let (arena, manager) = (self.clone(), manager.clone());
        ahead(bytes, move || arena.hold(manager.backend(), bytes));
    }
}

impl BackingStore for HostStore {
    fn prepare(&self, bytes: u64) -> Result<()> {
        self.arena.prepare(bytes)
    }

    fn pin(&self, pinner: &HostPinner<'_>) {
        self.arena.pin(pinner);
    }

    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        // Dropped on failure, so that a secret that arrived in part is overwritten.
        let mut kept = Kept { stretches: Vec::new(), privacy };
        self.fill(size, copy, &mut kept.stretches)?;
        let before = lock(&self.kept).insert(id, Arc::new(kept));
        drop(before);
        Ok(())
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let kept = lock(&self.kept).get(&id).cloned().ok_or(ErrorKind::Stale)?;
        let mut at = 0;
        for stretch in &kept.stretches {
            take(at, stretch.bytes())?;
            at += stretch.bytes().len() as u64;
        }
        Ok(())
    }

    fn forget(&self, id: AllocationId) {
        let kept = lock(&self.kept).remove(&id);
        drop(kept);
    }
}
