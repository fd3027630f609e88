//! A backend that fails on purpose.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use crate::plan::{Corruption, Plan, errors};
use crate::{Call, CallKind, Hooks, Layer, Verdict, lock};
use omniheap_seam::{Backend, Epoch, Error, ErrorKind};
use std::sync::Mutex;

/// Fails, delays or falsifies calls by a [`Plan`], so that a test can see what its caller makes of it.
///
/// A refused call never reaches the wrapped backend. A refused free, destroy or unmap leaves the memory with the
/// driver, where [`quarantine`](Layer::quarantine) counts it; after a loss they are forwarded, so that the process
/// gets its memory back. With [`Plan::Corruption`] it breaks promises of [`Backend`]: only for callers that are being tested
/// against that, and whose kernels use no address. Once a block came short, this layer maps none any more.
pub type Fault<B> = Layer<B, Faults>;

impl<B: Backend> Layer<B, Faults> {
    /// Wraps `backend`; nothing fails until [`inject`](Self::inject).
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self::wrap(backend, Faults::default())
    }

    /// Makes what is given up after a loss wait until the device, which only seems lost, no longer uses it.
    ///
    /// For devices that work on their own: memory that goes back under such work ends the process. Not for one whose
    /// timelines a test holds.
    #[must_use]
    pub fn patient(self) -> Self {
        lock(&self.hooks().state).patience = Patience::Waits;
        self
    }

    /// Sets the plan and counts from zero. `pick` chooses the answer among [`errors`] of the kind that fails, wrapping
    /// round. [`Plan::Never`] makes the driver well again, a lost device included.
    pub fn inject(&self, plan: Plan, pick: usize) {
        let mut state = lock(&self.hooks().state);
        let State { quarantine, shortened, patience, said_lost, .. } = *state;
        let kept = State { quarantine, shortened, patience, said_lost, ..State::default() };
        *state = State { plan, pick, ..kept };
    }

    /// Calls seen since the plan was set, refused ones included.
    #[must_use]
    pub fn seen(&self) -> u64 {
        lock(&self.hooks().state).seen
    }

    /// Calls that were answered with an error since the plan was set.
    #[must_use]
    pub fn injected(&self) -> u64 {
        lock(&self.hooks().state).injected
    }

    /// Returns the kind of the first call that was answered with an error since the plan was set.
    #[must_use]
    pub fn first_injected(&self) -> Option<CallKind> {
        lock(&self.hooks().state).first_injected
    }

    /// Returns what the driver kept because it refused to take it back, since the layer was made.
    #[must_use]
    pub fn quarantine(&self) -> Quarantine {
        lock(&self.hooks().state).quarantine
    }
}

/// Memory that refused calls left with the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quarantine {
    /// Blocks and reservations.
    pub blocks: u64,
    /// Pages of the device.
    pub pages: u64,
    /// Pages of host memory.
    pub host_pages: u64,
}

/// Hooks of [`Fault`]: count calls, and make some fail as planned.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    pick: usize,
    seen: u64,
    of_kind: [u64; CallKind::ALL.len()],
    injected: u64,
    first_injected: Option<CallKind>,
    /// The kind that a plan which goes on has settled on, and how often it failed.
    chosen: Option<(CallKind, u64)>,
    first_address: Option<u64>,
    quarantine: Quarantine,
    /// True if a short block was ever handed out.
    shortened: bool,
    patience: Patience,
    /// True if any call was ever answered with the loss of the device.
    said_lost: bool,
}

/// Treatment of work that a device still has when it seems lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Patience {
    #[default]
    Ignores,
    Waits,
}

