//! Limits from NVIDIA's management library: memory that the driver keeps of a device, the size of a MIG instance,
//! confidential computing, and the memory of each process.
//!
//! The library is looked for at run time. Where it is absent, or does not know the device, it limits nothing.
#![expect(unsafe_code, reason = "calls functions of a library that is loaded at run time")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr;
use libloading::Library;
use omniheap_seam::{LimitKind, LimitValue, SystemLimit, lock};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Mutex;

/// The variable that names the library to use instead of the driver's.
pub(crate) const VARIABLE: &str = "OMNIHEAP_NVML_LIBRARY";
const NAME: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };

const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_VALUE_NOT_AVAILABLE`.
const UNKNOWN: c_ulonglong = c_ulonglong::MAX;
/// Most processes on one device that are listed.
const PROCESSES: usize = 1 << 16;
/// `NVML_CC_SYSTEM_FEATURE_ENABLED`.
const CONFIDENTIAL: c_uint = 1;

type Code = c_int;
type Device = *mut c_void;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The size of [`Memory`], and its version above 24 bits.
const MEMORY_VERSION: c_uint = 40 | 2 << 24;
const _: () = assert!(size_of::<Memory>() == 40);

/// `nvmlConfComputeSystemState_t`.
#[repr(C)]
#[derive(Default)]
struct Confidence {
    environment: c_uint,
    feature: c_uint,
    developer_mode: c_uint,
}

/// `nvmlConfComputeMemSizeInfo_t`.
#[repr(C)]
#[derive(Default)]
struct Protection {
    protected_kib: c_ulonglong,
    unprotected_kib: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`. The third version of the functions has another one in some drivers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Processes = unsafe extern "C" fn(Device, *mut c_uint, *mut Process) -> Code;

/// The functions of the library. Those that are younger than the oldest driver may be absent.
struct Nvml {
    by_uuid: unsafe extern "C" fn(*const c_char, *mut Device) -> Code,
    memory: Option<unsafe extern "C" fn(Device, *mut Memory) -> Code>,
    confidence: Option<unsafe extern "C" fn(*mut Confidence) -> Code>,
    protection: Option<unsafe extern "C" fn(Device, *mut Protection) -> Code>,
    by_index: Option<unsafe extern "C" fn(c_uint, *mut Device) -> Code>,
    /// Lists of processes that compute and of those that draw; a process may do both.
    processes: [Option<Processes>; 2],
    /// Kept loaded for good: its functions were copied out of it.
    _library: Library,
}

impl Nvml {
    /// Loads and initialises a library; `None` where it is absent or unwilling.
    fn load(name: &str) -> Option<Self> {
        // SAFETY: the driver's library, or the one that the user names instead, whose initialisers may run.
        let library = unsafe { Library::new(name) }.ok()?;
        let init: unsafe extern "C" fn() -> Code = symbol(&library, c"nvmlInit_v2")?;
        let loaded = Self {
            by_uuid: symbol(&library, c"nvmlDeviceGetHandleByUUID")?,
            memory: symbol(&library, c"nvmlDeviceGetMemoryInfo_v2"),
            confidence: symbol(&library, c"nvmlSystemGetConfComputeState"),
            protection: symbol(&library, c"nvmlDeviceGetConfComputeMemSizeInfo"),
            by_index: symbol(&library, c"nvmlDeviceGetHandleByIndex_v2"),
            processes: [
                symbol(&library, c"nvmlDeviceGetComputeRunningProcesses_v2"),
                symbol(&library, c"nvmlDeviceGetGraphicsRunningProcesses_v2"),
            ],
            _library: library,
        };
        // SAFETY: it has no arguments, and may be called by any thread.
        (unsafe { init() } == 0).then_some(loaded)
    }

    /// Finds a device, or an instance of one, by its identity.
    fn device(&self, prefix: &str, uuid: &[u8; 16]) -> Option<Device> {
        let name = CString::new(format!("{prefix}-{}", hyphenated(uuid))).ok()?;
        let mut device = ptr::null_mut();
        // SAFETY: a C string and a place for the handle; the library is initialised.
        (unsafe { (self.by_uuid)(name.as_ptr(), &raw mut device) } == 0).then_some(device)
    }

    /// Finds a device by the library's own number.
    fn numbered(&self, number: u32) -> Option<Device> {
        let mut device = ptr::null_mut();
        // SAFETY: a place for the handle; the library is initialised.
        (unsafe { self.by_index?(number, &raw mut device) } == 0).then_some(device)
    }

    /// Lists processes by one of the functions for that; `None` where the driver does not say.
    fn processes(device: Device, function: Processes) -> Option<Vec<Process>> {
        let mut found = vec![Process::default(); 64];
        loop {
            let mut count = c_uint::try_from(found.len()).ok()?;
            // SAFETY: a device of the library that the function is of, and room for so many processes.
            let code = unsafe { function(device, &raw mut count, found.as_mut_ptr()) };
            match code {
                0 => {
                    found.truncate(count as usize);
                    return Some(found);
                }
                // Others may start meanwhile.
                INSUFFICIENT_SIZE if found.len() < PROCESSES => {
                    found.resize(found.len() * 2, Process::default());
                }
                _ => return None,
            }
        }
    }

