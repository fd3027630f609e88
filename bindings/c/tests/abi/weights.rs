//! Weights files through the C functions.
use super::*;
use core::ffi::{c_char, c_int};
use std::ffi::CString;

/// A file with `first` (four numbers) and `second` (two bytes), which is removed in the end.
pub(super) struct File(CString);

impl File {
    pub(super) fn new(name: &str) -> Self {
        let header = br#"{"first":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"second":{"dtype":"U8","shape":[2],"data_offsets":[16,18]}}"#;
        Self::with(name, header, &(1..=18).collect::<Vec<_>>())
    }

    /// A file with another header and other data.
    fn with(name: &str, header: &[u8], data: &[u8]) -> Self {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(data);
        let path = std::env::temp_dir().join(format!("omniheap-c-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a temporary file");
        Self(CString::new(path.to_str().expect("UTF-8")).expect("no zero"))
    }

    pub(super) fn open(&self) -> OmniheapWeights {
        let mut weights = OmniheapWeights { id: 0 };
        let paths = [self.0.as_ptr()];
        assert_eq!(c!(omniheap_weights_open(paths.as_ptr(), 1, &raw mut weights)), Status::Ok);
        weights
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.to_str().expect("UTF-8"));
    }
}

pub(super) fn target(
    name: &CStr,
    allocation: OmniheapAllocation,
    offset: u64,
) -> OmniheapWeightsTarget {
    let (host, capacity) = (ptr::null_mut(), 0);
    OmniheapWeightsTarget { name: name.as_ptr(), allocation, offset, host, capacity }
}

pub(super) fn load(
    manager: OmniheapManager,
    weights: OmniheapWeights,
    targets: &[OmniheapWeightsTarget],
    progress: OmniheapProgress,
    user: *mut c_void,
) -> Status {
    c!(omniheap_weights_load(manager, weights, targets.as_ptr(), targets.len(), progress, user))
}

unsafe extern "C" fn note(done: u64, total: u64, user: *mut c_void) -> c_int {
    // SAFETY: the tests pass two numbers and a third that is the answer.
    let seen = unsafe { &mut *user.cast::<[u64; 3]>() };
    (seen[0], seen[1]) = (done, total);
    c_int::from(seen[2] != 0)
}

