//! Checkpoints of graph pools: what lived in one, and the way back to that.
//!
//! `torch.compile(mode="reduce-overhead")` captures a tree of graphs into one pool. Where it captures a new branch after it replayed the
//! trunk, the pool must hold what lived at the end of the trunk, at the same addresses. PyTorch asks its allocator for that by two virtual
//! functions. The first is answered in Python, with a number; the second one here, because it hands out C++ objects which PyTorch's own code
//! then gives to tensors.
#![expect(unsafe_code, reason = "calls PyTorch's allocator and fills C++ vectors")]
use crate::device::Saved;
use crate::graph::PoolId;
use crate::loaded::Loaded;
use crate::raise::{self, Kind};
use crate::state::{self, on};
use crate::{guard, lock};
use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// What lived in a pool.
struct Checkpoint {
    device: c_int,
    pool: PoolId,
    saved: Vec<Saved>,
}

/// The checkpoints that Python has, by number.
#[derive(Default)]
struct Checkpoints {
    last: i64,
    kept: HashMap<i64, Arc<Checkpoint>>,
}

static CHECKPOINTS: LazyLock<Mutex<Checkpoints>> = LazyLock::new(Mutex::default);

/// Functions of PyTorch's allocator, once it asks here.
static TORCH: OnceLock<Torch> = OnceLock::new();

thread_local! {
    /// The checkpoint that this thread goes back to.
    static CHOSEN: RefCell<Option<Arc<Checkpoint>>> = const { RefCell::new(None) };
    /// The address that PyTorch is told instead of new memory.
    static RESTORED: Cell<u64> = const { Cell::new(0) };
}

/// The stream that stands for none: with it, an allocation is one that was restored.
static NO_STREAM: u8 = 0;

/// The address that an allocation on this stream has, where it is one that was restored.
#[inline]
pub(crate) fn restored(stream: *const c_void) -> Option<u64> {
    ptr::eq(stream, (&raw const NO_STREAM).cast()).then(|| RESTORED.get())
}

/// What PyTorch's allocator is asked to do meanwhile: it counts its allocations itself.
struct Torch {
    delete: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
    allocate: unsafe extern "C-unwind" fn(*mut c_void, usize, i8, *const c_void) -> *mut c_void,
    deleter: unsafe extern "C" fn(*const c_void) -> usize,
    new: unsafe extern "C" fn(usize) -> *mut c_void,
}

/// Finds what the way back needs; nothing where this PyTorch is one that this was not made for.
pub(crate) fn find(torch: &Loaded) -> Option<()> {
    let delete = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator10raw_deleteEPv";
    let allocate =
        c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator6mallocEmaP11CUstream_st";
    let deleter = c"_ZNK5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator11raw_deleterEv";
    let (delete, allocate) = (torch.symbol(delete)?, torch.symbol(allocate)?);
    let deleter = torch.symbol(deleter)?;
    let new = Loaded::find(c"libstdc++.so.6")?.symbol(c"_Znwm")?;
    let found = Torch {
        // SAFETY: the mangled name spells out the parameters; the object comes first, and nothing is returned.
        delete: unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut c_void, *mut c_void)>(
                delete,
            )
        },
        // SAFETY: as above, and a pointer is returned.
        allocate: unsafe {
            core::mem::transmute::<
                *mut c_void,
                unsafe extern "C-unwind" fn(*mut c_void, usize, i8, *const c_void) -> *mut c_void,
            >(allocate)
        },
        // SAFETY: as above; what is returned is the address of a function.
        deleter: unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void) -> usize>(
                deleter,
            )
        },
        // SAFETY: the C++ ABI fixes the signature of this symbol.
        new: unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(new)
        },
    };
    TORCH.set(found).ok()
}

/// A `std::vector` of GNU's library: where it begins, where its content and where its memory ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Vector([usize; 3]);

impl Vector {
    /// A vector of copies, in memory that C++ frees.
    fn new<T: Copy>(new: unsafe extern "C" fn(usize) -> *mut c_void, items: &[T]) -> Option<Self> {
        let bytes = size_of_val(items);
        if bytes == 0 {
            return Some(Self([0; 3]));
        }
        // SAFETY: as `operator new`, which has no preconditions.
        let start = unsafe { new(bytes) }.cast::<T>();
        if start.is_null() {
            return None;
        }
        // SAFETY: `start` was just allocated with so many bytes, aligned for everything that C++ has.
        unsafe { start.copy_from_nonoverlapping(items.as_ptr(), items.len()) };
        let end = start.addr() + bytes;
        Some(Self([start.expose_provenance(), end, end]))
    }
}

/// A `c10::DataPtr`: an address, who frees it and with which argument, and the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DataPtr {
    address: u64,
    deleter: usize,
    context: u64,
    device_type: i8,
    device: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// A `CheckpointDelta`: the addresses that were freed, and those that live again.
