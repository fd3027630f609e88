//! The tools' side of NVTX's memory extension, found at run time.
#![expect(unsafe_code, reason = "FFI")]
use core::{
    ffi::{c_int, c_void},
    mem, ptr,
};
use std::{path::PathBuf, sync::OnceLock};

/// The variable by which a tool names its library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtxExtension\0";
const VERSION: u16 = 3;
const MEMORY_MODULE: u16 = 1;
const MEMORY_COMPAT: u16 = 0x0102;
const SLOTS: usize = 63;
/// Indices of the called functions in the tool's table.
const HEAP_REGISTER: usize = 0;
const HEAP_UNREGISTER: usize = 1;
const REGIONS_REGISTER: usize = 3;
const REGIONS_UNREGISTER: usize = 5;
/// Value of a table entry that no tool has filled.
const DISABLED: usize = 1;
const SUB_ALLOCATOR: u32 = 1;
const VIRTUAL_ADDRESS: u32 = 1;
const BY_POINTER: u32 = 1;

#[repr(C)]
struct Segment {
    id: usize,
    slot_count: usize,
    slots: *mut usize,
}

#[repr(C)]
struct Module {
    version: u16,
    size: u16,
    module: u16,
    compat: u16,
    segment_count: usize,
    segments: *mut Segment,
    export: *const c_void,
    info: *const c_void,
}

#[repr(C)]
struct Range {
    size: usize,
    start: *const c_void,
}

#[repr(C)]
struct HeapDescription {
    compat: u16,
    size: u16,
    reserved: u32,
    usage: u32,
    kind: u32,
    range_size: usize,
    range: *const Range,
    category: u32,
    message_kind: u32,
    message: *const c_void,
}

#[repr(C)]
struct Register {
    compat: u16,
    size: u16,
    kind: u32,
    heap: *mut c_void,
    count: usize,
    element_size: usize,
    elements: *const Range,
    handles: *mut c_void,
}

#[repr(C)]
struct Unregister {
    compat: u16,
    size: u16,
    kind: u32,
    count: usize,
    element_size: usize,
    elements: *const *const c_void,
}

/// Returns the size that a structure says it has.
const fn size<T>() -> u16 {
    assert!(size_of::<T>() < 1 << 16);
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    let size = size_of::<T>() as u16;
    size
}

fn pointer(address: u64) -> *const c_void {
    ptr::without_provenance(usize::try_from(address).unwrap_or(0))
}

fn range(address: u64, bytes: u64) -> Range {
    Range { size: usize::try_from(bytes).unwrap_or(usize::MAX), start: pointer(address) }
}

type Domain = *const c_void;
/// Everything is said in the default domain.
const DOMAIN: Domain = ptr::null();

/// A tool's functions.
#[derive(Clone, Copy)]
pub(super) struct Tool {
    heap_register: unsafe extern "C" fn(Domain, *const HeapDescription) -> *mut c_void,
    heap_unregister: unsafe extern "C" fn(Domain, *mut c_void),
    regions_register: unsafe extern "C" fn(Domain, *const Register),
    regions_unregister: unsafe extern "C" fn(Domain, *const Unregister),
}

impl Tool {
    /// Returns the tool that listens to this process; `None` where none does.
    pub(super) fn get() -> Option<Self> {
        static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
        *TOOL.get_or_init(|| {
            let path = PathBuf::from(std::env::var_os(VARIABLE)?);
            Self::attach(path)
                .inspect_err(|error| tracing::warn!(error, "no NVTX tool is attached"))
                .ok()
        })
    }

