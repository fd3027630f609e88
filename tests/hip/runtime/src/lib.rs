//! AMD's own HIP runtime, fetched from Debian without root, for tests on machines that have none.
//!
//! [`ensure`] asks this machine's `apt` for the newest packages of a [`Suite`], checks them, unpacks them under the
//! build folder and returns a [`Runtime`]. The packages need a newer C library than most machines have, so programs
//! run through the unpacked loader: [`Runtime::runner`] is what cargo takes as a runner.
//!
//! ```no_run
//! // Needs a network and apt.
//! use omniheap_hip_runtime::{Suite, ensure};
//! let runtime = ensure(Suite::Sid)?;
//! println!("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='{}'", runtime.runner());
//! # Ok::<(), omniheap_hip_runtime::Error>(())
//! ```

mod apt;
mod error;
mod index;
mod install;
mod mirror;

use core::fmt;
use std::path::{Path, PathBuf};

pub use error::Error;

/// The variable that moves the folder the packages are unpacked under.
pub const FOLDER_VARIABLE: &str = "OMNIHEAP_ROCM_FOLDER";

/// A Debian suite, and with it a line of AMD's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// Debian unstable: HIP 6.4.
    Sid,
    /// Debian experimental: HIP 7.2.
    Experimental,
}

impl Suite {
    /// Every suite, oldest runtime first.
    pub const ALL: [Self; 2] = [Self::Sid, Self::Experimental];

    /// Names the suite as Debian's archive does.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sid => "sid",
            Self::Experimental => "experimental",
        }
    }

    /// Lists the suites to read, the preferred one last: experimental holds only what differs from sid.
    const fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Sid => &["sid"],
            Self::Experimental => &["sid", "experimental"],
        }
    }

    /// Lists the packages to unpack together with the libraries they depend on.
    const fn roots(self) -> [&'static str; 2] {
        match self {
            Self::Sid => ["libamdhip64-6", "libhiprtc6"],
            Self::Experimental => ["libamdhip64-7", "libhiprtc7"],
        }
    }

    const fn library_name(self) -> &'static str {
        match self {
            Self::Sid => "libamdhip64.so.6",
            Self::Experimental => "libamdhip64.so.7",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unpacked runtime: the loader that starts programs against it, and where its libraries are.
#[derive(Clone, Debug)]
pub struct Runtime {
    suite: Suite,
    version: String,
    folders: Vec<PathBuf>,
    library_folder: PathBuf,
}

impl Runtime {
    fn at(root: &Path, suite: Suite, version: String) -> Self {
        let library_folder = root.join("usr/lib/x86_64-linux-gnu");
        Self { suite, version, folders: vec![library_folder.clone()], library_folder }
    }

    /// Returns the suite this runtime came from.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns the Debian version of the HIP library, such as `6.4.3-5`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the loader that programs must be started with.
    #[must_use]
    pub fn loader(&self) -> PathBuf {
        self.library_folder.join("ld-linux-x86-64.so.2")
    }

    /// Returns the path of the HIP library itself.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.library_folder.join(self.suite.library_name())
    }

    /// Puts `folder` in front of the library path, so that a library there replaces AMD's of the same name.
    #[must_use]
    pub fn with_folder_first(mut self, folder: &Path) -> Self {
        self.folders.insert(0, folder.to_owned());
        self
    }

    /// Puts the HSA stand-in that cargo built at `library` under this runtime, in place of AMD's HSA library.
    ///
    /// # Errors
    /// Fails when there is no such file, or the folder of the runtimes cannot be written.
    pub fn with_standin(self, library: &Path) -> Result<Self, Error> {
        let folder = install::place_standin(&folder(), library)?;
        Ok(self.with_folder_first(&folder))
    }

    /// Returns the library path, folders joined with colons.
    #[must_use]
    pub fn library_path(&self) -> String {
        let names: Vec<_> =
            self.folders.iter().map(|folder| folder.display().to_string()).collect();
        names.join(":")
    }

    /// Returns the command prefix that starts a program on this runtime, as cargo's runner setting takes it.
    #[must_use]
    pub fn runner(&self) -> String {
        format!("{} --library-path {}", self.loader().display(), self.library_path())
    }
}

/// Returns the runtime of `suite`, fetching it when it is not unpacked yet.
///
/// An unpacked runtime is used as it is, without a network; remove its folder to fetch what the suite has now.
///
/// # Errors
/// Says which step failed and why: no apt on this machine, no Debian mirror in its configuration, no network, a package
/// that is gone, a checksum that differs, or no space.
pub fn ensure(suite: Suite) -> Result<Runtime, Error> {
    install::ensure(&folder(), suite)
}

/// Returns the folder that runtimes are unpacked under: [`FOLDER_VARIABLE`], else `rocm` in the build folder.
#[must_use]
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return folder.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace.join(target).join("rocm")
}
