//! Finds the libraries and loads their function tables.

#![expect(unsafe_code, reason = "loading a library runs its initializers")]

use core::error::Error;
use core::fmt;
use core::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use super::table::{
    Captures, Core, Device, Kernels, Managed, Peer, Pools, Properties, Rtc, StreamDevice, Virtual,
};

/// The variable that names the HIP library to use instead of looking for one.
pub const LIBRARY_VARIABLE: &str = "OMNIHEAP_HIP_LIBRARY";
/// Sonames in order of preference; releases up to version 10 of the stack still carry number 7.
const HIP_NAMES: [&str; 4] =
    ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
/// Sonames of the run-time compiler where it has its own library.
const RTC_NAMES: [&str; 3] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"];

/// The functions of a HIP library that was found, by group.
#[derive(Debug)]
pub struct Api {
    /// Path of the library.
    pub found: PathBuf,
    /// Functions that every runtime has.
    pub core: Core,
    /// Choosing and describing devices.
    pub device: Device,
    /// The runtime's own pools.
    pub pools: Option<Pools>,
    /// Virtual memory.
    pub virtual_memory: Option<Virtual>,
    /// Memory shared with the host.
    pub managed: Option<Managed>,
    /// Other devices and processes.
    pub peer: Option<Peer>,
    /// Modules and launches.
    pub kernels: Option<Kernels>,
    /// The run-time compiler.
    pub rtc: Option<Rtc>,
    /// Function that queries device properties.
    pub properties: Option<Properties>,
    /// Function that returns the device of a stream; absent in HIP 5.2.
    pub stream_device: Option<StreamDevice>,
    /// Captures of streams; HIP 5.2 tells nothing of them.
    pub captures: Option<Captures>,
    /// Kept loaded for good: the runtime has threads and exit handlers that outlive any owner.
    _libraries: ManuallyDrop<Vec<Library>>,
}

/// Reason why there is no [`Api`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No library was found; each place that was tried, with the loader's answer.
    Library(Vec<String>),
    /// The library lacks a function that every supported runtime has.
    Function(PathBuf, &'static str),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(tried) => {
                write!(
                    f,
                    "no HIP library; install ROCm or set {LIBRARY_VARIABLE}; tried: {}",
                    tried.join("; ")
                )
            }
            Self::Function(path, name) => {
                write!(f, "{} has no {name}; it is not a HIP 5.2 or later runtime", path.display())
            }
        }
    }
}

impl Error for Missing {}

impl Api {
    /// Returns the functions of this process's HIP library, loaded on first use.
    ///
    /// # Errors
    /// As [`load`](Self::load), each time.
    pub fn get() -> Result<&'static Self, &'static Missing> {
        static API: OnceLock<Result<Api, Missing>> = OnceLock::new();
        API.get_or_init(Self::load).as_ref()
    }

    /// Loads the HIP library that [`LIBRARY_VARIABLE`] names, else the newest that can be found.
    ///
    /// # Errors
    /// [`Missing::Library`] when there is none, [`Missing::Function`] when it is not a HIP library.
    pub fn load() -> Result<Self, Missing> {
        match std::env::var_os(LIBRARY_VARIABLE) {
            Some(path) => Self::load_from(Path::new(&path)),
            None => first(&HIP_NAMES)
                .map_err(Missing::Library)
                .and_then(|(path, library)| Self::fill(path, library)),
        }
    }

    /// Loads the HIP library at `path`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_from(path: &Path) -> Result<Self, Missing> {
        let library = open(path).map_err(|error| Missing::Library(vec![error]))?;
        Self::fill(path.to_owned(), library)
    }

    fn fill(found: PathBuf, library: Library) -> Result<Self, Missing> {
        let missing = |name| Missing::Function(found.clone(), name);
        let core = Core::load(&library).map_err(missing)?;
        let device = Device::load(&library).map_err(missing)?;
        let mut libraries = Vec::new();
        // The runtime's own copy first: it is the one that belongs to this runtime.
        let rtc = Rtc::load(&library).ok().or_else(|| {
            let beside =
                found.parent().filter(|folder| !folder.as_os_str().is_empty()).and_then(in_folder);
            let (_, library) = beside.or_else(|| first(&RTC_NAMES).ok())?;
            let rtc = Rtc::load(&library).ok();
            libraries.push(library);
            rtc
        });
        let api = Self {
            core,
            device,
            pools: Pools::load(&library).ok(),
            virtual_memory: Virtual::load(&library).ok(),
            managed: Managed::load(&library).ok(),
            peer: Peer::load(&library).ok(),
            kernels: Kernels::load(&library).ok(),
            rtc,
            properties: properties(&library),
            stream_device: StreamDevice::load(&library).ok(),
            captures: Captures::load(&library).ok(),
            found,
            _libraries: ManuallyDrop::new(libraries),
        };
        core::mem::forget(library);
        Ok(api)
    }
}

fn in_folder(folder: &Path) -> Option<(PathBuf, Library)> {
    RTC_NAMES
        .iter()
        .map(|name| folder.join(name))
        .find_map(|path| Some((path.clone(), open(&path).ok()?)))
}

fn properties(library: &Library) -> Option<Properties> {
    // SAFETY: this symbol writes the 1472-byte structure of HIP 6 and later, which the type has.
    let new = unsafe { library.get(b"hipGetDevicePropertiesR0600\0") };
    if let Ok(symbol) = new {
        return Some(Properties::R0600(*symbol));
    }
    // SAFETY: without the symbol above this is HIP 5, whose symbol writes the 792-byte structure that the type has.
    let old = unsafe { library.get(b"hipGetDeviceProperties\0") };
    old.ok().map(|symbol| Properties::R0000(*symbol))
}

/// Opens the first of `names` in the folders that `ROCM_PATH` and `HIP_PATH` name, the loader's path, then `/opt/rocm`.
fn first(names: &[&str]) -> Result<(PathBuf, Library), Vec<String>> {
    let named = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os);
    let mut folders: Vec<PathBuf> = named.map(|folder| Path::new(&folder).join("lib")).collect();
    folders.push(PathBuf::new());
    folders.push(PathBuf::from("/opt/rocm/lib"));
    let mut tried = Vec::new();
    for path in folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))) {
        match open(&path) {
            Ok(library) => return Ok((path, library)),
            Err(error) => tried.push(error),
        }
    }
    Err(tried)
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: the initializers that run are those of a HIP or hipRTC library the user installed or named.
    unsafe { Library::new(path) }.map_err(|error| {
        // The loader's own words are the source of the error, and name the file.
        error.source().map_or_else(|| format!("{}: {error}", path.display()), ToString::to_string)
    })
}
