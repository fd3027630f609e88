//! A case: one sentence that holds on every backend, and the function that proves it.
#![expect(unsafe_code, reason = "makes a page to see whether the device can")]
use crate::rig::Guards;
use crate::world::{World, in_heap};
use omniheap_core::{
    Backend, Budget, CopyRegion, ErrorKind, HeapId, HeapKind, Request, Result, Source, TimelineId,
};
use omniheap_shaders::SCALE;

/// One promise, checked on a fresh device.
#[derive(Debug)]
pub struct Case<B: Backend> {
    /// The sentence, as an identifier.
    pub name: &'static str,
    /// The behaviours of `docs/conformance.md` that it proves.
    pub numbers: &'static [u16],
    /// Capabilities that the device or the rig must have.
    pub needs: &'static [Need],
    /// Proves it, or panics.
    pub check: fn(&World<B>),
}

/// Capability that a case cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Byte movement.
    Transfer,
    /// A heap that the host sees.
    Map,
    /// A heap that the host does not see.
    Hidden,
    /// Timelines.
    Timelines,
    /// Marks of all work at once.
    MarkAll,
    /// A rig that can hold a timeline.
    Hold,
    /// A rig that can lose the device.
    Loss,
    /// Pages, and a mode that uses them.
    Pages,
    /// Host memory that can be mapped at addresses of the device.
    HostPages,
    /// Device addresses.
    Address,
    /// The driver's own account.
    Budget,
    /// Hand-over to others.
    Export,
    /// Memory that communication libraries can register.
    Registrable,
    /// A block of more than four gibibytes.
    Large,
    /// A heap of constants.
    Constant,
    /// Shared memory of kernels, with known limits.
    Shared,
    /// Kernels that can be run.
    Launch,
    /// Host memory beside the device heap, for what spills.
    Spill,
    /// Bytes and driver calls that are counted to the last one.
    Unguarded,
}

/// Returns whether the driver tells how much memory is left.
pub(crate) fn tells_budget<B: Backend>(backend: &B) -> bool {
    backend.as_budget().is_some_and(|driver| driver.budget(HeapId(0)).is_ok())
}

/// Bytes of a block that [`Need::Large`] asks for.
pub(crate) const LARGE: u64 = (4 << 30) + (4 << 20);

impl Need {
    /// Returns the reason why the world lacks it; `None` where the world has it.
    pub(crate) fn missing<B: Backend + 'static>(self, world: &World<B>) -> Option<&'static str> {
        let (backend, extras) = (world.backend(), world.extras());
        let heaps = &backend.caps().heaps;
        let registers = heaps.iter().any(|heap| heap.registrable.is_some());
        let large = |heap: &omniheap_core::Heap| heap.max_block >= LARGE && heap.size >= 3 * LARGE;
        let (has, why) = match self {
            Self::Transfer => (backend.as_transfer().is_some(), "the backend moves no bytes"),
            Self::Map => (
                backend.as_map().is_some() && world.visible_heap().is_some(),
                "the host sees no heap",
            ),
            Self::Hidden => (world.hidden_heap().is_some(), "the host sees every heap"),
            Self::Timelines => (backend.as_timelines().is_some(), "the backend has no timelines"),
            Self::MarkAll => (
                backend.as_timelines().is_some_and(|lines| lines.mark(TimelineId::ALL).is_ok()),
                "the device cannot mark all of its work at once",
            ),
            Self::Hold => (extras.hold.is_some(), "the rig cannot hold a timeline"),
            Self::Loss => (extras.lose.is_some(), "the rig cannot lose the device"),
            Self::Pages => (world.is_paged(), "the default pools have no pages here"),
            Self::HostPages => (host_page(world).is_ok(), "the device maps no host memory"),
            Self::Address => (backend.as_address().is_some(), "the backend has no addresses"),
            Self::Budget => (tells_budget(backend), "the driver does not tell what is free"),
            Self::Export => (backend.as_export().is_some(), "the backend exports nothing"),
            Self::Registrable => (registers, "no memory of the device can be registered"),
            Self::Large => (heaps.iter().any(large), "no block can have more than four gibibytes"),
            Self::Constant => (
                heaps.iter().any(|heap| heap.kind == HeapKind::Constant),
                "the device has no constant heap",
            ),
            Self::Shared => (backend.caps().shared.is_some(), "kernels have no shared memory"),
            Self::Spill => (world.spill_heap().is_some(), "there is no host memory to spill to"),
            Self::Unguarded => {
                (world.guards() == Guards::Off, "guards take bytes and calls of their own")
            }
            Self::Launch => match extras.no_kernels {
                Some(why) => (false, why),
                None => (launches(world), "the backend runs no kernels, or has no compiler here"),
            },
        };
        (!has).then_some(why)
    }

