//! Reasons why a runtime could not be had.

use std::io;
use std::path::PathBuf;

/// Reason why [`ensure`](crate::ensure) returned no runtime, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packages are built for one machine type only.
    #[error("AMD's packages are for x86_64 Linux; run this on such a machine")]
    WrongMachine,
    /// A program that unpacking needs is not installed.
    #[error(
        "`{program}` is not on this machine ({source}); fetching needs a Debian or Ubuntu machine with apt"
    )]
    MissingProgram {
        /// The program that was looked for.
        program: &'static str,
        /// Error of starting it.
        source: io::Error,
    },
    /// The machine's apt configuration names no Debian archive.
    #[error(
        "no Debian mirror (a URI ending in /debian) in the apt sources; add one, e.g. to sources.list.d"
    )]
    NoMirror,
    /// A program ran and failed.
    #[error("{step} failed with {status}: {message}")]
    Step {
        /// Description of the step.
        step: String,
        /// Exit status of the program.
        status: std::process::ExitStatus,
        /// The last lines the program wrote.
        message: String,
    },
    /// The suite does not have a package that was asked for.
    #[error(
        "Debian {suite} has no package {package} now; the suite moved on, so update the package names here"
    )]
    NoPackage {
        /// The suite that was read.
        suite: &'static str,
        /// The package that is missing.
        package: String,
    },
    /// A file is not what the index says.
    #[error(
        "{package} does not have the SHA-256 that the signed index gives ({detail}); try again later"
    )]
    Checksum {
        /// The package that differs.
        package: String,
        /// Output of the check.
        detail: String,
    },
    /// The packages came, and something in them is missing.
    #[error("the packages of {suite} hold no {}; the packaging changed", path.display())]
    Incomplete {
        /// The suite that was unpacked.
        suite: &'static str,
        /// The file that should be there.
        path: PathBuf,
    },
    /// A file or folder could not be read or written.
    #[error("{}: {source}; check space and rights there", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Pairs an I/O error with the path it happened at.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
