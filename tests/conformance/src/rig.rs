//! One opened device, and what a test may do to it that no call of the seam does.
use core::any::Any;
use core::fmt;
use omniheap_core::{AnyBackend, Backend, Result, TimelineId, erase};

/// Guards of the managers of a case: laid, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guards {
    /// They lay none.
    #[default]
    Off,
    /// They lay guards behind all allocations.
    On,
}

/// Keeps a timeline from finishing; dropping it lets the timeline go on.
pub type Held = Box<dyn Any + Send>;

type Hold = Box<dyn Fn(TimelineId) -> Result<Held> + Send + Sync>;
type Lose = Box<dyn Fn() + Send + Sync>;
type Messages = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Precision of the driver's own account of used memory: this process's alone and exact, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Account {
    /// Others use the device too, or the driver rounds.
    #[default]
    Rough,
    /// Every byte is counted, and nobody else's: a case must end where it began.
    Exact,
}

/// One opened device under test. Everything but the backend is optional; what is absent, cases do without.
pub struct Rig<B> {
    pub(crate) backend: B,
    pub(crate) extras: Extras,
}

#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) hold: Option<Hold>,
    pub(crate) lose: Option<Lose>,
    pub(crate) messages: Option<Messages>,
    pub(crate) account: Account,
    kept: Option<Box<dyn Any + Send + Sync>>,
    pub(crate) no_kernels: Option<&'static str>,
    pub(crate) guards: Guards,
    pub(crate) turns: Turns,
}

/// Turns of cases in one process: beside each other, or one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turns {
    #[default]
    Beside,
    OneAtATime,
}

impl<B: Backend + 'static> Rig<B> {
    /// A device without extras.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self { backend, extras: Extras::default() }
    }

    /// Adds a delay primitive: from the call until its result is dropped, the timeline finishes nothing new.
    #[must_use]
    pub fn with_hold(
        mut self,
        hold: impl Fn(TimelineId) -> Result<Held> + Send + Sync + 'static,
    ) -> Self {
        self.extras.hold = Some(Box::new(hold));
        self
    }

    /// Adds a way to lose the device.
    #[must_use]
    pub fn with_loss(mut self, lose: impl Fn() + Send + Sync + 'static) -> Self {
        self.extras.lose = Some(Box::new(lose));
        self
    }

    /// Adds what the driver's validation has said since the last call; anything it says fails the case.
    #[must_use]
    pub fn with_messages(
        mut self,
        messages: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.extras.messages = Some(Box::new(messages));
        self
    }

    /// Says why no kernel can run here, though the backend loads them: cases that need one are refused.
    #[must_use]
    pub const fn without_kernels(mut self, why: &'static str) -> Self {
        self.extras.no_kernels = Some(why);
        self
    }

    /// Has the cases run with guards behind all allocations too, from blocks and from pages; a soak runs with them.
    #[must_use]
    pub const fn with_guards(mut self) -> Self {
        self.extras.guards = Guards::On;
        self
    }

    /// Says how far the driver's own account can be trusted.
    #[must_use]
    pub const fn with_account(mut self, account: Account) -> Self {
        self.extras.account = account;
        self
    }

    /// Has the cases run one at a time, whatever the number of threads: for drivers and layers that do not stand devices
    /// which come and go beside one that is used.
    #[must_use]
    pub const fn one_at_a_time(mut self) -> Self {
        self.extras.turns = Turns::OneAtATime;
        self
    }

    /// Keeps something, such as a [`Lease`](crate::Lease), as long as the device is under test.
    #[must_use]
    pub fn keeping(mut self, kept: impl Any + Send + Sync) -> Self {
        self.extras.kept = Some(Box::new(kept));
        self
    }

    /// Hides the backend's type, so that the same cases run through dynamic dispatch.
    #[must_use]
    pub fn erase(self) -> Rig<AnyBackend> {
        Rig { backend: erase(self.backend), extras: self.extras }
    }
}

impl<B: Backend> fmt::Debug for Rig<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("device", &self.backend.caps().device).finish_non_exhaustive()
    }
}
