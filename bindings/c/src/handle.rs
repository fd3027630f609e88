//! Objects behind the handles.
use crate::guards::Found;
use crate::status::{Failure, OmniheapStatus};
use crate::table::{Kind, Table};
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use omniheap::arbiter::Arbitrated;
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::host::Host;
use omniheap::residency::{Held, HostStore, Preparation, Residents};
use omniheap::seam::lock;
use omniheap::trace::Recorder;
use omniheap::vulkan::Vulkan;
use omniheap::weights::Origin;
use omniheap::{
    Allocation, AnyBackend, Attending, Backend, ErrorKind, Manager, ManagerConfig, Point, UserPool,
    seam::erase,
};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A manager of one device. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapManager {
    /// Opaque.
    pub id: u64,
}

/// Live bytes. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapAllocation {
    /// Opaque.
    pub id: u64,
}

/// A pool that the caller made. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapPool {
    /// Opaque.
    pub id: u64,
}

/// The backend's own type, for what only it can do.
pub(crate) enum Native {
    Cuda(Arc<Arbitrated<Cuda>>),
    Hip(Arc<Arbitrated<Hip>>),
    Vulkan(Arc<Arbitrated<Vulkan>>),
    Host(Arc<Arbitrated<Host>>),
    Other,
}

/// Settings of a manager, and the file that is to hold its trace.
pub(crate) struct Settings {
    pub(crate) config: ManagerConfig,
    pub(crate) trace: Option<String>,
}

impl Settings {
    /// The settings with what records, if something does. Only once nothing else can fail: the file is written anew.
    fn recorded(self) -> Result<(ManagerConfig, Option<Arc<Recorder>>), Failure> {
        let Some(path) = self.trace else { return Ok((self.config, None)) };
        let recorder = Recorder::create(&path)
            .map_err(|error| Failure::new(OmniheapStatus::File, format!("{path}: {error}")))?;
        Ok((self.config.observed(Arc::clone(&recorder) as _), Some(recorder)))
    }
}

/// An open device.
pub(crate) struct Holder {
    /// Threads that have the device pin memory. They stop before the manager ends.
    pub(crate) preparations: Mutex<Vec<Preparation>>,
    /// Held while an arbiter's press is answered.
    pub(crate) answering: Arc<Mutex<()>>,
    /// Ends before the manager does.
    _attending: Option<Attending>,
    /// Pools that make room for each other, once one was added.
    residents: OnceLock<Residents<AnyBackend>>,
    /// Weights files that allocations came from, for pools that sleep to them.
    pub(crate) origin: Arc<Origin>,
    pub(crate) manager: Manager<AnyBackend>,
    pub(crate) native: Native,
    /// Overwrites that were found, in their order.
    pub(crate) overwrites: Mutex<Vec<Found>>,
    /// Recorder of the manager, if there is one.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Allocations and pools that have handles.
    handles: AtomicU64,
}

impl Holder {
    pub(crate) fn new(
        backend: AnyBackend,
        native: Native,
        ordinal: u32,
        settings: Settings,
    ) -> Result<Arc<Self>, Failure> {
        let (config, recorder) = settings.recorded()?;
        let manager = Manager::with_config(backend, config);
        let answering = Arc::default();
        Ok(Arc::new_cyclic(|weak| {
            let attending = attend(weak, &answering, ordinal);
            Self::over(manager, native, (recorder, answering, attending))
        }))
    }

    fn over(
        manager: Manager<AnyBackend>,
        native: Native,
        (recorder, answering, _attending): (
            Option<Arc<Recorder>>,
            Arc<Mutex<()>>,
            Option<Attending>,
        ),
    ) -> Self {
        Self {
            preparations: Mutex::default(),
            _attending,
            answering,
            residents: OnceLock::new(),
            origin: Origin::with(HostStore::new()),
            manager,
            native,
            overwrites: Mutex::default(),
            recorder,
            handles: AtomicU64::new(0),
        }
    }

    /// A manager of a device of its own type, under what the environment says: the same as [`omniheap::open`].
    fn native<B: Backend + 'static>(
        backend: B,
        native: impl FnOnce(Arc<Arbitrated<B>>) -> Native,
        ordinal: u32,
        settings: Settings,
    ) -> Result<Arc<Self>, Failure> {
        let backend = Arc::new(omniheap::arbitrated(backend, ordinal)?);
        Self::new(erase(Arc::clone(&backend)), native(backend), ordinal, settings)
    }

    pub(crate) fn cuda(backend: Cuda, settings: Settings) -> Result<Arc<Self>, Failure> {
        let ordinal = backend.ordinal();
        Self::native(backend, Native::Cuda, ordinal, settings)
    }

    pub(crate) fn hip(backend: Hip, settings: Settings) -> Result<Arc<Self>, Failure> {
        let ordinal = u32::try_from(backend.ordinal()).unwrap_or(0);
        Self::native(backend, Native::Hip, ordinal, settings)
    }

    pub(crate) fn host(settings: Settings) -> Result<Arc<Self>, Failure> {
        Self::native(Host::new(), Native::Host, 0, settings)
    }

    pub(crate) fn vulkan(
        backend: Vulkan,
        ordinal: u32,
        settings: Settings,
    ) -> Result<Arc<Self>, Failure> {
        Self::native(backend, Native::Vulkan, ordinal, settings)
    }

    /// The pools that make room for each other.
    pub(crate) fn residents(&self) -> &Residents<AnyBackend> {
        self.residents.get_or_init(|| Residents::of(&self.manager))
    }
}

thread_local! {
    /// True if this thread answers an arbiter's press.
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
}

