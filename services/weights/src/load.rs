//! Loading of weights into memory, of a manager or of another owner.
#![expect(unsafe_code, reason = "hands memory to the reader")]

use crate::arrange::{ALIGN, Arrangement, Spot, arrange};
use crate::disk::{Disk, System};
use crate::error::{Error, ErrorKind};
use crate::list::List;
use crate::plan::{Want, add, plan};
use crate::run::{Run, Target};
use crate::{Tensor, WeightsFile};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{ControlFlow, Index};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    Align, AllocateError, Allocation, Backend, Binding, BlockOffset, ErrorKind as Device, Heap,
    HeapId, HeapKind, HostAccess, Manager, Mapped, Request, Span, TimelineId, UserPool,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the ring, unless [`Load::ring`] says otherwise.
const RING: u64 = 128 << 20;

/// Progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes whose copies were started.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

type Only<'a> = Box<dyn Fn(&Tensor) -> bool + 'a>;
type OnProgress<'a> = Box<dyn Fn(Progress) -> ControlFlow<()> + 'a>;

/// Settings of a load.
#[must_use]
pub struct Load<'a, B: Backend> {
    only: Option<Only<'a>>,
    pool: Option<&'a UserPool<B>>,
    on: Option<TimelineId>,
    progress: Option<OnProgress<'a>>,
    ring: u64,
    threads: Option<usize>,
    disk: &'a dyn Disk,
}

impl<B: Backend> fmt::Debug for Load<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load")
            .field("on", &self.on)
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Default for Load<'_, B> {
    fn default() -> Self {
        Self {
            only: None,
            pool: None,
            on: None,
            progress: None,
            ring: RING,
            threads: None,
            disk: &System,
        }
    }
}

impl<'a, B: Backend> Load<'a, B> {
    /// Loads every tensor into the manager's own pools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads only the tensors that `keep` accepts. Files without any of them are not opened.
    pub fn only(mut self, keep: impl Fn(&Tensor) -> bool + 'a) -> Self {
        self.only = Some(Box::new(keep));
        self
    }

    /// Allocates from a pool.
    pub const fn into(mut self, pool: &'a UserPool<B>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Copies on a timeline, which also frees the allocations in order. Otherwise the load has a timeline of its own.
    pub const fn on(mut self, timeline: TimelineId) -> Self {
        self.on = Some(timeline);
        self
    }

    /// Calls `report` on the caller's thread as bytes arrive. `Break` cancels the load.
    pub fn progress(mut self, report: impl Fn(Progress) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Some(Box::new(report));
        self
    }

    /// Sets the most bytes of pinned memory that the load uses beside the tensors (default 128 MiB, at least 16).
    pub const fn ring(mut self, bytes: u64) -> Self {
        self.ring = bytes;
        self
    }

    /// Sets the number of threads that read (default one for each core, 16 at most; 16 where bytes are only on disk).
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Some(count.max(1));
        self
    }

    #[cfg(test)]
    pub(crate) const fn disk(mut self, disk: &'a dyn Disk) -> Self {
        self.disk = disk;
        self
    }

    fn wants(&self, tensor: &Tensor) -> bool {
        self.only.as_ref().is_none_or(|keep| keep(tensor))
    }
}

/// A tensor in device memory.
#[derive(Debug)]
pub struct LoadedTensor<B: Backend> {
    list: Arc<List>,
    number: usize,
    allocation: Option<Arc<Allocation<B>>>,
    span: Span,
}

impl<B: Backend> LoadedTensor<B> {
    /// Returns name, type, shape, and its place in the file.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.list.tensors()[self.number]
    }

    /// Returns the allocation that holds it; small tensors share one. `None` for a tensor of no bytes.
    #[must_use]
    pub fn allocation(&self) -> Option<&Arc<Allocation<B>>> {
        self.allocation.as_ref()
    }

    /// Returns its bytes inside the allocation.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.span
    }
}

/// Tensors in device memory, by name. Dropping it frees them.
#[derive(Debug)]
pub struct Loaded<B: Backend> {
    list: Arc<List>,
    /// Tensors by number.
    tensors: Vec<LoadedTensor<B>>,
}

impl<B: Backend> Loaded<B> {
    /// Finds a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LoadedTensor<B>> {
        let number = self.list.find(name)?;
        let found = self.tensors.binary_search_by_key(&number, |one| one.number);
        found.ok().map(|at| &self.tensors[at])
    }

    /// Returns all tensors in the order of the files.
    pub fn iter(&self) -> core::slice::Iter<'_, LoadedTensor<B>> {
        self.tensors.iter()
    }
}

