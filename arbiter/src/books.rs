//! Who holds what, who gets what, and who is pressed. Knows no sockets and no clock: time is passed in.
#![forbid(unsafe_code)]

use crate::frame::Refusal;
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;

/// A tenant: one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

/// What one tenant may hold.
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

/// What the arbiter has to do.
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
        /// Why.
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

#[derive(Debug)]
struct Account {
    rules: Rules,
    held: u64,
    /// Bytes that it was pressed for and did not return in time.
    owed: u64,
    /// Whether it answered a press with less than it was asked for, since somebody last waited.
    is_exhausted: bool,
    /// Bytes of the process by the driver's count, unless they may have changed since they were counted.
    counted: Option<u64>,
    doubt: Doubt,
    /// Bytes beside those held that its next greeting may say it has: of grants that may be on their way. Not limited before its first.
    unsent: Option<u64>,
}

/// Whether a tenant is believed.
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
#[derive(Debug)]
pub struct Books {
    capacity: u64,
    patience: Duration,
    accounts: BTreeMap<TenantId, Account>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    pressed: BTreeMap<u64, Pressed>,
    next_press: u64,
    /// Bytes of published memory, which is nobody's.
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

    /// Returns the bytes that nobody holds.
    #[must_use]
    pub fn free(&self) -> u64 {
        let held = self.accounts.values().map(|it| it.held.saturating_add(self.hidden(it)));
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
        account.held
    }

