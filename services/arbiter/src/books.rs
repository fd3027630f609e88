//! Books of one device: the bytes that each tenant holds, its share, and the tenants that are pressed. Knows no sockets
//! and no clock: time is passed in.
//!
//! - *Share*: a tenant's part when the device is divided by weights among what tenants hold and wait for; never below a
//!   reserve that is wanted.
//! - *Overhead*: bytes that the driver may count for a process beside those that it holds: context, kernels, libraries.
//! - *Hidden*: bytes that the driver counts beyond what is held, published or overhead. They are granted to nobody.
//! - *Debtor*: a tenant that did not answer a press in time, or hid bytes for longer than the policy's patience.
#![forbid(unsafe_code)]

use crate::frame::Refusal;
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;

/// A tenant: one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

/// Rules for one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Bytes that it holds at most.
    pub quota: u64,
    /// Bytes that the others leave to it.
    pub reserve: u64,
    /// Weight of its share.
    pub weight: u32,
    /// Tenants of a lower priority are pressed first.
    pub priority: u32,
}

/// Action that the arbiter has to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tells a tenant that it may take the bytes.
    Grant {
        /// The tenant.
        tenant: TenantId,
        /// Its number for the request.
        request: u64,
        /// Bytes granted.
        bytes: u64,
    },
    /// Tells a tenant that it may not.
    Refuse {
        /// The tenant.
        tenant: TenantId,
        /// Its number for the request.
        request: u64,
        /// The reason.
        why: Refusal,
    },
    /// Asks a tenant for bytes.
    Press {
        /// The tenant.
        tenant: TenantId,
        /// Number of the press.
        press: u64,
        /// Bytes.
        bytes: u64,
    },
    /// A tenant did not answer in time, or has memory that it says it gave back.
    Overdue {
        /// The tenant.
        tenant: TenantId,
    },
}

/// Requests of one tenant that may wait at once.
const WAITING: usize = 64;
/// Requests of all tenants that may wait at once. Beyond them, each tenant may wait with one.
const WAITING_IN_ALL: usize = 1024;

#[derive(Debug, Clone)]
struct Account {
    rules: Rules,
    held: u64,
    /// Bytes that it was pressed for and did not return in time.
    owed: u64,
    /// True if it answered a press with less than it was asked for, since somebody last waited.
    is_exhausted: bool,
    /// Bytes of the process by the driver's count, unless they may have changed since they were counted.
    counted: Option<u64>,
    doubt: Doubt,
    /// Bytes beside those held that its next greeting may say it has: of grants that may be on their way. Not limited before its first.
    unsent: Option<u64>,
}

/// Doubt about a tenant's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// The driver counts what it says, or was not asked.
    None,
    /// The driver counts more, and the tenant has until then to return it.
    Until(Duration),
    /// The driver still counted more then.
    Debtor,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    tenant: TenantId,
    request: u64,
    bytes: u64,
    until: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Pressed {
    tenant: TenantId,
    /// Bytes that are still expected.
    bytes: u64,
    until: Duration,
}

/// The books of one device.
#[derive(Debug, Clone)]
pub struct Books {
    capacity: u64,
    patience: Duration,
    accounts: BTreeMap<TenantId, Account>,
    /// Waiting requests in order of arrival.
    waiting: Vec<Waiting>,
    pressed: BTreeMap<u64, Pressed>,
    next_press: u64,
    /// Bytes of published memory, which counts for no tenant.
    published: u64,
    /// Bytes that the driver may count for a process beside those that it holds.
    overhead: u64,
}

impl Books {
    /// Opens the books of a device with this many bytes. The driver may count `overhead` bytes for a process beside what it holds.
    #[must_use]
    pub fn new(capacity: u64, patience: Duration, overhead: u64) -> Self {
        let (accounts, pressed) = (BTreeMap::new(), BTreeMap::new());
        let (waiting, next_press, published) = (Vec::new(), 1, 0);
        Self { capacity, patience, accounts, waiting, pressed, next_press, published, overhead }
    }

    /// Returns the bytes that are divided.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the free bytes: held by no tenant.
    #[must_use]
    pub fn free(&self) -> u64 {
        let held = |it: &Account| {
            step();
            it.held.saturating_add(self.hidden(it))
        };
        let held = self.accounts.values().map(held);
        self.capacity.saturating_sub(held.fold(self.published, u64::saturating_add))
    }