    /// Asserts what is documented for a backend that lacks it.
    pub(crate) fn assert_refusal<B: Backend + 'static>(self, world: &World<B>) {
        match self {
            Self::Transfer => refuses_transfer(world),
            Self::Map => refuses_map(world),
            Self::Address => {
                let one = world.manager().allocate(&Request::new(64)).expect("fits");
                assert_eq!(one.binding().address(), None);
            }
            Self::Pages => refuses_pages(world),
            Self::HostPages if world.is_paged() => {
                let refused = host_page(world).map_err(|error| error.kind());
                assert_eq!(refused, Err(ErrorKind::Unsupported));
            }
            Self::Timelines => {
                let manager = world.manager();
                let one = manager.allocate(&Request::new(64).on(TimelineId::MAIN)).expect("fits");
                one.free();
                assert_eq!(manager.retire(), Ok(0), "nothing waits where nothing runs beside");
            }
            Self::Large => {
                let manager = world.manager_over(&world.limited(u64::MAX, u64::MAX));
                let most = world.backend().caps().heaps.iter().map(|heap| heap.size).max();
                let size = most.unwrap_or(0).saturating_add(1);
                let kind = manager.allocate(&Request::new(size)).expect_err("too large").kind();
                assert_eq!(kind, ErrorKind::ExceedsLimit);
            }
            Self::Launch if world.extras().no_kernels.is_none() => {
                let refused =
                    world.manager().load(&SCALE, 0).map(drop).map_err(|error| error.kind());
                assert_eq!(refused, Err(ErrorKind::Unsupported));
            }
            Self::Registrable => {
                let refused = world.manager().allocate(&Request::new(64).registrable());
                assert_eq!(
                    refused.map(drop).map_err(|error| error.kind()),
                    Err(ErrorKind::Unsupported)
                );
            }
            Self::Spill => refuses_recall(world),
            // Their absence is the refusal: there is nothing that could be called.
            _ => {}
        }
    }
}

/// Makes a page of host memory for the device heap, and returns it.
fn host_page<B: Backend + 'static>(world: &World<B>) -> Result<()> {
    let (heap, mut pages) = (world.device_heap(), Vec::new());
    let remap = world.backend().as_remap().ok_or(ErrorKind::Unsupported)?;
    remap.create_on_host(heap, 1, 1, &mut pages)?;
    // SAFETY: made just above, and mapped nowhere.
    unsafe { remap.destroy_on_host(heap, &pages) }
}

/// Returns true if a kernel can be loaded. Whatever but `Unsupported` stands in the way is for the case to find.
fn launches<B: Backend + 'static>(world: &World<B>) -> bool {
    let Some(launch) = world.backend().as_launch() else { return false };
    match launch.load(&SCALE, 0) {
        Ok(program) => launch.unload(program).is_ok(),
        Err(error) => error.kind() != ErrorKind::Unsupported,
    }
}

fn refuses_transfer<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let one = manager.allocate(&Request::new(64)).expect("fits");
    let other = manager.allocate(&Request::new(64)).expect("fits");
    let unsupported = Some(ErrorKind::Unsupported);
    assert_eq!(one.write(0, &[0; 64]).err().map(|error| error.kind()), unsupported);
    assert_eq!(one.read(0, &mut [0; 64]).err().map(|error| error.kind()), unsupported);
    assert_eq!(one.fill(0, 64, 0).err().map(|error| error.kind()), unsupported);
    let copy = CopyRegion { from: &one, from_offset: 0, to: &other, to_offset: 0, size: 64 };
    let kind = manager.copy(TimelineId::MAIN, &[copy]).err().map(|error| error.kind());
    assert_eq!(kind, unsupported);
}

fn refuses_map<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    for (heap, _) in world.backend().caps().heap_ids() {
        let one = manager.allocate(&in_heap(heap, 64)).expect("fits");
        assert_eq!(one.map().err().map(|error| error.kind()), Some(ErrorKind::NotMappable));
    }
}

/// With one heap there is nowhere to call anything back from; with others that nothing spills to, nothing is there.
fn refuses_recall<B: Backend + 'static>(world: &World<B>) {
    let heaps = world.backend().caps().heaps.iter();
    let is_one = heaps.filter(|heap| heap.kind != HeapKind::Constant).count() < 2;
    let recall = world.manager().begin_recall(&Budget::new());
    match recall.map_err(|error| error.kind()) {
        Ok(pass) => assert!(!is_one && pass.is_empty()),
        Err(kind) => {
            let cannot = is_one || world.backend().as_transfer().is_none();
            assert!(cannot && kind == ErrorKind::Unsupported, "{kind:?}");
        }
    }
}

fn refuses_pages<B: Backend + 'static>(world: &World<B>) {
    let plan = world.manager().plan(&Request::new(64)).expect("fits");
    assert_ne!(plan.source, Source::Pages, "pages without a way to map them");
}
