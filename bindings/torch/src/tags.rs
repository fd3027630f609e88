//! Memory that leaves the device and comes back: what a thread allocates inside a tag comes from a pool of that tag, which sleeps and
//! wakes as a whole, at the same addresses.
#![expect(
    unsafe_code,
    reason = "exports C functions, and lets pools sleep whose addresses PyTorch has"
)]
use crate::lock;
use crate::streams::Streams;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap::report::AllocationId;
use omniheap::residency::{
    BackingStore, FileStore, HostStore, Nothing, Sleep, Wake, available_host_memory,
};
use omniheap::weights::{Origin, WeightsFile};
use omniheap::{
    AllocateError, Allocation, ErrorKind, HeapId, Manager, Request, UserPool, seam::Result,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The names of all tags. They are never taken away, so that a tag is its place here.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static CURRENT: Cell<Option<Tag>> = const { Cell::new(None) };
}

/// A tag of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(usize);

impl Tag {
    /// The tag that this thread is in.
    #[inline]
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    fn named(name: &str) -> Self {
        let mut names = lock(&NAMES);
        let known = names.iter().position(|known| known == name);
        Self(known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        }))
    }

    fn name(self) -> String {
        lock(&NAMES)[self.0].clone()
    }

    /// Lets this thread allocate in a tag from now on.
    ///
    /// # Errors
    ///
    /// A line that says what to do where the thread is in a tag already, or the name is none.
    pub(crate) fn enter(name: &str) -> Result<(), String> {
        if name.is_empty() {
            return Err("a tag needs a name: pass a text that is not empty".into());
        }
        if let Some(outer) = Self::current() {
            let outer = outer.name();
            return Err(format!(
                "tag {name:?} inside tag {outer:?}: an allocation has one tag; leave {outer:?} first"
            ));
        }
        CURRENT.set(Some(Self::named(name)));
        Ok(())
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(crate) fn leave() -> Result<(), String> {
        CURRENT.take().map(drop).ok_or_else(|| "this thread is in no tag".into())
    }
}

/// Reason why a pool did not fall asleep or wake up.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) line: String,
    /// True if memory of the device is missing.
    pub(crate) is_short: bool,
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        Self { line, is_short: false }
    }
}

/// Place for the bytes of a pool that sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Host,
    Disk(String),
    /// Loaded weights are read again from their files; everything else goes to host memory.
    Origin,
    Nothing,
}

impl Target {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("disk:")) {
            ("host", _) => Ok(Self::Host),
            ("nothing", _) => Ok(Self::Nothing),
            ("origin", _) => Ok(Self::Origin),
            (_, Some(directory)) if !directory.is_empty() => Ok(Self::Disk(directory.into())),
            _ => Err(format!(
                "to is {text:?}; choose \"host\", \"disk:/directory\", \"origin\" or \"nothing\""
            )),
        }
    }

    fn store(&self, origin: &Arc<Origin>) -> Result<Arc<dyn BackingStore>, String> {
        match self {
            Self::Origin => Ok(Arc::clone(origin) as _),
            Self::Host => Ok(HostStore::new()),
            Self::Nothing => Ok(Nothing::new()),
            Self::Disk(directory) => match FileStore::open(directory) {
                Ok(store) => Ok(store),
                Err(error) => Err(format!("nothing can sleep in {directory:?}: {error}")),
            },
        }
    }
}

/// The pool of a tag, and where its bytes went last.
struct Tagged<B: Streams> {
    name: String,
    pool: UserPool<B>,
    target: Mutex<Target>,
}

/// The tags of one device. Their pools stay as long as the process.
pub(crate) struct Tags<B: Streams> {
    pools: Mutex<BTreeMap<Tag, Arc<Tagged<B>>>>,
    /// Files that loaded weights came from, of all tags.
    origin: Arc<Origin>,
    /// True if `origin` knows anything: frees look no further where not.
    remembers: AtomicBool,
}

