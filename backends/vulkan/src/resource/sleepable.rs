//! Buffers and images that leave the device and come back with their bytes, each time with a new handle.
#![expect(unsafe_code, reason = "works on handles that the caller describes")]
use super::{
    owned::{Native, Resource},
    recipe::{BufferRecipe, ImageRecipe, ON, Phase, Recipe},
};
use crate::Vulkan;
use ash::vk;
use core::fmt;
use omniheap_core::{
    AllocateError, AllocationId, BackingStore, HostPinner, Manager, Privacy, Residence, Sleep,
    SleepError, Sleepable, Slept, StoreKind, Wake,
};
use omniheap_seam::{
    Epoch, ErrorKind, HeapId, HeapKind, Point, Result, TimelineId, Timelines, lock,
};
use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, TryLockError},
    thread::{self, ThreadId},
};

/// Bytes of zeros that are copied at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of the largest block of texels. All others are fractions of it.
const LARGEST_BLOCK: u64 = 16;

/// Lanes of which a store gets bytes now, and by which threads.
static KEEPING: Mutex<Vec<(StoreLane, ThreadId)>> = Mutex::new(Vec::new());
/// Notified when a lane leaves [`KEEPING`].
static KEPT: Condvar = Condvar::new();

/// A buffer or image of an engine's own that can leave the device and come back with its bytes.
///
/// It is put to sleep and woken by the [`Sleepable`] trait, or by a set of residents that it was added to. A sleep waits for the work that used it, copies
/// its bytes to a store, destroys the handle and frees the memory. A wake creates it again by the same description, copies the bytes in, and
/// returns once they are there. The handle is another one after each wake, and with it views and descriptor sets: [`wakes`](Self::wakes) says
/// when to make them again.
///
/// A buffer's device address is another one after each wake too. Where addresses must stay, allocate in a pool that sleeps.
///
/// The copies run on the main timeline: the resource belongs to its queue family, or is shared by several. It keeps its manager alive, so drop it before the
/// device is destroyed.
pub struct SleepableResource<H: Native> {
    manager: Manager<Vulkan>,
    recipe: Box<dyn Recipe<H>>,
    heap: HeapId,
    /// Locked for a whole sleep or wake.
    body: Mutex<Body<H>>,
    /// Locked for moments.
    seen: Mutex<Seen<H>>,
}

/// The resource, or the place of its bytes.
enum Body<H: Native> {
    Here(Resource<H>),
    Away { store: Arc<dyn BackingStore>, id: AllocationId },
}

/// Figures that are read without waiting.
#[derive(Clone, Copy)]
struct Seen<H> {
    handle: H,
    is_asleep: bool,
    /// `Resting`, but where it could not be turned back.
    phase: Phase,
    wakes: u64,
    /// Bytes of memory, of which it has or needs so many.
    memory: u64,
    used: Used,
}

/// Epoch of all work, behind the work that used a resource; `None` where the driver could not mark it.
#[derive(Clone, Copy)]
struct Used(Option<Epoch>);

impl Used {
    /// Notes a mark. Threads mark at once and note later, so an older mark replaces no newer one. One that failed stays: nobody knows how
    /// far that work reaches, and each sleep marks all work until a wake begins anew.
    fn note(&mut self, mark: Option<Epoch>) {
        self.0 = self.0.zip(mark).map(|(known, new)| known.max(new));
    }
}

impl<H: Native> fmt::Debug for SleepableResource<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { handle, is_asleep, wakes, .. } = *lock(&self.seen);
        f.debug_struct("SleepableResource")
            .field("handle", &handle)
            .field("is_asleep", &is_asleep)
            .field("wakes", &wakes)
            .finish_non_exhaustive()
    }
}

impl<H: Native> Drop for SleepableResource<H> {
    fn drop(&mut self) {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Body::Away { store, id } = body {
            store.forget(*id);
        }
    }
}

