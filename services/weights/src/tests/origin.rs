//! Pools that sleep over their weights files.

use super::{Bad, EIO, Sample};
use crate::{Load, LoadWeights, Loaded, Origin};
use core::sync::atomic::Ordering;
use omniheap_core::{
    Align, AllocationId, BackingStore, ErrorKind, GetPiece, HeapId, HeapKind, Manager, PoolConfig,
    Privacy, PutPiece, Request, Result, Sleep, UserPool, Wake,
};
use omniheap_host::{Host, heap};
use omniheap_residency::{Arena, ArenaConfig, HostStore, Nothing};
use std::collections::HashMap;
use std::sync::Arc;

/// Weights in a pool that sleeps, and something beside them that no file has.
struct Asleep {
    sample: Sample,
    manager: Manager<Host>,
    pool: UserPool<Host>,
    loaded: Loaded<Host>,
    arena: Arena,
}

impl Asleep {
    fn new() -> Self {
        let paged = |kind| heap(kind, 256 << 20).page(Some(Align::of(64 << 10)));
        let host = Host::builder().heap(paged(HeapKind::Device)).heap(paged(HeapKind::Staging));
        let manager = Manager::new(host.open().unwrap());
        let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).unwrap();
        let sample = Sample::new();
        let loaded = manager.load_weights(&sample.file, &Load::new().into(&pool)).unwrap();
        let mut config = ArenaConfig::default();
        (config.piece, config.threads) = (4 << 20, Some(1));
        Self { sample, manager, pool, loaded, arena: Arena::with_config(config).unwrap() }
    }

    fn origin(&self, disk: Bad) -> Arc<Origin> {
        let origin = Origin::over(HostStore::within(&self.arena), Box::new(disk));
        origin.remember(&self.sample.file, &self.loaded).unwrap();
        origin
    }

    fn sleep(&self, origin: &Arc<Origin>) -> omniheap_core::Slept {
        let store: Arc<dyn BackingStore> = Arc::clone(origin) as _;
        self.pool.sleep(&Sleep::to(store)).unwrap()
    }

    /// Returns every byte of the allocations that belongs to no tensor.
    fn between_tensors(&self) -> Vec<u8> {
        let mut wholes = HashMap::new();
        for one in &self.loaded {
            let Some(allocation) = one.allocation() else { continue };
            let whole: &mut Vec<Option<u8>> = wholes.entry(allocation.id()).or_insert_with(|| {
                let mut bytes = vec![0; usize::try_from(allocation.size()).unwrap()];
                allocation.read(0, &mut bytes).unwrap();
                bytes.into_iter().map(Some).collect()
            });
            let span = one.span();
            let [start, end] = [span.offset, span.end()].map(|at| usize::try_from(at).unwrap());
            whole[start..end].fill(None);
        }
        wholes.into_values().flatten().flatten().collect()
    }

    fn touch(&self) {
        let path = &self.sample.file.files()[0].path;
        let later = std::time::SystemTime::now() + core::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    }

    /// Puts the time of the file back.
    fn untouch(&self, before: std::time::SystemTime) {
        let path = &self.sample.file.files()[0].path;
        std::fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }

    fn modified(&self) -> std::time::SystemTime {
        std::fs::metadata(&self.sample.file.files()[0].path).unwrap().modified().unwrap()
    }
}

#[test]
fn loaded_bytes_are_read_again_and_only_the_others_are_copied() {
    let one = Asleep::new();
    let own = one.pool.allocate(&Request::new(100_000)).unwrap();
    own.fill(0, 100_000, 9).unwrap();
    let origin = one.origin(Bad::default());
    let layer = &one.loaded["0.0"];
    let refused = layer.allocation().unwrap().write(0, &[1; 256]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Published, "a sleep would lose it");
    for _ in 0..2 {
        let slept = one.sleep(&origin);
        assert!(slept.copied < 200_000 && slept.live > 40 << 20, "{slept:?}");
        assert!(one.arena.report().held < 8 << 20, "no room was made for what files have");
        assert!(origin.away_bytes() > 40 << 20);
        one.pool.wake(&Wake::all()).unwrap();
        one.sample.compare(&one.loaded);
        let between = one.between_tensors();
        assert!(!between.is_empty() && between.iter().all(|byte| *byte == 0), "no leftovers");
        let mut bytes = vec![0; 100_000];
        own.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9));
        assert_eq!((origin.away_bytes(), one.arena.report().used), (0, 0));
    }
    assert!(origin.forget_origin(layer.allocation().unwrap().id()));
    assert!(one.sleep(&origin).copied > 9 << 20, "it is copied as usual");
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
}