#[repr(C)]
pub(crate) struct Delta {
    freed: Vector,
    allocated: Vector,
}

/// Makes a pool as it was when the chosen checkpoint was taken: in place of the virtual function that refuses.
///
/// # Safety
///
/// `allocator` is PyTorch's allocator, made of this library's functions.
pub(crate) unsafe extern "C-unwind" fn restore(
    allocator: *mut c_void,
    device: i8,
    _state: *const c_void,
) -> Delta {
    // SAFETY: the caller's promise.
    match unsafe { try_restore(allocator, device) } {
        Ok(delta) => delta,
        Err(line) => {
            let exception = raise::build(Kind::Error, &line);
            drop(line);
            match exception {
                // SAFETY: built just above, thrown once; PyTorch called, and this function lets exceptions pass.
                Some(exception) => unsafe { exception.throw() },
                None => Delta { freed: Vector([0; 3]), allocated: Vector([0; 3]) },
            }
        }
    }
}

/// # Safety
///
/// As for [`restore`].
unsafe fn try_restore(allocator: *mut c_void, device: i8) -> Result<Delta, String> {
    let torch = TORCH.get().ok_or(REFUSED)?;
    let chosen = CHOSEN.take().ok_or("no checkpoint of omniheap was chosen")?;
    if chosen.device != c_int::from(device) {
        return Err(format!("the checkpoint is of device {}", chosen.device));
    }
    let found = state::device(chosen.device).map_err(guard::failed("checkpoint"))?;
    let live = on!(found, it => it.in_pool(chosen.pool)).ok_or(GONE)?;
    for address in &live {
        let pointer = ptr::with_exposed_provenance_mut(usize::try_from(*address).unwrap_or(0));
        // SAFETY: PyTorch's own function, on its own object; it frees what it allocated.
        unsafe { (torch.delete)(allocator, pointer) };
    }
    on!(found, it => it.restore(chosen.pool, &chosen.saved))
        .map_err(guard::failed("checkpoint"))?;
    // SAFETY: PyTorch's own function, on its own object.
    let deleter = unsafe { (torch.deleter)(allocator) };
    let mut allocated = Vec::with_capacity(chosen.saved.len());
    for saved in &chosen.saved {
        let address = saved.address();
        RESTORED.set(address);
        let size = usize::try_from(saved.size()).unwrap_or(usize::MAX);
        // SAFETY: as above: it notes the address that our own function returns for this stream.
        unsafe { (torch.allocate)(allocator, size, device, (&raw const NO_STREAM).cast()) };
        allocated.push(DataPtr { address, deleter, context: address, device_type: CUDA, device });
    }
    let full = "host memory is short";
    let freed = Vector::new(torch.new, &live).ok_or(full)?;
    let allocated = Vector::new(torch.new, &allocated).ok_or(full)?;
    Ok(Delta { freed, allocated })
}

/// What is said where this PyTorch cannot be served.
const REFUSED: &str = "this PyTorch keeps checkpoints of graph pools only with its own allocator. For torch.compile(mode='reduce-overhead'), \
     set torch._inductor.config.triton.cudagraph_trees = False, and copy outputs that must outlive the next call; \
     or use omniheap.torch.pool() instead of omniheap.torch.enable()";

const GONE: &str = "the pool is not there any more: no graph uses it";

/// Keeps what lives in a pool now. Returns a number for it, and -1 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_checkpoint(device: c_int, captured: u64, named: u64) -> i64 {
    let mut number = -1;
    guard::guarded(|| {
        TORCH.get().ok_or(REFUSED)?;
        let pool = PoolId { captured, named };
        let found = state::device(device).map_err(guard::failed("checkpoint"))?;
        let saved = on!(found, it => it.checkpoint(pool)).ok_or(GONE)?;
        let mut all = lock(&CHECKPOINTS);
        all.last += 1;
        number = all.last;
        all.kept.insert(number, Arc::new(Checkpoint { device, pool, saved }));
        Ok(())
    });
    number
}

/// Forgets a checkpoint; the memory stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_forget_checkpoint(number: i64) -> c_int {
    guard::guarded(|| {
        let forgotten = lock(&CHECKPOINTS).kept.remove(&number);
        forgotten.map(drop).ok_or_else(|| format!("there is no checkpoint {number}"))
    })
}

/// Says which checkpoint this thread goes back to with its next call of PyTorch's function.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_choose_checkpoint(number: i64) -> c_int {
    guard::guarded(|| {
        let chosen = lock(&CHECKPOINTS).kept.get(&number).cloned();
        let chosen = chosen.ok_or_else(|| format!("there is no checkpoint {number}"))?;
        CHOSEN.set(Some(chosen));
        Ok(())
    })
}