impl Vulkan {
    /// Creates a buffer that can sleep, in the best heap for `kind`. If the device may have enough allocations, its memory is its own, which goes back
    /// whole when it leaves.
    ///
    /// # Errors
    ///
    /// As for [`create_buffer`](Self::create_buffer); `Unsupported` with the reason for a description that cannot be kept, for one whose usage
    /// lacks a transfer, for flags, for acceleration structures and micromaps, and without queues; `InvalidConfig` for families that share it without
    /// that of the main timeline.
    ///
    /// # Safety
    ///
    /// As for [`create_buffer`](Self::create_buffer), each time that it wakes up. Work uses the [handle](SleepableResource::handle) only where it was submitted
    /// while the resource was kept awake: by a hold of its set, or because nobody puts it to sleep meanwhile. Then
    /// [`used`](Sleepable::used) is called, which the end of a hold does.
    ///
    /// This call, [`write`](SleepableResource::write) and [`read`](SleepableResource::read) use it on the main timeline. Work elsewhere, on other timelines or on queues that the
    /// backend does not know, is ordered behind that, and before `write` or `read` is called it has ended, or the main timeline was ordered behind it.
    pub unsafe fn create_sleepable_buffer(
        manager: &Manager<Self>,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<SleepableResource<vk::Buffer>, AllocateError> {
        // SAFETY: the caller's promise.
        let recipe = unsafe { BufferRecipe::of(info, kind, manager.backend().copying()?) }?;
        // SAFETY: as above.
        unsafe { SleepableResource::make(manager, Box::new(recipe)) }
    }

    /// Creates an image that can sleep, as [`create_sleepable_buffer`](Self::create_sleepable_buffer) does a buffer. It is in `layout` behind what the main timeline
    /// has got when this returns, and from the moment when a wake returns.
    ///
    /// # Errors
    ///
    /// As for [`create_sleepable_buffer`](Self::create_sleepable_buffer); `Unsupported` too for several samples, planes or aspects (depth and stencil), and
    /// for texels of 3, 6 or 12 bytes, and for a format that the device does not copy in this tiling; `InvalidConfig` for another initial layout than
    /// `UNDEFINED`, a `layout` without contents, and families that share it without that of the main timeline.
    ///
    /// # Safety
    ///
    /// As for [`create_image`](Self::create_image) and [`create_sleepable_buffer`](Self::create_sleepable_buffer). The usage allows `layout`. All of the image is in
    /// `layout`, and belongs to the main timeline's family if it is exclusive, behind the work that was submitted while it was kept awake.
    pub unsafe fn create_sleepable_image(
        manager: &Manager<Self>,
        info: &vk::ImageCreateInfo<'_>,
        layout: vk::ImageLayout,
        kind: HeapKind,
    ) -> Result<SleepableResource<vk::Image>, AllocateError> {
        let vulkan = manager.backend();
        // SAFETY: the caller's promise.
        let recipe = unsafe { ImageRecipe::of(info, layout, kind, vulkan.copying()?) }?;
        vulkan.check_copies(info.format, info.tiling)?;
        // SAFETY: as above.
        unsafe { SleepableResource::make(manager, Box::new(recipe)) }
    }

    /// Returns the family of the main timeline, if it copies images and buffers at any offset.
    fn copying(&self) -> Result<u32> {
        let able = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        match self.device.queues.first() {
            Some(queue) if queue.flags.intersects(able) => Ok(queue.family),
            _ => Err(ErrorKind::Unsupported.because(
                "the main timeline has no queue that draws or computes, to copy on; implement `Sleepable` for this resource",
            )),
        }
    }

    /// Refuses images that no copy reaches: drivers may allow the usage for formats whose features lack it.
    fn check_copies(&self, format: vk::Format, tiling: vk::ImageTiling) -> Result<()> {
        use vk::FormatFeatureFlags as F;
        let (instance, physical) = (self.ash_instance(), self.physical_device());
        // SAFETY: the physical device is this instance's.
        let of = unsafe { instance.get_physical_device_format_properties(physical, format) };
        let features = match tiling {
            vk::ImageTiling::LINEAR => of.linear_tiling_features,
            _ => of.optimal_tiling_features,
        };
        match features.contains(F::TRANSFER_SRC | F::TRANSFER_DST) {
            true => Ok(()),
            false => Err(ErrorKind::Unsupported.because(
                "the device copies no images of this format and tiling; choose another, or implement `Sleepable` for this resource",
            )),
        }
    }
}

impl<H: Native> SleepableResource<H> {
    /// # Safety
    ///
    /// As for [`Vulkan::create_sleepable_image`].
    unsafe fn make(
        manager: &Manager<Vulkan>,
        recipe: Box<dyn Recipe<H>>,
    ) -> Result<Self, AllocateError> {
        let vulkan = manager.backend();
        // SAFETY: the caller's promise.
        let resource = unsafe { recipe.make(manager) }?;
        let handle = resource.handle();
        recipe.turn(vulkan, handle, Phase::Fresh, Phase::Resting)?;
        let used = Used(Some(vulkan.mark(TimelineId::ALL)?));
        let (memory, heap) = (resource.memory().size(), heap_of(&resource));
        let seen = Seen { handle, is_asleep: false, phase: Phase::Resting, wakes: 0, memory, used };
        let (body, seen) = (Mutex::new(Body::Here(resource)), Mutex::new(seen));
        Ok(Self { manager: manager.clone(), recipe, heap, body, seen })
    }

