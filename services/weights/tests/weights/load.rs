//! Loads: every byte arrives, wherever it goes, and bad input changes nothing.

use crate::write::{self, Folder, Given};
use core::cell::Cell;
use core::ops::ControlFlow;
use omniheap_core::{Align, HeapKind, Manager, PoolConfig, Request};
use omniheap_host::{Host, heap, real_devices};
use omniheap_layers::{Fault, Plan};
use omniheap_weights::{Destination, Dtype, ErrorKind, Load, LoadWeights, Loaded, WeightsFile};
use std::path::PathBuf;
use zip::CompressionMethod;

fn compare<B: omniheap_core::Backend>(loaded: &Loaded<B>, given: &[Given]) {
    assert_eq!(loaded.iter().len(), given.len());
    for one in given {
        let found = &loaded[&one.name];
        assert_eq!(found.tensor().dtype, one.dtype);
        let mut bytes = vec![0; one.bytes.len()];
        if let Some(allocation) = found.allocation() {
            read(allocation, found.span().offset, &mut bytes);
        }
        assert!(bytes == one.bytes, "{} differs", one.name);
    }
}

fn read<B: omniheap_core::Backend>(
    allocation: &omniheap_core::Allocation<B>,
    offset: u64,
    bytes: &mut [u8],
) {
    let mut padded = vec![0; bytes.len().next_multiple_of(256)];
    allocation.read(offset, &mut padded).unwrap();
    bytes.copy_from_slice(&padded[..bytes.len()]);
}

/// Tensors of many sizes that follow from `seed`.
fn sample(seed: u64, types: &[Dtype]) -> Vec<Given> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    (0..1 + next(12))
        .map(|number| {
            let dtype = types[usize::try_from(next(types.len() as u64)).unwrap()];
            let most = 1 << next(11);
            let rows = if next(9) == 0 { 0 } else { 1 + next(most) };
            let shape = [rows, dtype.block().0 * (1 + next(5))];
            Given::new(&format!("t{number}"), dtype, &shape, seed + number)
        })
        .collect()
}

fn files(folder: &Folder, seed: u64) -> (PathBuf, Vec<Given>) {
    const COMMON: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I64, Dtype::U8];
    const BLOCKS: &[Dtype] = &[Dtype::F32, Dtype::Q4_0, Dtype::Q6K, Dtype::Iq4Nl];
    let given = sample(seed, if seed % 3 == 1 { BLOCKS } else { COMMON });
    let bytes = match seed % 3 {
        0 => write::safetensors(&given),
        1 => write::gguf(3, 32, &[], &given),
        _ => write::torch(&write::state_dict(&given).0, &given, CompressionMethod::Stored),
    };
    (folder.write(&format!("{seed}.weights"), &bytes), given)
}

#[test]
fn three_hundred_files_of_three_formats() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    for seed in 0..300 {
        let (path, given) = files(&folder, seed);
        let file = WeightsFile::open(&[path]).unwrap();
        compare(&manager.load_weights(&file, &Load::new()).unwrap(), &given);
    }
    assert_eq!(manager.report().totals.live, 0);
}

/// A device that copies units of four bytes, as some do.
fn coarse() -> Manager<Host> {
    // Little is aligned here, as pinned memory of some drivers is.
    let mut staging = heap(HeapKind::Staging, 256 << 20);
    staging.align = Align::of(256);
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 256 << 20))
        .heap(staging)
        .copy_align(Align::of(4));
    Manager::new(host.open().unwrap())
}

#[test]
fn devices_that_copy_whole_words() {
    let folder = Folder::new();
    let manager = coarse();
    for seed in 0..30 {
        let (path, given) = files(&folder, seed);
        let file = WeightsFile::open(&[path]).unwrap();
        compare(&manager.load_weights(&file, &Load::new()).unwrap(), &given);
    }
}

/// Every heap that takes writes, of every kind of device: mapped and not, aligned to words, of pages and of blocks.
#[test]
fn every_heap_of_every_real_device() {
    let folder = Folder::new();
    let made: Vec<_> = (0..6).map(|seed| files(&folder, seed)).collect();
    let files: Vec<_> =
        made.iter().map(|(path, given)| (WeightsFile::open(&[path]).unwrap(), given)).collect();
    for caps in real_devices() {
        let manager = Manager::new(Host::like(caps).unwrap());
        let heaps = manager.caps().heap_ids();
        for (heap, about) in heaps.filter(|(_, about)| about.kind != HeapKind::Constant) {
            println!("{about:?} of {}", manager.caps().device.name);
            let pool = manager.create_pool(heap, PoolConfig::default()).unwrap();
            for (file, given) in &files {
                compare(&manager.load_weights(file, &Load::new().into(&pool)).unwrap(), given);
            }
        }
        assert_eq!(manager.report().totals.live, 0);
    }
}

