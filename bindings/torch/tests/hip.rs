//! The exported functions on HIP: AMD's own runtime over the HSA stand-in.
//!
//! A runtime that cannot be fetched is said so loudly; `OMNIHEAP_REQUIRE=hip` makes that a failure.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(unsafe_code, reason = "calls C functions")]
mod arbiter;

use core::ffi::{CStr, c_void};
use core::ptr;
use omniheap_hip_runtime::{Runtime, Suite, ensure};
use omniheap_torch::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "OMNIHEAP_HIP_LIBRARY";
const CHILDREN: [&str; 3] = [
    "allocates_as_pytorch_for_rocm_does",
    "a_capture_that_somebody_else_began_is_not_spoiled",
    "streams_die_and_come_back",
];
const MIB: isize = 1 << 20;
/// Calls as PyTorch does, but through ctypes.
const DRIVE: &str = "
from omniheap import _library
_library.configure('hip', '256MiB', True)
lib = _library.load()
held = [(lib.omniheap_torch_alloc(n << 20, 0, None), n << 20) for n in range(1, 20)]
assert all(pointer for pointer, _ in held)
for pointer, size in held:
    lib.omniheap_torch_record_stream(pointer, None)
    lib.omniheap_torch_free(pointer, size, 0, None)
_library.empty_cache()
stats = _library.stats()
assert (stats['backend'], stats['live']) == ('hip', 0), stats
assert lib.omniheap_torch_alloc(300 << 20, 0, None) is None
assert 'out of memory' in _library.explain_oom()
print('ok')
";

fn stats() -> Value {
    let text = omniheap_torch_stats(0);
    assert!(!text.is_null());
    // SAFETY: the library's texts are C strings, good until the next call.
    let text = unsafe { CStr::from_ptr(text) };
    serde_json::from_slice(text.to_bytes()).expect("stats are JSON")
}

fn allocate(size: isize) -> *mut c_void {
    // SAFETY: null is the default stream, which lives as long as the process.
    let pointer = unsafe { omniheap_torch_alloc(size, 0, ptr::null_mut()) };
    // SAFETY: the library's texts are C strings, good until the next call.
    let said = unsafe { CStr::from_ptr(omniheap_torch_error()) };
    assert!(!pointer.is_null(), "{}", said.to_string_lossy());
    pointer
}

/// Runs in a process of its own, through the runtime's loader.
#[test]
fn allocates_as_pytorch_for_rocm_does() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_configure(c"hip".as_ptr(), 256 << 20, 1) }, 0);
    let held: Vec<_> = (1..20).map(|size| (allocate(size * MIB), size * MIB)).collect();
    let mut ends: Vec<_> =
        held.iter().map(|(at, size)| (at.addr(), at.addr() + size.unsigned_abs())).collect();
    ends.sort_unstable();
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no two overlap");
    omniheap_torch_record_stream(held[0].0, ptr::null_mut());
    for (pointer, size) in held {
        omniheap_torch_free(pointer, size.unsigned_abs(), 0, ptr::null_mut());
    }
    let pool = PoolId { captured: 1, named: 0 };
    // SAFETY: without a filter, every stream belongs to the capture.
    unsafe { omniheap_torch_begin_pool(0, pool, ptr::null_mut()) };
    let kept = allocate(MIB);
    omniheap_torch_free(kept, MIB.unsigned_abs(), 0, ptr::null_mut());
    assert_eq!(allocate(MIB), kept, "a capture uses its own memory again");
    omniheap_torch_end_pool(0, pool);
    omniheap_torch_free(kept, MIB.unsigned_abs(), 0, ptr::null_mut());
    omniheap_torch_release_pool(0, pool);
    omniheap_torch_reset();
    let left = stats();
    assert_eq!((&left["backend"], &left["live"]), (&"hip".into(), &0.into()), "{left}");
    // SAFETY: as above.
    let too_much = unsafe { omniheap_torch_alloc(300 * MIB, 0, ptr::null_mut()) };
    assert!(too_much.is_null(), "the limit holds");
}

/// HIP's functions as another library calls them.
struct Other(libloading::Library);

impl Other {
    fn new() -> Self {
        let path = std::env::var_os(LIBRARY).expect("the parent set it");
        // SAFETY: the runtime that the backend has loaded already.
        Self(unsafe { libloading::Library::new(path) }.expect("it is loaded"))
    }

    /// Calls a function of so many words, which must succeed.
    fn call<const N: usize>(&self, name: &str, words: [usize; N]) {
        assert_eq!(self.ask(name, words), 0, "{name}");
    }

