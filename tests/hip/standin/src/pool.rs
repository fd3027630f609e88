//! Memory pools of the host and of devices: what they are, and what HIP asks of them.

#![expect(unsafe_code, reason = "exports C symbols and calls back into C")]

use core::ffi::c_void;

use crate::abi::{Address, AgentHandle, PointerInfo, PoolHandle, Status};
use crate::agent::{Agent, Device, Visit};
use crate::ffi::{In, Out, OutValue, export};
use crate::knobs::{knobs, log};
use crate::{pages, table, vmem};

/// Bytes of memory that the host reports.
const HOST_BYTES: u64 = 8 << 30;
const FINE: u32 = 2;
const COARSE: u32 = 4;
const KERNARG: u32 = 1;

/// Pools of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    Fine,
    Arguments,
    Coarse,
}

/// Pools of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Coarse,
    Fine,
    /// Memory that a group of threads shares; nothing can be allocated from it.
    Group,
}

/// A memory pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Host(HostKind),
    Device(Device, DeviceKind),
}

impl Pool {
    fn of(agent: Agent) -> [Self; 3] {
        match agent {
            Agent::Host => [HostKind::Fine, HostKind::Arguments, HostKind::Coarse].map(Self::Host),
            Agent::Device(device) => [DeviceKind::Coarse, DeviceKind::Fine, DeviceKind::Group]
                .map(|kind| Self::Device(device, kind)),
        }
    }

    pub(crate) fn find(handle: PoolHandle) -> Result<Self, Status> {
        Agent::all()
            .flat_map(Self::of)
            .find(|pool| pool.handle() == handle)
            .ok_or(Status::INVALID_MEMORY_POOL)
    }

    pub(crate) fn handle(self) -> PoolHandle {
        PoolHandle(match self {
            Self::Host(kind) => 0x10 + kind as u64,
            Self::Device(Device(number), kind) => 0x100 * (u64::from(number) + 1) + kind as u64,
        })
    }

    pub(crate) const fn owner(self) -> Agent {
        match self {
            Self::Host(_) => Agent::Host,
            Self::Device(device, _) => Agent::Device(device),
        }
    }

    pub(crate) const fn device(self) -> Option<Device> {
        match self {
            Self::Host(_) => None,
            Self::Device(device, _) => Some(device),
        }
    }

    pub(crate) fn granule(self) -> u64 {
        if self.device().is_some() { knobs().granule } else { pages::PAGE }
    }

    pub(crate) const fn is_group(self) -> bool {
        matches!(self, Self::Device(_, DeviceKind::Group))
    }

    pub(crate) const fn flags(self) -> u32 {
        match self {
            Self::Host(HostKind::Fine) | Self::Device(_, DeviceKind::Fine) => FINE,
            Self::Host(HostKind::Arguments) => FINE | KERNARG,
            Self::Host(HostKind::Coarse) | Self::Device(_, DeviceKind::Coarse) => COARSE,
            Self::Device(_, DeviceKind::Group) => 0,
        }
    }

    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Host(_) => HOST_BYTES,
            Self::Device(_, DeviceKind::Group) => knobs().group_memory(),
            Self::Device(..) => knobs().vram,
        }
    }
}

/// Returns an agent's access to a pool's memory: 0 never, 1 always, 2 when allowed.
fn access(agent: Agent, pool: Pool) -> u32 {
    match pool {
        Pool::Host(_) => 1,
        Pool::Device(device, _) if agent == Agent::Device(device) => 1,
        Pool::Device(..) if agent == Agent::Host && !knobs().large_bar => 0,
        Pool::Device(..) => 2,
    }
}

