//! A device for tests of private parts.
use crate::{Options, Vulkan};
use std::io::{self, Write as _};

/// Opens a device. Where there is none, says so past the capture of test output.
pub(crate) fn opened() -> Option<Vulkan> {
    let opened = Vulkan::open_with(Options::default()).ok();
    if opened.is_none() {
        let _ = writeln!(io::stderr(), "NOT TESTED: no Vulkan device here");
    }
    opened
}
