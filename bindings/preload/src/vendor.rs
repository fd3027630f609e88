//! What each vendor's driver answers, and what this library keeps for it.
//!
//! CUDA and HIP have alike functions for memory, and the other modules are written once over [`Vendor`]. `cuda` and `hip` are its two
//! tables.
#![expect(unsafe_code, reason = "declares what an unsafe function answers")]
use crate::book::Book;
use crate::books::Last;
use crate::inside::Inside;
use crate::real::Handle;
use crate::streams::Left;
use crate::{Code, pools};
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, AtomicUsize};
use omniheap_core::{Backend, Result};
use omniheap_stream::{Block, Device, Driver, NativeStreams};
use std::collections::BTreeMap;
use std::sync::{Mutex, RwLock};
use std::thread::LocalKey;

/// A stream as a vendor's backend names it.
pub(crate) type Native<V> = <<V as Vendor>::Driver as NativeStreams>::Native;

/// The functions of a vendor's driver.
pub(crate) trait Vendor: Sized + Sync + 'static {
    /// The calls of the backend.
    type Driver: NativeStreams;
    /// The backend.
    type Gpu: Backend<Block = Block<<Self::Driver as Driver>::Kind>>
        + Deref<Target = Device<Self::Driver>>;

    /// True if the driver has no mark of all work, and waits for the device where memory is freed, and for a stream's work where the stream
    /// is destroyed.
    const WAITS: bool;
    /// Attributes of pointers that belong to an allocation, not to the block that it lies in.
    const OWN: &'static [u32];
    /// The function that exports memory.
    const EXPORT: &'static str;

    /// Returns the driver's functions; `None` where there is no driver.
    fn driver() -> Option<&'static Self>;

    /// Returns what this library keeps.
    fn state() -> &'static State<Self>;

    /// Returns what it keeps for each thread.
    fn thread() -> &'static LocalKey<Thread<Self>>;

    /// Returns the functions that all vendors have with the same arguments.
    fn shared(&self) -> Shared;

    /// Returns this thread's context.
    fn context(&self) -> Option<Handle>;

    /// Returns the number of a stream, which no other stream of this handle has while either is known.
    fn number(&self, stream: Handle) -> Option<u64>;

    /// Returns a stream as the backend names it.
    fn native(stream: Handle) -> Native<Self>;

    /// Opens the backend in a context, which is current; returns it with the number of its device.
    ///
    /// # Safety
    ///
    /// The context lives as long as the backend is used.
    unsafe fn open(context: Handle) -> Result<(Self::Gpu, i32)>;

    /// Answers a request with a code, as the driver does.
    fn refuse(&self, code: Code) -> Code;

    /// Marks this thread while the driver answers, if it may call another vendor's for that, whose calls are not the program's.
    fn pass_on() -> Option<Inside>;
}

/// Functions that all vendors have with the same arguments; `None` for those that a driver does not have.
pub(crate) struct Shared {
    pub(crate) allocate: Option<unsafe extern "C" fn(*mut u64, usize) -> Code>,
    pub(crate) free: Option<unsafe extern "C" fn(u64) -> Code>,
    pub(crate) free_async: Option<unsafe extern "C" fn(u64, Handle) -> Code>,
    pub(crate) info: Option<unsafe extern "C" fn(*mut usize, *mut usize) -> Code>,
    pub(crate) range: Option<unsafe extern "C" fn(*mut u64, *mut usize, u64) -> Code>,
    pub(crate) attribute: Option<unsafe extern "C" fn(*mut c_void, c_uint, u64) -> Code>,
    pub(crate) attributes:
        Option<unsafe extern "C" fn(c_uint, *const c_uint, *mut *mut c_void, u64) -> Code>,
    pub(crate) export: Option<unsafe extern "C" fn(*mut c_void, u64) -> Code>,
    pub(crate) device: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
    pub(crate) devices: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
    pub(crate) pool: Option<unsafe extern "C" fn(*mut Handle, c_int) -> Code>,
    pub(crate) first_pool: Option<unsafe extern "C" fn(*mut Handle, c_int) -> Code>,
    pub(crate) synchronize: Option<unsafe extern "C" fn(Handle) -> Code>,
    pub(crate) is_capturing: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> Code>,
}

/// What this library keeps for a vendor.
pub(crate) struct State<V: Vendor> {
    pub(crate) books: RwLock<Vec<&'static Book<V>>>,
    /// Contexts that no book could be opened for.
    pub(crate) refused: Mutex<Vec<usize>>,
    /// Counted up when a book comes or goes, and when a stream goes.
    pub(crate) edition: AtomicU64,
    /// Lock for opening a book, and for beginning and ending a capture. Each book has one `hold` for each capture under way.
    pub(crate) opening: Mutex<()>,
    /// Number of captures under way.
    pub(crate) under_way: AtomicUsize,
    /// Streams in which captures began, and the contexts that were current then.
    pub(crate) captures: Mutex<Vec<(usize, usize)>>,
    /// The most held bytes of each device when somebody asked.
    pub(crate) highs: Mutex<BTreeMap<i32, u64>>,
    pub(crate) choices: pools::Choices,
}

impl<V: Vendor> State<V> {
    pub(crate) const fn new() -> Self {
        Self {
            books: RwLock::new(Vec::new()),
            refused: Mutex::new(Vec::new()),
            edition: AtomicU64::new(1),
            opening: Mutex::new(()),
            under_way: AtomicUsize::new(0),
            captures: Mutex::new(Vec::new()),
            highs: Mutex::new(BTreeMap::new()),
            choices: pools::Choices::new(),
        }
    }
}

/// What this library keeps of a vendor for each thread.
pub(crate) struct Thread<V: Vendor> {
    /// The book and stream that the thread used last.
    pub(crate) last: Cell<Last<V>>,
    /// The timeline of the stream that the thread is destroying, and its book.
    pub(crate) going: Cell<Option<(&'static Book<V>, Left)>>,
    /// True if the thread is ending a capture, or the stream of one.
    pub(crate) is_ending: Cell<bool>,
}

impl<V: Vendor> Thread<V> {
    pub(crate) const fn new() -> Self {
        Self {
            last: Cell::new(Last::new(0, 0, None)),
            going: Cell::new(None),
            is_ending: Cell::new(false),
        }
    }
}