/// Source of the calling thread's memory: the manager's own pools, or the pool of its tag.
pub(crate) struct Source<'a, B: Streams> {
    pub(crate) manager: &'a Manager<B>,
    tagged: Option<(Tag, Arc<Tagged<B>>)>,
}

impl<B: Streams> Source<'_, B> {
    /// The tag whose memory it is.
    pub(crate) fn tag(&self) -> Option<Tag> {
        self.tagged.as_ref().map(|(tag, _)| *tag)
    }

    #[inline]
    pub(crate) fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        match &self.tagged {
            None => self.manager.allocate(request),
            Some((_, tagged)) => tagged.pool.allocate(request),
        }
    }

    /// Bytes for a graph. A capture forbids to wait for a hole of other streams, so they come straight from the driver; in a tag they
    /// are those that no stream uses any more, because a block of its own would keep the pool awake.
    pub(crate) fn allocate_kept(&self, size: u64) -> Result<Allocation<B>, AllocateError> {
        let request = Request::new(size).pinned();
        self.allocate(&if self.tagged.is_some() { request } else { request.dedicated() })
    }
}

impl<B: Streams> Tags<B> {
    pub(crate) fn new() -> Self {
        let origin = Origin::with(HostStore::new());
        Self { pools: Mutex::default(), origin, remembers: AtomicBool::new(false) }
    }

    /// Remembers which tensors of a file an allocation has from which byte on. It is final, until it is freed or forgotten.
    pub(crate) fn remember(&self, id: AllocationId, file: &WeightsFile, tensors: &[(usize, u64)]) {
        // A freed allocation is forgotten by `forget`.
        self.origin.remember_final(id, file, tensors, || true);
        self.remembers.store(true, Ordering::Release);
    }

    /// Forgets what an allocation was loaded from; whether that was known.
    #[inline]
    pub(crate) fn forget(&self, allocation: &Allocation<B>) -> bool {
        self.remembers.load(Ordering::Acquire) && self.origin.forget_origin(allocation.id())
    }

