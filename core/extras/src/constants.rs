//! Constants that compete for one small bank, placed together.
use omniheap_core::{
    Align, AllocateError, Allocation, Backend, Candidate, ErrorKind, HeapKind, Layout, Lifetime,
    Manager, Pattern, Placement, Probe, Reason, Region, Request, Result, Substitution, Writer,
    choose_constants,
};

/// Place of one constant of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantHome {
    /// With the launch itself, this many bytes behind the kernel's own parameters.
    Push {
        /// Bytes from the end of the parameters.
        offset: u64,
    },
    /// Into memory, as the placement says.
    Memory(Placement),
}

/// Places of all constants of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstantPlan {
    /// One home for each request, in their order.
    pub homes: Vec<ConstantHome>,
    /// Value of this choice: percent of time saved, times bytes read.
    pub benefit: u64,
    /// Upper bound of `benefit`; equal to it if the choice is optimal.
    pub bound: u64,
}

/// One constant of a set, placed.
#[derive(Debug)]
pub enum Constant<B: Backend> {
    /// Travels with the launch, this many bytes behind the kernel's own parameters.
    Push {
        /// Bytes from the end of the parameters.
        offset: u64,
    },
    /// Has memory of its own.
    Memory(Allocation<B>, Placement),
}

/// Least alignment of constants that are passed with a launch.
const PUSH_ALIGN: Align = Align::of(16);

/// Plans the places of the constants of one kernel, beside `parameters` bytes of its own.
///
/// Those that live for one launch travel with it, smallest first, where the device has room for that. The others
/// compete for the constant bank, by what it saves; those that lose go to device memory, and their placement says so.
/// Pure but for the bytes that are in the bank already.
///
/// # Errors
///
/// As for [`Manager::explain`]; `ExceedsLimit` when a constant that permits no substitute finds no room.
pub fn plan_constants<B: Backend>(
    manager: &Manager<B>,
    requests: &[Request<'_>],
    parameters: u64,
) -> Result<ConstantPlan> {
    let mut homes = vec![None; requests.len()];
    plan_push(manager, requests, parameters, &mut homes);
    let alone = |request: &Request<'_>| manager.explain(request).map(|told| told.placement);
    let mut placements = requests.iter().map(alone).collect::<Result<Vec<_>, _>>()?;
    let competes =
        |index: usize| homes[index].is_none() && placements[index].region == Region::Constant;
    let rivals: Vec<usize> = (0..requests.len()).filter(|index| competes(*index)).collect();
    let wanted: Vec<_> = rivals.iter().map(|index| candidate(manager, &requests[*index])).collect();
    let choice = choose_constants(&wanted, constant_room(manager), manager.config().unit);
    for (place, index) in rivals.iter().enumerate() {
        if !choice.chosen.contains(&place) {
            placements[*index] = outside(manager, &requests[*index], placements[*index])?;
        }
    }
    let homes = homes.into_iter().zip(placements);
    let homes = homes.map(|(home, other)| home.unwrap_or(ConstantHome::Memory(other)));
    Ok(ConstantPlan { homes: homes.collect(), benefit: choice.benefit, bound: choice.bound })
}

/// Places a set of constants as [`plan_constants`] says: all or none.
///
/// # Errors
///
/// As for [`plan_constants`] and [`Manager::allocate`].
pub fn allocate_constants<B: Backend>(
    manager: &Manager<B>,
    requests: &[Request<'_>],
    parameters: u64,
) -> Result<Vec<Constant<B>>, AllocateError> {
    let plan = plan_constants(manager, requests, parameters)?;
    let place = |(request, home): (&Request<'_>, ConstantHome)| match home {
        ConstantHome::Push { offset } => Ok(Constant::Push { offset }),
        ConstantHome::Memory(placement) => {
            let heaps = placement.heaps.as_slice();
            let heap = heaps.first().copied().ok_or(ErrorKind::NoSuchHeap)?;
            if placement.region != Region::Constant {
                return Ok(Constant::Memory(manager.allocate(&request.heap(heap))?, placement));
            }
            // The bank may have room in pieces only: then the next heap serves, and the placement says so.
            let made = manager.allocate(request)?;
            let is_inside = made.heap() == heap;
            let outside = Placement {
                region: Region::Device,
                reason: Reason::Crowded(Region::Constant),
                ..placement
            };
            Ok(Constant::Memory(made, if is_inside { placement } else { outside }))
        }
    };
    requests.iter().zip(plan.homes).map(place).collect()
}

/// Passes the smallest constants that live for one launch with it.
fn plan_push<B: Backend>(
    manager: &Manager<B>,
    requests: &[Request<'_>],
    parameters: u64,
    homes: &mut [Option<ConstantHome>],
) {
    let push = manager.caps().constant.map_or(0, |limits| limits.push);
    let fits = |index: &usize| {
        let request = &requests[*index];
        request.lifetime == Lifetime::Kernel
            && request.writer == Writer::HostPerFrame
            && request.pattern == Pattern::Broadcast
            && request.heap.is_none()
    };
    let mut small: Vec<usize> = (0..requests.len()).filter(fits).collect();
    small.sort_by_key(|index| (requests[*index].layout.size, *index));
    let mut offset = 0u64;
    for index in small {
        let Layout { size, align } = requests[index].layout;
        let end = parameters.saturating_add(offset);
        let start = align.max(PUSH_ALIGN).up(end).unwrap_or(u64::MAX);
        if size == 0 || start.saturating_add(size) > push {
            continue; // A larger one may need less alignment.
        }
        homes[index] = Some(ConstantHome::Push { offset: start - parameters });
        offset = start - parameters + size;
    }
}

/// Returns the value of a request in the bank: the time saved, for all bytes that a workgroup reads.
fn candidate<B: Backend>(manager: &Manager<B>, request: &Request<'_>) -> Candidate {
    let size = request.layout.size;
    let profile = manager.config().policy.profile(manager.caps());
    let costs = Probe::like(request).map(|probe| profile.cost(probe, size).constant);
    let (sum, count) = costs.fold((0, 0), |(sum, count), cost| (sum + cost, count + 1));
    let saved = u64::from(100u32.saturating_sub(sum / count.max(1)).max(1));
    let reads = size.saturating_mul(u64::from(request.reuse.max(1)));
    Candidate { size, benefit: saved.saturating_mul(reads) }
}

/// Returns the free bytes of the constant bank.
fn constant_room<B: Backend>(manager: &Manager<B>) -> u64 {
    let caps = manager.caps();
    let Some((heap, about)) = caps.heap_ids().find(|(_, h)| h.kind == HeapKind::Constant) else {
        // Constants are ranges of any buffer there, each bound on its own: there is no bank that fills up.
        return u64::MAX;
    };
    about.size.saturating_sub(manager.live_in(heap))
}

/// Returns the placement of a constant that found no room in the bank.
fn outside<B: Backend>(
    manager: &Manager<B>,
    request: &Request<'_>,
    inside: Placement,
) -> Result<Placement> {
    if request.substitution == Substitution::Forbidden {
        return Err(ErrorKind::ExceedsLimit.into());
    }
    let plain = request.pattern(Pattern::Coalesced);
    let outside = manager.explain(&plain)?.placement;
    Ok(Placement { reason: Reason::Crowded(inside.region), ..outside })
}
