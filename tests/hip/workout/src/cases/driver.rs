//! The backend's own driver functions, over the library under test.

#![expect(unsafe_code, reason = "calls the driver functions under test")]

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use omniheap_core::ErrorKind;
use omniheap_hip::driver::{Coherence, Driver};
use omniheap_hip::rtc::{Arch, compile};
use omniheap_hip::sys::{hipDeviceAttribute_t, hipFunction_t, hipStream_t};
use omniheap_stream::{
    Caching, CodeDriver, CopyDriver, MemoryDriver, NativeStreams, Progress, RowCopy, Shape,
    StreamDriver,
};

use super::copies::pattern;
use super::kernels::SOURCE;
use crate::run::{Run, quiet};

const SIZE: usize = 1 << 16;

/// Opens the first device, or fails the run.
pub(crate) fn open(run: &mut Run) -> Option<Driver> {
    let driver = Driver::open_on(run.api, 0);
    run.check("the device opens", driver.is_ok());
    driver.ok()
}

pub(crate) fn plain(run: &mut Run) {
    let Some(driver) = open(run) else { return };
    let absent = Driver::open_on(run.api, 99).err().map(|error| error.kind());
    run.check(
        "a device that is not there is a wrong setting",
        absent == Some(ErrorKind::InvalidConfig),
    );
    let (name, arch) = driver.names().unwrap_or_default();
    run.check("it has a name and an architecture", !name.is_empty() && Arch::new(&arch).is_some());
    run.check("it has an identity", driver.uuid().is_ok_and(|uuid| uuid != [0; 16]));
    run.check(
        "it has threads",
        driver.attribute(hipDeviceAttribute_t::hipDeviceAttributeWarpSize) >= 32,
    );
    run.check(
        "an unknown attribute is nothing",
        driver.attribute(hipDeviceAttribute_t(123_456)) == 0,
    );
    let Ok(stream) = driver.create_stream() else { return run.check("a stream is made", false) };
    // SAFETY: made just above.
    run.check("the stream is this device's", unsafe { driver.owns_stream(stream) }.is_ok());
    transfers(run, &driver, stream);
    events(run, &driver, stream);
    let large = usize::try_from(driver.memory_info().map_or(0, |info| info.total)).unwrap_or(0) * 4;
    let kind = driver.allocate(large).err().map(|error| error.kind());
    run.check("too much is out of device memory", kind == Some(ErrorKind::OutOfDeviceMemory));
    // SAFETY: made above, destroyed once.
    run.check("the stream is destroyed", unsafe { driver.destroy_stream(stream) }.is_ok());
}

/// Pinned memory of both kinds, and transfers through it.
fn transfers(run: &mut Run, driver: &Driver, stream: hipStream_t) {
    let host = driver.allocate_host(2 * SIZE, Caching::Cached, Coherence::Fine);
    let combined = driver.allocate_host(SIZE, Caching::Combined, Coherence::Coarse);
    let (Ok(host), Ok(combined)) = (host, combined) else {
        return run.check("pinned memory is there", false);
    };
    run.check("the device has an address for it", driver.host_address(host).is_ok());
    let start = host.as_ptr().expose_provenance() as u64;
    let (inside, beyond) = (driver.holds(start, 64), driver.holds(start, 1 << 30));
    run.check("pinned memory is known, as far as it goes", inside && !beyond);
    let (Ok(first), Ok(second)) =
        (driver.allocate(SIZE), driver.allocate_with(SIZE, Coherence::Fine))
    else {
        return run.check("memory is there", false);
    };
    through(run, driver, stream, (host, first, second));
    let mut freed = true;
    for base in [first, second] {
        // SAFETY: allocated above, freed once; `through` has waited for all work.
        freed &= unsafe { driver.free(base) }.is_ok();
    }
    for pinned in [host, combined] {
        // SAFETY: as above.
        freed &= unsafe { driver.free_host(pinned.as_ptr()) }.is_ok();
    }
    run.check("everything is freed", freed);
}