#[test]
fn tensors_are_listed_and_loaded() {
    let (file, manager) = (File::new("listed.safetensors"), open(1));
    let weights = file.open();
    let mut count = 0;
    assert_eq!(c!(omniheap_weights_count(weights, &raw mut count)), Status::Ok);
    assert_eq!(count, 2);
    let mut tensor = OmniheapTensor::default();
    assert_eq!(c!(omniheap_weights_tensor(weights, 0, &raw mut tensor)), Status::Ok);
    let said = |text: *const c_char| c!(CStr::from_ptr(text)).to_str().expect("UTF-8");
    assert_eq!((said(tensor.name), said(tensor.dtype), tensor.bytes), ("first", "F32", 16));
    assert_eq!(c!(core::slice::from_raw_parts(tensor.shape, tensor.dimensions)), [2, 2]);
    let mut second = OmniheapTensor::default();
    assert_eq!(c!(omniheap_weights_tensor(weights, 1, &raw mut second)), Status::Ok);
    assert_eq!((said(second.name), said(second.dtype), second.bytes), ("second", "U8", 2));

    let made = ask(manager, &omniheap_request_default(64)).expect("room");
    assert_eq!(write(made, &[0; 64]), Status::Ok);
    let mut host = [0_u8; 2];
    let none = OmniheapAllocation { id: 0 };
    let to_host = OmniheapWeightsTarget {
        host: host.as_mut_ptr().cast(),
        capacity: 2,
        ..target(c"second", none, 0)
    };
    let (targets, mut seen) = ([target(c"first", made, 8), to_host], [0_u64; 3]);
    let user = (&raw mut seen).cast();
    assert_eq!(load(manager, weights, &targets, Some(note), user), Status::Ok);
    assert_eq!((seen[0], seen[1]), (18, 18));
    assert_eq!(host, [17, 18]);
    let content: Vec<u8> = core::iter::repeat_n(0, 8).chain(1..=16).collect();
    assert_eq!(read(made, 24), content);
    assert_eq!(omniheap_weights_close(weights), Status::Ok);
    assert_eq!(omniheap_weights_close(weights), Status::Stale);
    assert_eq!(read(made, 24), content, "what was loaded stays");
    assert_eq!((omniheap_free(made), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn what_cannot_be_loaded_is_said_and_changes_nothing() {
    let (file, manager) = (File::new("refused.safetensors"), open(1));
    let weights = file.open();
    let made = ask(manager, &omniheap_request_default(16)).expect("room");
    assert_eq!(write(made, &[9; 16]), Status::Ok);
    let refused =
        |target: OmniheapWeightsTarget| load(manager, weights, &[target], None, ptr::null_mut());
    assert_eq!(refused(target(c"third", made, 0)), Status::NoSuchTensor);
    assert!(message().contains("third"), "{}", message());
    assert_eq!(refused(target(c"first", made, 1)), Status::OutOfRange);
    assert_eq!(refused(target(c"second", OmniheapAllocation { id: 0 }, 0)), Status::OutOfRange);
    assert_eq!(
        refused(OmniheapWeightsTarget { name: ptr::null(), ..target(c"", made, 0) }),
        Status::NullArgument
    );
    assert_eq!(refused(target(c"first", OmniheapAllocation { id: weights.id }, 0)), Status::Stale);
    assert_eq!(read(made, 16), [9; 16]);
    let mut seen = [0, 0, 1_u64];
    let targets = [target(c"first", made, 0)];
    let status = load(manager, weights, &targets, Some(note), (&raw mut seen).cast());
    assert_eq!(status, Status::Cancelled);
    assert_eq!(refused(targets[0]), Status::Ok, "a tensor may fill an allocation to its end");
    assert_eq!(read(made, 16), (1..=16).collect::<Vec<u8>>());
    let mut tensor = OmniheapTensor::default();
    assert_eq!(c!(omniheap_weights_tensor(weights, 2, &raw mut tensor)), Status::NoSuchTensor);
    assert!(tensor.name.is_null(), "nothing was written");
    let mut other = OmniheapWeights { id: 0 };
    let missing = [c"/nowhere/at/all.safetensors".as_ptr()];
    assert_eq!(c!(omniheap_weights_open(missing.as_ptr(), 1, &raw mut other)), Status::BadFile);
    assert_eq!(c!(omniheap_weights_open(ptr::null(), 1, &raw mut other)), Status::NullArgument);
    assert_eq!(c!(omniheap_weights_open(ptr::null(), 0, &raw mut other)), Status::BadFile);
    assert_eq!(other.id, 0);
    assert_eq!((omniheap_weights_close(weights), omniheap_free(made)), (Status::Ok, Status::Ok));
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
#[cfg(target_os = "linux")]
fn a_pool_sleeps_to_the_files_that_its_weights_came_from() {
    let (file, manager) = (File::new("origin.safetensors"), open(0));
    let config = OmniheapPoolConfig { sleepable: 1, ..omniheap_pool_config_default() };
    let (mut pool, mut made) = (OmniheapPool { id: 0 }, [OmniheapAllocation { id: 0 }; 2]);
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    let request = omniheap_request_default(4096);
    for one in &mut made {
        assert_eq!(c!(omniheap_pool_allocate(pool, &raw const request, one)), Status::Ok);
        assert_eq!(write(*one, &[0; 4096]), Status::Ok);
    }
    assert_eq!(write(made[1], &[5; 4096]), Status::Ok);
    let weights = file.open();
    let targets = [target(c"first", made[0], 4080), target(c"second", made[0], 16)];
    assert_eq!(load(manager, weights, &targets, None, ptr::null_mut()), Status::Ok);
    let remember = |targets: &[OmniheapWeightsTarget]| {
        c!(omniheap_weights_remember(manager, weights, targets.as_ptr(), targets.len()))
    };
    assert_eq!(remember(&[targets[0], target(c"third", made[0], 0)]), Status::NoSuchTensor);
    assert_eq!(remember(&[target(c"first", made[0], 4081)]), Status::OutOfRange);
    assert_eq!(write(made[0], &[0; 1]), Status::Ok, "nothing was remembered, so nothing is final");
    let to_host = target(c"second", OmniheapAllocation { id: 0 }, 0);
    assert_eq!(
        remember(&[targets[0], to_host, targets[1]]),
        Status::Ok,
        "host memory has nothing to remember: {}",
        message()
    );
    assert_eq!(write(made[0], &[0; 1]), Status::Published);

    let sleep = OmniheapSleep { store: OMNIHEAP_STORE_ORIGIN, ..omniheap_sleep_default() };
    let mut slept = OmniheapSlept::default();
    assert_eq!(c!(omniheap_pool_sleep(pool, &raw const sleep, &raw mut slept)), Status::Ok);
    assert_eq!((slept.live, slept.copied), (8192, 4096), "{}", message());
    assert_eq!(omniheap_weights_close(weights), Status::Ok);
    assert_eq!(omniheap_pool_wake(pool), Status::Ok, "{}", message());
    let mut content = vec![0; 4096];
    (content[16], content[17]) = (17, 18);
    (1..=16).for_each(|at: u8| content[4079 + usize::from(at)] = at);
    assert_eq!(read(made[0], 4096), content);
    assert_eq!(read(made[1], 4096), [5; 4096]);
    assert_eq!(made.map(|one| omniheap_free(one)), [Status::Ok; 2]);
    assert_eq!((omniheap_pool_destroy(pool), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn allocations_of_another_manager_are_refused_and_stay_as_they_are() {
    let (file, manager, other) = (File::new("foreign.safetensors"), open(1), open(1));
    let (weights, made) = (file.open(), ask(other, &omniheap_request_default(64)).expect("room"));
    assert_eq!(write(made, &[9; 64]), Status::Ok);
    let mut host = [7_u8; 2];
    let none = OmniheapAllocation { id: 0 };
    let to_host = OmniheapWeightsTarget {
        host: host.as_mut_ptr().cast(),
        capacity: 2,
        ..target(c"second", none, 0)
    };
    let targets = [to_host, target(c"first", made, 0)];
    assert_eq!(load(manager, weights, &targets, None, ptr::null_mut()), Status::Foreign);
    let remembered = c!(omniheap_weights_remember(manager, weights, targets.as_ptr(), 2));
    assert_eq!((remembered, host), (Status::Foreign, [7; 2]), "host memory was not touched");
    assert_eq!(read(made, 64), [9; 64]);
    assert_eq!(write(made, &[1; 64]), Status::Ok, "it is not final");
    assert_eq!((omniheap_free(made), omniheap_weights_close(weights)), (Status::Ok, Status::Ok));
    assert_eq!((omniheap_close(manager), omniheap_close(other)), (Status::Ok, Status::Ok));
}

#[test]
fn targets_that_share_host_memory_are_refused() {
    let (file, manager) = (File::new("shared.safetensors"), open(1));
    let (weights, mut host) = (file.open(), [7_u8; 18]);
    let start = host.as_mut_ptr();
    let at = |name: &CStr, offset: usize, capacity| OmniheapWeightsTarget {
        host: start.wrapping_add(offset).cast(),
        capacity,
        ..target(name, OmniheapAllocation { id: 0 }, 0)
    };
    let shared = [at(c"second", 15, 3), at(c"first", 0, 18)];
    assert_eq!(load(manager, weights, &shared, None, ptr::null_mut()), Status::Overlap);
    let short = [at(c"first", 0, 16), at(c"second", 16, 1)];
    assert_eq!(load(manager, weights, &short, None, ptr::null_mut()), Status::OutOfRange);
    assert_eq!(host, [7; 18], "nothing was touched");
    // A capacity may reach into the next target: a tensor takes only its own bytes.
    let apart = [at(c"second", 16, 2), at(c"first", 0, 18)];
    assert_eq!(load(manager, weights, &apart, None, ptr::null_mut()), Status::Ok, "{}", message());
    assert!(host.iter().copied().eq(1..=18));
    assert_eq!(
        (omniheap_weights_close(weights), omniheap_close(manager)),
        (Status::Ok, Status::Ok)
    );
}

#[test]
fn a_file_with_a_name_that_c_cannot_say_is_refused() {
    let file = File::with(
        "zero.safetensors",
        br#"{"a\u0000b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#,
        &[5, 6],
    );
    let (mut weights, paths) = (OmniheapWeights { id: 0 }, [file.0.as_ptr()]);
    let opened = c!(omniheap_weights_open(paths.as_ptr(), 1, &raw mut weights));
    assert_eq!((opened, weights.id), (Status::BadFile, 0), "{}", message());
}

#[test]
fn a_load_that_the_device_refuses_leaves_host_memory_alone() {
    let (file, manager) = (File::new("published.safetensors"), open(1));
    let (weights, made) = (file.open(), ask(manager, &omniheap_request_default(64)).expect("room"));
    assert_eq!((write(made, &[9; 64]), omniheap_publish(made)), (Status::Ok, Status::Ok));
    let mut host = [7_u8; 2];
    let to_host = OmniheapWeightsTarget {
        host: host.as_mut_ptr().cast(),
        capacity: 2,
        ..target(c"second", OmniheapAllocation { id: 0 }, 0)
    };
    let targets = [to_host, target(c"first", made, 0)];
    let loaded = load(manager, weights, &targets, None, ptr::null_mut());
    assert_eq!((loaded, host), (Status::Published, [7; 2]), "{}", message());
    assert_eq!((omniheap_free(made), omniheap_weights_close(weights)), (Status::Ok, Status::Ok));
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn more_items_than_memory_can_have_are_refused() {
    let file = File::new("negative");
    let (mut weights, paths) = (OmniheapWeights { id: 0 }, [file.0.as_ptr()]);
    for count in [usize::MAX, usize::MAX / size_of::<*const c_char>()] {
        let opened = c!(omniheap_weights_open(paths.as_ptr(), count, &raw mut weights));
        assert_eq!((opened, weights.id), (Status::SizeOverflow, 0), "{}", message());
    }
}
