//! Devices whose memory an arbiter divides among processes: `OMNIHEAP_ARBITER`.
use omniheap_core::{AnyBackend, Result};

#[cfg(all(feature = "arbiter", target_os = "linux"))]
pub(crate) use here::arbitrated;
#[cfg(all(feature = "arbiter", target_os = "linux"))]
pub use here::{Attending, attend};

#[cfg(all(feature = "arbiter", target_os = "linux"))]
mod here {
    use super::{AnyBackend, Result};
    use omniheap_arbiter::{self as arbiter, ArbiterError, Tenant};
    use omniheap_core::{Backend, ErrorKind, Manager, erase};
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Returns the socket that `OMNIHEAP_ARBITER` names for a device.
    fn socket(ordinal: u32) -> Option<PathBuf> {
        let path = std::env::var(arbiter::VARIABLE).ok().filter(|path| !path.is_empty())?;
        Some(path.replace("%d", &ordinal.to_string()).into())
    }

    /// Puts a device under the arbiter that the environment names, if it names one.
    pub(crate) fn arbitrated(backend: AnyBackend, ordinal: u32) -> Result<AnyBackend> {
        let Some(path) = socket(ordinal) else { return Ok(backend) };
        let refused = |_: ArbiterError| {
            let why = "OMNIHEAP_ARBITER names no arbiter that accepts this process; start `omniheap serve`, or unset it";
            ErrorKind::InvalidConfig.because(why)
        };
        let tenant = Tenant::shared(&path).map_err(refused)?;
        Ok(erase(arbiter::arbitrated(backend, tenant)))
    }

    /// While it lives, a manager returns memory when an arbiter asks for it.
    #[derive(Debug)]
    #[must_use = "the arbiter's presses are answered only while it lives"]
    pub struct Attending {
        _attending: arbiter::Attending,
    }

    /// Lets a manager answer the presses of the arbiter that `OMNIHEAP_ARBITER` names for a device: it returns empty memory, and asks its
    /// pressure callbacks for more. `None` where the variable is not set.
    ///
    /// The manager lives at least as long as the guard.
    ///
    /// # Errors
    ///
    /// When no arbiter accepts this process.
    pub fn attend<B: Backend + 'static>(
        manager: &Manager<B>,
        ordinal: u32,
    ) -> core::result::Result<Option<Attending>, ArbiterError> {
        let Some(path) = socket(ordinal) else { return Ok(None) };
        let (tenant, manager) = (Tenant::shared(&path)?, manager.clone());
        let press = move |bytes| {
            // A lost device is reported by the calls that meet it.
            let _ = manager.return_memory(bytes);
        };
        Ok(Some(Attending { _attending: tenant.on_press(Arc::new(press)) }))
    }
}

/// Without an arbiter a variable that asks for one is an error, not a wish.
#[cfg(not(all(feature = "arbiter", target_os = "linux")))]
pub(crate) fn arbitrated(backend: AnyBackend, _: u32) -> Result<AnyBackend> {
    match std::env::var_os("OMNIHEAP_ARBITER").filter(|path| !path.is_empty()) {
        None => Ok(backend),
        Some(_) => Err(omniheap_core::ErrorKind::InvalidConfig.because(
            "OMNIHEAP_ARBITER is set, and this program has no arbiter: it needs Linux and the feature `arbiter`; or unset it",
        )),
    }
}
