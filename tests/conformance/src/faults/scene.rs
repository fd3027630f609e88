//! The world of one injection: what lives before it, and what must hold after it.
use super::Scenario;
use crate::rig::Rig;
use crate::run::PATIENCE;
use crate::world::{Mode, Stack, World, check_stamp, listed, write_stamp};
use omniheap_core::{Allocation, Backend, ErrorKind, Manager, Request, Result, Span, TimelineId};
use omniheap_layers::{CallKind, Live, Plan, Quarantine};
use std::sync::mpsc;

/// Bytes that a scenario may use of each heap.
pub(super) const LIMIT: u64 = 48 << 20;

/// An allocation that must not notice the fault, and where it is.
type Witness<B> = (Allocation<Stack<B>>, (u64, Span));

pub(crate) struct Scene<B: Backend> {
    pub(super) world: World<B>,
    pub(super) stack: Stack<B>,
    pub(super) manager: Manager<Stack<B>>,
    witnesses: Vec<Witness<B>>,
    /// True while a fault is injected that lasts.
    lasts: bool,
    /// Managers of the scenario itself that end when the fault is over.
    loose: Vec<Manager<Stack<B>>>,
}

/// Kind of the injected fault, where the invariants differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A call, once or for some time.
    Call,
    /// The driver refused to unmap: the pages stay with it.
    Unmap,
    /// Two calls of any kind.
    Two,
    /// The device is gone.
    Loss,
}

/// Returns true if a fault of this kind may end in success.
pub(super) const fn absorbed(kind: CallKind, error: ErrorKind) -> bool {
    match kind {
        // Memory that the driver refuses to take back is quarantined; the caller's free has happened all the same.
        CallKind::Free | CallKind::Destroy | CallKind::DestroyOnHost => true,
        CallKind::UnmapPages | CallKind::Unload => true,
        // A smaller block, a shorter reservation or other pages may do.
        CallKind::Allocate | CallKind::Create | CallKind::MapPages => error.is_out_of_memory(),
        CallKind::Reserve => true,
        // A free cannot fail: it waits longer instead.
        CallKind::Mark | CallKind::Reached | CallKind::Wait | CallKind::WaitIdle => true,
        // Without a timeline of its own for moves, a manager uses the main one; closing it cannot fail its end.
        CallKind::Open => !matches!(error, ErrorKind::DeviceLost),
        CallKind::Close => true,
        _ => false,
    }
}