    /// Returns the source of the calling thread's memory now.
    #[inline]
    pub(crate) fn source<'a>(
        &self,
        manager: &'a Manager<B>,
        heap: HeapId,
    ) -> Result<Source<'a, B>> {
        let tagged = match Tag::current() {
            None => None,
            Some(tag) => Some((tag, self.open(manager, heap, tag)?)),
        };
        Ok(Source { manager, tagged })
    }

    /// The pool of a tag, made now if there was none.
    #[cold]
    fn open(&self, manager: &Manager<B>, heap: HeapId, tag: Tag) -> Result<Arc<Tagged<B>>> {
        let mut pools = lock(&self.pools);
        if let Some(known) = pools.get(&tag) {
            return Ok(Arc::clone(known));
        }
        let pool = manager.create_pool(heap, manager.config().pool.sleepable())?;
        let tagged = Arc::new(Tagged { name: tag.name(), pool, target: Mutex::new(Target::Host) });
        pools.insert(tag, Arc::clone(&tagged));
        Ok(tagged)
    }

    /// The tags that a call means, in the order in which they were first used: the one with this name, or all.
    fn meant(&self, name: Option<&str>) -> Result<Vec<Arc<Tagged<B>>>, String> {
        let all: Vec<Arc<Tagged<B>>> = lock(&self.pools).values().cloned().collect();
        let Some(name) = name else { return Ok(all) };
        match all.iter().find(|tagged| tagged.name == name) {
            Some(found) => Ok(vec![Arc::clone(found)]),
            None => {
                let names: Vec<&str> = all.iter().map(|tagged| tagged.name.as_str()).collect();
                Err(format!(
                    "nothing was allocated in tag {name:?} on this device; the tags are {names:?}"
                ))
            }
        }
    }

    /// Puts a tag to sleep, or all that are awake. Returns the bytes that the driver got back.
    ///
    /// # Safety
    ///
    /// Until a tag is awake again, nothing uses an address of its allocations, neither on the device nor on the host, but for work that
    /// streams were given before.
    pub(crate) unsafe fn sleep(&self, name: Option<&str>, target: &Target) -> Result<u64, Refusal> {
        let meant = self.meant(name)?;
        let store = target.store(&self.origin)?;
        let mut returned = 0;
        for tagged in meant {
            let sleep = Sleep::to(Arc::clone(&store));
            // SAFETY: what is pinned are the addresses that PyTorch was given, and the blocks of graphs: the caller promises that
            // nothing uses them. Work that streams were given before is waited for: the pool's uses are undeclared, so a sleep waits
            // for a mark of all work. This crate looks at such an allocation for its place alone, never for its bytes.
            let sleep = unsafe { sleep.over_pins() };
            match tagged.pool.sleep(&sleep) {
                Ok(slept) => {
                    target.clone_into(&mut lock(&tagged.target));
                    returned += slept.returned;
                }
                Err(error) if name.is_none() && error.kind() == ErrorKind::AlreadyAsleep => {}
                Err(error) => {
                    return Err(refused("sleep", &tagged.name, error.kind(), &error).into());
                }
            }
        }
        Ok(returned)
    }

    /// Wakes a tag, or all that are asleep: one after the other. Where the device has too little memory, each may have so many bytes of
    /// host memory at its addresses, as far as the host has them.
    pub(crate) fn wake(&self, name: Option<&str>, host_mapped: u64) -> Result<(), Refusal> {
        for tagged in self.meant(name)? {
            let most = host_mapped.min(available_host_memory().unwrap_or(u64::MAX));
            match tagged.pool.wake(&Wake::all().host_mapped(most)) {
                Err(error) if name.is_none() && error.kind() == ErrorKind::AlreadyAwake => {}
                Err(error) => {
                    let line = refused("wake", &tagged.name, error.kind(), &error);
                    return Err(Refusal { line, is_short: is_full(error.kind()) });
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Places of the bytes of each tag.
    pub(crate) fn residence(&self) -> Value {
        let of = |tagged: &Arc<Tagged<B>>| {
            let now = tagged.pool.residence();
            let stored = |is_there: bool| if is_there { now.stored } else { 0 };
            let target = lock(&tagged.target);
            let shown = json!({
                "asleep": now.asleep,
                "device": now.device,
                "host_mapped": now.host_mapped,
                "host": stored(*target == Target::Host),
                "disk": stored(matches!(*target, Target::Disk(_))),
                "origin": stored(*target == Target::Origin),
            });
            (tagged.name.clone(), shown)
        };
        let pools = lock(&self.pools).clone();
        Value::Object(pools.values().map(of).collect())
    }
}

/// Returns true if a call failed for want of the device's memory: the host may be out of it too, or of open files.
pub(crate) fn is_full(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() && kind != ErrorKind::OutOfHostMemory
}

/// Words the failure of a tag to sleep or to wake.
fn refused(doing: &str, tag: &str, kind: ErrorKind, said: &dyn core::fmt::Display) -> String {
    match kind {
        ErrorKind::AlreadyAsleep => {
            format!("tag {tag:?} is asleep already; omniheap.torch.wake({tag:?}) wakes it")
        }
        ErrorKind::AlreadyAwake => {
            format!("tag {tag:?} is awake already; omniheap.torch.sleep({tag:?}) puts it to sleep")
        }
        kind if doing == "wake" && is_full(kind) => format!(
            "tag {tag:?} stays asleep with all its bytes, because the device has too little memory for it now; free some, or let the \
             other program free some, and wake it again. {said}"
        ),
        _ => format!("{doing} of tag {tag:?}: {said}"),
    }
}

/// Words the failure of a request inside a tag that sleeps; `None` where it failed for another reason.
pub(crate) fn explain(kind: ErrorKind) -> Option<String> {
    let tag = Tag::current().filter(|_| kind == ErrorKind::Asleep)?.name();
    Some(format!(
        "tag {tag:?} is asleep; call omniheap.torch.wake({tag:?}) before you allocate in it"
    ))
}