#[test]
fn what_no_file_has_wakes_up_zeroed_where_the_other_store_keeps_nothing() {
    let one = Asleep::new();
    let own = one.pool.allocate(&Request::new(100_000)).unwrap();
    own.fill(0, 100_000, 9).unwrap();
    let origin = Origin::with(Nothing::new());
    origin.remember(&one.sample.file, &one.loaded).unwrap();
    one.sleep(&origin);
    let from_files = origin.away_bytes();
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
    let mut bytes = vec![9; 100_000];
    own.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    drop(own);
    one.sleep(&origin);
    assert_eq!(origin.away_bytes(), from_files, "zeros are in no file");
}

#[test]
fn what_is_kept_again_replaces_what_was_kept() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    let layer = one.loaded["0.0"].allocation().unwrap();
    let put = || {
        let fill = &mut |_: u64, bytes: &mut [u8]| {
            bytes.fill(7);
            Ok(())
        };
        origin.put(layer.id(), layer.size(), Privacy::Open, fill).unwrap();
    };
    put();
    assert!(origin.away_bytes() > 0, "a file has them");
    assert!(origin.forget_origin(layer.id()));
    put();
    let is_new = &mut |_: u64, bytes: &[u8]| {
        assert!(bytes.iter().all(|byte| *byte == 7));
        Ok(())
    };
    origin.get(layer.id(), is_new).unwrap();
    assert_eq!(origin.away_bytes(), 0);
    origin.forget(layer.id());
    assert_eq!(one.arena.report().used, 0);
}

/// Takes all bytes, and says late that it has none.
#[derive(Debug)]
struct Late;

impl BackingStore for Late {
    fn put(&self, _: AllocationId, _: u64, _: Privacy, _: &mut PutPiece<'_>) -> Result<()> {
        Ok(())
    }
    fn flush(&self, _: AllocationId) -> Result<()> {
        Err(ErrorKind::OutOfHostMemory.into())
    }
    fn get(&self, _: AllocationId, _: &mut GetPiece<'_>) -> Result<()> {
        Err(ErrorKind::Stale.into())
    }
    fn forget(&self, _: AllocationId) {}
}

#[test]
fn what_the_other_store_could_not_keep_keeps_the_pool_awake() {
    let one = Asleep::new();
    let _own = one.pool.allocate(&Request::new(100_000)).unwrap();
    let error = one.pool.sleep(&Sleep::to(Origin::with(Arc::new(Late)) as _)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfHostMemory);
    assert!(!one.pool.residence().asleep);
}

#[test]
fn loaded_bytes_that_nothing_has_any_more_keep_the_pool_awake() {
    let one = Asleep::new();
    let origin = Origin::with(Nothing::new());
    origin.remember(&one.sample.file, &one.loaded).unwrap();
    let before = one.modified();
    one.touch();
    let error = one.pool.sleep(&Sleep::to(Arc::clone(&origin) as _)).unwrap_err();
    assert!(error.to_string().contains("changed since it was loaded"), "{error}");
    assert!(!one.pool.residence().asleep);
    one.sample.compare(&one.loaded);
    one.untouch(before);
    one.sleep(&origin);
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
}

#[test]
fn tensors_that_overlap_are_copied() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    let layer = &one.loaded["0.0"];
    let number = one.sample.file.number("0.0").unwrap();
    let (id, at) = (layer.allocation().unwrap().id(), layer.span().offset);
    for overlapping in [at, at + layer.span().size - 1] {
        let tensors = [(number, at), (number, overlapping)];
        origin.remember_final(id, &one.sample.file, &tensors, || true);
        assert!(one.sleep(&origin).copied >= layer.span().size);
        one.pool.wake(&Wake::all()).unwrap();
        one.sample.compare(&one.loaded);
    }
}