    fn attach(path: PathBuf) -> Result<Self, &'static str> {
        // SAFETY: the initialisers that run are those of the tool that the user started.
        let library = unsafe { libloading::Library::new(path) };
        let library = library.map_err(|_| "the tool's library does not load")?;
        // SAFETY: tools declare the symbol so.
        let found = unsafe { library.get::<unsafe extern "C" fn(*mut Module) -> c_int>(ENTRY) };
        let start = *found.map_err(|_| "the tool knows nothing of memory")?;
        let mut slots = [0usize; SLOTS];
        let mut segment = Segment { id: 1, slot_count: SLOTS, slots: slots.as_mut_ptr() };
        let mut module = Module {
            version: VERSION,
            size: size::<Module>(),
            module: MEMORY_MODULE,
            compat: MEMORY_COMPAT,
            segment_count: 1,
            segments: &raw mut segment,
            export: ptr::null(),
            info: ptr::null(),
        };
        // SAFETY: the module describes one segment with the slots above, which the tool fills during the call.
        if unsafe { start(&raw mut module) } == 0 {
            return Err("the tool does not want to listen");
        }
        // The tool's functions are called until the process ends.
        mem::forget(library);
        Self::from_slots(&slots).ok_or("the tool does not look at memory")
    }

    fn from_slots(slots: &[usize; SLOTS]) -> Option<Self> {
        let used = [HEAP_REGISTER, HEAP_UNREGISTER, REGIONS_REGISTER, REGIONS_UNREGISTER];
        let [a, b, c, d] = used.map(|slot| ptr::with_exposed_provenance::<c_void>(slots[slot]));
        if used.iter().any(|&slot| slots[slot] <= DISABLED) {
            return None;
        }
        Some(Self {
            // SAFETY: the tool filled this slot with a function of this type.
            heap_register: unsafe {
                mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(Domain, *const HeapDescription) -> *mut c_void,
                >(a)
            },
            // SAFETY: as above.
            heap_unregister: unsafe {
                mem::transmute::<*const c_void, unsafe extern "C" fn(Domain, *mut c_void)>(b)
            },
            // SAFETY: as above.
            regions_register: unsafe {
                mem::transmute::<*const c_void, unsafe extern "C" fn(Domain, *const Register)>(c)
            },
            // SAFETY: as above.
            regions_unregister: unsafe {
                mem::transmute::<*const c_void, unsafe extern "C" fn(Domain, *const Unregister)>(d)
            },
        })
    }

    /// Reports a block that is suballocated. Its bytes may not be used until an allocation in it is reported.
    pub(super) fn block(&self, address: u64, bytes: u64) -> Heap {
        let range = range(address, bytes);
        let description = HeapDescription {
            compat: MEMORY_COMPAT,
            size: size::<HeapDescription>(),
            reserved: 0,
            usage: SUB_ALLOCATOR,
            kind: VIRTUAL_ADDRESS,
            range_size: size_of::<Range>(),
            range: &raw const range,
            category: 0,
            message_kind: 0,
            message: ptr::null(),
        };
        // SAFETY: the description and its range live during the call, which is all that is asked.
        Heap(unsafe { (self.heap_register)(DOMAIN, &raw const description) })
    }

    /// Reports an allocation in a block.
    pub(super) fn span(&self, heap: &Heap, address: u64, bytes: u64) {
        let range = range(address, bytes);
        let register = Register {
            compat: MEMORY_COMPAT,
            size: size::<Register>(),
            kind: VIRTUAL_ADDRESS,
            heap: heap.0,
            count: 1,
            element_size: size_of::<Range>(),
            elements: &raw const range,
            handles: ptr::null_mut(),
        };
        // SAFETY: the batch and its one range live during the call.
        unsafe { (self.regions_register)(DOMAIN, &raw const register) };
    }

    /// Reports that an allocation was freed.
    pub(super) fn span_ends(&self, address: u64) {
        let start = pointer(address);
        let unregister = Unregister {
            compat: MEMORY_COMPAT,
            size: size::<Unregister>(),
            kind: BY_POINTER,
            count: 1,
            element_size: size_of::<*const c_void>(),
            elements: &raw const start,
        };
        // SAFETY: the batch and its one reference live during the call.
        unsafe { (self.regions_unregister)(DOMAIN, &raw const unregister) };
    }

    /// Reports that a block was freed, with everything in it.
    pub(super) fn block_ends(&self, heap: Heap) {
        // SAFETY: `block` gave the handle, which is taken by value and given back once.
        unsafe { (self.heap_unregister)(DOMAIN, heap.0) };
    }
}

/// A tool's handle of a block.
pub(super) struct Heap(*mut c_void);

// SAFETY: a handle is only passed on, and tools may be called from any thread.
unsafe impl Send for Heap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_tools_expect() {
        let sizes = (size::<Module>(), size::<HeapDescription>(), size::<Register>());
        assert_eq!(sizes, (40, 48, 48));
        assert_eq!((size::<Unregister>(), size_of::<Range>()), (32, 16));
    }

    #[test]
    fn a_tool_without_these_functions_is_none() {
        assert!(Tool::from_slots(&[0; SLOTS]).is_none());
        assert!(Tool::from_slots(&[DISABLED; SLOTS]).is_none());
    }

    #[test]
    fn a_library_that_is_no_tool_is_refused() {
        assert!(Tool::attach("no such library".into()).is_err());
    }
}