/// As lavapipe does: blocks begin at multiples of 64 bytes.
#[test]
fn devices_that_align_less_than_tensors_would_like() {
    let folder = Folder::new();
    let mut device = heap(HeapKind::Device, 256 << 20);
    device.align = Align::of(64);
    let host = Host::builder().heap(device).heap(heap(HeapKind::Staging, 256 << 20));
    let manager = Manager::new(host.open().unwrap());
    let pool = manager.create_pool(omniheap_core::HeapId(0), PoolConfig::new()).unwrap();
    for seed in 0..3 {
        let (path, given) = files(&folder, seed);
        let file = WeightsFile::open(&[path]).unwrap();
        for load in [Load::new(), Load::new().into(&pool)] {
            compare(&manager.load_weights(&file, &load).unwrap(), &given);
        }
    }
}

#[test]
fn some_tensors_into_a_pool() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given: Vec<_> = (0..20)
        .map(|number| Given::new(&format!("layers.{number}"), Dtype::F32, &[1000], number))
        .collect();
    let file = WeightsFile::open(&[folder.write("a", &write::safetensors(&given))]).unwrap();
    let unified =
        manager.caps().heap_ids().find(|(_, heap)| heap.kind == HeapKind::Unified).unwrap().0;
    let pool = manager.create_pool(unified, PoolConfig::default()).unwrap();
    let load = Load::new().only(|tensor| tensor.name.ends_with('3')).into(&pool);
    let loaded = manager.load_weights(&file, &load).unwrap();
    compare(&loaded, &[given[3].clone(), given[13].clone()]);
    assert!(pool.reserved() > 0);
    assert!(loaded.get("layers.4").is_none());
}

#[test]
fn small_tensors_share_an_allocation() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given: Vec<_> = (0..2000)
        .map(|number| Given::new(&format!("t{number}"), Dtype::U8, &[100], number))
        .collect();
    let file = WeightsFile::open(&[folder.write("a", &write::safetensors(&given))]).unwrap();
    let loaded = manager.load_weights(&file, &Load::new()).unwrap();
    compare(&loaded, &given);
    assert_eq!(manager.report().totals.live, 1);
}

#[test]
fn memory_that_somebody_else_has() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given = [Given::new("a", Dtype::U8, &[3_000_001], 1), Given::new("b", Dtype::F32, &[4], 2)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let allocation = manager.allocate(&Request::new(4 << 20)).unwrap();
    let mut host = vec![0; 16];
    let to =
        vec![("a", Destination::Allocation(&allocation, 512)), ("b", Destination::Host(&mut host))];
    manager.load_weights_to(&file, to, &Load::new()).unwrap();
    let mut got = vec![0; given[0].bytes.len()];
    allocation.read(512, &mut got).unwrap();
    assert!(got == given[0].bytes);
    assert_eq!(host, given[1].bytes);
}

#[test]
fn destinations_that_do_not_fit_are_refused_before_anything_is_written() {
    let folder = Folder::new();
    let manager = coarse();
    let given = [Given::new("a", Dtype::U8, &[64], 1), Given::new("b", Dtype::U8, &[64], 2)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let (good, small) = (
        manager.allocate(&Request::new(64)).unwrap(),
        manager.allocate(&Request::new(128)).unwrap(),
    );
    good.fill(0, 64, 7).unwrap();
    let load = |name: &'static str, bad: Destination<'_, Host>| {
        let to = vec![("a", Destination::Allocation(&good, 0)), (name, bad)];
        let error = manager.load_weights_to(&file, to, &Load::new()).unwrap_err();
        let mut bytes = [0; 64];
        good.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 64], "{error}");
        error
    };
    let small_error = load("b", Destination::Allocation(&small, 68));
    assert!(matches!(small_error.kind(), ErrorKind::DestinationSize { needs: 64, has: 60, .. }));
    assert!(matches!(
        load("b", Destination::Allocation(&small, 2)).kind(),
        ErrorKind::Destination { .. }
    ));
    assert!(matches!(
        load("b", Destination::Host(&mut [0; 63])).kind(),
        ErrorKind::DestinationSize { .. }
    ));
    assert!(matches!(load("c", Destination::Host(&mut [])).kind(), ErrorKind::NoSuchTensor(_)));
    small.publish().unwrap();
    assert!(matches!(
        load("b", Destination::Allocation(&small, 0)).kind(),
        ErrorKind::Destination { .. }
    ));
}