/// Lets a manager return memory when an arbiter presses for it. The device is open, so that an arbiter has accepted this process; one that
/// ended since is found again by the next request.
fn attend(holder: &Weak<Holder>, answering: &Arc<Mutex<()>>, ordinal: u32) -> Option<Attending> {
    let (holder, answering) = (Weak::clone(holder), Arc::clone(answering));
    let press = move |bytes| {
        let _answering = lock(&answering);
        // Held meanwhile, so that a callback does not close the manager that calls it.
        if let Some(holder) = holder.upgrade() {
            ANSWERS.set(true);
            // A lost device is reported by the calls that meet it.
            let _ = holder.manager.return_memory(bytes);
            ANSWERS.set(false);
        }
    };
    omniheap::on_press(ordinal, Arc::new(press)).ok().flatten()
}

/// A reference to an open device that its handle counts.
pub(crate) struct Owner(Arc<Holder>);

impl Owner {
    pub(crate) fn new(holder: &Arc<Holder>) -> Self {
        holder.handles.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(holder))
    }

    pub(crate) fn holder(&self) -> &Arc<Holder> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Bytes with a handle, until the last call that uses them ends. The owner goes last.
pub(crate) struct Bytes {
    /// The allocation, until the end.
    allocation: Option<Allocation<AnyBackend>>,
    /// Point that the bytes wait for once they are freed.
    pub(crate) after: OnceLock<Point>,
    /// A pointer of the caller's, never followed.
    user: AtomicPtr<c_void>,
    pub(crate) owner: Owner,
}

impl Bytes {
    pub(crate) fn new(allocation: Allocation<AnyBackend>, holder: &Arc<Holder>) -> Self {
        let (allocation, after, user) = (Some(allocation), OnceLock::new(), AtomicPtr::default());
        Self { allocation, after, user, owner: Owner::new(holder) }
    }

    /// The caller's pointer; null until one was set.
    pub(crate) fn user(&self) -> *mut c_void {
        self.user.load(Ordering::Acquire)
    }

    pub(crate) fn set_user(&self, user: *mut c_void) {
        self.user.store(user, Ordering::Release);
    }

    pub(crate) fn allocation(&self) -> &Allocation<AnyBackend> {
        self.allocation.as_ref().expect("only the end takes it, and nobody has a reference then")
    }

    /// Gives up the allocation, and what counts it with its manager.
    pub(crate) fn into_parts(mut self) -> (Allocation<AnyBackend>, Owner) {
        let allocation = self.allocation.take().expect("nothing took it before");
        (allocation, Owner::new(self.owner.holder()))
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        match (self.allocation.take(), self.after.get()) {
            (Some(allocation), Some(point)) => allocation.free_after(*point),
            (allocation, _) => drop(allocation),
        }
    }
}

/// A pool with a handle: gone once it was destroyed. The owner goes last.
pub(crate) struct Pool {
    /// Keep it awake, one for each call that holds it.
    pub(crate) holds: Mutex<Vec<Held<AnyBackend>>>,
    pub(crate) pool: Mutex<Option<Arc<UserPool<AnyBackend>>>>,
    pub(crate) owner: Owner,
}

impl Pool {
    pub(crate) fn new(pool: UserPool<AnyBackend>, owner: Owner) -> Self {
        Self { holds: Mutex::default(), pool: Mutex::new(Some(Arc::new(pool))), owner }
    }

    /// Runs `with` on the pool, unless another call has just destroyed it. No lock is held meanwhile: `with` may call back.
    pub(crate) fn with<R>(
        &self,
        with: impl FnOnce(&Arc<UserPool<AnyBackend>>) -> R,
    ) -> Result<R, Failure> {
        let pool = lock(&self.pool).clone();
        pool.as_ref().map(with).ok_or_else(|| ErrorKind::Stale.into())
    }
}

/// Gives a handle to a manager of another omniheap library. The handle serves all functions that need no vendor's device.
///
/// # Errors
///
/// The status if there is no room for another handle.
pub fn adopt(manager: Manager<AnyBackend>) -> Result<OmniheapManager, OmniheapStatus> {
    let holder = Holder::over(manager, Native::Other, (None, Arc::default(), None));
    let id = MANAGERS.insert(Arc::new(holder)).map_err(|failure| failure.status)?;
    Ok(OmniheapManager { id })
}

/// Calls hold what they use, so that a manager is closed only between calls.
pub(crate) static MANAGERS: Table<Holder> = Table::new(Kind::Manager);
pub(crate) static ALLOCATIONS: Table<Bytes> = Table::new(Kind::Allocation);
pub(crate) static POOLS: Table<Pool> = Table::new(Kind::Pool);

/// Takes a manager from its handle, between calls: after a press of the arbiter that is being answered, unless this thread answers one.
///
/// # Errors
///
/// `Busy` while something of it has a handle, or another call uses it.
pub(crate) fn take_manager(manager: OmniheapManager) -> Result<Holder, Failure> {
    let answering = Arc::clone(&holder(manager)?.answering);
    let _answered = (!ANSWERS.get()).then(|| lock(&answering));
    MANAGERS.take(manager.id).map_err(|failure| match holder(manager) {
        Ok(open) if open.handles.load(Ordering::Acquire) > 0 => {
            let message =
                "allocations, pools, passes or attached memory of this manager are live; free or end them first";
            Failure::new(OmniheapStatus::Busy, message)
        }
        _ => failure,
    })
}

/// The device behind a handle. It is not closed while this is held.
pub(crate) fn holder(manager: OmniheapManager) -> Result<Arc<Holder>, Failure> {
    MANAGERS.get(manager.id)
}