impl State {
    /// Counts the call and says whether it fails, and how.
    fn judge(&mut self, call: &Call) -> Verdict {
        let kind = call.kind;
        let (n, k) = (self.seen, self.of_kind[kind as usize]);
        self.seen += 1;
        self.of_kind[kind as usize] += 1;
        let fails = match self.plan {
            Plan::Never | Plan::Delay(..) | Plan::Corruption(..) => false,
            Plan::Nth(at) => n == at,
            Plan::From(at) => self.goes_on(kind, n == at, u64::MAX),
            Plan::NthThenOk { at, times } => self.goes_on(kind, n == at, times),
            Plan::Pair(a, b) => n == a || n == b,
            Plan::Kind(wanted, at) => kind == wanted && k == at,
            Plan::Random { per_million, seed } => mix(seed, n) % 1_000_000 < per_million.into(),
            Plan::LoseDeviceAt(at) => n >= at,
        };
        if fails { self.fail(call) } else { Verdict::Forward }
    }

    fn goes_on(&mut self, kind: CallKind, starts: bool, times: u64) -> bool {
        if starts {
            self.chosen = Some((kind, 0));
        }
        match &mut self.chosen {
            Some((chosen, failed)) if *chosen == kind && *failed < times => {
                *failed += 1;
                true
            }
            _ => false,
        }
    }

    fn fail(&mut self, call: &Call) -> Verdict {
        self.injected += 1;
        self.first_injected.get_or_insert(call.kind);
        if matches!(self.plan, Plan::LoseDeviceAt(_)) {
            self.said_lost = true;
            let lost = Error::new(ErrorKind::DeviceLost);
            return if call.kind.gives_up() {
                Verdict::ForwardThen(lost)
            } else {
                Verdict::Refuse(lost)
            };
        }
        match call.kind {
            CallKind::Free => self.quarantine.blocks += 1,
            CallKind::Destroy => self.quarantine.pages += call.count,
            CallKind::DestroyOnHost => self.quarantine.host_pages += call.count,
            _ => {}
        }
        let table = errors(call.kind);
        let answer = table[self.pick % table.len()];
        self.said_lost |= answer == ErrorKind::DeviceLost;
        Verdict::Refuse(answer.into())
    }

    /// Returns the planned corruption of this call, if any.
    const fn corruption(&self) -> Option<Corruption> {
        match self.plan {
            Plan::Corruption(at, corruption) if self.seen > at => Some(corruption),
            _ => None,
        }
    }
}

/// Returns a number that looks random and depends on both inputs (the finaliser of `SplitMix64`).
const fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// SAFETY: the caps pass unchanged. Only under `Plan::Corruption` are sizes and addresses false: a short block can never be
// mapped and the wrapped backend checks every transfer, so no byte outside it is reachable; a false address is a number
// that only a kernel could use, and the documentation of `Fault` says who may be given one. A false epoch is the first one.
unsafe impl Hooks for Faults {
    fn before(&self, call: &Call) -> Verdict {
        let mut state = lock(&self.state);
        let verdict = state.judge(call);
        if state.shortened && call.kind == CallKind::Map && verdict == Verdict::Forward {
            return Verdict::Refuse(ErrorKind::NotMappable.into());
        }
        verdict
    }

    fn after(&self, call: &Call, _: omniheap_seam::Result<()>) {
        let plan = lock(&self.state).plan;
        if let Plan::Delay(kind, time) = plan
            && kind == call.kind
        {
            // After the call and without the lock: the driver is done, and its caller does not know yet.
            std::thread::sleep(time);
        }
    }

    fn seems_lost(&self) -> bool {
        let state = lock(&self.state);
        state.said_lost && state.patience == Patience::Waits
    }

    fn size(&self, _: &Call, size: u64) -> u64 {
        let mut state = lock(&self.state);
        if state.corruption() != Some(Corruption::ShortBlock) {
            return size;
        }
        state.shortened = true;
        (size / 2).max(1)
    }

    fn address(&self, _: u64, address: u64) -> u64 {
        let mut state = lock(&self.state);
        let first = *state.first_address.get_or_insert(address);
        match state.corruption() {
            Some(Corruption::NullAddress) => 0,
            Some(Corruption::MisalignedAddress) => address + 1,
            Some(Corruption::OverlappingAddress) => first,
            _ => address,
        }
    }

    fn reached(&self, epoch: Epoch) -> Epoch {
        match lock(&self.state).corruption() {
            Some(Corruption::NeverReached) => Epoch::START,
            _ => epoch,
        }
    }
}
