//! Agents: the host, and the devices after it.

#![expect(unsafe_code, reason = "exports C symbols and calls back into C")]

use core::ffi::c_void;

use crate::abi::{AgentHandle, Answer, IsaHandle, Status};
use crate::ffi::{OutValue, export};
use crate::knobs::knobs;

/// Number of a device, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device(pub(crate) u32);

/// Something that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    Host,
    Device(Device),
}

impl Agent {
    /// Finds the agent behind a handle, if it is one.
    pub(crate) fn find(handle: AgentHandle) -> Result<Self, Status> {
        Self::all().find(|agent| agent.handle() == handle).ok_or(Status::INVALID_AGENT)
    }

    /// Lists the host and every device.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Host).chain(Self::devices())
    }

    /// Lists every device.
    pub(crate) fn devices() -> impl Iterator<Item = Self> {
        (0..knobs().devices).map(|number| Self::Device(Device(number)))
    }

    pub(crate) fn handle(self) -> AgentHandle {
        match self {
            Self::Host => AgentHandle(1),
            Self::Device(Device(number)) => AgentHandle(2 + u64::from(number)),
        }
    }

    /// Returns the device; the host is not one.
    pub(crate) fn device(self) -> Result<Device, Status> {
        match self {
            Self::Host => Err(Status::INVALID_AGENT),
            Self::Device(device) => Ok(device),
        }
    }

    /// Number of the agent among all, from 0.
    pub(crate) const fn node(self) -> u32 {
        match self {
            Self::Host => 0,
            Self::Device(Device(number)) => number + 1,
        }
    }

    /// A bit that stands for the agent in a set of them.
    pub(crate) const fn bit(self) -> u64 {
        1 << self.node()
    }
}

/// A function of HIP's that takes things one by one; the first answer that is not success ends the listing.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Visit(unsafe extern "C" fn(u64, *mut c_void) -> Status);

impl Visit {
    /// Calls the function for each handle.
    pub(crate) fn each(self, data: *mut c_void, handles: impl IntoIterator<Item = u64>) -> Answer {
        for handle in handles {
            // SAFETY: C passed this function to be called with each handle and with this data, during this call.
            let status = unsafe { (self.0)(handle, data) };
            if status != Status::SUCCESS {
                return Err(status);
            }
        }
        Ok(())
    }
}

/// The only instruction set: all devices are alike.
const ISA: IsaHandle = IsaHandle(1);

export! {
    fn hsa_iterate_agents(visit: Visit, data: *mut c_void) {
        visit.each(data, Agent::all().map(|agent| agent.handle().0))
    }

    fn hsa_agent_iterate_isas(handle: AgentHandle, visit: Visit, data: *mut c_void) {
        Agent::find(handle)?;
        visit.each(data, [ISA.0])
    }

    fn hsa_isa_get_info_alt(isa: IsaHandle, attribute: u32, out: OutValue) {
        if isa != ISA {
            return Err(Status::INVALID_ISA);
        }
        let name = format!("amdgcn-amd-amdhsa--{}", knobs().arch);
        match attribute {
            0 => out.set(u32::try_from(name.len()).map_err(|_| Status::ERROR)?),
            1 => out.text(&name, name.len()),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn hsa_agent_extension_supported(_extension: u16, _agent: AgentHandle, _major: u16, _minor: u16, out: OutValue) {
        out.set(false)
    }

    fn hsa_amd_agent_set_async_scratch_limit(handle: AgentHandle, _limit: usize) {
        Agent::find(handle).map(drop)
    }

    fn hsa_amd_coherency_set_type(handle: AgentHandle, _kind: u32) {
        Agent::find(handle).map(drop)
    }
}