impl<B: Backend + 'static> Scene<B> {
    pub(super) fn new(rig: Rig<B>, mode: Mode) -> Self {
        let world = World::new(rig, mode, 1);
        let stack = world.limited(LIMIT, u64::MAX);
        let manager = world.loose_manager(&stack);
        let size = world.whole(1000);
        let requests = [
            Request::new(size),
            Request::new(size).dedicated(),
            Request::new(size).on(TimelineId::MAIN),
        ];
        let witness = |(id, request): (u64, &Request<'_>)| {
            let one = manager.allocate(request).expect("nothing fails yet");
            if world.backend().as_transfer().is_some() {
                write_stamp(&one, id);
            }
            let place = place_of(&one);
            (one, place)
        };
        let witnesses = (0..).zip(&requests).map(witness).collect();
        world.backend().wait_idle().expect("nothing fails yet");
        Self { world, stack, manager, witnesses, lasts: false, loose: Vec::new() }
    }

    /// Makes a manager for the scenario alone. It ends with the scenario, or with a fault that lasts: a secret that cannot be
    /// zeroed when its manager ends stays with the driver.
    pub(super) fn loose_manager(&mut self) -> Manager<Stack<B>> {
        let manager = self.world.loose_manager(&self.stack);
        self.loose.extend(self.lasts.then(|| manager.clone()));
        manager
    }

    /// Runs a scenario without faults and says which calls it made.
    pub(super) fn dry(&mut self, scenario: &Scenario<B>) -> Result<Vec<CallKind>> {
        self.stack.inner().start_log();
        (scenario.run)(self)?;
        Ok(self.stack.inner().take_log().iter().map(|entry| entry.call.kind).collect())
    }

    /// Runs a scenario with a fault; says which kind of call failed first, and how the scenario ended.
    pub(super) fn run(
        &mut self,
        scenario: &Scenario<B>,
        plan: Plan,
        pick: usize,
    ) -> (Option<CallKind>, Result<()>) {
        self.stack.inject(plan, pick);
        self.lasts = matches!(plan, Plan::From(_));
        let result = (scenario.run)(self);
        let failed = self.stack.first_injected();
        // A device that is lost stays lost.
        if !matches!(plan, Plan::LoseDeviceAt(_)) {
            self.stack.inject(Plan::Never, 0);
        }
        self.lasts = false;
        self.loose.clear();
        (failed, result)
    }

    /// Checks the invariants, runs the scenario again, and ends the world.
    pub(super) fn check(
        mut self,
        scenario: &Scenario<B>,
        fault: Fault,
    ) -> core::result::Result<(), String> {
        if fault == Fault::Loss {
            return self.end(fault);
        }
        self.stack.inject(Plan::Never, 0);
        self.world.backend().wait_idle().map_err(|error| error.to_string())?;
        self.manager.retire().map_err(|error| format!("retire: {error}"))?;
        self.manager.validate().map_err(|broken| format!("unsound: {broken}"))?;
        self.ledger(fault)?;
        self.bystanders()?;
        self.another_thread()?;
        if let Err(error) = (scenario.run)(&mut self) {
            // Memory that the driver kept may be missing now, and so may memory that a free could neither mark nor wait
            // for, here or in a manager that the scenario had.
            let (totals, held) = (self.manager.totals(), self.stack.inner().live().bytes());
            let is_here = totals.live > self.witnesses.len() as u64;
            let is_stuck = is_here || held > totals.reserved_bytes;
            let kept = fault == Fault::Unmap || self.stack.quarantine() != Quarantine::default();
            let kept = kept || fault == Fault::Two && is_stuck;
            if !(kept && error.kind().is_out_of_memory()) {
                return Err(format!("the second run: {error}"));
            }
        }
        self.bystanders()?;
        self.end(fault)
    }

    /// Drops everything: nothing may be left but what the driver refused to take.
    fn end(self, fault: Fault) -> core::result::Result<(), String> {
        let Self { world, stack, manager, witnesses, .. } = self;
        drop((witnesses, manager));
        listed(&stack)?;
        let (live, kept) = (stack.inner().live(), stack.quarantine());
        let may_keep_pages = matches!(fault, Fault::Unmap | Fault::Two);
        let pages_kept = may_keep_pages || live.pages <= kept.pages;
        let blocks = live.blocks + live.reservations;
        let most = kept.blocks + stuck_addresses(fault, &live);
        if !(kept.blocks..=most).contains(&blocks) || !pages_kept {
            return Err(format!("left at the end: {live:?}, quarantined {kept:?}"));
        }
        drop((stack, world));
        Ok(())
    }

    /// The driver's objects are the manager's, or quarantined.
    fn ledger(&self, fault: Fault) -> core::result::Result<(), String> {
        let (live, kept, report) =
            (self.stack.inner().live(), self.stack.quarantine(), self.manager.report());
        let (blocks, known) = (live.blocks + live.reservations, report.blocks + kept.blocks);
        if !(known..=known + stuck_addresses(fault, &live)).contains(&blocks) {
            return Err(format!(
                "the driver has {live:?}, the manager {} blocks, quarantined {kept:?}",
                report.blocks
            ));
        }
        let quarantined = report.quarantined_bytes > 0 || kept != Quarantine::default();
        let whole = !quarantined && !matches!(fault, Fault::Unmap | Fault::Two);
        if whole && live.bytes() != report.totals.reserved_bytes {
            return Err(format!(
                "the driver counts {} bytes, the manager {}",
                live.bytes(),
                report.totals.reserved_bytes
            ));
        }
        let witnesses = self.witnesses.len() as u64;
        // A free whose work could be neither marked nor waited for keeps its bytes for ever.
        let stuck = u64::from(fault == Fault::Two);
        if !(witnesses..=witnesses + stuck).contains(&report.totals.live) {
            return Err(format!("{} allocations live, {witnesses} should", report.totals.live));
        }
        if report.totals.reserved_bytes > LIMIT * report.pools.len() as u64 {
            return Err("more is held than the limit allows".into());
        }
        Ok(())
    }

    /// Checks that earlier allocations live on, at their places, with their bytes.
    fn bystanders(&self) -> core::result::Result<(), String> {
        for (id, (one, place)) in (0..).zip(&self.witnesses) {
            // A shortage may have moved it, to one other place.
            if place_of(one).1.size != place.1.size {
                return Err(format!("witness {id} has another size"));
            }
            if self.world.backend().as_transfer().is_some() {
                check_stamp(one, id);
            }
        }
        Ok(())
    }

    /// No lock is held: another thread allocates and frees at once.
    fn another_thread(&self) -> core::result::Result<(), String> {
        let (tell, told) = mpsc::channel();
        let manager = self.manager.clone();
        std::thread::spawn(move || {
            let answer = manager.allocate(&Request::new(256)).map(drop);
            // Before the answer, so that this thread is not the last to hold the device.
            drop(manager);
            let _ = tell.send(answer);
        });
        let answer = told.recv_timeout(PATIENCE).map_err(|_| "a lock is held")?;
        answer.map_err(|error| format!("another thread: {error}"))
    }
}

/// Reservations that a manager may have left: addresses stay reserved where pages stay mapped, and only there.
fn stuck_addresses(fault: Fault, live: &Live) -> u64 {
    let may_keep_pages = matches!(fault, Fault::Unmap | Fault::Two);
    if may_keep_pages { live.reservations.min(live.mapped) } else { 0 }
}

fn place_of<B: Backend + 'static>(one: &Allocation<Stack<B>>) -> (u64, Span) {
    let binding = one.binding();
    (binding.block().id(), binding.span())
}