    /// Returns the bytes that programs may have; `Ok(None)` where the library does not say.
    fn memory(&self, device: Device) -> Result<Option<u64>, Code> {
        let Some(function) = self.memory else { return Ok(None) };
        let mut found = Memory { version: MEMORY_VERSION, ..Memory::default() };
        // SAFETY: a device of this library, and memory of the size that its version says.
        let code = unsafe { function(device, &raw mut found) };
        said(code).map(|()| found.total.checked_sub(found.reserved).filter(|bytes| *bytes > 0))
    }

    /// Returns the bytes that are protected, where the machine computes confidentially.
    fn protected(&self, device: Device) -> Result<Option<u64>, Code> {
        let (Some(state), Some(sizes)) = (self.confidence, self.protection) else {
            return Ok(None);
        };
        let mut found = Confidence::default();
        // SAFETY: memory of the size that the function fills.
        said(unsafe { state(&raw mut found) })?;
        if found.feature != CONFIDENTIAL {
            return Ok(None);
        }
        let mut found = Protection::default();
        // SAFETY: a device of this library, and memory of the size that the function fills.
        said(unsafe { sizes(device, &raw mut found) })?;
        Ok(found.protected_kib.checked_mul(1024).filter(|bytes| *bytes > 0))
    }
}

fn said(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn symbol<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    // SAFETY: each caller names a function of NVML with the signature that its header gives it.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.ok().map(|found| *found)
}

/// Identities as NVML writes them: 8, 4, 4, 4 and 12 hexadecimal digits.
fn hyphenated(uuid: &[u8; 16]) -> String {
    let mut text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [20, 16, 12, 8].into_iter().for_each(|at| text.insert(at, '-'));
    text
}

/// Libraries by name, loaded once: initialising one takes milliseconds.
static LOADED: Mutex<BTreeMap<String, Option<&'static Nvml>>> = Mutex::new(BTreeMap::new());

fn loaded(name: &str) -> Option<&'static Nvml> {
    let mut all = lock(&LOADED);
    if let Some(known) = all.get(name) {
        return *known;
    }
    let loaded = Nvml::load(name).map(|library| &*Box::leak(Box::new(library)));
    all.insert(name.to_owned(), loaded);
    loaded
}

/// Asks NVIDIA's driver which processes have memory of a GPU.
///
/// # Examples
/// ```
/// use omniheap_limits::ProcessCount;
/// match ProcessCount::of(0, |name| std::env::var(name).ok()) {
///     Some(count) => println!("{:?}", count.read()),
///     None => println!("NVML is not installed, or knows no such GPU"),
/// }
/// ```
#[derive(Clone, Copy)]
pub struct ProcessCount {
    nvml: &'static Nvml,
    number: u32,
}

impl core::fmt::Debug for ProcessCount {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ProcessCount").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ProcessCount {
    /// Finds the GPU that NVML and `nvidia-smi` know by this number; `None` where there is none, or no driver that says. `variables` are those of
    /// the process.
    pub fn of(number: u32, variables: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let name = variables(VARIABLE).filter(|name| !name.is_empty());
        let nvml = loaded(name.as_deref().unwrap_or(NAME))?;
        let count = Self { nvml, number };
        count.read().map(|_| count)
    }

    /// Returns each process with its bytes, contexts included; `None` where the driver does not say now. Processes have the ids of the machine, not of
    /// a container.
    #[must_use]
    pub fn read(&self) -> Option<Vec<(u32, u64)>> {
        let device = self.nvml.numbered(self.number)?;
        let mut all = BTreeMap::new();
        for function in self.nvml.processes.into_iter().flatten() {
            for Process { pid, used, .. } in Nvml::processes(device, function)? {
                let most = all.entry(pid).or_insert(0);
                *most = used.max(*most);
            }
        }
        let is_known = self.nvml.processes.iter().any(Option::is_some)
            && all.values().all(|it| *it != UNKNOWN);
        is_known.then(|| all.into_iter().collect())
    }

    /// Returns the bytes of the GPU that programs may have.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.nvml.memory(self.nvml.numbered(self.number)?).ok()?
    }
}

/// Reads the limits of a device with `total` bytes; `library` is the one that a variable names.
pub(crate) fn read(library: Option<&str>, uuid: &[u8; 16], total: u64) -> Vec<SystemLimit> {
    let Some(nvml) = loaded(library.unwrap_or(NAME)) else { return Vec::new() };
    let whole = nvml.device("GPU", uuid).map(|device| (device, "NVML, without what is reserved"));
    let instance = || Some((nvml.device("MIG", uuid)?, "NVML, MIG instance"));
    let Some((device, source)) = whole.or_else(instance) else { return Vec::new() };
    let protected = "NVML, protected memory of confidential computing";
    let all = [(source, nvml.memory(device)), (protected, nvml.protected(device))];
    all.into_iter().filter_map(|(source, value)| limit(source, value, total)).collect()
}

fn limit(source: &str, value: Result<Option<u64>, Code>, total: u64) -> Option<SystemLimit> {
    let value = match value.transpose()? {
        // NVML and CUDA count what the driver keeps for itself differently: that little is no limit.
        Ok(bytes) if bytes >= total - total / 64 => LimitValue::Unlimited,
        Ok(bytes) => LimitValue::Bytes(bytes),
        Err(NOT_SUPPORTED | NOT_FOUND) => return None,
        Err(code) => LimitValue::Unreadable(format!("NVML answers with error {code}")),
    };
    Some(SystemLimit { source: source.to_owned(), kind: LimitKind::Hard, value })
}
