//! The virtual functions of PyTorch's allocator that are ours: its object gets a table that is a copy of its own, but for these.
//!
//! Some refuse what programs need, and have no hook: how large a workspace may be, which cuDNN asks when it looks for the fastest algorithm
//! (`torch.backends.cudnn.benchmark`), and the way back to a checkpoint of a pool, which trees of graphs need. Others do more than they must
//! (`direct`).
#![expect(unsafe_code, reason = "changes the table of a C++ object")]
use crate::guard::guarded;
use crate::loaded::Loaded;
use crate::state::{self, on};
use crate::{checkpoint, direct, direct::Place, profile};
use core::ffi::{c_int, c_void};
use core::{ptr, slice};

/// The entries of a table in front of its first function: an offset, and the type.
const FRONT: usize = 2;

/// Asks the linker for a symbol's entry in its table (`RTLD_DL_SYMENT`).
const SYMBOL_ENTRY: c_int = 1;

/// Completes what PyTorch's hooks leave out, once its allocator is one of these functions: its profiler hears of memory, cuDNN's benchmarks
/// learn how large a workspace may be, pools of graphs go back to checkpoints, and tensors allocate and free without a detour. Returns -1 where this PyTorch is one that this was not made
/// for: it lacks some of it then.
///
/// # Safety
///
/// PyTorch's current allocator was made of these functions, and no other thread uses it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_attach() -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let answers = unsafe { attach() };
        profile::attach()
            .and(answers)
            .ok_or_else(|| "PyTorch has other symbols than expected".into())
    })
}

/// Gives PyTorch's current allocator our functions; nothing where this PyTorch is one that this was not made for.
///
/// # Safety
///
/// PyTorch's current allocator is one that was made of this library's functions, and no other thread uses it yet.
unsafe fn attach() -> Option<()> {
    let found = Found::find()?;
    let place = Place::find(&found.base)?;
    // SAFETY: the symbol is an atomic pointer to an object that lives as long as the process.
    let object = unsafe { found.current.read() };
    // SAFETY: as above; the caller promises that nobody uses it meanwhile, and each function has the signature of what it replaces.
    unsafe { replace(object, found.table, &found.changes) }?;
    place.keep()
}

/// Symbols of PyTorch's libraries.
struct Found {
    /// Address of PyTorch's pointer to the allocator in use.
    current: *const *mut *const usize,
    /// The virtual functions of pluggable allocators, with what is in front of them.
    table: &'static [usize],
    /// The addresses of functions, and of what replaces them.
    changes: Vec<(usize, usize)>,
    base: Loaded,
}

impl Found {
    fn find() -> Option<Self> {
        let (base, torch) = (Loaded::find(c"libc10_cuda.so")?, Loaded::find(c"libtorch_cuda.so")?);
        let current = base.symbol(c"_ZN3c104cuda20CUDACachingAllocator9allocatorE")?.cast_const();
        let table =
            torch.symbol(c"_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE")?;
        let cache_info = torch.symbol(
            c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm",
        )?;
        let restore = torch.symbol(c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE")?;
        let mut changes = direct::answers(&torch)?.to_vec();
        changes.push((cache_info.addr(), (workspace as *const ()).addr()));
        changes.push((restore.addr(), (checkpoint::restore as *const ()).addr()));
        let entries = size_of_symbol(table)? / size_of::<usize>();
        // SAFETY: the linker says that so many bytes belong to the table, which is never written and never unloaded.
        let table = unsafe { slice::from_raw_parts(table.cast_const().cast(), entries) };
        Some(Self { current: current.cast(), table, changes, base })
    }
}

/// The bytes of what a symbol names.
fn size_of_symbol(symbol: *mut c_void) -> Option<usize> {
    let mut place = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let mut entry: *mut c_void = ptr::null_mut();
    // SAFETY: both are valid out-pointers of the types that the flag asks for.
    let code = unsafe { libc::dladdr1(symbol, &raw mut place, &raw mut entry, SYMBOL_ENTRY) };
    if code == 0 || entry.is_null() || place.dli_saddr != symbol {
        return None;
    }
    // SAFETY: with this flag the entry is one of the library's symbol table.
    let size = unsafe { entry.cast_const().cast::<libc::Elf64_Sym>().read_unaligned() }.st_size;
    usize::try_from(size).ok()
}

/// Gives an object a copy of its table in which functions are others; nothing where it has another table, or lacks one of them.
///
/// # Safety
///
/// `object` is null or a live C++ object with virtual functions that nobody else uses now; each new function has its old one's signature.
unsafe fn replace(
    object: *mut *const usize,
    table: &[usize],
    changes: &[(usize, usize)],
) -> Option<()> {
    let functions = table.get(FRONT..)?;
    // SAFETY: such an object begins with the address of its first virtual function.
    let current = unsafe { object.as_mut() }?;
    if *current != functions.as_ptr() {
        return None;
    }
    let mut copy = table.to_vec();
    for (old, new) in changes {
        let at = functions.iter().position(|function| function == old)?;
        copy[FRONT + at] = *new;
    }
    // The object lives as long as the process.
    *current = &raw const copy.leak()[FRONT];
    Some(())
}

/// Writes the most bytes that a workspace may have, in place of the function that refuses.
unsafe extern "C" fn workspace(_: *mut c_void, device: i8, largest: *mut usize) {
    let mut bytes = 0;
    guarded(|| {
        let found =
            state::device(c_int::from(device)).map_err(crate::guard::failed("workspace"))?;
        bytes = on!(found, it => it.largest());
        Ok(())
    });
    // SAFETY: PyTorch passes where it wants the answer, or null.
    if let Some(largest) = unsafe { largest.as_mut() } {
        *largest = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_object_are_others() {
        let (table, changes) = ([0, 0, 11, 22, 33], [(22, 99), (33, 88)]);
        let [mut changed, other] = [table[FRONT..].as_ptr(); 2];
        // SAFETY: numbers stand for functions that nobody calls.
        let replaced = unsafe { replace(&raw mut changed, &table, &changes) };
        assert_eq!(replaced, Some(()));
        // SAFETY: the copy is as long as the table.
        assert_eq!(unsafe { slice::from_raw_parts(changed, 3) }, [11, 99, 88]);
        assert_eq!((other, table), (table[FRONT..].as_ptr(), [0, 0, 11, 22, 33]));
        // SAFETY: as above.
        let again = unsafe { replace(&raw mut changed, &table, &changes) };
        assert_eq!(again, None, "it has another table");
        // SAFETY: as above.
        assert_eq!(unsafe { replace(ptr::null_mut(), &table, &changes) }, None);
        let mut kept = other;
        // SAFETY: as above.
        let lacks = unsafe { replace(&raw mut kept, &table, &[(22, 99), (44, 99)]) };
        assert_eq!(lacks, None, "no such function");
        assert_eq!(kept, other);
    }

    #[test]
    fn the_linker_knows_how_long_a_table_is() {
        let Some(cpp) = Loaded::find(c"libc.so.6") else { return };
        let symbol = cpp.symbol(c"environ").expect("every program has one");
        assert_eq!(size_of_symbol(symbol), Some(size_of::<usize>()));
        let inside = symbol.cast::<u8>().wrapping_add(1).cast();
        assert_eq!(size_of_symbol(inside), None, "a symbol is named by its first byte");
    }
}