#[test]
fn a_file_that_changed_before_the_sleep_is_not_relied_on() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    one.touch();
    let slept = one.sleep(&origin);
    assert!(slept.copied > 20 << 20 && origin.away_bytes() > 0, "one file of two: {slept:?}");
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
}

#[test]
fn a_file_that_changed_while_the_pool_slept_leaves_it_asleep() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    let before = one.modified();
    one.sleep(&origin);
    one.touch();
    let error = one.pool.wake(&Wake::all()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.to_string().contains("put it back"), "{error}");
    assert!(one.pool.residence().asleep);
    one.untouch(before);
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
}

#[test]
fn a_file_that_lost_its_name_while_the_pool_slept_is_read_all_the_same() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    let [replaced, deleted] = [0, 1].map(|at| one.sample.file.files()[at].path.clone());
    one.sleep(&origin);
    // Another copy of the same bytes, as a backup or a cache brings it, with the time of the first one.
    let copy = replaced.with_extension("copy");
    let before = one.modified();
    std::fs::copy(&replaced, &copy).unwrap();
    std::fs::File::options().write(true).open(&copy).unwrap().set_modified(before).unwrap();
    std::fs::rename(&copy, &replaced).unwrap();
    let bytes = std::fs::read(&deleted).unwrap();
    std::fs::remove_file(&deleted).unwrap();
    one.pool.wake(&Wake::all()).unwrap();
    std::fs::write(&deleted, bytes).unwrap();
    one.sample.compare(&one.loaded);
    // Awake, nothing is held: these names have other files by now, which were never loaded.
    let slept = one.sleep(&origin);
    assert!(slept.copied > 40 << 20, "{slept:?}");
    one.pool.wake(&Wake::all()).unwrap();
    one.sample.compare(&one.loaded);
}

#[test]
fn a_file_that_changes_while_it_is_read_leaves_the_pool_asleep() {
    let reads = Arc::default();
    let one = Asleep::new();
    let origin = one.origin(Bad { reads: Arc::clone(&reads), ..Bad::default() });
    one.sleep(&origin);
    one.pool.wake(&Wake::all()).unwrap();
    // With the last of them, nothing is opened any more.
    for changes in [1, reads.load(Ordering::Relaxed)] {
        let one = Asleep::new();
        let origin = one.origin(Bad { changes, ..Bad::default() });
        one.sleep(&origin);
        assert_eq!(one.pool.wake(&Wake::all()).unwrap_err().kind(), ErrorKind::Stale, "{changes}");
        assert!(one.pool.residence().asleep);
    }
}

#[test]
fn what_is_freed_asleep_is_forgotten() {
    let one = Asleep::new();
    let origin = one.origin(Bad::default());
    one.sleep(&origin);
    let Asleep { pool, loaded, manager, .. } = one;
    drop(loaded);
    assert_eq!(origin.away_bytes(), 0);
    pool.wake(&Wake::all()).unwrap();
    drop(pool);
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn every_call_that_fails_loses_nothing() {
    let one = Asleep::new();
    let cycle = |fails: u64| {
        let disk = Bad { fails, ..Bad::default() };
        let calls = Arc::clone(&disk.calls);
        let origin = one.origin(disk);
        // A file that cannot be opened now is not relied on: the bytes are copied.
        one.sleep(&origin);
        let woken = one.pool.wake(&Wake::all());
        if let Err(error) = woken {
            assert_eq!(error.kind(), ErrorKind::Driver, "{EIO} {error}");
            assert!(one.pool.residence().asleep, "call {fails}");
            one.pool.wake(&Wake::all()).unwrap();
        }
        one.sample.compare(&one.loaded);
        (calls.load(Ordering::Relaxed), woken.is_err())
    };
    let (calls, _) = cycle(0);
    assert!(calls > 20, "{calls} calls");
    let failed = (1..=calls).filter(|fails| cycle(*fails).1).count();
    assert!(failed > 5, "{failed} of {calls} calls that failed were noticed");
}