    /// Returns the bytes that a process has by the driver's count and says it has not. What is published may count for any process.
    fn hidden(&self, account: &Account) -> u64 {
        let known = account.held.saturating_add(self.overhead).saturating_add(self.published);
        account.counted.map_or(0, |counted| counted.saturating_sub(known))
    }

    /// Returns the bytes that a tenant holds; 0 for one that is not there.
    #[must_use]
    pub fn held(&self, tenant: TenantId) -> u64 {
        self.accounts.get(&tenant).map_or(0, |account| account.held)
    }

    /// Returns the bytes that a tenant owes, also those that it says it gave back and did not; 0 for one that is not there.
    #[must_use]
    pub fn owed(&self, tenant: TenantId) -> u64 {
        self.accounts.get(&tenant).map_or(0, |it| it.owed.saturating_add(self.hidden(it)))
    }

    /// Returns the rules of a tenant.
    #[must_use]
    pub fn rules(&self, tenant: TenantId) -> Option<Rules> {
        self.accounts.get(&tenant).map(|account| account.rules)
    }

    /// Opens an account, which holds nothing until [`greet`](Self::greet).
    ///
    /// # Errors
    /// `Reserve` when the reserves of all tenants exceed the capacity.
    pub fn join(&mut self, tenant: TenantId, rules: Rules) -> Result<(), Refusal> {
        let reserves = self.accounts.values().map(|account| account.rules.reserve);
        if reserves.fold(rules.reserve, u64::saturating_add) > self.capacity {
            return Err(Refusal::Reserve);
        }
        let (counted, doubt, unsent) = (None, Doubt::None, None);
        let account =
            Account { rules, held: 0, owed: 0, is_exhausted: false, counted, doubt, unsent };
        self.accounts.insert(tenant, account);
        Ok(())
    }

    /// Takes over what a tenant says that it holds, and returns how many of the bytes are believed. After a connection that broke these are
    /// at most the bytes of its account and of grants that may not have reached it. In its first greeting, after an arbiter before this one,
    /// they are at most what the driver counts, where that is known (`counted`), else what a request would be granted at once: to say that
    /// memory is held takes no more from others than to ask for it.
    pub fn greet(&mut self, tenant: TenantId, held: u64, counted: Option<u64>) -> u64 {
        let available = self.available(tenant);
        let Some(account) = self.accounts.get_mut(&tenant) else { return 0 };
        let more = account.rules.quota.saturating_sub(account.held).min(available);
        let most = match (account.unsent, counted) {
            (None, Some(counted)) => counted,
            (unsent, _) => account.held.saturating_add(unsent.unwrap_or(u64::MAX).min(more)),
        };
        (account.held, account.counted, account.unsent) = (held.min(most), None, Some(0));
        account.owed = account.owed.min(account.held);
        account.held
    }