    fn ask<const N: usize>(&self, name: &str, words: [usize; N]) -> u32 {
        type Six = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> u32;
        // SAFETY: all arguments of these functions are words, and what is too much is not looked at.
        let function = unsafe { self.0.get::<Six>(name.as_bytes()) }.expect("HIP has it");
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        // SAFETY: the test passes live streams, graphs and addresses.
        unsafe { function(word(0), word(1), word(2), word(3), word(4), word(5)) }
    }

    /// Calls a function that makes something.
    fn make<const N: usize>(&self, name: &str, more: [usize; N]) -> usize {
        let mut made = 0_usize;
        let mut words = vec![(&raw mut made).expose_provenance()];
        words.extend(more);
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(&words);
        self.call(name, all);
        made
    }

    /// Calls a function that makes something behind its first argument.
    fn make_second(&self, name: &str, first: usize) -> usize {
        let mut made = 0_usize;
        self.call(name, [first, (&raw mut made).expose_provenance()]);
        made
    }

    fn stream(&self) -> usize {
        self.make("hipStreamCreateWithFlags", [1])
    }

    fn fill(&self, pointer: *mut c_void, value: u8, size: isize, stream: usize) {
        let (pointer, size) = (pointer.expose_provenance(), size.unsigned_abs());
        self.call("hipMemsetAsync", [pointer, value.into(), size, stream]);
    }

    /// The first bytes of device memory.
    fn holds(&self, pointer: *mut c_void, value: u8) -> bool {
        let mut bytes = [0_u8; 4096];
        let to = bytes.as_mut_ptr().expose_provenance();
        self.call("hipMemcpy", [to, pointer.expose_provenance(), bytes.len(), 2]);
        bytes.iter().all(|byte| *byte == value)
    }
}

fn handle(stream: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(stream)
}

fn on(size: isize, stream: usize) -> *mut c_void {
    // SAFETY: the tests' streams live until they destroy them.
    let pointer = unsafe { omniheap_stream_alloc(handle(stream), size.unsigned_abs(), 0) };
    assert!(!pointer.is_null());
    pointer
}

/// As [`on`], for a stream that lives as long as the process.
fn lasting(size: isize, stream: usize) -> *mut c_void {
    // SAFETY: nobody destroys it.
    let pointer = unsafe { omniheap_torch_alloc(size, 0, handle(stream)) };
    assert!(!pointer.is_null());
    pointer
}

/// Allocates, shares, frees and grows on a stream that another one is captured beside.
fn allocate_beside([own, captured]: [usize; 2]) {
    for size in 1..12 {
        let beside = lasting(size * MIB, own);
        omniheap_torch_record_stream(beside, handle(captured));
        omniheap_stream_free(handle(own), beside, 0);
    }
}

/// Figures once everything has gone back: the runtime says from a thread of its own that a graph is gone.
fn stats_once_given_back() -> Value {
    for _ in 0..6000 {
        omniheap_torch_reset();
        if stats()["reserved_bytes"] == 0 {
            break;
        }
        std::thread::sleep(core::time::Duration::from_millis(10));
    }
    stats()
}

/// As a child of [`hip_is_driven_over_the_stand_in`].
#[test]
fn a_capture_that_somebody_else_began_is_not_spoiled() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_configure(c"hip".as_ptr(), 256 << 20, 1) }, 0);
    let hip = Other::new();
    let (first, second) = (hip.stream(), hip.stream());
    for mode in 0..3 {
        let before = lasting(MIB, first);
        omniheap_stream_free(handle(first), before, 0);
        // The wait is for a mark that the capture must survive the look at.
        let waits = lasting(MIB, second);
        hip.fill(waits, 1, MIB, second);
        omniheap_torch_record_stream(waits, handle(first));
        omniheap_stream_free(handle(second), waits, 0);
        hip.call("hipStreamBeginCapture", [first, mode]);
        let inside = lasting(MIB, first);
        assert_ne!(inside, before, "a graph has memory of its own");
        hip.fill(inside, 7, MIB, first);
        std::thread::scope(|scope| drop(scope.spawn(|| allocate_beside([second, first]))));
        omniheap_torch_reset();
        let graph = hip.make_second("hipStreamEndCapture", first);
        let executable = hip.make("hipGraphInstantiate", [graph, 0, 0, 0]);
        hip.call("hipGraphDestroy", [graph]);
        omniheap_stream_free(handle(first), inside, 0);
        let after = lasting(MIB, first);
        assert_ne!(after, inside, "the graph may run");
        hip.call("hipGraphLaunch", [executable, first]);
        hip.call("hipStreamSynchronize", [first]);
        assert!(hip.holds(inside, 7));
        hip.call("hipGraphExecDestroy", [executable]);
        omniheap_stream_free(handle(first), after, 0);
    }
    hip.call("hipStreamSynchronize", [second]);
    let left = stats_once_given_back();
    assert_eq!((&left["live"], &left["reserved_bytes"]), (&0.into(), &0.into()), "{left}");
}