export! {
    fn hsa_amd_agent_iterate_memory_pools(handle: AgentHandle, visit: Visit, data: *mut c_void) {
        visit.each(data, Pool::of(Agent::find(handle)?).map(|pool| pool.handle().0))
    }

    fn hsa_amd_memory_pool_get_info(handle: PoolHandle, attribute: u32, out: OutValue) {
        let pool = Pool::find(handle)?;
        let is_device = pool.device().is_some();
        match attribute {
            0 => out.set(if pool.is_group() { 3_u32 } else { 0 }), // segment
            1 => out.set(pool.flags()),
            2 | 16 => out.set(pool.size()), // size, largest allocation
            5 => out.set(!pool.is_group()), // whether memory can be allocated
            6 if pool.is_group() => out.set(0_u64),
            6 | 7 => out.set(pool.granule()), // granule, alignment
            15 => out.set(!is_device), // accessible by all
            17 => out.set(u32::from(is_device)),
            18 => out.set(2_u64 << 20), // recommended granule
            _ => {
                log(|| format!("pool attribute {attribute} is not known"));
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }

    fn hsa_amd_agent_memory_pool_get_info(handle: AgentHandle, pool: PoolHandle, attribute: u32, out: OutValue) {
        let (agent, pool) = (Agent::find(handle)?, Pool::find(pool)?);
        let hops = u32::from(pool.owner() != agent);
        match attribute {
            0 => out.set(access(agent, pool)),
            1 => out.set(hops),
            // Latencies, bandwidths, kind of link (PCIe), atomics: only asked for where there is a hop.
            2 => out.set([0_u32, 0, 0, 0, 0, 2, 0]),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn hsa_amd_memory_pool_allocate(handle: PoolHandle, size: u64, _flags: u32, out: Out<u64>) {
        if size == 0 || out.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        let pool = Pool::find(handle)?;
        if pool.is_group() || size > pool.size() {
            return Err(Status::INVALID_ALLOCATION);
        }
        let address = table::allocate(pool, size)?;
        log(|| format!("{size} bytes of {pool:?} at {address:#x}"));
        out.set(address)
    }

    fn hsa_amd_memory_pool_free(address: Address) {
        if address.0 == 0 { Ok(()) } else { table::free(address.0) }
    }

    fn hsa_amd_agents_allow_access(count: u32, agents: In<AgentHandle>, flags: In<u32>, address: Address) {
        if count == 0 || address.0 == 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        let _ = flags;
        let list = agents.list(usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?)?;
        let agents: Result<Vec<_>, _> = list.into_iter().map(Agent::find).collect();
        table::allow(address.0, agents?.iter().fold(0, |set, agent| set | agent.bit()))
    }

    fn hsa_amd_memory_lock_to_pool(
        host: Address, size: u64, agents: In<AgentHandle>, count: i32, pool: PoolHandle, _flags: u32, out: Out<u64>,
    ) {
        if host.0 == 0 || size == 0 || out.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        Pool::find(pool)?;
        for agent in agents.list(usize::try_from(count).unwrap_or(0))? {
            Agent::find(agent)?;
        }
        table::pin(table::Pinned { base: host.0, size });
        out.set(host.0)
    }

    fn hsa_amd_memory_unlock(host: Address) {
        if host.0 == 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        table::unpin(host.0);
        Ok(())
    }

    fn hsa_memory_register(_address: Address, _size: u64) {
        Ok(())
    }

    fn hsa_memory_deregister(_address: Address, _size: u64) {
        Ok(())
    }

    fn hsa_amd_pointer_info(
        address: Address, out: Out<PointerInfo>, allocate: Option<Allocator>, count: Out<u32>, agents: Out<u64>,
    ) {
        let (mut info, access) = describe(address.0);
        info.size = out.get()?.size.min(56);
        if info.size < 56 {
            return Err(Status::INVALID_ARGUMENT);
        }
        out.set(info)?;
        let Some(allocate) = allocate.filter(|_| !count.is_null() && !agents.is_null()) else { return Ok(()) };
        let list: Vec<_> = Agent::all().filter(|agent| access & agent.bit() != 0).map(Agent::handle).collect();
        count.set(u32::try_from(list.len()).map_err(|_| Status::ERROR)?)?;
        // SAFETY: C passed this function to get memory for the list during this call.
        let memory = unsafe { allocate(size_of::<AgentHandle>() * list.len().max(1)) };
        let start = memory.expose_provenance() as u64;
        if start == 0 {
            return Err(Status::OUT_OF_RESOURCES);
        }
        for (index, agent) in (0..).zip(&list) {
            pages::write(start + 8 * index, &agent.0.to_ne_bytes());
        }
        agents.set(start)
    }
}

/// Gives memory to write a list to.
type Allocator = unsafe extern "C" fn(usize) -> *mut c_void;

/// Answers what is at an address, and the set of agents that may touch it.
fn describe(address: u64) -> (PointerInfo, u64) {
    if let Some((base, found)) = table::find(address) {
        let owner = found.pool.owner().handle().0;
        let host_base = if found.pool.device().is_none() || knobs().large_bar { base } else { 0 };
        let info = PointerInfo {
            kind: 1,
            agent_base: base,
            host_base,
            bytes: found.size,
            owner,
            ..Default::default()
        };
        return (PointerInfo { global_flags: found.pool.flags(), ..info }, found.access);
    }
    if let Some(found) = table::find_pinned(address) {
        let (base, owner) = (found.base, Agent::Host.handle().0);
        let info = PointerInfo {
            kind: 2,
            agent_base: base,
            host_base: base,
            bytes: found.size,
            ..Default::default()
        };
        return (PointerInfo { owner, global_flags: FINE, ..info }, u64::MAX);
    }
    if let Some((base, bytes)) = vmem::find_reserved(address) {
        let owner = Agent::Device(Device(0)).handle().0;
        return (PointerInfo { kind: 5, agent_base: base, bytes, owner, ..Default::default() }, 0);
    }
    (PointerInfo::default(), 0)
}
