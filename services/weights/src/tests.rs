//! Loads over a disk that fails: every call in turn, and every way round that a system may force.
#![expect(unsafe_code, reason = "stands in for the disk")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod origin;

use crate::disk::{Access, Buffer, Disk, System};
use crate::error::{ErrorKind, Fault};
use crate::file::State;
use crate::{Destination, Error, Load, LoadWeights, Loaded, WeightsFile};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use omniheap_core::{HeapKind, HostAccess, Manager};
use omniheap_host::{Host, heap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The system's disk, made to misbehave.
#[derive(Default)]
struct Bad {
    /// The call that fails, from 1; 0 for none.
    fails: u64,
    calls: Arc<AtomicU64>,
    /// Nothing counts as cached.
    is_cold: bool,
    /// Direct I/O cannot be opened.
    no_direct: bool,
    /// The file that direct I/O opens, because it took the name meanwhile.
    replaced_by: Option<PathBuf>,
    /// Direct I/O opens, and then refuses every read.
    direct_refuses: bool,
    /// Most bytes of a read; 0 for all.
    short: usize,
    /// The read with which the file changes, from 1; 0 for none.
    changes: u64,
    reads: Arc<AtomicU64>,
}

const EIO: i32 = 5;

fn step(calls: &AtomicU64, fails: u64) -> io::Result<()> {
    let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
    if call == fails { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
}

impl Bad {
    fn failing(fails: u64) -> Self {
        Self { fails, is_cold: true, ..Self::default() }
    }

    fn step(&self) -> io::Result<()> {
        step(&self.calls, self.fails)
    }
}

impl Disk for Bad {
    fn open(&self, path: &Path, access: Access) -> io::Result<File> {
        self.step()?;
        if access == Access::Direct && self.no_direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let other = self.replaced_by.as_deref().filter(|_| access == Access::Direct);
        System.open(other.unwrap_or(path), access)
    }

    fn state(&self, file: &File) -> Result<State, Fault> {
        self.step()?;
        System.state(file)
    }

    fn is_cached(&self, file: &File, offset: u64, length: u64) -> io::Result<bool> {
        self.step()?;
        if self.is_cold { Ok(false) } else { System.is_cached(file, offset, length) }
    }

    unsafe fn read(&self, file: &File, offset: u64, buffers: &[Buffer]) -> io::Result<usize> {
        self.step()?;
        if self.direct_refuses && is_direct(file) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.reads.fetch_add(1, Ordering::Relaxed) + 1 == self.changes {
            file.set_modified(SystemTime::now() + Duration::from_secs(5))?;
        }
        // SAFETY: the caller's promise, for some of the bytes.
        unsafe { System.read(file, offset, &first(buffers, self.short)) }
    }
}

/// The first bytes of buffers; all of them for 0.
fn first(buffers: &[Buffer], bytes: usize) -> Vec<Buffer> {
    let mut left = if bytes == 0 { usize::MAX } else { bytes };
    let cut = |buffer: &Buffer| {
        let length = buffer.length.min(left);
        left -= length;
        Buffer { start: buffer.start, length }
    };
    buffers.iter().map(cut).filter(|buffer| buffer.length > 0).collect()
}

fn is_direct(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: asks for the flags of an open file.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_DIRECT != 0
}

/// Two safetensors files of some reads each, with a tensor of no bytes.
struct Sample {
    folder: PathBuf,
    file: WeightsFile,
}

impl Sample {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir()
            .join(format!("omniheap-weights-unit-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let paths: Vec<_> = (0..2)
            .map(|shard| {
                let path = folder.join(format!("{shard}.safetensors"));
                std::fs::write(&path, bytes_of(shard)).unwrap();
                path
            })
            .collect();
        let file = WeightsFile::open(&paths).unwrap();
        Self { folder, file }
    }

    /// Loads, and compares every tensor with its file.
    fn load(&self, manager: &Manager<Host>, disk: &Bad) -> Result<(), Error> {
        let loaded = manager.load_weights(&self.file, &Load::new().disk(disk))?;
        self.compare(&loaded);
        Ok(())
    }

    fn compare(&self, loaded: &Loaded<Host>) {
        assert_eq!(loaded.iter().len(), self.file.tensors().len());
        let wholes: Vec<_> =
            self.file.files().iter().map(|part| std::fs::read(&part.path).unwrap()).collect();
        for one in loaded {
            let (tensor, whole) = (one.tensor(), &wholes[one.tensor().file]);
            let range =
                usize::try_from(tensor.offset).unwrap()..usize::try_from(tensor.end()).unwrap();
            let mut got = vec![0; range.len()];
            if let Some(allocation) = one.allocation() {
                allocation.read(one.span().offset, &mut got).unwrap();
            }
            assert!(got == whole[range], "{} differs", tensor.name);
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn bytes_of(shard: usize) -> Vec<u8> {
    let sizes = [9 << 20, 0, 1001, 3 << 20, 77, 8 << 20];
    let (mut header, mut at) = (Vec::new(), 0);
    for (number, size) in sizes.iter().enumerate() {
        let end = at + size;
        header.push(format!(
            r#""{shard}.{number}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{at},{end}]}}"#
        ));
        at = end;
    }
    let header = format!("{{{}}}", header.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    let mut state = 7 + shard as u64;
    bytes.extend((0..at / 8 + 1).flat_map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 8).to_le_bytes()
    }));
    bytes.truncate(8 + header.len() + at);
    bytes
}

#[test]
fn every_way_round_gives_the_same_bytes() {
    let sample = Sample::new();
    let manager = Manager::new(Host::new());
    for is_cold in [false, true] {
        for case in 0..8 {
            let flag = |bit: u32| case >> bit & 1 == 1;
            let disk = Bad {
                is_cold,
                no_direct: flag(0),
                direct_refuses: flag(1),
                short: if flag(2) { 8192 + 512 } else { 0 },
                ..Bad::default()
            };
            sample.load(&manager, &disk).unwrap();
        }
    }
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_not_mixed_with_the_other() {
    let sample = Sample::new();
    let other = sample.folder.join("other");
    std::fs::write(&other, vec![1; bytes_of(0).len()]).unwrap();
    let disk = Bad { replaced_by: Some(other), ..Bad::failing(0) };
    sample.load(&Manager::new(Host::new()), &disk).unwrap();
}

#[test]
fn small_neighbours_are_read_together_wherever_they_go() {
    let sample = Sample::new();
    let path = sample.folder.join("small");
    let entries: Vec<_> = (0..3000)
        .map(|at| {
            let [begin, end] = [at, at + 1].map(|at| at * 1000);
            format!(r#""{at}":{{"dtype":"U8","shape":[1000],"data_offsets":[{begin},{end}]}}"#)
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    bytes.extend_from_slice(&data);
    std::fs::write(&path, bytes).unwrap();
    let file = WeightsFile::open(&[&path]).unwrap();
    let manager = Manager::new(Host::new());
    // Short reads end in the middle of one of many slices.
    for (short, most) in [(0, 10), (100_000, 60), (1500, 3000)] {
        let mut slices = vec![[0; 1000]; 3000];
        let named = file.tensors().iter().zip(&mut slices);
        let to = named.map(|(one, to)| (one.name.as_str(), Destination::Host(to))).collect();
        let disk = Bad { short, ..Bad::default() };
        manager.load_weights_to(&file, to, &Load::new().disk(&disk)).unwrap();
        assert!(slices.concat() == data, "reads of {short} bytes");
        let reads = disk.reads.load(Ordering::Relaxed);
        assert!(reads <= most, "{reads} reads of {short} bytes");
    }
}

#[test]
fn every_call_that_fails_is_named_or_gone_round() {
    let sample = Sample::new();
    for is_cold in [false, true] {
        let manager = Manager::new(Host::new());
        let dry = Bad { is_cold, ..Bad::default() };
        sample.load(&manager, &dry).unwrap();
        let calls = dry.calls.load(Ordering::Relaxed);
        assert!(calls > 15, "{calls} calls are no load");
        let mut failed = 0;
        for fails in 1..=calls {
            match sample.load(&manager, &Bad { is_cold, ..Bad::failing(fails) }) {
                // Gone round: without direct I/O, or by another read.
                Ok(()) => {}
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
                    assert!(error.path().starts_with(&sample.folder), "{error:?}");
                }
            }
            assert_eq!(manager.report().totals.live, 0, "call {fails} left something");
        }
        assert!(failed > 0, "no call that failed was noticed");
    }
}

#[test]
fn a_disk_that_dies_half_way_is_named_with_its_offset() {
    /// Every read from the second on fails.
    struct Dying(AtomicU64);
    impl Disk for Dying {
        fn open(&self, path: &Path, access: Access) -> io::Result<File> {
            System.open(path, access)
        }
        fn state(&self, file: &File) -> Result<State, Fault> {
            System.state(file)
        }
        fn is_cached(&self, _: &File, _: u64, _: u64) -> io::Result<bool> {
            Ok(true)
        }
        unsafe fn read(&self, file: &File, offset: u64, buffers: &[Buffer]) -> io::Result<usize> {
            if self.0.fetch_add(1, Ordering::Relaxed) > 0 {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            // SAFETY: the caller's promise.
            unsafe { System.read(file, offset, buffers) }
        }
    }
    let sample = Sample::new();
    let manager = Manager::new(Host::new());
    let disk = Dying(AtomicU64::new(0));
    let error = manager.load_weights(&sample.file, &Load::new().disk(&disk)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(cause) if cause.raw_os_error() == Some(EIO)));
    assert!(error.offset().is_some() && error.path().starts_with(&sample.folder), "{error}");
    assert_eq!(manager.report().totals.live, 0);
}

#[test]
fn threads_that_share_a_file_read_their_own_bytes() {
    const PART: usize = 4096;
    let path = std::env::temp_dir().join(format!("omniheap-threads-{}", std::process::id()));
    let bytes: Vec<_> = (0..8_u8).flat_map(|value| [value; PART]).collect();
    std::fs::write(&path, bytes).unwrap();
    let file = System.open(&path, Access::Cached).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::thread::scope(|scope| {
        for value in 0..8_u8 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let mut found = [0; PART];
                    let offset = u64::from(value) * PART as u64;
                    assert_eq!(System.read_to(file, offset, &mut found).unwrap(), PART);
                    assert!(found == [value; PART], "bytes of another range");
                }
            });
        }
    });
}

#[test]
fn a_device_whose_memory_the_host_cannot_map_is_loaded_by_writes() {
    let sample = Sample::new();
    // As wgpu, which maps nothing for long, and a device without any memory for uploads.
    let hidden = |kind| {
        let mut hidden = heap(kind, 256 << 20);
        hidden.host = HostAccess::None;
        hidden
    };
    let device = || Host::builder().heap(hidden(HeapKind::Device));
    for host in [device().heap(hidden(HeapKind::Staging)), device()] {
        let manager = Manager::new(host.open().unwrap());
        for is_cold in [false, true] {
            sample.load(&manager, &Bad { is_cold, ..Bad::default() }).unwrap();
        }
    }
}