/// From the first half of `host`, through both blocks of `SIZE` bytes, to the second half of `host`.
fn through(
    run: &mut Run,
    driver: &Driver,
    stream: hipStream_t,
    (host, first, second): (NonNull<u8>, u64, u64),
) {
    let sent = pattern(SIZE);
    // SAFETY: `host` begins twice as many bytes.
    unsafe { host.copy_from_nonoverlapping(NonNull::from(&sent[..]).cast(), SIZE) };
    // SAFETY: the block has `SIZE` bytes; `host` is pinned and not changed before the wait below.
    let written = unsafe { driver.write(first, host.as_ptr(), SIZE, stream) };
    // SAFETY: both blocks have `SIZE` bytes.
    let copied = unsafe { driver.copy(second, first, SIZE, stream) };
    // SAFETY: the first 10 bytes of the block; not a multiple of a word.
    let filled = unsafe { driver.fill(second, 0x7E, 10, stream) };
    let rows = RowCopy {
        to: second + 1024,
        to_pitch: 64,
        from: first,
        from_pitch: 32,
        width: 32,
        height: 16,
    };
    // SAFETY: sixteen rows, 64 bytes apart from 1024 on, lie in both blocks.
    let rowed = unsafe { driver.copy_rows(&rows, stream) };
    let back = host.as_ptr().wrapping_add(SIZE);
    // SAFETY: the second half of the pinned memory, which nobody touches before the wait below.
    let read = unsafe { driver.read(back, second, SIZE, stream) };
    // SAFETY: the stream is live.
    let waited = unsafe { driver.synchronize_stream(stream) };
    run.check(
        "every transfer is taken",
        [written, copied, filled, rowed, read, waited].iter().all(Result::is_ok),
    );
    // SAFETY: the copy into these bytes has run.
    let got = unsafe { core::slice::from_raw_parts(back, SIZE) };
    let rows = (0..16).all(|row| got[1024 + 64 * row..][..32] == sent[32 * row..][..32]);
    run.check(
        "bytes are where they should be",
        got[..10] == [0x7E; 10] && got[10..1024] == sent[10..1024] && rows,
    );
}

fn events(run: &mut Run, driver: &Driver, stream: hipStream_t) {
    let Ok(event) = driver.create_event() else { return run.check("an event is made", false) };
    // SAFETY: both are live.
    let recorded = unsafe { driver.record(event, stream) };
    // SAFETY: both are live.
    let ordered = unsafe { driver.order(stream, event) };
    // SAFETY: the event is live.
    let waited = unsafe { driver.wait_event(event) };
    // SAFETY: the event is live.
    let progress = unsafe { driver.progress(event) };
    // SAFETY: made above, destroyed once.
    let destroyed = unsafe { driver.destroy_event(event) };
    let all = [recorded, ordered, waited, destroyed].iter().all(Result::is_ok);
    run.check(
        "an event is recorded, waited for, finished",
        all && progress == Ok(Progress::Finished),
    );
}

pub(crate) fn kernels(run: &mut Run) {
    let Some(driver) = open(run) else { return };
    let Some(rtc) = run.group("compiler", run.api.rtc) else { return };
    let arch = driver.names().ok().and_then(|(_, arch)| Arch::new(&arch));
    let Some(arch) = arch else { return run.check("the architecture is known", false) };
    let wrong = compile(&rtc, c"this is no kernel", &arch, &[]);
    run.check(
        "a wrong source is refused with a log",
        wrong.is_err_and(|failure| !failure.log.is_empty()),
    );
    let Ok(code) = compile(&rtc, SOURCE, &arch, &[c"-DUNUSED=1"]) else {
        return run.check("the kernels compile", false);
    };
    run.check("what is no code is refused", driver.load_module(&[0; 64]).is_err());
    let Ok(module) = driver.load_module(&code) else { return run.check("the code loads", false) };
    // SAFETY: the module is loaded.
    run.check(
        "a kernel that is not there is not found",
        unsafe { driver.function(module, c"nope") }.is_err(),
    );
    // SAFETY: the module is loaded.
    let table = unsafe { driver.global(module, c"table") };
    run.check("its table has its size", table.is_ok_and(|(_, size)| size == 65_536));
    // SAFETY: the module is loaded.
    match unsafe { driver.function(module, c"fill") } {
        Ok(fill) => launches(run, &driver, fill),
        Err(_) => run.check("the kernel is found", false),
    }
    // SAFETY: loaded above, unloaded once; `launches` has waited for all work.
    run.check("it is unloaded", unsafe { driver.unload_module(module) }.is_ok());
}

