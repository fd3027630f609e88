//! Devices whose memory others share or limit: `OMNIHEAP_ARBITER`, `OMNIHEAP_LIMIT`.
use omniheap_core::{AnyBackend, ErrorKind, LimitValue, Result};
use omniheap_limits::{SystemLimits, Vendor};

#[cfg(feature = "arbiter")]
pub(crate) use here::opened;
#[cfg(feature = "arbiter")]
pub use here::{Attending, arbitrated, attend, on_press};

#[cfg(feature = "arbiter")]
mod here {
    use super::{AnyBackend, ErrorKind, Result};
    use omniheap_arbiter::{self as arbiter, ArbiterError, Arbitrated, OnPress, Tenant};
    use omniheap_core::{Backend, Manager, erase};
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Returns the socket that `OMNIHEAP_ARBITER` names for a device.
    fn socket(ordinal: u32) -> Option<PathBuf> {
        let path = std::env::var(arbiter::VARIABLE).ok().filter(|path| !path.is_empty())?;
        Some(path.replace("%d", &ordinal.to_string()).into())
    }

    /// Returns this process as the arbiter knows it that the environment names, if it names one.
    fn tenant(ordinal: u32) -> core::result::Result<Option<Arc<Tenant>>, ArbiterError> {
        socket(ordinal).map(|path| Tenant::shared(&path)).transpose()
    }

    fn accepted(ordinal: u32) -> Result<Option<Arc<Tenant>>> {
        let refused = |error: ArbiterError| {
            let why = match error {
                ArbiterError::NotHere => {
                    "OMNIHEAP_ARBITER is set, and arbiters need Linux; unset it"
                }
                _ => {
                    "OMNIHEAP_ARBITER names no arbiter that accepts this process; start `omniheap serve`, or unset it"
                }
            };
            ErrorKind::InvalidConfig.because(why)
        };
        tenant(ordinal).map_err(refused)
    }

    /// Puts a device that [`open`](crate::open) has opened under the arbiter that the environment names, if it names one.
    pub(crate) fn opened(backend: AnyBackend, ordinal: u32) -> Result<AnyBackend> {
        let tenant = accepted(ordinal)?;
        Ok(if tenant.is_some() { erase(arbiter::arbitrated(backend, tenant)) } else { backend })
    }

    /// Puts a device that the program opened or wrapped itself under the arbiter that `OMNIHEAP_ARBITER` names for its number, as
    /// [`open`](crate::open) does. Without the variable, the device is only wrapped.
    ///
    /// ```
    /// use omniheap::{Manager, Usage, arbitrated, host::Host};
    ///
    /// let device = arbitrated(Host::new(), 0)?;
    /// let manager = Manager::new(device); // `manager.backend().inner()` is the host backend
    /// manager.allocate_slice::<u8>(64, Usage::Device)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when no arbiter accepts this process there, or `OMNIHEAP_LIMIT` is no size.
    pub fn arbitrated<B: Backend>(backend: B, ordinal: u32) -> Result<Arbitrated<B>> {
        super::check_limit(ordinal)?;
        Ok(arbiter::arbitrated(backend, accepted(ordinal)?))
    }

    /// Guard: a manager returns memory when an arbiter asks for it, until it is dropped.
    #[derive(Debug)]
    #[must_use = "the arbiter's presses are answered only while it lives"]
    pub struct Attending {
        _attending: arbiter::Attending,
    }

    /// Lets a manager answer the presses of the arbiter that `OMNIHEAP_ARBITER` names for a device: it returns empty memory, and asks its
    /// pressure callbacks for more. `None` where the variable is not set.
    ///
    /// The manager lives at least as long as the guard, and as a press that is under way when the guard is dropped: the drop does not wait
    /// for it.
    ///
    /// # Errors
    ///
    /// Fails when no arbiter accepts this process.
    pub fn attend<B: Backend + 'static>(
        manager: &Manager<B>,
        ordinal: u32,
    ) -> core::result::Result<Option<Attending>, ArbiterError> {
        let manager = manager.clone();
        let press = move |bytes| {
            // A lost device is reported by the calls that meet it.
            let _ = manager.return_memory(bytes);
        };
        on_press(ordinal, Arc::new(press))
    }

    /// Answers the presses of the arbiter that `OMNIHEAP_ARBITER` names for a device with a function of the program's own, for programs
    /// that know more of their memory than [`attend`]. It runs on a thread of the arbiter's. `None` where the variable is not set.
    ///
    /// # Errors
    ///
    /// Fails when no arbiter accepts this process.
    pub fn on_press(
        ordinal: u32,
        press: OnPress,
    ) -> core::result::Result<Option<Attending>, ArbiterError> {
        let attending = |tenant: Arc<Tenant>| Attending { _attending: tenant.on_press(press) };
        Ok(tenant(ordinal)?.map(attending))
    }
}

/// Without an arbiter a variable that asks for one is an error, not a wish.
#[cfg(not(feature = "arbiter"))]
pub(crate) fn opened(backend: AnyBackend, _: u32) -> Result<AnyBackend> {
    match std::env::var_os("OMNIHEAP_ARBITER").filter(|path| !path.is_empty()) {
        None => Ok(backend),
        Some(_) => Err(ErrorKind::InvalidConfig.because(
            "OMNIHEAP_ARBITER is set, and this program has no arbiter: build omniheap with the feature `arbiter`, or unset it",
        )),
    }
}

/// Refuses an `OMNIHEAP_LIMIT` that is no size. Limits that others set are listed in reports as unreadable.
pub(crate) fn check_limit(ordinal: u32) -> Result<()> {
    let limits = SystemLimits::new(Vendor::Any, ordinal).read();
    if limits.iter().any(|limit| matches!(limit.value, LimitValue::Unreadable(_))) {
        return Err(ErrorKind::InvalidConfig.because(
            "OMNIHEAP_LIMIT is no size; set it as in 8GiB or 0=8GiB,1=4GiB, or unset it",
        ));
    }
    Ok(())
}