    /// Returns true if a request waits for memory that others give back.
    #[must_use]
    pub const fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Notes the bytes that a process has by the driver's count, where that is known. The count must be younger than the tenant's last frame: an
    /// honest tenant asks before it takes memory, and gives back before it says so, so that the driver never counts more than is held.
    pub fn count(&mut self, tenant: TenantId, counted: Option<u64>) {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.counted = counted;
        }
    }

    /// Asks for bytes. The answer is an action, now or later.
    pub fn take(
        &mut self,
        tenant: TenantId,
        request: u64,
        bytes: u64,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        match self.check(tenant, bytes) {
            Err(why) => actions.push(Action::Refuse { tenant, request, why }),
            Ok(()) => {
                let until = now + self.patience + self.patience;
                self.waiting.push(Waiting { tenant, request, bytes, until });
                self.settle(now, actions);
            }
        }
    }

    /// Checks a request against everything that waiting would not change.
    fn check(&mut self, tenant: TenantId, bytes: u64) -> Result<(), Refusal> {
        let waiting = self.waiting.iter().filter(|waiting| waiting.tenant == tenant);
        let (count, asked) =
            waiting.fold((0, bytes), |(n, sum), it| (n + 1, it.bytes.saturating_add(sum)));
        let most = if self.waiting.len() < WAITING_IN_ALL { WAITING } else { 1 };
        let is_debtor = self.owes_above_its_entitlement(tenant);
        let account = self.accounts.get_mut(&tenant).ok_or(Refusal::NoTenant)?;
        if !is_debtor {
            account.owed = 0;
        }
        if bytes == 0 {
            return Err(Refusal::Contradiction);
        }
        if bytes > self.capacity {
            return Err(Refusal::Never);
        }
        if account.owed > 0 || account.doubt == Doubt::Debtor {
            return Err(Refusal::Debtor);
        }
        if account.held.saturating_add(asked) > account.rules.quota {
            return Err(Refusal::OverQuota);
        }
        if count >= most { Err(Refusal::TooMany) } else { Ok(()) }
    }

    fn owes_above_its_entitlement(&self, tenant: TenantId) -> bool {
        self.accounts.get(&tenant).is_some_and(|account| {
            let entitled = || self.entitlements().get(&tenant).copied().unwrap_or(0);
            account.owed > 0 && account.held > entitled()
        })
    }

    /// Books bytes back. `counted` is what the driver counts for the process now, where it was asked.
    ///
    /// # Errors
    /// `Contradiction` when the tenant holds less than that; nothing changes then.
    pub fn give(
        &mut self,
        tenant: TenantId,
        bytes: u64,
        counted: Option<u64>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let account = self.accounts.get_mut(&tenant).ok_or(Refusal::NoTenant)?;
        account.held = account.held.checked_sub(bytes).ok_or(Refusal::Contradiction)?;
        account.counted = counted;
        account.owed = account.owed.saturating_sub(bytes);
        let mut left = bytes;
        for pressed in self.pressed.values_mut().filter(|pressed| pressed.tenant == tenant) {
            let part = left.min(pressed.bytes);
            (pressed.bytes, left) = (pressed.bytes - part, left - part);
        }
        self.settle(now, actions);
        Ok(())
    }

    /// Books bytes of a tenant as published: they count for no tenant until [`unpublish`](Self::unpublish).
    ///
    /// # Errors
    /// `Contradiction` when the tenant holds less than that; nothing changes then.
    pub fn publish(&mut self, tenant: TenantId, bytes: u64) -> Result<(), Refusal> {
        let account = self.accounts.get_mut(&tenant).ok_or(Refusal::NoTenant)?;
        account.held = account.held.checked_sub(bytes).ok_or(Refusal::Contradiction)?;
        self.published = self.published.saturating_add(bytes);
        Ok(())
    }

    /// Books published bytes back.
    pub fn unpublish(&mut self, bytes: u64, now: Duration, actions: &mut Vec<Action>) {
        self.published = self.published.saturating_sub(bytes);
        if bytes > 0 {
            // Nobody knows whose bytes they were for the driver, which may count them for a while.
            self.accounts.values_mut().for_each(|account| account.counted = None);
        }
        self.settle(now, actions);
    }

    /// Notes that a tenant has returned what it could. What it was not asked for changes nothing.
    pub fn answer(
        &mut self,
        tenant: TenantId,
        press: u64,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.pressed.get(&press).is_none_or(|pressed| pressed.tenant != tenant) {
            return;
        }
        let missing = self.pressed.remove(&press).map_or(0, |pressed| pressed.bytes);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.is_exhausted |= missing > 0;
        }
        self.settle(now, actions);
    }

    /// Ends a connection. Drops its requests; its bytes stay held until the process exits, except `granted`: bytes of grants that were never sent.
    pub fn hang_up(
        &mut self,
        tenant: TenantId,
        granted: u64,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if let Some(account) = self.accounts.get_mut(&tenant).filter(|_| granted > 0) {
            account.held = account.held.saturating_sub(granted);
            account.owed = account.owed.min(account.held);
            (account.counted, account.unsent) = (None, Some(granted));
        }
        self.waiting.retain(|waiting| waiting.tenant != tenant);
        self.settle(now, actions);
    }

    /// Closes an account: the process is gone, and the driver has its bytes back.
    pub fn leave(&mut self, tenant: TenantId, now: Duration, actions: &mut Vec<Action>) {
        self.accounts.remove(&tenant);
        self.pressed.retain(|_, pressed| pressed.tenant != tenant);
        self.hang_up(tenant, 0, now, actions);
    }

    /// Sets a tenant's quota. One below what is held takes nothing away; it stops growth.
    ///
    /// # Errors
    /// `NoTenant`; `Never` above the capacity or below the reserve.
    pub fn set_quota(&mut self, tenant: TenantId, quota: u64) -> Result<(), Refusal> {
        self.check_quota(tenant, quota)?;
        let account = self.accounts.get_mut(&tenant).ok_or(Refusal::NoTenant)?;
        account.rules.quota = quota;
        Ok(())
    }

    /// Checks a quota as [`set_quota`](Self::set_quota) does, without setting it.
    ///
    /// # Errors
    /// The same.
    pub fn check_quota(&self, tenant: TenantId, quota: u64) -> Result<(), Refusal> {
        let reserve = self.accounts.get(&tenant).ok_or(Refusal::NoTenant)?.rules.reserve;
        if (reserve..=self.capacity).contains(&quota) { Ok(()) } else { Err(Refusal::Never) }
    }

    /// Presses a tenant for everything that it holds.
    ///
    /// # Errors
    /// `NoTenant`.
    pub fn sleep(
        &mut self,
        tenant: TenantId,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let bytes = self.accounts.get(&tenant).ok_or(Refusal::NoTenant)?.held;
        if bytes > 0 {
            self.press(tenant, bytes, now, actions);
        }
        Ok(())
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let pressed = self.pressed.values().map(|pressed| pressed.until);
        let doubted = self.accounts.values().filter_map(|account| match account.doubt {
            Doubt::Until(until) => Some(until),
            Doubt::None | Doubt::Debtor => None,
        });
        let waiting = self.waiting.iter().map(|waiting| waiting.until);
        pressed.chain(doubted).chain(waiting).min()
    }

    /// Ends what has waited too long: a press makes its tenant a debtor, and so does the driver's count; a request is refused.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<Action>) {
        self.doubt(now, actions);
        for (_, late) in self.pressed.extract_if(.., |_, pressed| pressed.until <= now) {
            if let Some(account) = self.accounts.get_mut(&late.tenant) {
                account.is_exhausted = true;
                account.owed = account.owed.saturating_add(late.bytes).min(account.held);
                actions.push(Action::Overdue { tenant: late.tenant });
            }
        }
        for late in self.waiting.extract_if(.., |waiting| waiting.until <= now) {
            let (tenant, request, why) = (late.tenant, late.request, Refusal::Shortage);
            actions.push(Action::Refuse { tenant, request, why });
        }
        self.settle(now, actions);
    }

    /// Gives tenants that have more than they say the time of a press to return it.
    fn doubt(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let hidden: Vec<bool> = self.accounts.values().map(|it| self.hidden(it) > 0).collect();
        for ((tenant, account), hides) in self.accounts.iter_mut().zip(hidden) {
            account.doubt = match account.doubt {
                // A count that is not known says nothing for the tenant, and nothing against it.
                doubt if account.counted.is_none() => doubt,
                _ if !hides => Doubt::None,
                Doubt::None => Doubt::Until(now + self.patience),
                Doubt::Until(until) if until <= now => {
                    actions.push(Action::Overdue { tenant: *tenant });
                    Doubt::Debtor
                }
                doubt => doubt,
            };
        }
    }

    /// Goes once through what waits, in order of arrival: grants what fits, and presses for the first request that does not. Requests that
    /// nobody can serve are refused, and hold up none of those behind them.
    fn settle(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let mut sums = self.sums();
        let mut is_blocked = false;
        for waiting in core::mem::take(&mut self.waiting) {
            step();
            let Waiting { tenant, request, bytes, .. } = waiting;
            if self.grant(&waiting, is_blocked, &mut sums) {
                actions.push(Action::Grant { tenant, request, bytes });
            } else if is_blocked || self.is_coming(&waiting, &mut sums, now, actions) {
                is_blocked = true;
                self.waiting.push(waiting);
            } else {
                let wanted = sums.wanted.entry(tenant).or_default();
                *wanted = wanted.saturating_sub(bytes);
                let why = Refusal::Shortage;
                actions.push(Action::Refuse { tenant, request, why });
            }
        }
        if self.waiting.is_empty() {
            self.accounts.values_mut().for_each(|account| account.is_exhausted = false);
        }
    }

    /// Adds up what one walk over the waiting requests needs of every tenant.
    fn sums(&self) -> Sums {
        let mut pressed = BTreeMap::new();
        for it in self.pressed.values() {
            step();
            let sum = pressed.entry(it.tenant).or_insert(0_u64);
            *sum = sum.saturating_add(it.bytes);
        }
        Sums {
            free: self.free(),
            unheld: self.accounts.values().map(Account::unheld).fold(0, u64::saturating_add),
            wanted: self.wanted(),
            expected: pressed.values().copied().fold(0, u64::saturating_add),
            pressed,
            entitled: None,
        }
    }

    /// Grants a request that fits. One inside its tenant's reserve need not wait for those before it.
    fn grant(&mut self, waiting: &Waiting, is_blocked: bool, sums: &mut Sums) -> bool {
        let Some(account) = self.accounts.get_mut(&waiting.tenant) else { return false };
        let held = account.held.saturating_add(waiting.bytes);
        let must_wait = is_blocked && held > account.rules.reserve;
        if must_wait || waiting.bytes > sums.available(account) {
            return false;
        }
        sums.unheld = sums.unheld.saturating_sub(account.unheld());
        account.held = held;
        // As if it were taken at once, so that a grant hides nothing.
        account.counted = account.counted.map(|it| it.saturating_add(waiting.bytes));
        sums.unheld = sums.unheld.saturating_add(account.unheld());
        sums.free = sums.free.saturating_sub(waiting.bytes);
        true
    }

    /// Returns whether a request that does not fit now is worth waiting for: it is within its tenant's share, and others were pressed for what it
    /// lacks, or are now. One above its share is served from free memory only.
    fn is_coming(
        &mut self,
        waiting: &Waiting,
        sums: &mut Sums,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(account) = self.accounts.get(&waiting.tenant) else { return false };
        let wanted = account.held.saturating_add(waiting.bytes);
        if wanted > account.rules.reserve && !self.is_within_share(account, wanted, sums) {
            return false;
        }
        let free = sums.available(account).saturating_add(sums.expected);
        let lacking = waiting.bytes.saturating_sub(free);
        let above = if lacking > 0 { self.above(waiting.tenant, sums) } else { Vec::new() };
        self.press_for(lacking, &above, now, actions)
    }

    /// Returns whether a tenant's share is at least as large: whether the level at which it would be suits all.
    fn is_within_share(&self, account: &Account, bytes: u64, sums: &Sums) -> bool {
        let weight = u64::from(account.rules.weight);
        let Some(level) = bytes.checked_add(weight).and_then(|it| (it - 1).checked_div(weight))
        else {
            return false;
        };
        sum_at(&self.claims(&sums.wanted), level) <= self.divided()
    }

    /// Returns how far each of the other tenants is above what it is entitled to, without what it was pressed for already.
    fn above(&self, tenant: TenantId, sums: &mut Sums) -> Vec<(TenantId, u64)> {
        let entitled = sums.entitled.get_or_insert_with(|| self.entitlements());
        let others = self.accounts.iter().filter(|(it, _)| **it != tenant);
        let above = others.filter(|(_, it)| !it.is_exhausted).filter_map(|(tenant, it)| {
            step();
            let keeps = entitled.get(tenant).copied().unwrap_or(0).max(it.rules.reserve);
            let pressed = sums.pressed.get(tenant).copied().unwrap_or(0);
            let above = it.held.saturating_sub(keeps).saturating_sub(pressed);
            (above > 0).then_some((*tenant, above))
        });
        above.collect()
    }

    /// Returns the free bytes that a tenant may take: those that are not reserved for others.
    fn available(&self, tenant: TenantId) -> u64 {
        self.accounts.get(&tenant).map_or(0, |account| self.sums().available(account))
    }

    /// Presses tenants above their share, those of low priority and those furthest above it first. Returns false, and presses nobody,
    /// when all of them together are not enough.
    fn press_for(
        &mut self,
        lacking: u64,
        above: &[(TenantId, u64)],
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        let all = above.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        if all < lacking {
            return false;
        }
        let mut order = above.to_vec();
        let priority = |tenant| self.accounts.get(&tenant).map_or(0, |it| it.rules.priority);
        order.sort_by_key(|&(tenant, bytes)| (priority(tenant), Reverse(bytes), tenant));
        let mut left = lacking;
        for (tenant, bytes) in order {
            let part = bytes.min(left);
            if part > 0 {
                self.press(tenant, part, now, actions);
            }
            left -= part;
        }
        true
    }

    fn press(&mut self, tenant: TenantId, bytes: u64, now: Duration, actions: &mut Vec<Action>) {
        let press = self.next_press;
        self.next_press += 1;
        self.pressed.insert(press, Pressed { tenant, bytes, until: now + self.patience });
        actions.push(Action::Press { tenant, press, bytes });
    }

    /// Returns each tenant's share: weighted max-min over what tenants hold and wait for, and never below a reserve that is wanted.
    #[must_use]
    pub fn shares(&self) -> BTreeMap<TenantId, u64> {
        self.divide(&self.wanted())
    }

    /// Returns what each tenant would get if all of them wanted their quota. Nobody is pressed below it.
    ///
    /// A tenant's share is not less unless it wants less, so those above this hold at least what a request within its share lacks.
    fn entitlements(&self) -> BTreeMap<TenantId, u64> {
        self.divide(&self.accounts.iter().map(|(tenant, it)| (*tenant, it.rules.quota)).collect())
    }

    /// Returns what each tenant holds and waits for.
    fn wanted(&self) -> BTreeMap<TenantId, u64> {
        let held = self.accounts.iter().map(|(tenant, it)| (*tenant, it.held));
        let mut wanted: BTreeMap<TenantId, u64> = held.collect();
        for waiting in &self.waiting {
            step();
            let sum = wanted.entry(waiting.tenant).or_default();
            *sum = sum.saturating_add(waiting.bytes);
        }
        wanted
    }

    /// Returns the bytes that are divided by shares: published memory counts for no tenant.
    const fn divided(&self) -> u64 {
        self.capacity.saturating_sub(self.published)
    }

    /// Divides the device by weights among tenants that want so many bytes each.
    fn divide(&self, wanted: &BTreeMap<TenantId, u64>) -> BTreeMap<TenantId, u64> {
        let claims = self.claims(wanted);
        let level = level(&claims, self.divided());
        claims.into_iter().map(|(tenant, claim)| (tenant, claim.at(level))).collect()
    }

    fn claims(&self, wanted: &BTreeMap<TenantId, u64>) -> Vec<(TenantId, Claim)> {
        let claim = |(tenant, account): (&TenantId, &Account)| {
            let wanted = wanted.get(tenant).copied().unwrap_or(0);
            let (weight, floor) = (account.rules.weight, account.rules.reserve.min(wanted));
            (*tenant, Claim { wanted, floor, weight })
        };
        self.accounts.iter().map(claim).collect()
    }
}