    /// Returns the native handle; `None` while it is asleep, falling asleep or waking up. Never destroy it.
    ///
    /// `None` too where the driver was short of memory as a failed sleep, read or write turned an image back: it is not in its layout then.
    /// The next hold, [`wake`](Sleepable::wake), read or write turns it.
    #[must_use]
    pub fn handle(&self) -> Option<H> {
        let seen = lock(&self.seen);
        (!seen.is_asleep && seen.phase == Phase::Resting).then_some(seen.handle)
    }

    /// Returns how often it has woken up. Each time it has a new handle, and views of the old one are to be [retired](Vulkan::retire).
    #[must_use]
    pub fn wakes(&self) -> u64 {
        lock(&self.seen).wakes
    }

    /// Returns the number of bytes that come and go: of an image its texels without gaps.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.recipe.size()
    }

    /// Writes all bytes of it, [`size`](Self::size) of them, in the order of the main timeline: of an image its texels without gaps, first of the largest level, all layers of a
    /// level behind each other.
    ///
    /// # Errors
    ///
    /// `Asleep`; `OutOfRange` for another number of bytes; the driver's error.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.carry(bytes.len(), Phase::Filling, |vulkan, handle| {
            self.recipe.send(vulkan, handle, 0, bytes)
        })
    }

    /// Reads all bytes of it, in the order that [`write`](Self::write) says. Waits for them.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.carry(bytes.len(), Phase::Leaving, |vulkan, handle| {
            self.recipe.fetch(vulkan, handle, 0, bytes)
        })
    }

    /// Copies all bytes of what is awake.
    fn carry(
        &self,
        len: usize,
        phase: Phase,
        copy: impl FnOnce(&Vulkan, H) -> Result<()>,
    ) -> Result<()> {
        let body = lock(&self.body);
        let Body::Here(resource) = &*body else { return Err(ErrorKind::Asleep.into()) };
        if len as u64 != self.size() {
            return Err(ErrorKind::OutOfRange.into());
        }
        let (vulkan, handle) = (self.manager.backend(), resource.handle());
        let resting = lock(&self.seen).phase;
        self.recipe.turn(vulkan, handle, resting, phase)?;
        let copied = copy(vulkan, handle);
        let turned = self.turn_back(handle, phase);
        // Whatever came: where a piece failed, those before it are under way.
        self.used();
        copied.and(turned)
    }

    /// Makes it ready for its owner after copies. Where that fails, it stays in the phase, and its handle is not shown.
    fn turn_back(&self, handle: H, from: Phase) -> Result<()> {
        let turned = self.recipe.turn(self.manager.backend(), handle, from, Phase::Resting);
        lock(&self.seen).phase = if turned.is_ok() { Phase::Resting } else { from };
        turned
    }

    /// Turns it back where that failed before, and waits for it.
    fn mend(&self, resource: &Resource<H>) -> Result<()> {
        let phase = lock(&self.seen).phase;
        if phase == Phase::Resting {
            return Ok(());
        }
        let turned = self.turn_back(resource.handle(), phase);
        self.used();
        turned.and_then(|()| catch_up(self.manager.backend()))
    }

    /// Copies its bytes to a store.
    fn keep<'a>(&self, leaving: &mut Leaving<'a, H>, store: &'a dyn BackingStore) -> Result<()> {
        let (vulkan, size) = (self.manager.backend(), self.size());
        HostPinner::lend(vulkan, |pinner| store.prepare(size, pinner))?;
        let (handle, id) = (leaving.resource.handle(), leaving.resource.memory().id());
        let phase = lock(&self.seen).phase;
        self.recipe.turn(vulkan, handle, phase, Phase::Leaving)?;
        leaving.store = Some(store);
        let _keeping = Keeping::begin(store, id)?;
        let copy = &mut |at, bytes: &mut [u8]| {
            check_piece(size, at, bytes.len())?;
            self.recipe.fetch(vulkan, handle, at, bytes)
        };
        let kept = store.put(id, size, Privacy::Open, copy);
        // A store may answer without a copy, or in spite of one that failed: then nobody has waited yet.
        kept.and_then(|()| catch_up(vulkan)).and_then(|()| store.flush(id))
    }

    /// Copies its bytes into a fresh one, and waits for them.
    fn fill(&self, handle: H, store: &dyn BackingStore, id: AllocationId) -> Result<()> {
        let (vulkan, size) = (self.manager.backend(), self.size());
        self.recipe.turn(vulkan, handle, Phase::Fresh, Phase::Filling)?;
        if store.kind() == StoreKind::Nothing {
            let step = ZEROS.len();
            (0..size).step_by(step).try_for_each(|at| {
                let len = usize::try_from(size - at).map_or(step, |left| left.min(step));
                self.recipe.send(vulkan, handle, at, &ZEROS[..len])
            })?;
        } else {
            store.get(id, &mut |at, bytes| {
                check_piece(size, at, bytes.len())?;
                self.recipe.send(vulkan, handle, at, bytes)
            })?;
        }
        self.recipe.turn(vulkan, handle, Phase::Filling, Phase::Resting)?;
        catch_up(vulkan)
    }

    /// Waits for the work that uses it and copies its bytes. Returns a point behind that work. On failure it is as it was.
    fn prepare(&self, resource: &Resource<H>, sleep: &Sleep) -> Result<Point> {
        let vulkan = self.manager.backend();
        let mut seen = lock(&self.seen);
        seen.is_asleep = true;
        let used = seen.used;
        drop(seen);
        let mut leaving = Leaving { owner: self, resource, store: None };
        let epoch = used.0.map_or_else(|| vulkan.mark(TimelineId::ALL), Ok)?;
        let used = Point { timeline: TimelineId::ALL, epoch };
        sleep.points().iter().chain([&used]).try_for_each(|point| vulkan.wait(*point))?;
        if sleep.store().kind() != StoreKind::Nothing {
            self.keep(&mut leaving, &**sleep.store())?;
        }
        core::mem::forget(leaving);
        Ok(used)
    }
}

