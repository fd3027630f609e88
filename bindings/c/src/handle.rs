//! What is behind each handle.
use crate::status::{Failure, OmniheapStatus};
use crate::table::{Kind, Table, lock};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap::arbiter::Arbitrated;
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::host::Host;
use omniheap::residency::{Held, HostStore, Residents};
use omniheap::trace::Recorder;
use omniheap::vulkan::Vulkan;
use omniheap::weights::Origin;
use omniheap::{
    Allocation, AnyBackend, Attending, Backend, ErrorKind, Manager, ManagerConfig, UserPool,
    seam::erase,
};
use std::sync::{Arc, Mutex, OnceLock};

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

/// How a manager is set up, and the file that is to hold its trace.
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
    /// Ends before the manager does.
    _attending: Option<Attending>,
    /// Pools that make room for each other, once one was added.
    residents: OnceLock<Residents<AnyBackend>>,
    /// Which allocations came from weights files, for pools that sleep to them.
    pub(crate) origin: Arc<Origin>,
    pub(crate) manager: Manager<AnyBackend>,
    pub(crate) native: Native,
    /// What records the manager, if something does.
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
    ) -> Result<Self, Failure> {
        let (config, recorder) = settings.recorded()?;
        let manager = Manager::with_config(backend, config);
        // The device is open, so that an arbiter has accepted this process; one that ended since is found again by the next request.
        let _attending = omniheap::attend(&manager, ordinal).ok().flatten();
        let (residents, handles) = (OnceLock::new(), AtomicU64::new(0));
        let origin = Origin::with(HostStore::new());
        Ok(Self { _attending, residents, origin, manager, native, recorder, handles })
    }

    /// A manager of a device of its own type, under what the environment says: the same as [`omniheap::open`].
    fn native<B: Backend + 'static>(
        backend: B,
        native: impl FnOnce(Arc<Arbitrated<B>>) -> Native,
        ordinal: u32,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let backend = Arc::new(omniheap::arbitrated(backend, ordinal)?);
        Self::new(erase(Arc::clone(&backend)), native(backend), ordinal, settings)
    }

    pub(crate) fn cuda(backend: Cuda, settings: Settings) -> Result<Self, Failure> {
        let ordinal = backend.ordinal();
        Self::native(backend, Native::Cuda, ordinal, settings)
    }

    pub(crate) fn hip(backend: Hip, settings: Settings) -> Result<Self, Failure> {
        let ordinal = u32::try_from(backend.ordinal()).unwrap_or(0);
        Self::native(backend, Native::Hip, ordinal, settings)
    }

    pub(crate) fn host(settings: Settings) -> Result<Self, Failure> {
        Self::native(Host::new(), Native::Host, 0, settings)
    }

    pub(crate) fn vulkan(
        backend: Vulkan,
        ordinal: u32,
        settings: Settings,
    ) -> Result<Self, Failure> {
        Self::native(backend, Native::Vulkan, ordinal, settings)
    }

    /// The pools that make room for each other.
    pub(crate) fn residents(&self) -> &Residents<AnyBackend> {
        self.residents.get_or_init(|| Residents::of(&self.manager))
    }

    /// Whether allocations or pools have handles.
    pub(crate) fn is_used(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }
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

/// Bytes with a handle. The owner goes last.
pub(crate) struct Bytes {
    pub(crate) allocation: Allocation<AnyBackend>,
    pub(crate) owner: Owner,
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

/// The device itself is behind one more reference, so that what lives on it does not count as a call that uses the handle.
pub(crate) static MANAGERS: Table<Arc<Holder>> = Table::new(Kind::Manager);
pub(crate) static ALLOCATIONS: Table<Bytes> = Table::new(Kind::Allocation);
pub(crate) static POOLS: Table<Pool> = Table::new(Kind::Pool);

/// The device behind a handle.
pub(crate) fn holder(manager: OmniheapManager) -> Result<Arc<Holder>, Failure> {
    Ok(Arc::clone(&*MANAGERS.get(manager.id)?))
}