/// As a child of [`hip_is_driven_over_the_stand_in`].
#[test]
fn streams_die_and_come_back() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    // SAFETY: a C string.
    assert_eq!(unsafe { omniheap_torch_configure(c"hip".as_ptr(), 256 << 20, 1) }, 0);
    let (hip, mut kept) = (Other::new(), Vec::new());
    for round in 0..60 {
        let stream = hip.stream();
        let (short, long) = (on(MIB, stream), on(MIB, stream));
        hip.fill(short, 255, MIB, stream);
        hip.fill(long, round, MIB, stream);
        omniheap_torch_record_stream(short, handle(stream));
        hip.call("hipStreamDestroy", [stream]);
        omniheap_stream_free(handle(stream), short, 0);
        kept.push((long, round));
    }
    assert!(kept.iter().all(|(pointer, round)| hip.holds(*pointer, *round)));
    for (pointer, _) in kept {
        omniheap_stream_free(ptr::null_mut(), pointer, 0);
    }
    omniheap_torch_reset();
    assert_eq!(stats()["reserved_bytes"], 0);
}

/// As a child of [`on_hip_the_process_is_a_tenant`].
#[test]
fn a_tenant_on_hip() {
    if std::env::var_os(LIBRARY).is_some() {
        arbiter::tell_story(c"hip");
    }
}

fn this() -> PathBuf {
    std::env::current_exe().expect("the test knows where it is")
}

/// AMD's runtime over the stand-in; nothing in the child, and where it cannot be had.
fn runtime() -> Option<Runtime> {
    if std::env::var_os(LIBRARY).is_some() {
        return None;
    }
    let standin = this().with_file_name("libomniheap_hsa_standin.so");
    match ensure(Suite::Sid).and_then(|runtime| runtime.with_standin(&standin)) {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            eprintln!("\n*** NOT TESTED: AMD's runtime cannot be had here: {error}\n");
            let required = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name.trim() == "hip"), "{error}");
            None
        }
    }
}

/// Runs a program under the runtime's own loader, and returns its output.
fn run(runtime: &Runtime, program: &Path, arguments: &[&str]) -> String {
    run_with(runtime, program, arguments, &[])
}

/// The same, with variables set.
fn run_with(
    runtime: &Runtime,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, String)],
) -> String {
    let mut command = Command::new(runtime.loader());
    command.args(["--library-path", &runtime.library_path()]).arg(program).args(arguments);
    command.env(LIBRARY, runtime.library()).env_remove("LD_LIBRARY_PATH");
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("OMNIHEAP_LIBRARY", library());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().expect("the loader runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    said
}

/// The shared library: beside this test, or one folder up.
fn library() -> PathBuf {
    let test = this();
    let mut folders = test.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| {
        let path = folder.join("libomniheap_torch.so");
        path.exists().then_some(path)
    });
    found.expect("cargo builds it before its tests")
}

/// The interpreter itself, not a script that chooses one.
fn python() -> Option<PathBuf> {
    let code = "import os, sys; print(os.path.realpath(sys.executable))";
    let answer = Command::new("python3").args(["-c", code]).output().ok()?;
    answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).trim().into())
}

#[test]
fn hip_is_driven_over_the_stand_in() {
    if let Some(runtime) = runtime() {
        for child in CHILDREN {
            let said = run(&runtime, &this(), &["--exact", child]);
            assert!(said.contains("1 passed"), "{said}");
        }
    }
}

#[test]
fn on_hip_the_process_is_a_tenant() {
    let Some(runtime) = runtime() else { return };
    let arbiter = arbiter::Arbiter::start("hip");
    let with = [("OMNIHEAP_ARBITER", arbiter.variable())];
    let said = run_with(&runtime, &this(), &["--exact", "a_tenant_on_hip"], &with);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn the_python_package_drives_hip_over_the_stand_in() {
    let Some(runtime) = runtime() else { return };
    let Some(python) = python() else {
        eprintln!("\n*** NOT TESTED: there is no python3 here\n");
        return;
    };
    let said = run(&runtime, &python, &["-c", DRIVE]);
    assert_eq!(said.trim(), "ok");
}