impl<'a, B: Backend> IntoIterator for &'a Loaded<B> {
    type Item = &'a LoadedTensor<B>;
    type IntoIter = core::slice::Iter<'a, LoadedTensor<B>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<B: Backend> Index<&str> for Loaded<B> {
    type Output = LoadedTensor<B>;

    /// # Panics
    ///
    /// Panics when no tensor has this name; [`get`](Loaded::get) returns `None`.
    fn index(&self, name: &str) -> &Self::Output {
        self.get(name).unwrap_or_else(|| panic!("no tensor {name:?} was loaded"))
    }
}

/// Memory of another owner.
#[derive(Debug)]
pub enum Destination<'a, B: Backend> {
    /// An allocation, from an offset on.
    Allocation(&'a Allocation<B>, u64),
    /// A block of the backend, from an offset on, with the bytes that may be written there.
    Block(BlockOffset<'a, B::Block>, u64),
    /// Host memory.
    Host(&'a mut [u8]),
    /// Host memory that may be uninitialized. All of the tensor's bytes are written once the load has succeeded.
    Unwritten(&'a mut [MaybeUninit<u8>]),
}

impl<B: Backend> Destination<'_, B> {
    /// Returns the identity of the memory, and the offset inside it.
    fn memory(&self) -> (usize, u64) {
        match self {
            Self::Allocation(allocation, offset) => (ptr::from_ref(*allocation).addr(), *offset),
            Self::Block(place, _) => (ptr::from_ref(place.block).addr(), place.offset),
            Self::Host(bytes) => (bytes.as_ptr().addr(), 0),
            Self::Unwritten(bytes) => (bytes.as_ptr().addr(), 0),
        }
    }
}

/// Loads weights with a manager.
pub trait LoadWeights<B: Backend> {
    /// Allocates and loads tensors.
    ///
    /// Tensors of a megabyte or more have an allocation of their own; smaller ones share. The bytes have arrived when the call
    /// returns, for every timeline.
    ///
    /// # Examples
    ///
    /// ```
    /// use omniheap_core::Manager;
    /// use omniheap_weights::{Load, LoadWeights, WeightsFile};
    ///
    /// # let path = std::env::temp_dir().join("omniheap-weights-example.safetensors");
    /// # let header = br#"{"layers.0.wq":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    /// # let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    /// # bytes.extend_from_slice(header);
    /// # bytes.extend_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
    /// # std::fs::write(&path, bytes).unwrap();
    /// let manager = Manager::new(omniheap_host::Host::new());
    /// let file = WeightsFile::open(&[path])?;
    /// let load = Load::new().only(|tensor| tensor.name.starts_with("layers.0"));
    /// let loaded = manager.load_weights(&file, &load)?;
    ///
    /// let wq = &loaded["layers.0.wq"];
    /// let mut values = [0; 8];
    /// wq.allocation().unwrap().read(wq.span().offset, &mut values).unwrap();
    /// assert_eq!(values[..4], 1.0_f32.to_le_bytes());
    /// # Ok::<(), omniheap_weights::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Allocate` when memory is short, `Io`, `Changed` and `Device` with file and offset, `Cancelled`. Everything is free again
    /// then.
    fn load_weights(&self, file: &WeightsFile, load: &Load<'_, B>) -> Result<Loaded<B>, Error>;

    /// Loads named tensors into memory of another owner.
    ///
    /// # Errors
    ///
    /// `NoSuchTensor`, `DestinationSize` and `Destination` before anything is written; otherwise as for
    /// [`load_weights`](Self::load_weights), and the destinations then hold any mixture of old and new bytes.
    fn load_weights_to(
        &self,
        file: &WeightsFile,
        destinations: Vec<(&str, Destination<'_, B>)>,
        load: &Load<'_, B>,
    ) -> Result<(), Error>;
}

impl<B: Backend> LoadWeights<B> for Manager<B> {
    fn load_weights(&self, file: &WeightsFile, load: &Load<'_, B>) -> Result<Loaded<B>, Error> {
        let (numbers, tensors): (Vec<_>, Vec<_>) =
            file.tensors().iter().enumerate().filter(|(_, tensor)| load.wants(tensor)).unzip();
        let arrangement = arrange(&tensors, self.caps().copy.align);
        let allocate = |size: &u64| allocate(self, load, *size).map(Arc::new);
        let allocations: Result<Vec<_>, _> = arrangement.sizes.iter().map(allocate).collect();
        let allocations =
            allocations.map_err(|error| no_file(ErrorKind::Allocate(Box::new(error))))?;
        let views: Vec<_> = allocations.iter().map(|allocation| view(self, allocation)).collect();
        let targets: Vec<_> = views.iter().map(View::target).collect();
        let wants = wants(&tensors, &arrangement);
        // SAFETY: host targets are mapped allocations that were just made for these tensors.
        unsafe { run(self, file, wants, &targets, load) }?;
        drop(targets);
        drop(views);
        let place = |(number, spot)| place(&file.list, number, spot, &allocations);
        let tensors = numbers.into_iter().zip(&arrangement.spots).map(place).collect();
        Ok(Loaded { list: Arc::clone(&file.list), tensors })
    }

    fn load_weights_to(
        &self,
        file: &WeightsFile,
        destinations: Vec<(&str, Destination<'_, B>)>,
        load: &Load<'_, B>,
    ) -> Result<(), Error> {
        let (mut wants, mut views) = (Vec::new(), Vec::new());
        let (mut by_memory, mut last) = (HashMap::new(), None);
        let mut next = 0;
        let find = |(name, destination): &(&str, Destination<'_, B>)| {
            let no_such = || ErrorKind::NoSuchTensor((*name).into());
            let number = file.list.find_near(next, name).ok_or_else(no_such)?;
            next = number + 1;
            let tensor = &file.tensors()[number];
            check_destination(self, tensor, destination).map(|()| tensor)
        };
        let tensors: Result<Vec<_>, _> = destinations.iter().map(find).collect();
        let found = tensors.map_err(no_file)?.into_iter().zip(destinations);
        for (tensor, (_, destination)) in found.filter(|(tensor, _)| tensor.size > 0) {
            let (memory, target_offset) = destination.memory();
            // Tensors that share memory share a target: neighbours there are one copy.
            let find = || {
                *by_memory.entry(memory).or_insert_with(|| {
                    views.push(reach(self, destination));
                    views.len() - 1
                })
            };
            let target = match last {
                Some((same, target)) if same == memory => target,
                _ => find(),
            };
            last = Some((memory, target));
            let Tensor { file, offset, size, .. } = *tensor;
            add(&mut wants, Want { file, offset, size, target, target_offset });
        }
        let targets: Vec<_> = views.iter().map(View::target).collect();
        // SAFETY: `check_destination` saw that each has room, and the caller lends host slices exclusively.
        unsafe { run(self, file, wants, &targets, load) }
    }
}

fn no_file(kind: ErrorKind) -> Error {
    Error::new(Path::new(""), kind)
}

fn allocate<B: Backend>(
    manager: &Manager<B>,
    load: &Load<'_, B>,
    size: u64,
) -> Result<Allocation<B>, AllocateError> {
    let mut request = Request::new(size).align(alignment(manager, load.pool)).name("weights");
    request.timeline = load.on;
    match load.pool {
        Some(pool) => pool.allocate(&request),
        None => manager.allocate(&request),
    }
}

/// Returns the alignment of tensors, or what the memory has where that is less: software devices promise little.
fn alignment<B: Backend>(manager: &Manager<B>, pool: Option<&UserPool<B>>) -> Align {
    let heaps = manager.caps().heap_ids();
    let serves = |(id, heap): &(HeapId, &Heap)| match pool {
        Some(pool) => pool.heap() == *id,
        None => matches!(heap.kind, HeapKind::Device | HeapKind::Unified),
    };
    let most = heaps.filter(serves).map(|(_, heap)| heap.align).max();
    most.map_or(ALIGN, |most| ALIGN.min(most))
}

/// A target, and what keeps it in place.
enum View<'a, B: Backend> {
    Mapped(Mapped<'a, B>),
    Bound(Binding<'a, B>),
    Block(&'a B::Block),
    Host(NonNull<u8>, PhantomData<&'a mut [u8]>),
}

impl<B: Backend> View<'_, B> {
    fn target(&self) -> Target<'_, B> {
        match self {
            Self::Mapped(mapped) => Target::Host(mapped.as_ptr(), PhantomData),
            Self::Bound(binding) => Target::Device(BlockOffset {
                block: binding.block(),
                offset: binding.span().offset,
            }),
            Self::Block(block) => Target::Device(BlockOffset { block: *block, offset: 0 }),
            Self::Host(start, _) => Target::Host(*start, PhantomData),
        }
    }
}

/// Returns the fastest way to an allocation: its mapping where the host has it cached, else the device's copies.
fn view<'a, B: Backend>(manager: &Manager<B>, allocation: &'a Allocation<B>) -> View<'a, B> {
    let heap = manager.caps().heap(allocation.heap());
    let is_cached = heap.is_some_and(|heap| heap.host == HostAccess::Cached);
    match is_cached.then(|| allocation.map()) {
        Some(Ok(mapped)) => View::Mapped(mapped),
        _ => View::Bound(allocation.binding()),
    }
}

fn reach<'a, B: Backend>(manager: &Manager<B>, destination: Destination<'a, B>) -> View<'a, B> {
    match destination {
        Destination::Host(bytes) => View::Host(NonNull::from(bytes).cast(), PhantomData),
        Destination::Unwritten(bytes) => View::Host(NonNull::from(bytes).cast(), PhantomData),
        Destination::Block(place, _) => View::Block(place.block),
        Destination::Allocation(allocation, _) => view(manager, allocation),
    }
}

/// Refuses a destination that is too small, final, or that the device cannot copy to.
fn check_destination<B: Backend>(
    manager: &Manager<B>,
    tensor: &Tensor,
    destination: &Destination<'_, B>,
) -> Result<(), ErrorKind> {
    let refused = |kind: Device| {
        Err(ErrorKind::Destination { name: tensor.name.to_string(), error: kind.into() })
    };
    let align = manager.caps().copy.align;
    let (has, offset) = match destination {
        Destination::Host(bytes) => (bytes.len() as u64, 0),
        Destination::Unwritten(bytes) => (bytes.len() as u64, 0),
        Destination::Block(place, size) => (*size, place.offset),
        Destination::Allocation(allocation, offset) => {
            if allocation.is_published() {
                return refused(Device::Published);
            }
            (allocation.size().saturating_sub(*offset), *offset)
        }
    };
    let needs = match destination {
        Destination::Host(_) | Destination::Unwritten(_) => tensor.size,
        // The device copies whole units.
        _ => align.up(tensor.size).unwrap_or(u64::MAX),
    };
    if has < needs {
        return Err(ErrorKind::DestinationSize { name: tensor.name.to_string(), needs, has });
    }
    if align.divides(offset) { Ok(()) } else { refused(Device::Misaligned) }
}

fn wants(tensors: &[&Tensor], arrangement: &Arrangement) -> Vec<Want> {
    let mut wants = Vec::new();
    for (tensor, spot) in tensors.iter().zip(&arrangement.spots).filter(|(one, _)| one.size > 0) {
        let Tensor { file, offset, size, .. } = **tensor;
        let (target, target_offset) = (spot.group, spot.offset);
        add(&mut wants, Want { file, offset, size, target, target_offset });
    }
    wants
}

fn place<B: Backend>(
    list: &Arc<List>,
    number: usize,
    spot: &Spot,
    allocations: &[Arc<Allocation<B>>],
) -> LoadedTensor<B> {
    let size = list.tensors()[number].size;
    LoadedTensor {
        list: Arc::clone(list),
        number,
        allocation: (size > 0).then(|| Arc::clone(&allocations[spot.group])),
        span: Span { offset: spot.offset, size },
    }
}

/// A timeline that is closed when the load ends.
struct Timeline<'a, B: Backend> {
    manager: &'a Manager<B>,
    id: TimelineId,
    is_ours: bool,
}

impl<'a, B: Backend> Timeline<'a, B> {
    fn new(manager: &'a Manager<B>, given: Option<TimelineId>) -> Self {
        let open = || manager.backend().as_timelines()?.open().ok();
        match given {
            Some(id) => Self { manager, id, is_ours: false },
            // A device without spare queues copies on its main one.
            None => open().map_or(Self { manager, id: TimelineId::MAIN, is_ours: false }, |id| {
                Self { manager, id, is_ours: true }
            }),
        }
    }
}

impl<B: Backend> Drop for Timeline<'_, B> {
    fn drop(&mut self) {
        if let (true, Some(lines)) = (self.is_ours, self.manager.backend().as_timelines()) {
            // The timeline has passed: the load waited for its copies, or the device failed.
            let _ = lines.close(self.id);
        }
    }
}

/// Plans the reads and runs them.
///
/// # Safety
///
/// As for [`Run::run`].
unsafe fn run<B: Backend>(
    manager: &Manager<B>,
    file: &WeightsFile,
    wants: Vec<Want>,
    targets: &[Target<'_, B>],
    load: &Load<'_, B>,
) -> Result<(), Error> {
    let reads = plan(wants);
    if reads.is_empty() {
        return Ok(());
    }
    let total = reads.iter().map(crate::plan::Read::payload).sum();
    let done = AtomicU64::new(0);
    let report = |arrived| {
        let done = done.fetch_add(arrived, Ordering::Relaxed) + arrived;
        load.progress
            .as_ref()
            .map_or(ControlFlow::Continue(()), |report| report(Progress { done, total }))
    };
    let timeline = Timeline::new(manager, load.on);
    let run = Run {
        manager,
        disk: load.disk,
        parts: file.files(),
        reads: &reads,
        targets,
        on: timeline.id,
        ring: load.ring,
        threads: load.threads,
    };
    // SAFETY: the caller's promise.
    unsafe { run.run(&report) }
}
