//! The store in host memory.
#![forbid(unsafe_code)]
use crate::arena::{Arena, ArenaReport, Stretch};
use crate::lock;
use omniheap_core::{
    AllocationId, BackingStore, ErrorKind, GetPiece, HostPinner, Privacy, PutPiece, Result,
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
            let mut stretch = self.arena.take_up_to(size - at)?;
            let copied = copy(at, stretch.bytes_mut());
            at += stretch.bytes().len() as u64;
            into.push(stretch);
            copied?;
        }
        Ok(())
    }
}

impl BackingStore for HostStore {
    fn prepare(&self, bytes: u64, pinner: &HostPinner<'_>) -> Result<()> {
        let missing = |now: &ArenaReport| bytes.saturating_sub(now.held - now.used);
        self.arena.grow_pinned(pinner, missing)
    }

    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        self.forget(id); // Its bytes may be needed for the new ones.
        // Dropped on failure, so that a secret that arrived in part is overwritten.
        let mut kept = Kept { stretches: Vec::new(), privacy };
        self.fill(size, copy, &mut kept.stretches)?;
        lock(&self.kept).insert(id, Arc::new(kept));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::ArenaConfig;
    use omniheap_core::{Manager, Request};
    use omniheap_host::Host;

    const SIZE: u64 = 3 << 20;

    #[test]
    fn what_is_kept_again_replaces_what_was_kept() {
        let config = ArenaConfig { piece: 4 << 20, maximum: 4 << 20, ..ArenaConfig::default() };
        let arena = Arena::with_config(config).expect("a valid setting");
        let (manager, store) = (Manager::new(Host::new()), HostStore::within(&arena));
        let one = manager.allocate(&Request::new(64)).expect("small").id();
        for _ in 0..2 {
            let put = store.put(one, SIZE, Privacy::Open, &mut |_, _| Ok(()));
            put.expect("there is room for one of them");
        }
        let full = store.put(one, SIZE, Privacy::Open, &mut |_, _| Err(ErrorKind::Busy.into()));
        assert!(full.is_err(), "what the copy says");
        let got = store.get(one, &mut |_, _| Ok(())).map_err(|error| error.kind());
        assert_eq!((got, arena.report().used), (Err(ErrorKind::Stale), 0));
    }

    #[test]
    fn what_was_prepared_is_enough_however_it_is_divided() {
        let config = ArenaConfig { piece: 4 << 20, ..ArenaConfig::default() };
        let arena = Arena::with_config(config).expect("a valid setting");
        let (manager, store) = (Manager::new(Host::new()), HostStore::within(&arena));
        let all: Vec<_> =
            (0..4).map(|_| manager.allocate(&Request::new(64)).expect("small")).collect();
        let prepared =
            HostPinner::lend(manager.backend(), |pinner| store.prepare(4 * SIZE, pinner));
        prepared.expect("room");
        for (value, one) in (0..).zip(&all) {
            let fill = &mut |at: u64, bytes: &mut [u8]| {
                bytes.fill(value);
                bytes[0] = at.to_le_bytes()[2]; // Which MiB it starts in.
                Ok(())
            };
            store.put(one.id(), SIZE, Privacy::Open, fill).expect("room");
        }
        assert_eq!(arena.report().held, 4 * SIZE, "one in each piece, one in what they leave");
        for (value, one) in (0..).zip(&all) {
            let mut seen = 0;
            let take = &mut |at: u64, bytes: &[u8]| {
                assert_eq!((at, bytes[0], bytes[1]), (seen, at.to_le_bytes()[2], value));
                seen += bytes.len() as u64;
                Ok(())
            };
            store.get(one.id(), take).expect("kept");
            assert_eq!(seen, SIZE);
        }
    }
}