/// A resource that is leaving. Dropping this makes it as it was, even if the store panicked.
struct Leaving<'a, H: Native> {
    owner: &'a SleepableResource<H>,
    resource: &'a Resource<H>,
    /// The store that gets its bytes, for which it was turned.
    store: Option<&'a dyn BackingStore>,
}

impl<H: Native> Drop for Leaving<'_, H> {
    fn drop(&mut self) {
        if let Some(store) = self.store {
            store.forget(self.resource.memory().id());
            // Noted where it fails.
            let _ = self.owner.turn_back(self.resource.handle(), Phase::Leaving);
            self.owner.used();
        }
        lock(&self.owner.seen).is_asleep = false;
    }
}

/// The address of a store, and the numbers of a lane and of its manager.
type StoreLane = (usize, u32, u32);

/// A thread's turn to have a store keep bytes of a lane, until this is dropped: stores take those of one lane one after the other, and
/// resources share lanes.
struct Keeping(StoreLane);

impl Keeping {
    /// Waits for other threads, unless this one has a turn already: a store that allocates may put another resource to sleep, which hears `Busy`.
    fn begin(store: &dyn BackingStore, id: AllocationId) -> Result<Self> {
        let one = (core::ptr::from_ref(store).addr(), id.lane(), id.manager());
        let own = thread::current().id();
        let mut all = lock(&KEEPING);
        while all.iter().any(|(other, _)| *other == one) {
            if all.iter().any(|(_, by)| *by == own) {
                return Err(ErrorKind::Busy.because("the store keeps another resource just now"));
            }
            all = KEPT.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        all.push((one, own));
        Ok(Self(one))
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        lock(&KEEPING).retain(|(other, _)| *other != self.0);
        KEPT.notify_all();
    }
}

impl<H: Native> Sleepable for SleepableResource<H> {
    fn heap(&self) -> HeapId {
        self.heap
    }