#[test]
fn memory_that_is_short_leaves_nothing_behind() {
    let folder = Folder::new();
    let manager = coarse();
    let given: Vec<_> = (0..9)
        .map(|number| Given::new(&format!("t{number}"), Dtype::U8, &[32 << 20], number))
        .collect();
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let error = manager.load_weights(&file, &Load::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Allocate(_)), "{error:?}");
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn files_that_change_are_refused() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given = [Given::new("a", Dtype::U8, &[20 << 20], 1)];
    let bytes = write::safetensors(&given);
    let path = folder.write("w", &bytes);
    let kind = |change: &dyn Fn()| {
        std::fs::write(&path, &bytes).unwrap();
        let file = WeightsFile::open(&[&path]).unwrap();
        let is_first = Cell::new(true);
        let load = Load::new().ring(16 << 20).progress(|_| {
            if is_first.replace(false) {
                change();
            }
            ControlFlow::Continue(())
        });
        let error = manager.load_weights(&file, &load).unwrap_err();
        assert_eq!(manager.report().totals.live, 0);
        assert_eq!(error.path(), path);
        error
    };
    let shrunk =
        kind(&|| std::fs::File::options().write(true).open(&path).unwrap().set_len(1000).unwrap());
    assert!(matches!(shrunk.kind(), ErrorKind::Changed), "{shrunk:?}");
    let touched = kind(&|| {
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"x").unwrap();
    });
    assert!(matches!(touched.kind(), ErrorKind::Changed), "{touched:?}");
    // Between opening and loading.
    std::fs::write(&path, &bytes).unwrap();
    let file = WeightsFile::open(&[&path]).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(5).unwrap();
    let error = manager.load_weights(&file, &Load::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Changed), "{error:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_that_starts_no_thread_is_an_error_and_leaves_nothing_behind() {
    use omniheap_core::{HeapId, Sleep, Wake};
    const NAME: &str = "load::a_system_that_starts_no_thread_is_an_error_and_leaves_nothing_behind";
    // In a process of its own, as the tests beside it need threads.
    if std::env::var_os("OMNIHEAP_ALONE").is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME]).env("OMNIHEAP_ALONE", "1");
        let ran = command.output().unwrap();
        return assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    }
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given = [Given::new("a", Dtype::U8, &[9 << 20], 1)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).unwrap();
    let loaded = manager.load_weights(&file, &Load::new().into(&pool)).unwrap();
    let origin = omniheap_weights::Origin::with(omniheap_residency::HostStore::new());
    origin.remember(&file, &loaded).unwrap();
    pool.sleep(&Sleep::to(origin)).unwrap();
    // Its header is so long that threads share it.
    let many: Vec<_> =
        (0..8000).map(|at| Given::new(&format!("layer.{at}"), Dtype::U8, &[1], 1)).collect();
    let wide = folder.write("wide", &write::safetensors(&many));
    forbid_threads();
    assert_eq!(WeightsFile::open(&[wide]).unwrap().tensors().len(), 8000, "one thread parses it");
    let error = manager.load_weights(&file, &Load::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
    assert_eq!(manager.report().totals.live, 1);
    assert!(pool.wake(&Wake::all()).is_err() && pool.residence().asleep);
}

#[cfg(target_os = "linux")]
fn forbid_threads() {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit of this process, which runs one test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    // SAFETY: as above. Root has no such limit; others may not become this user, and need not.
    unsafe { libc::setresuid(65534, 65534, 65534) };
}

#[test]
fn a_cancelled_load_leaves_nothing_behind() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given = [Given::new("a", Dtype::U8, &[64 << 20], 1)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let load = Load::new().progress(|_| ControlFlow::Break(()));
    let error = manager.load_weights(&file, &load).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error:?}");
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn progress_counts_every_byte_once() {
    let folder = Folder::new();
    let manager = Manager::new(Host::new());
    let given = [Given::new("a", Dtype::U8, &[20 << 20], 1), Given::new("b", Dtype::U8, &[999], 2)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let last = Cell::new((0, 0));
    let load = Load::new().progress(|progress| {
        assert!(progress.done > last.get().0);
        last.set((progress.done, progress.total));
        ControlFlow::Continue(())
    });
    manager.load_weights(&file, &load).unwrap();
    let total = (20 << 20) + 999;
    assert_eq!(last.get(), (total, total));
    // Some reads go to host memory, one to a slot of which a part does, and others to the device.
    last.set((0, 0));
    let small = manager.allocate(&Request::new(1024)).unwrap();
    let mut host = vec![0; 20 << 20];
    let to = vec![("a", Destination::Host(&mut host)), ("b", Destination::Allocation(&small, 0))];
    manager.load_weights_to(&file, to, &load).unwrap();
    assert_eq!(last.get(), (total, total));
    assert!(host == given[0].bytes);
}

#[test]
fn every_device_call_that_fails_leaves_nothing_behind() {
    let folder = Folder::new();
    let given = [Given::new("a", Dtype::U8, &[5 << 20], 1), Given::new("b", Dtype::U8, &[999], 2)];
    let file = WeightsFile::open(&[folder.write("w", &write::safetensors(&given))]).unwrap();
    let dry = Manager::new(Fault::new(Host::new()));
    manager_load(&dry, &file, &given).unwrap();
    let mut failed = 0;
    for at in 0..dry.backend().seen() {
        for pick in 0..3 {
            let manager = Manager::new(Fault::new(Host::new()));
            manager.backend().inject(Plan::Nth(at), pick);
            failed += u32::from(manager_load(&manager, &file, &given).is_err());
            manager.backend().inject(Plan::Never, 0);
            assert_eq!(manager.report().totals.live, 0, "call {at} left something");
            manager_load(&manager, &file, &given).unwrap();
        }
    }
    assert!(failed > 0, "no call that failed was noticed");
}

fn manager_load(
    manager: &Manager<Fault<Host>>,
    file: &WeightsFile,
    given: &[Given],
) -> Result<(), omniheap_weights::Error> {
    let loaded = manager.load_weights(file, &Load::new())?;
    manager.backend().inject(Plan::Never, 0);
    compare(&loaded, given);
    Ok(())
}
