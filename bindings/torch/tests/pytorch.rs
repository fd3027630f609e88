//! The library under a stand-in of PyTorch's C++: its allocator's virtual functions, its exceptions, its profiler.
//!
//! Machines without a C++ compiler print that, and skip the tests.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "loads a library and calls its functions")]
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use omniheap_torch::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const LIMIT: u64 = 64 << 20;
const MIB: usize = 1 << 20;
const POOL: PoolId = PoolId { captured: 7, named: 0 };

/// The libraries of PyTorch that are looked for, and the driver's; the first has everything, and the others need it.
const LIBRARIES: [&str; 4] = ["libc10.so", "libc10_cuda.so", "libtorch_cuda.so", "libcuda.so.1"];

/// Compiles the stand-in; nothing where there is no compiler.
fn build() -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("omniheap-pytorch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for libraries");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pytorch/standin.cpp");
    for name in LIBRARIES {
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(folder.join(name));
        command.arg(format!("-Wl,-soname,{name}"));
        if name == LIBRARIES[0] {
            command.arg(&source);
        } else {
            command.arg("-Wl,--no-as-needed").arg(folder.join(LIBRARIES[0]));
        }
        let built = command.output().ok()?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    Some(folder)
}

/// The stand-in, loaded and attached to; nothing where it cannot be built.
fn loaded() -> Option<&'static Library> {
    static LOADED: OnceLock<Option<[Library; LIBRARIES.len()]>> = OnceLock::new();
    let load = || {
        // SAFETY: a C string.
        assert_eq!(unsafe { omniheap_torch_configure(c"host".as_ptr(), LIMIT, 1) }, 0);
        // SAFETY: there is no PyTorch yet.
        assert_eq!(unsafe { omniheap_torch_attach() }, -1, "PyTorch is not loaded");
        let folder = build()?;
        let libraries = LIBRARIES.map(|name| {
            // SAFETY: the stand-in's start-up code makes an object, and nothing else.
            unsafe { Library::open(Some(folder.join(name)), RTLD_NOW | RTLD_GLOBAL) }
                .expect("it was built")
        });
        std::fs::remove_dir_all(folder).expect("it was made above");
        // SAFETY: the stand-in's allocator is one object, which nobody uses yet.
        assert_eq!(unsafe { omniheap_torch_attach() }, 0, "{}", error());
        Some(libraries)
    };
    let library = LOADED.get_or_init(load).as_ref();
    if library.is_none() {
        println!("SKIPPED: no C++ compiler here; install g++ or clang");
    }
    library.map(|libraries| &libraries[0])
}

/// Settings, figures and where a thread is are one for the process: tests run one after the other.
fn begin() -> Option<(MutexGuard<'static, ()>, &'static Library)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let library = loaded()?;
    place(library, 0, 0, 0);
    Some((guard, library))
}

/// Calls a function of the stand-in.
macro_rules! call {
    ($library:expr, $name:literal, fn($($type:ty),*) $(-> $result:ty)?, $($argument:expr),*) => {{
        // SAFETY: the source of the stand-in has this function with these types.
        let function = unsafe {
            $library.get::<unsafe extern "C" fn($($type),*) $(-> $result)?>($name)
        };
        // SAFETY: as above; what is passed lives as long as the call.
        unsafe { function.expect("the stand-in has it")($($argument),*) }
    }};
}

/// Sets what PyTorch says of this thread: an error code, the device and the stream.
fn place(library: &Library, code: c_int, device: c_int, stream: usize) {
    let stream = ptr::without_provenance_mut(stream);
    call!(library, b"standin_place", fn(c_int, c_int, *mut c_void), code, device, stream);
}

fn words(text: *const c_char) -> String {
    // SAFETY: C strings, good until the next call.
    unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
}

fn error() -> String {
    words(omniheap_torch_error())
}

fn what(library: &Library) -> String {
    words(call!(library, b"standin_what", fn() -> *const c_char,))
}

fn stat(key: &str) -> u64 {
    let stats: Value = serde_json::from_str(&words(omniheap_torch_stats(0))).expect("JSON");
    stats[key].as_u64().expect("a number")
}

fn raw_alloc(library: &Library, size: usize) -> (c_int, *mut c_void) {
    let mut data = ptr::null_mut();
    let caught = call!(
        library,
        b"standin_raw_alloc",
        fn(usize, *mut *mut c_void) -> c_int,
        size,
        &raw mut data
    );
    (caught, data)
}

fn raw_delete(library: &Library, data: *mut c_void) -> c_int {
    call!(library, b"standin_raw_delete", fn(*mut c_void) -> c_int, data)
}