    fn residence(&self) -> Residence {
        let Seen { is_asleep, memory, .. } = *lock(&self.seen);
        let mut residence = Residence::default();
        residence.asleep = is_asleep;
        match is_asleep {
            true => (residence.evicted, residence.stored) = (self.size(), memory),
            false => residence.device = memory,
        }
        residence
    }

    fn sleep(&self, sleep: &Sleep) -> Result<Slept, SleepError> {
        let mut body = match self.body.try_lock() {
            Ok(body) => body,
            Err(TryLockError::Poisoned(body)) => body.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Not waited for: whoever has it may be waiting for memory, which another sleep gives.
                let why = "another thread copies the resource; try again";
                return Err(ErrorKind::Busy.because(why).into());
            }
        };
        let Body::Here(resource) = &*body else { return Err(ErrorKind::AlreadyAsleep.into()) };
        lock(&self.seen).is_asleep = true;
        let used = self.prepare(resource, sleep)?;
        let (id, is_alone) = (resource.memory().id(), is_alone(resource));
        let store = Arc::clone(sleep.store());
        let mut slept = Slept::default();
        (slept.live, slept.copied) = match store.kind() {
            StoreKind::Nothing => (self.size(), 0),
            _ => (self.size(), self.size()),
        };
        let left = core::mem::replace(&mut *body, Body::Away { store, id });
        let memory = lock(&self.seen).memory;
        if let Body::Here(resource) = left {
            // SAFETY: `prepare` waited for its copies and for the work that used it, copies that failed included, and by the promise of who created it there is no other.
            let memory = unsafe { resource.destroy_handle() };
            memory.into_iter().for_each(|memory| memory.free_after(used));
            // Sees that the point was reached. A device that is lost now frees it later.
            let _ = self.manager.retire();
        }
        slept.returned = if is_alone { memory } else { self.manager.trim().unwrap_or(0) };
        Ok(slept)
    }

    fn wake(&self, _: &Wake) -> Result<(), AllocateError> {
        let mut body = lock(&self.body);
        let (store, id) = match &*body {
            Body::Away { store, id } => (store, id),
            Body::Here(resource) => {
                self.mend(resource)?;
                return Err(ErrorKind::AlreadyAwake.into());
            }
        };
        // SAFETY: promised to `Vulkan::create_sleepable_buffer` for each wake.
        let resource = unsafe { self.recipe.make(&self.manager) }?;
        // What fails here is dropped: retired with its memory.
        self.fill(resource.handle(), &**store, *id)?;
        store.forget(*id);
        let mut seen = lock(&self.seen);
        (seen.handle, seen.wakes, seen.is_asleep) = (resource.handle(), seen.wakes + 1, false);
        // Nothing of it is under way: `fill` waited for its copies.
        (seen.used, seen.phase) = (Used(Some(Epoch::START)), Phase::Resting);
        drop(seen);
        *body = Body::Here(resource);
        Ok(())
    }

    fn used(&self) {
        let mark = self.manager.backend().mark(TimelineId::ALL).ok();
        lock(&self.seen).used.note(mark);
    }
}

/// Waits for all copies so far.
fn catch_up(vulkan: &Vulkan) -> Result<()> {
    vulkan.wait(Point { timeline: ON, epoch: vulkan.mark(ON)? })
}

/// Refuses a piece that a store names beside the resource, or that cuts a block of texels.
fn check_piece(size: u64, at: u64, len: usize) -> Result<()> {
    let end = at.checked_add(len as u64).filter(|end| *end <= size);
    let is_cut = |place: u64| !place.is_multiple_of(LARGEST_BLOCK);
    match end {
        Some(end) if !is_cut(at) && (!is_cut(end) || end == size) => Ok(()),
        _ => Err(ErrorKind::OutOfRange
            .because("the backing store asks for bytes that the resource does not have")),
    }
}

fn heap_of<H: Native>(resource: &Resource<H>) -> HeapId {
    resource.memory().binding().block().heap()
}

/// Returns whether a resource has memory of its own.
fn is_alone<H: Native>(resource: &Resource<H>) -> bool {
    resource.memory().binding().block().owner().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_mark_replaces_no_newer_one_and_a_failed_one_stays() {
        let mut used = Used(Some(Epoch(1)));
        used.note(Some(Epoch(6)));
        used.note(Some(Epoch(5)));
        assert_eq!(used.0, Some(Epoch(6)));
        used.note(None);
        used.note(Some(Epoch(7)));
        assert_eq!(used.0, None);
    }
}