    /// Returns whether somebody waits for memory that others give back.
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
        let entitled = self.entitlements().get(&tenant).copied().unwrap_or(0);
        let account = self.accounts.get_mut(&tenant).ok_or(Refusal::NoTenant)?;
        if account.held <= entitled {
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
        if count >= WAITING { Err(Refusal::TooMany) } else { Ok(()) }
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

    /// Books bytes of a tenant as published: they are nobody's until [`unpublish`](Self::unpublish).
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
            // Whose bytes they were for the driver is not known, and it may count them for a while.
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

    /// Grants what fits, refuses what is above a share, and presses for the rest.
    fn settle(&mut self, now: Duration, actions: &mut Vec<Action>) {
        self.grant(actions);
        while let Some((lacking, above)) = self.lacking() {
            if lacking == 0 || self.press_for(lacking, &above, now, actions) {
                return;
            }
            // Nobody can return enough: the youngest request gives way, so that the oldest one may still be served.
            let Some(last) = self.waiting.pop() else { return };
            let (tenant, request, why) = (last.tenant, last.request, Refusal::Shortage);
            actions.push(Action::Refuse { tenant, request, why });
            self.grant(actions);
        }
        self.accounts.values_mut().for_each(|account| account.is_exhausted = false);
    }

    /// Grants requests in order of arrival. One inside its tenant's reserve need not wait for those before it.
    fn grant(&mut self, actions: &mut Vec<Action>) {
        let mut at = 0;
        let mut is_blocked = false;
        while let Some(waiting) = self.waiting.get(at).copied() {
            let Waiting { tenant, request, bytes, .. } = waiting;
            let fits = bytes <= self.available(tenant);
            let account = self.accounts.get_mut(&tenant);
            let is_reserved =
                account.as_ref().is_some_and(|it| it.held + bytes <= it.rules.reserve);
            match account {
                Some(account) if fits && (!is_blocked || is_reserved) => {
                    account.held += bytes;
                    // As if it were taken at once, so that a grant hides nothing.
                    account.counted = account.counted.map(|it| it.saturating_add(bytes));
                    self.waiting.remove(at);
                    actions.push(Action::Grant { tenant, request, bytes });
                }
                _ => {
                    is_blocked = true;
                    at += 1;
                }
            }
        }
    }

    /// Returns the free bytes that a tenant may take: those that are not reserved for others.
    fn available(&self, tenant: TenantId) -> u64 {
        let others = self.accounts.iter().filter(|(other, _)| **other != tenant);
        let unheld = others.map(|(_, it)| it.rules.reserve.saturating_sub(it.held));
        self.free().saturating_sub(unheld.fold(0, u64::saturating_add))
    }

    /// Returns the bytes that waiting requests lack beyond what was pressed for already, and how far each tenant is above what it is
    /// entitled to.
    /// Requests that would lift their tenant above its share are refused by being last; `None` when nobody waits.
    fn lacking(&mut self) -> Option<(u64, Vec<(TenantId, u64)>)> {
        let first = *self.waiting.first()?;
        let shares = self.shares();
        let share = shares.get(&first.tenant).copied().unwrap_or(0);
        let wanted = self.held(first.tenant).saturating_add(first.bytes);
        let reserve = self.accounts.get(&first.tenant).map_or(0, |it| it.rules.reserve);
        if wanted > share.max(reserve) {
            // Above its share it is served from free memory only: it gives way to those behind it.
            self.waiting.rotate_left(1);
            return Some((u64::MAX, Vec::new()));
        }
        let expected = self.pressed.values().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
        let free = self.available(first.tenant).saturating_add(expected);
        let above = self
            .accounts
            .iter()
            .filter(|(tenant, it)| **tenant != first.tenant && !it.is_exhausted);
        let entitled = self.entitlements();
        let above = above.filter_map(|(tenant, it)| {
            let keeps = entitled.get(tenant).copied().unwrap_or(0).max(it.rules.reserve);
            let pressed = self.pressed.values().filter(|pressed| pressed.tenant == *tenant);
            let pressed = pressed.fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
            let above = it.held.saturating_sub(keeps).saturating_sub(pressed);
            (above > 0).then_some((*tenant, above))
        });
        Some((first.bytes.saturating_sub(free), above.collect()))
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
        let all = above.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
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
        self.divide(|tenant, account| {
            let waits = self.waiting.iter().filter(|waiting| waiting.tenant == tenant);
            waits.fold(account.held, |sum, it| sum.saturating_add(it.bytes))
        })
    }

    /// Returns what each tenant would get if all of them wanted their quota. Nobody is pressed below it.
    ///
    /// A tenant's share is not less unless it wants less, so those above this hold at least what a request within its share lacks.
    fn entitlements(&self) -> BTreeMap<TenantId, u64> {
        self.divide(|_, account| account.rules.quota)
    }

    /// Divides the device by weights among tenants that want so many bytes each.
    fn divide(&self, wanted: impl Fn(TenantId, &Account) -> u64) -> BTreeMap<TenantId, u64> {
        let claim = |(tenant, account): (&TenantId, &Account)| {
            let wanted = wanted(*tenant, account);
            let (weight, floor) = (account.rules.weight, account.rules.reserve.min(wanted));
            (*tenant, Claim { wanted, floor, weight })
        };
        let claims: Vec<(TenantId, Claim)> = self.accounts.iter().map(claim).collect();
        let level = level(&claims, self.capacity.saturating_sub(self.published));
        claims.into_iter().map(|(tenant, claim)| (tenant, claim.at(level))).collect()
    }
}

/// What one tenant wants of a device.
#[derive(Debug, Clone, Copy)]
struct Claim {
    wanted: u64,
    floor: u64,
    weight: u32,
}

impl Claim {
    /// Returns its bytes when every unit of weight gets `level` bytes.
    fn at(&self, level: u64) -> u64 {
        level.saturating_mul(self.weight.into()).clamp(self.floor, self.wanted)
    }
}

/// Returns the highest level at which all claims fit: bytes for each unit of weight.
fn level(claims: &[(TenantId, Claim)], capacity: u64) -> u64 {
    let sum =
        |level: u64| claims.iter().fold(0_u64, |sum, (_, it)| sum.saturating_add(it.at(level)));
    let (mut low, mut high) = (0, capacity);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if sum(middle) <= capacity { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests;