/// Launches of `fill`, whose module is loaded.
fn launches(run: &mut Run, driver: &Driver, fill: hipFunction_t) {
    // SAFETY: the kernel's module is loaded.
    run.check(
        "it takes threads",
        unsafe { driver.max_threads(fill) }.is_ok_and(|count| count >= 256),
    );
    // SAFETY: as above.
    run.check("it has no shared memory of its own", unsafe { driver.static_shared(fill) } == Ok(0));
    // SAFETY: as above.
    run.check("it may have some", unsafe { driver.allow_shared(fill, 48 << 10) }.is_ok());
    let (Ok(stream), Ok(mut memory)) = (driver.create_stream(), driver.allocate(SIZE)) else {
        return run.check("stream and memory are there", false);
    };
    let (mut value, mut count) = (9_u32, 1024_u64);
    let mut arguments: [*mut c_void; 3] =
        [(&raw mut memory).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
    let shape = Shape { grid: [4, 1, 1], group: [256, 1, 1], shared: 0 };
    // SAFETY: the arguments are those of the kernel, which writes 1024 words of a block that has more.
    let launched = unsafe { driver.launch(fill, shape, stream, &mut arguments) };
    let much = Shape { shared: 1 << 20, ..shape };
    // SAFETY: as above, if it were launched.
    let refused = unsafe { driver.launch(fill, much, stream, &mut arguments) };
    run.check(
        "a launch is taken, too much shared memory is not",
        launched.is_ok() && refused.is_err(),
    );
    run.check("it runs", driver.synchronize().is_ok());
    // SAFETY: allocated above, freed once; the device is idle.
    let freed = unsafe { driver.free(memory) };
    // SAFETY: made above, destroyed once.
    let destroyed = unsafe { driver.destroy_stream(stream) };
    run.check("everything is given back", freed.is_ok() && destroyed.is_ok());
}

/// The thread's device is the caller's business: calls for another leave it as it was.
pub(crate) fn two_devices(run: &mut Run) {
    let (Ok(first), Ok(second)) = (Driver::open_on(run.api, 0), Driver::open_on(run.api, 1)) else {
        return run.check("both devices open", false);
    };
    let (Ok(from), Ok(to), Ok(stream)) =
        (first.allocate(SIZE), second.allocate(SIZE), first.create_stream())
    else {
        return run.check("memory is there", false);
    };
    // SAFETY: the stream is live.
    let foreign = unsafe { second.owns_stream(stream) }.err().map(|error| error.kind());
    run.check("a stream of another device is foreign", foreign == Some(ErrorKind::Foreign));
    run.check("the first device answers", first.synchronize().is_ok());
    // The last call before the question is one for the other device.
    run.check("the other device answers", second.memory_info().is_ok());
    let mut current: c_int = -1;
    quiet!(run.api.device, hipGetDevice(&raw mut current));
    run.check("the thread's device is as before", current == 0);
    // SAFETY: allocated above, freed once; the device is idle.
    let freed = unsafe { second.free(to) };
    // SAFETY: as above.
    let also = unsafe { first.free(from) };
    run.check("each is freed on its device", freed.is_ok() && also.is_ok());
}