#[test]
fn a_tensor_has_bytes_of_its_device_until_it_is_gone() {
    let Some((_one, library)) = begin() else { return };
    extern "C" fn lives() {
        assert_eq!((stat("live"), stat("live_bytes")), (1, 5000));
    }
    type Tensor =
        unsafe extern "C" fn(usize, *mut *mut c_void, *mut c_int, extern "C" fn()) -> c_int;
    // SAFETY: the source of the stand-in has this function with these types.
    let tensor = unsafe { library.get::<Tensor>(b"standin_tensor") }.expect("the stand-in has it");
    let (mut data, mut device) = (ptr::null_mut(), -1);
    // SAFETY: places for two values, and a function that takes none.
    let caught = unsafe { tensor(5000, &raw mut data, &raw mut device, lives) };
    assert_eq!((caught, device), (0, 100), "{}", what(library));
    assert!(!data.is_null() && data.addr().is_multiple_of(512));
    assert_eq!(stat("live"), 0, "it freed its bytes");
    let mut answer = 0;
    assert_eq!(call!(library, b"standin_untouched", fn(*mut c_int) -> c_int, &raw mut answer), 0);
    assert_eq!(answer, 42, "the allocator's other functions are its own");
}

#[test]
fn bytes_are_allocated_on_the_stream_and_the_device_of_the_thread() {
    let Some((_one, library)) = begin() else { return };
    let stream_of = |device: c_int| {
        let shown: Value =
            serde_json::from_str(&words(omniheap_torch_segments(device))).expect("JSON");
        let all = shown.as_array().expect("a list").clone();
        all.into_iter().map(|segment| segment["stream"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(words(omniheap_torch_segments(1)), "[]", "the device is not open");
    place(library, 0, 1, 0x500);
    let (caught, first) = raw_alloc(library, MIB);
    assert_eq!((caught, stream_of(1)), (0, vec![0x500.into()]));
    let (mut second, stream) = (ptr::null_mut(), ptr::without_provenance_mut(0x600));
    place(library, 0, 0, 0x500);
    let caught = call!(
        library,
        b"standin_raw_alloc_with_stream",
        fn(usize, *mut c_void, *mut *mut c_void) -> c_int,
        MIB,
        stream,
        &raw mut second
    );
    assert_eq!((caught, stream_of(0)), (0, vec![0x600.into()]));
    assert_eq!(raw_delete(library, first), 0, "whichever device has it: {}", what(library));
    assert_eq!(call!(library, b"standin_raw_deleter", fn(*mut c_void) -> c_int, second), 0);
    assert_eq!(stat("live"), 0);
    assert_eq!(raw_delete(library, ptr::null_mut()), 0, "nothing is nothing");
}

#[test]
fn failures_are_pytorchs_exceptions() {
    let Some((_one, library)) = begin() else { return };
    let (caught, _) = raw_alloc(library, 65 * MIB);
    assert_eq!(caught, 1);
    assert!(what(library).starts_with("host out of memory. Tried to allocate 65.00 MiB"));
    let (caught, _) = raw_alloc(library, usize::MAX);
    assert_eq!(caught, 1);
    assert!(what(library).ends_with("more than 1EB memory."), "{}", what(library));
    let (_, data) = raw_alloc(library, 512);
    assert_eq!([raw_delete(library, data), raw_delete(library, data)], [0, 2]);
    assert_eq!(what(library), "Trying to free a pointer not allocated here");
    place(library, 3, 0, 0);
    assert_eq!(raw_alloc(library, 512).0, 2);
    assert_eq!(what(library), "cudaGetDevice failed with code 3; is there a GPU and a driver?");
    place(library, 0, 99, 0);
    assert_eq!(raw_alloc(library, 512).0, 2, "more memory would not help");
    assert!(what(library).starts_with("omniheap: device 99 cannot be opened"), "{}", what(library));
}

#[test]
fn a_segment_is_null_where_memory_is_short_and_an_exception_where_something_else_is_wrong() {
    let Some((_one, library)) = begin() else { return };
    type Segment = unsafe extern "C-unwind" fn(isize, c_int, *mut c_void) -> *mut c_void;
    let segment = |function: Segment, size: usize, device| {
        let mut data = ptr::dangling_mut();
        let caught = call!(
            library,
            b"standin_segment",
            fn(Segment, usize, c_int, *mut *mut c_void) -> c_int,
            function,
            size,
            device,
            &raw mut data
        );
        (caught, data.is_null())
    };
    for function in [omniheap_torch_segment, omniheap_torch_registrable] as [Segment; 2] {
        assert_eq!(segment(function, 1 << 40, 0), (0, true));
        assert_eq!(segment(function, MIB, 99).0, 2);
        assert!(what(library).starts_with("omniheap: device 99 cannot be opened"));
    }
}

#[test]
fn workspaces_may_have_what_is_left() {
    let Some((_one, library)) = begin() else { return };
    omniheap_torch_reset();
    let largest = |device| {
        let mut bytes = 7_usize;
        let out = &raw mut bytes;
        let caught =
            call!(library, b"standin_workspace", fn(c_int, *mut usize) -> c_int, device, out);
        assert_eq!(caught, 0);
        bytes as u64
    };
    assert_eq!(largest(0), LIMIT - stat("reserved_bytes") + stat("free_bytes"));
    let (_, data) = raw_alloc(library, 40 * MIB);
    assert_eq!(largest(0), LIMIT - stat("reserved_bytes") + stat("free_bytes"));
    assert!(largest(0) <= 24 << 20);
    assert_eq!(largest(99), 0, "there is no such device");
    let nowhere = ptr::null_mut();
    assert_eq!(call!(library, b"standin_workspace", fn(c_int, *mut usize) -> c_int, 0, nowhere), 0);
    assert_eq!(raw_delete(library, data), 0);
}

#[test]
fn the_profiler_hears_of_what_comes_and_goes_while_it_is_on() {
    let Some((_one, library)) = begin() else { return };
    let heard = || {
        let heard = call!(library, b"standin_heard", fn() -> *const [i64; 6],);
        // SAFETY: the stand-in's own numbers, which live as long as the process.
        unsafe { *heard }
    };
    let [before, ..] = heard();
    let (_, silent) = raw_alloc(library, 100);
    assert_eq!(heard()[0], before, "it is off");
    call!(library, b"standin_profile", fn(c_int), 1);
    let (_, data) = raw_alloc(library, 1000);
    let at = i64::try_from(data.addr()).expect("small");
    let held = i64::try_from(stat("reserved_bytes")).expect("small");
    assert_eq!(heard(), [before + 1, at, 1024, 1536, held, 100]);
    assert_eq!(raw_delete(library, data), 0);
    assert_eq!(heard(), [before + 2, at, -1024, 512, held, 100]);
    call!(library, b"standin_profile", fn(c_int), 0);
    assert_eq!(raw_delete(library, silent), 0);
    assert_eq!(heard()[0], before + 2);
}

/// Goes back to the chosen checkpoint: which exception came, what was freed and what lives again.
fn restore(library: &Library, device: c_int) -> (c_int, [usize; 8], [usize; 8]) {
    let (mut freed, mut allocated) = ([0; 8], [0; 8]);
    let caught = call!(
        library,
        b"standin_restore",
        fn(c_int, *mut usize, *mut usize) -> c_int,
        device,
        freed.as_mut_ptr(),
        allocated.as_mut_ptr()
    );
    (caught, freed, allocated)
}

#[test]
fn a_pool_goes_back_to_what_lived_at_a_checkpoint() {
    let Some((_one, library)) = begin() else { return };
    assert_eq!(omniheap_torch_checkpoint(0, POOL.captured, POOL.named), -1, "there is no pool");
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { omniheap_torch_begin_pool(0, POOL, ptr::null_mut()) };
    let [first, second, third] = [MIB, 3 * MIB, MIB].map(|size| raw_alloc(library, size).1);
    assert_eq!(raw_delete(library, third), 0);
    let checkpoint = omniheap_torch_checkpoint(0, POOL.captured, POOL.named);
    assert!(checkpoint > 0, "{}", error());
    let next = omniheap_torch_checkpoint(0, POOL.captured, POOL.named);
    assert_eq!(next, checkpoint + 1);
    assert_eq!(raw_delete(library, second), 0);
    let later = raw_alloc(library, 2 * MIB).1;
    omniheap_torch_end_pool(0, POOL);

    assert_eq!(restore(library, 0).0, 2, "nothing was chosen");
    assert_eq!(omniheap_torch_choose_checkpoint(checkpoint), 0);
    assert_eq!(restore(library, 1).0, 2);
    assert_eq!(what(library), "the checkpoint is of device 0");
    assert_eq!(omniheap_torch_choose_checkpoint(checkpoint), 0);
    let (caught, mut freed, mut allocated) = restore(library, 0);
    assert_eq!(caught, 0, "{}", what(library));
    let sorted = |mut all: [usize; 8]| {
        all.sort_unstable();
        all
    };
    (freed, allocated) = (sorted(freed), sorted(allocated));
    assert_eq!(freed, sorted([first.addr(), later.addr(), 0, 0, 0, 0, 0, 0]));
    assert_eq!(allocated, sorted([first.addr(), second.addr(), 0, 0, 0, 0, 0, 0]));
    assert_eq!((stat("live"), stat("live_bytes")), (2, 4 << 20));

    for number in [checkpoint, next] {
        assert_eq!(omniheap_torch_forget_checkpoint(number), 0);
        assert_eq!(omniheap_torch_choose_checkpoint(number), -1);
    }
    assert_eq!([first, second].map(|data| raw_delete(library, data)), [0, 0]);
    omniheap_torch_release_pool(0, POOL);
    assert_eq!(stat("live"), 0);
    assert_eq!(omniheap_torch_checkpoint(0, POOL.captured, POOL.named), -1, "the pool is gone");
}

#[test]
fn the_driver_says_how_large_a_device_is_before_it_is_opened() {
    let Some(_one) = begin() else { return };
    let bytes = |backend: &CStr, device| {
        // SAFETY: a C string.
        unsafe { omniheap_torch_device_bytes(backend.as_ptr(), device) }
    };
    assert_eq!((bytes(c"cuda", 0), bytes(c"cuda", 1)), (80 << 30, 0));
    assert!(error().contains("no such device"), "{}", error());
    assert_eq!((bytes(c"host", 0), bytes(c"moon", 0)), (0, 0));
}
