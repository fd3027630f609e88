//! Checkpoints of graph pools: what lived in one, and the way back to that.
//!
//! `torch.compile(mode="reduce-overhead")` captures a tree of graphs into one pool. Where it captures a new branch after it replayed the
//! trunk, the pool must hold what lived at the end of the trunk, at the same addresses. PyTorch asks its allocator for that by two virtual
//! functions. The first is answered in Python, with a number; the second one here, because it hands out C++ objects which PyTorch's own code
//! then gives to tensors.
#![expect(unsafe_code, reason = "fills C++ vectors")]
use crate::device::Saved;
use crate::direct::{self, DataPtr};
use crate::graph::PoolId;
use crate::guard::BUG;
use crate::loaded::{New, operator_new};
use crate::raise::{Kind, throw};
use crate::state::{self, on};
use crate::{guard, lock};
use core::cell::RefCell;
use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock, Mutex};

/// Allocations that lived in a pool.
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

thread_local! {
    /// The checkpoint that this thread goes back to.
    static CHOSEN: RefCell<Option<Arc<Checkpoint>>> = const { RefCell::new(None) };
}

/// A `std::vector` of GNU's library: where it begins, where its content and where its memory ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Vector([usize; 3]);

impl Vector {
    /// A vector of copies, in memory that C++ frees.
    fn new<T: Copy>(new: New, items: &[T]) -> Option<Self> {
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
/// PyTorch calls it.
pub(crate) unsafe extern "C-unwind" fn restore(
    _: *mut c_void,
    device: i8,
    _state: *const c_void,
) -> Delta {
    let done = catch_unwind(|| try_restore(device));
    done.unwrap_or_else(|_| Err(BUG.into())).unwrap_or_else(|line| {
        // SAFETY: PyTorch called, and this function lets exceptions pass.
        unsafe { throw(Kind::Error, line) };
        Delta { freed: Vector([0; 3]), allocated: Vector([0; 3]) }
    })
}

fn try_restore(device: i8) -> Result<Delta, String> {
    let new = operator_new().ok_or(REFUSED)?;
    let chosen = CHOSEN.take().ok_or("no checkpoint of omniheap was chosen")?;
    if chosen.device != c_int::from(device) {
        return Err(format!("the checkpoint is of device {}", chosen.device));
    }
    let found = state::device(chosen.device).map_err(guard::failed("checkpoint"))?;
    let freed = on!(found, it => it.go_back(chosen.pool, &chosen.saved))
        .map_err(guard::failed("checkpoint"))?;
    let as_pointer =
        |saved: &Saved| DataPtr::new(usize::try_from(saved.address()).unwrap_or(0), device);
    let allocated: Vec<DataPtr> = chosen.saved.iter().map(as_pointer).collect();
    let full = "host memory is short";
    let freed = Vector::new(new, &freed).ok_or(full)?;
    Ok(Delta { freed, allocated: Vector::new(new, &allocated).ok_or(full)? })
}

/// Message where this PyTorch cannot be served.
const REFUSED: &str = "this PyTorch keeps checkpoints of graph pools only with its own allocator. For torch.compile(mode='reduce-overhead'), \
     set torch._inductor.config.triton.cudagraph_trees = False, and copy outputs that must outlive the next call; \
     or use omniheap.torch.pool() instead of omniheap.torch.enable()";

const GONE: &str = "the pool is not there any more: no graph uses it";

/// Keeps what lives in a pool now. Returns a number for it, and -1 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_checkpoint(device: c_int, captured: u64, named: u64) -> i64 {
    let mut number = -1;
    guard::guarded(|| {
        direct::is_used().then_some(()).ok_or(REFUSED)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    unsafe extern "C" fn new(size: usize) -> *mut c_void {
        // SAFETY: `malloc` has no preconditions.
        unsafe { libc::malloc(size) }
    }

    #[test]
    fn a_vector_has_the_layout_of_the_c_library() {
        assert_eq!((size_of::<DataPtr>(), size_of::<Delta>()), (32, 48));
        let Vector(none) = Vector::new::<u64>(new, &[]).expect("nothing is needed");
        assert_eq!(none, [0; 3]);
        let Vector([start, end, room]) = Vector::new(new, &[7_u64, 8, 9]).expect("24 bytes");
        assert_eq!((end - start, room), (24, end));
        let content: *mut u64 = ptr::with_exposed_provenance_mut(start);
        // SAFETY: three numbers were copied there just now.
        assert_eq!(unsafe { core::slice::from_raw_parts(content, 3) }, [7, 8, 9]);
        // SAFETY: from `malloc`, and freed once.
        unsafe { libc::free(content.cast()) };
    }

    #[test]
    fn numbers_of_checkpoints_that_do_not_exist_are_refused() {
        assert_eq!(omniheap_torch_choose_checkpoint(77), -1);
        assert_eq!(omniheap_torch_forget_checkpoint(77), -1);
        assert_eq!(omniheap_torch_checkpoint(0, 0, 1), -1, "PyTorch is not here");
        assert!(try_restore(0).is_err(), "nothing was chosen");
    }
}