impl Account {
    /// Returns the bytes that others leave to it.
    const fn unheld(&self) -> u64 {
        self.rules.reserve.saturating_sub(self.held)
    }
}

/// Sums over all tenants, from one walk over the waiting requests.
struct Sums {
    /// Bytes that no tenant holds.
    free: u64,
    /// Bytes of them that are left to tenants.
    unheld: u64,
    wanted: BTreeMap<TenantId, u64>,
    pressed: BTreeMap<TenantId, u64>,
    /// Bytes that were pressed for, of all tenants.
    expected: u64,
    /// Shares if every tenant wanted its quota; computed when a tenant may be pressed.
    entitled: Option<BTreeMap<TenantId, u64>>,
}

impl Sums {
    /// Returns the free bytes that a tenant may take: those that are not reserved for others.
    const fn available(&self, account: &Account) -> u64 {
        self.free.saturating_sub(self.unheld.saturating_sub(account.unheld()))
    }
}

/// Claim of one tenant to a device.
#[derive(Debug, Clone, Copy)]
struct Claim {
    wanted: u64,
    floor: u64,
    weight: u32,
}

impl Claim {
    /// Returns its bytes when every unit of weight gets `level` bytes.
    fn at(&self, level: u64) -> u64 {
        step();
        level.saturating_mul(self.weight.into()).clamp(self.floor, self.wanted)
    }
}

/// Returns the highest level at which all claims fit: bytes for each unit of weight.
fn level(claims: &[(TenantId, Claim)], capacity: u64) -> u64 {
    let (mut low, mut high) = (0, capacity);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if sum_at(claims, middle) <= capacity { low = middle } else { high = middle - 1 }
    }
    low
}

/// Returns the bytes of all claims when every unit of weight gets `level` bytes.
fn sum_at(claims: &[(TenantId, Claim)], level: u64) -> u64 {
    claims.iter().map(|(_, claim)| claim.at(level)).fold(0, u64::saturating_add)
}

/// Counts a step of work for the test that bounds it.
fn step() {
    #[cfg(test)]
    tests::STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
mod tests;
