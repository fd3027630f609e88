use super::*;
use proptest::prelude::*;

const PATIENCE: Duration = Duration::from_millis(10);
const NOW: Duration = Duration::ZERO;

std::thread_local! {
    /// Steps of work that this thread's books have done.
    pub(super) static STEPS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

fn rules(weight: u32) -> Rules {
    Rules { quota: 600, reserve: 0, weight, priority: 0 }
}

/// Books of 600 bytes with tenants of these weights, numbered from 0.
fn books(weights: &[u32]) -> Books {
    let mut books = Books::new(600, PATIENCE, 10);
    for (tenant, weight) in (0..).zip(weights) {
        books.join(TenantId(tenant), rules(*weight)).expect("no reserves");
    }
    books
}

fn take(books: &mut Books, tenant: u64, bytes: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    books.take(TenantId(tenant), 1, bytes, NOW, &mut actions);
    actions
}

fn is_granted(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Grant { .. }))
}

fn refusal(actions: &[Action]) -> Option<Refusal> {
    actions.iter().find_map(|action| match action {
        Action::Refuse { why, .. } => Some(*why),
        _ => None,
    })
}

/// Returns what was pressed for, as an obedient tenant does.
fn obey(books: &mut Books, actions: &[Action]) -> Vec<Action> {
    let mut more = Vec::new();
    for action in actions {
        if let Action::Press { tenant, press, bytes } = *action {
            books.give(tenant, bytes, None, NOW, &mut more).expect("it is held");
            books.answer(tenant, press, NOW, &mut more);
        }
    }
    more
}

#[test]
fn published_bytes_are_nobodys_and_not_free() {
    let mut books = books(&[1, 1]);
    assert!(is_granted(&take(&mut books, 0, 400)));
    assert_eq!(books.publish(TenantId(0), 401), Err(Refusal::Contradiction));
    books.publish(TenantId(0), 300).expect("it holds more");
    assert_eq!((books.held(TenantId(0)), books.free()), (100, 200));
    assert!(books.shares().values().sum::<u64>() <= 300, "{:?}", books.shares());
    assert_eq!(refusal(&take(&mut books, 1, 201)), Some(Refusal::Shortage));
    let mut actions = Vec::new();
    books.leave(TenantId(0), NOW, &mut actions);
    assert_eq!(books.free(), 300, "they outlive their tenant");
    books.unpublish(300, NOW, &mut actions);
    assert!(is_granted(&take(&mut books, 1, 600)));
}

#[test]
fn free_memory_is_granted_whatever_the_share() {
    let mut books = books(&[1, 1]);
    assert!(is_granted(&take(&mut books, 0, 600)));
    assert_eq!((books.free(), books.held(TenantId(0))), (0, 600));
}

#[test]
fn greedy_tenants_end_with_the_shares_of_their_weights() {
    let mut books = books(&[1, 2, 3]);
    for round in 0..4000_u64 {
        let actions = take(&mut books, round % 3, 2);
        obey(&mut books, &actions);
    }
    let held = [0, 1, 2].map(|tenant| books.held(TenantId(tenant)));
    assert_eq!(held.iter().sum::<u64>(), 600);
    for (held, share) in held.into_iter().zip([100, 200, 300_u64]) {
        assert!(held.abs_diff(share) <= 2, "{held} of {share}");
    }
}

#[test]
fn a_request_above_its_share_presses_nobody() {
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 300);
    take(&mut books, 1, 300);
    assert_eq!(refusal(&take(&mut books, 1, 1)), Some(Refusal::Shortage));
    assert_eq!(take(&mut books, 0, 1).len(), 1, "a refusal and nothing else");
}

#[test]
fn low_priority_is_pressed_first_and_nobody_below_its_share() {
    let mut books = books(&[1, 1, 1, 1]);
    books.accounts.get_mut(&TenantId(0)).expect("there").rules.priority = 1;
    take(&mut books, 0, 250);
    take(&mut books, 1, 250);
    take(&mut books, 2, 100);
    let actions = take(&mut books, 3, 40);
    assert_eq!(actions, [Action::Press { tenant: TenantId(1), press: 1, bytes: 40 }]);
    let served = obey(&mut books, &actions);
    assert!(is_granted(&served));
}

#[test]
fn quota_and_nonsense_are_refused_at_once() {
    let mut books = books(&[1]);
    books.set_quota(TenantId(0), 50).expect("a tenant");
    assert_eq!(refusal(&take(&mut books, 0, 51)), Some(Refusal::OverQuota));
    assert_eq!(refusal(&take(&mut books, 0, 601)), Some(Refusal::Never));
    assert_eq!(refusal(&take(&mut books, 0, u64::MAX)), Some(Refusal::Never));
    assert_eq!(refusal(&take(&mut books, 0, 0)), Some(Refusal::Contradiction));
    assert_eq!(refusal(&take(&mut books, 9, 1)), Some(Refusal::NoTenant));
    let mut actions = Vec::new();
    assert_eq!(books.give(TenantId(0), 1, None, NOW, &mut actions), Err(Refusal::Contradiction));
    assert_eq!(books.set_quota(TenantId(0), 601), Err(Refusal::Never));
}

#[test]
fn reserves_are_left_to_their_tenant() {
    let mut books = Books::new(600, PATIENCE, 10);
    books.join(TenantId(0), Rules { reserve: 400, ..rules(1) }).expect("it fits");
    books.join(TenantId(1), rules(1)).expect("no reserve");
    assert_eq!(books.join(TenantId(2), Rules { reserve: 201, ..rules(1) }), Err(Refusal::Reserve));
    assert!(is_granted(&take(&mut books, 1, 200)));
    assert_eq!(refusal(&take(&mut books, 1, 1)), Some(Refusal::Shortage));
    assert!(is_granted(&take(&mut books, 0, 400)), "the reserve is there");
}

#[test]
fn who_does_not_answer_is_a_debtor_until_it_returns_the_bytes() {
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 600);
    let actions = take(&mut books, 1, 100);
    assert_eq!(actions.len(), 1, "a press");
    let mut late = Vec::new();
    books.tick(PATIENCE, &mut late);
    assert_eq!(late[0], Action::Overdue { tenant: TenantId(0) });
    assert_eq!((refusal(&late), books.owed(TenantId(0))), (Some(Refusal::Shortage), 100));
    books.give(TenantId(0), 50, None, NOW, &mut late).expect("it is held");
    assert_eq!(refusal(&take(&mut books, 0, 1)), Some(Refusal::Debtor));
    books.give(TenantId(0), 50, None, NOW, &mut late).expect("it is held");
    assert!(is_granted(&take(&mut books, 0, 1)));
}

#[test]
fn who_answers_with_nothing_is_no_debtor_and_the_request_is_refused() {
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 600);
    take(&mut books, 1, 100);
    let mut actions = Vec::new();
    books.answer(TenantId(1), 1, NOW, &mut actions);
    assert_eq!(actions, [], "somebody else's answer changes nothing");
    books.answer(TenantId(0), 1, NOW, &mut actions);
    assert_eq!((refusal(&actions), books.owed(TenantId(0))), (Some(Refusal::Shortage), 0));
}

#[test]
fn a_tenant_that_ends_serves_those_who_wait() {
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 600);
    take(&mut books, 1, 100);
    let mut actions = Vec::new();
    books.hang_up(TenantId(0), 0, NOW, &mut actions);
    assert!(!is_granted(&actions), "the process still has the memory");
    books.leave(TenantId(0), NOW, &mut actions);
    assert!(is_granted(&actions));
    assert_eq!((books.free(), books.next_deadline()), (500, None));
}

#[test]
fn after_a_restart_what_tenants_hold_is_believed_and_nothing_is_granted_beyond_the_device() {
    let mut books = Books::new(600, PATIENCE, 10);
    for tenant in 0..3 {
        books.join(TenantId(tenant), rules(1)).expect("no reserves");
        books.greet(TenantId(tenant), 300, None);
    }
    assert_eq!(books.free(), 0);
    assert_eq!(refusal(&take(&mut books, 0, 1)), Some(Refusal::Shortage));
}

#[derive(Clone, Debug)]
enum Op {
    Join(u64, u64, u32, u32),
    Take(u64, u64),
    Give(u64, u64),
    Answer(u64, u64),
    Leave(u64),
    HangUp(u64),
    Sleep(u64),
    Tick(u64),
}

fn ops() -> impl Strategy<Value = Op> {
    let tenant = 0_u64..4;
    prop_oneof![
        (tenant.clone(), 0_u64..300, 1_u32..5, 0_u32..3)
            .prop_map(|(a, b, c, d)| Op::Join(a, b, c, d)),
        (tenant.clone(), 0_u64..700).prop_map(|(a, b)| Op::Take(a, b)),
        (tenant.clone(), 0_u64..400).prop_map(|(a, b)| Op::Give(a, b)),
        (tenant.clone(), 0_u64..40).prop_map(|(a, b)| Op::Answer(a, b)),
        tenant.clone().prop_map(Op::Leave),
        tenant.clone().prop_map(Op::HangUp),
        tenant.prop_map(Op::Sleep),
        (0_u64..30).prop_map(Op::Tick),
    ]
}

#[test]
fn a_clock_that_jumps_ends_what_waits_and_nothing_else() {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 600);
    assert_eq!(take(&mut books, 1, 100).len(), 1, "a press");
    let mut actions = Vec::new();
    books.tick(century, &mut actions);
    assert_eq!(refusal(&actions), Some(Refusal::Shortage));
    assert_eq!((books.held(TenantId(0)), books.owed(TenantId(0))), (600, 100));
    // And back: what is asked for now waits as long as the clock says, and no longer.
    books.give(TenantId(0), 300, None, NOW, &mut actions).expect("it is held");
    assert!(is_granted(&take(&mut books, 1, 300)));
    let pressed = take(&mut books, 1, 300);
    assert_eq!(refusal(&pressed), Some(Refusal::Shortage), "above its share: {pressed:?}");
    actions.clear();
    books.tick(NOW, &mut actions);
    assert_eq!((actions, books.next_deadline()), (Vec::new(), None));
}

/// Reads the driver's count of the first tenant, and lets time pass.
fn count(books: &mut Books, counted: u64, now: Duration) -> Vec<Action> {
    let mut actions = Vec::new();
    books.count(TenantId(0), Some(counted));
    books.tick(now, &mut actions);
    actions
}

#[test]
fn memory_that_was_not_given_back_is_granted_to_nobody_and_makes_a_debtor() {
    let mut books = books(&[1, 1]);
    take(&mut books, 0, 500);
    let (mut actions, pressed) = (Vec::new(), take(&mut books, 1, 300));
    assert_eq!(pressed, [Action::Press { tenant: TenantId(0), press: 1, bytes: 200 }]);
    // The tenant says that it gave back what the driver still counts.
    books.give(TenantId(0), 200, Some(510), NOW, &mut actions).expect("it is held");
    books.answer(TenantId(0), 1, NOW, &mut actions);
    assert_eq!((is_granted(&actions), refusal(&actions)), (false, Some(Refusal::Shortage)));
    assert_eq!((books.free(), books.owed(TenantId(0))), (100, 200));
    assert_eq!(count(&mut books, 510, NOW), [], "the driver may need a moment");
    assert_eq!(count(&mut books, 510, PATIENCE), [Action::Overdue { tenant: TenantId(0) }]);
    assert_eq!(refusal(&take(&mut books, 0, 1)), Some(Refusal::Debtor));
    assert_eq!(count(&mut books, 510, PATIENCE * 2), [], "once is enough");
    // The tenant returns the memory in the end.
    assert_eq!(count(&mut books, 310, PATIENCE * 2), []);
    assert_eq!((books.free(), books.owed(TenantId(0))), (300, 0));
    assert!(is_granted(&take(&mut books, 0, 1)));
}

#[test]
fn what_is_hidden_stays_so_when_a_process_ends_that_had_published_nothing() {
    let mut books = books(&[1, 1, 1]);
    take(&mut books, 0, 400);
    let mut actions = Vec::new();
    books.give(TenantId(0), 300, Some(410), NOW, &mut actions).expect("it is held");
    assert_eq!((books.free(), books.owed(TenantId(0))), (200, 300));
    books.leave(TenantId(2), NOW, &mut actions);
    books.unpublish(0, NOW, &mut actions);
    assert_eq!((books.free(), books.owed(TenantId(0))), (200, 300));
    assert!(!is_granted(&take(&mut books, 1, 250)), "the driver has less");
}

#[test]
fn a_count_that_is_late_or_small_or_unknown_makes_no_debtor() {
    let mut books = books(&[1]);
    take(&mut books, 0, 500);
    assert_eq!(count(&mut books, 510, NOW), [], "its context counts too");
    let mut actions = Vec::new();
    books.give(TenantId(0), 300, None, NOW, &mut actions).expect("it is held");
    assert_eq!(books.free(), 400, "an old count says nothing of what was given back since");
    assert_eq!((count(&mut books, 400, NOW).len(), books.free()), (0, 210));
    assert_eq!(count(&mut books, 0, PATIENCE), [], "the driver was late");
    assert_eq!((count(&mut books, 400, PATIENCE).len(), books.free()), (0, 210));
    books.count(TenantId(0), None);
    books.tick(PATIENCE * 2, &mut actions);
    assert_eq!((&actions[..], books.free()), (&[][..], 400));
}

#[test]
fn a_grant_hides_nothing_and_published_bytes_count_for_anybody() {
    let mut books = books(&[1]);
    take(&mut books, 0, 200);
    books.count(TenantId(0), Some(250));
    assert_eq!(books.owed(TenantId(0)), 40);
    assert!(is_granted(&take(&mut books, 0, 100)));
    assert_eq!(books.owed(TenantId(0)), 40);
    books.publish(TenantId(0), 100).expect("it holds more");
    assert_eq!(books.owed(TenantId(0)), 40, "whoever maps them");
}

proptest! {
    /// Whatever happens: the device is never overdrawn, quotas and reserves hold, and every request is answered exactly once.
    #[test]
    fn the_books_are_never_overdrawn(ops in prop::collection::vec(ops(), 1..120)) {
        let mut books = Books::new(600, PATIENCE, 10);
        let (mut now, mut request) = (NOW, 0);
        let mut open = BTreeMap::new();
        for op in ops {
            let mut actions = Vec::new();
            match op {
                Op::Join(tenant, reserve, weight, priority) => {
                    if books.rules(TenantId(tenant)).is_none() {
                        let _ = books.join(TenantId(tenant), Rules { quota: 500, reserve, weight, priority });
                    }
                }
                Op::Take(tenant, bytes) => {
                    request += 1;
                    open.insert(request, tenant);
                    books.take(TenantId(tenant), request, bytes, now, &mut actions);
                }
                Op::Give(tenant, bytes) => drop(books.give(TenantId(tenant), bytes, None, now, &mut actions)),
                Op::Answer(tenant, press) => books.answer(TenantId(tenant), press, now, &mut actions),
                Op::Leave(tenant) => {
                    open.retain(|_, other| *other != tenant);
                    books.leave(TenantId(tenant), now, &mut actions);
                }
                Op::HangUp(tenant) => {
                    open.retain(|_, other| *other != tenant);
                    books.hang_up(TenantId(tenant), 0, now, &mut actions);
                }
                Op::Sleep(tenant) => drop(books.sleep(TenantId(tenant), now, &mut actions)),
                Op::Tick(ms) => {
                    now += Duration::from_millis(ms);
                    books.tick(now, &mut actions);
                }
            }
            let granted: Vec<_> = actions.iter().filter_map(|action| match action {
                Action::Grant { tenant, .. } => Some(*tenant),
                _ => None,
            }).collect();
            for action in actions {
                if let Action::Grant { request, .. } | Action::Refuse { request, .. } = action {
                    prop_assert!(open.remove(&request).is_some(), "request {} was answered twice", request);
                }
            }
            let held: u64 = books.accounts.values().map(|it| it.held).sum();
            prop_assert!(held <= 600);
            prop_assert!(books.accounts.values().all(|it| it.held <= it.rules.quota));
            if let [tenant] = *granted {
                let others = books.accounts.iter().filter(|(other, _)| **other != tenant);
                let unheld: u64 = others.map(|(_, it)| it.rules.reserve.saturating_sub(it.held)).sum();
                prop_assert!(held + unheld <= 600, "{} held, {} promised", held, unheld);
            }
            prop_assert!(books.shares().values().sum::<u64>() <= 600);
        }
        // Everything that waits ends: nobody is forgotten.
        let mut actions = Vec::new();
        books.tick(now + PATIENCE * 3, &mut actions);
        books.tick(now + PATIENCE * 6, &mut actions);
        for action in actions {
            if let Action::Grant { request, .. } | Action::Refuse { request, .. } = action {
                open.remove(&request);
            }
        }
        prop_assert!(open.is_empty(), "never answered: {:?}", open);
    }
}

#[test]
fn a_greeting_takes_no_more_than_a_request_would() {
    let mut books = Books::new(600, PATIENCE, 10);
    books.join(TenantId(0), Rules { reserve: 400, ..rules(1) }).expect("it fits");
    books.join(TenantId(1), rules(1)).expect("no reserve");
    books.join(TenantId(2), Rules { quota: 50, ..rules(1) }).expect("no reserve");
    assert_eq!(books.greet(TenantId(2), u64::MAX, None), 50, "its quota");
    assert_eq!(books.greet(TenantId(1), u64::MAX, None), 150, "beside the reserve of another");
    assert_eq!((books.free(), books.held(TenantId(1))), (400, 150));
    assert!(is_granted(&take(&mut books, 0, 400)), "the reserve is there");
    books.join(TenantId(3), rules(1)).expect("no reserve");
    assert_eq!(books.greet(TenantId(3), 70, None), 0, "nothing is free");
    // Memory that the driver counts is there, whoever said that the device is full.
    for (tenant, said, counted, believed) in [(4, u64::MAX, 70, 70), (5, 50, 70, 50), (6, 50, 0, 0)]
    {
        books.join(TenantId(tenant), rules(1)).expect("no reserve");
        assert_eq!(books.greet(TenantId(tenant), said, Some(counted)), believed);
    }
}

#[test]
fn who_comes_back_has_what_the_books_say_and_grants_that_were_on_their_way() {
    let mut books = books(&[1, 1]);
    books.greet(TenantId(0), 0, None);
    assert!(is_granted(&take(&mut books, 0, 100)));
    assert_eq!(books.greet(TenantId(0), u64::MAX, None), 100);
    assert_eq!(books.greet(TenantId(0), u64::MAX, Some(500)), 100, "what it asked for");
    let (mut actions, sent) = (Vec::new(), 60);
    books.hang_up(TenantId(0), 100 - sent, NOW, &mut actions);
    assert_eq!((books.held(TenantId(0)), books.free()), (60, 540));
    assert_eq!(books.greet(TenantId(0), u64::MAX, None), 100);
    books.hang_up(TenantId(0), 100 - sent, NOW, &mut actions);
    assert!(is_granted(&take(&mut books, 1, 540)));
    assert_eq!(books.greet(TenantId(0), 100, None), 60, "they were granted to another");
    assert_eq!(books.greet(TenantId(0), 10, None), 10, "what it gave back while it was away");
    assert_eq!(books.greet(TenantId(0), 60, None), 10, "and not again");
}

#[test]
fn a_request_that_nobody_can_serve_holds_up_none_behind_it() {
    let mut books = books(&[1, 1, 1]);
    assert!(is_granted(&take(&mut books, 0, 600)));
    // The share of each is 200, and the first has 400 above it.
    let mut actions = Vec::new();
    books.take(TenantId(1), 1, 150, NOW, &mut actions);
    books.take(TenantId(2), 2, 100, NOW, &mut actions);
    assert_eq!(actions, [Action::Press { tenant: TenantId(0), press: 1, bytes: 150 }]);
    actions.clear();
    books.give(TenantId(0), 100, None, NOW, &mut actions).expect("it is held");
    assert_eq!(actions, [], "the first is served first");
    books.answer(TenantId(0), 1, NOW, &mut actions);
    let [refused, granted] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(refused, Action::Refuse { request: 1, why: Refusal::Shortage, .. }));
    assert!(matches!(granted, Action::Grant { request: 2, .. }));
}

/// Runs a call on books, and returns its steps of work.
fn steps(call: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    call();
    STEPS.get() - before
}

/// Books in which one tenant has all, and each of the others asks for a little as often as it may.
fn crowded(tenants: u64) -> (Books, u64) {
    let mut books = Books::new(80 << 30, PATIENCE, 0);
    let rules = Rules { quota: 80 << 30, ..rules(1) };
    for tenant in 0..=tenants {
        books.join(TenantId(tenant), rules).expect("no reserves");
    }
    assert!(is_granted(&take(&mut books, 0, 80 << 30)));
    let (mut actions, mut most) = (Vec::new(), 0);
    for request in 0..64 {
        for tenant in 1..=tenants {
            let ask = || books.take(TenantId(tenant), request, 4096, NOW, &mut actions);
            most = most.max(steps(ask));
        }
    }
    (books, most)
}

#[test]
fn the_work_of_a_frame_grows_with_tenants_and_requests_and_not_with_their_product() {
    for tenants in [4, 8, 16, 32, 64] {
        let (mut books, most) = crowded(tenants);
        let waiting = books.waiting.len() as u64;
        // A division of the device takes 37 rounds over all tenants at most.
        assert!(most <= 4 * waiting + 64 * tenants, "{most} steps for one of {waiting}");
        let mut actions = Vec::new();
        let work = steps(|| books.tick(PATIENCE, &mut actions));
        let refused = actions.iter().filter(|it| matches!(it, Action::Refuse { .. })).count();
        assert_eq!(refused as u64, waiting, "nobody gave anything back");
        assert!(work <= 4 * tenants * (waiting + 64), "{work} steps to refuse {waiting}");
    }
}

#[test]
fn requests_that_wait_are_bounded_and_each_tenant_may_wait_with_one() {
    let (mut books, _) = crowded(40);
    assert!((1024..1024 + 40).contains(&books.waiting.len()), "{}", books.waiting.len());
    assert_eq!(refusal(&take(&mut books, 1, 4096)), Some(Refusal::TooMany));
    books.join(TenantId(100), Rules { quota: 80 << 30, ..rules(1) }).expect("no reserve");
    assert_eq!(take(&mut books, 100, 4096), [], "it waits");
    assert_eq!(refusal(&take(&mut books, 100, 4096)), Some(Refusal::TooMany));
}

/// Bytes granted and not given back, by the frames of all tenants. All of them may lie.
#[derive(Default)]
struct Ledger {
    held: BTreeMap<u64, u64>,
    published: u64,
    /// Requests without an answer, with their tenant and bytes.
    open: BTreeMap<u64, (u64, u64)>,
    granted: u64,
    /// True if tenants come when others hold what is reserved for them, and publish what they hold.
    may_lack_reserves: bool,
}

impl Ledger {
    fn hear(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Grant { request, .. } | Action::Refuse { request, .. } = *action {
                let (tenant, asked) = self.open.remove(&request).expect("answered once");
                if let Action::Grant { bytes, .. } = *action {
                    assert_eq!(bytes, asked);
                    *self.held.entry(tenant).or_default() += bytes;
                    self.granted += 1;
                }
            }
        }
    }

    fn sum(&self) -> u64 {
        self.held.values().sum::<u64>() + self.published
    }
}

const LIARS: u64 = 5;
const RESERVE: u64 = 60;

/// A random program over books: frames of tenants that say anything, and what happens to them.
struct Liars<'a> {
    books: &'a mut Books,
    ledger: &'a mut Ledger,
    now: Duration,
    actions: Vec<Action>,
}

impl Liars<'_> {
    fn step(&mut self, number: u64, bytes: u64, random: &mut impl FnMut(u64) -> u64) {
        match random(if self.ledger.may_lack_reserves { 12 } else { 10 }) {
            0..=4 => self.take(number, bytes),
            5 | 6 => {
                let given =
                    self.books.give(TenantId(number), bytes, None, self.now, &mut self.actions);
                if given.is_ok() {
                    *self.ledger.held.entry(number).or_default() -= bytes;
                }
            }
            7 => {
                let believed = self.books.greet(TenantId(number), bytes, None);
                assert!(believed <= bytes);
                self.ledger.held.insert(number, believed);
            }
            8 => self.books.answer(TenantId(number), random(40), self.now, &mut self.actions),
            9 => self.hang_up(number, random(50)),
            10 => self.leave(number),
            _ if random(4) == 0 => {
                if self.books.publish(TenantId(number), bytes).is_ok() {
                    *self.ledger.held.entry(number).or_default() -= bytes;
                    self.ledger.published += bytes;
                }
            }
            _ => {
                let bytes = random(100).min(self.ledger.published);
                self.ledger.published -= bytes;
                self.books.unpublish(bytes, self.now, &mut self.actions);
            }
        }
    }

    fn take(&mut self, number: u64, bytes: u64) {
        let held = self.ledger.held.get(&number).copied().unwrap_or(0);
        let waits = self.ledger.open.values().any(|it| it.0 == number);
        let request = STEPS.get() << 8 | number;
        self.ledger.open.insert(request, (number, bytes));
        self.books.take(TenantId(number), request, bytes, self.now, &mut self.actions);
        let is_this =
            |it: &Action| matches!(it, Action::Grant { request: it, .. } if *it == request);
        let is_inside = bytes > 0 && bytes <= RESERVE && held + bytes <= RESERVE;
        let owes = self.books.owed(TenantId(number)) > 0;
        if is_inside && !waits && !owes && !self.actions.iter().any(is_this) {
            let others = (0..LIARS).filter(|it| *it != number);
            let left = others.map(|it| RESERVE.saturating_sub(self.books.held(TenantId(it))));
            let taken = self.ledger.sum() + left.sum::<u64>();
            assert!(taken + bytes > 600, "{bytes} inside a reserve beside {taken}");
            assert!(self.ledger.may_lack_reserves, "nobody took what is reserved");
        }
    }

    fn hang_up(&mut self, number: u64, unsent: u64) {
        let held = self.ledger.held.get(&number).copied().unwrap_or(0);
        self.ledger.open.retain(|_, it| it.0 != number);
        self.ledger.held.insert(number, held - unsent.min(held));
        self.books.hang_up(TenantId(number), unsent.min(held), self.now, &mut self.actions);
    }

    fn leave(&mut self, number: u64) {
        self.ledger.open.retain(|_, it| it.0 != number);
        self.ledger.held.remove(&number);
        self.books.leave(TenantId(number), self.now, &mut self.actions);
        let rules = Rules { reserve: RESERVE, ..rules(1) };
        self.books.join(TenantId(number), rules).expect("it fits");
    }
}

/// Runs one step of the random program, and holds its work against what waited. Returns what the books decided.
fn lie(
    books: &mut Books,
    ledger: &mut Ledger,
    now: Duration,
    random: &mut impl FnMut(u64) -> u64,
) -> Vec<Action> {
    let number = random(LIARS);
    let bytes = match random(8) {
        0 => u64::MAX - random(3),
        1 => 0,
        _ => random(200),
    };
    let waiting = books.waiting.len() as u64;
    let mut liars = Liars { books, ledger, now, actions: Vec::new() };
    let work = steps(|| {
        liars.step(number, bytes, random);
        liars.books.tick(now, &mut liars.actions);
    });
    let (actions, pressed) = (liars.actions, books.pressed.len() as u64);
    let most = 64 * LIARS + 8 * (waiting + pressed) + 4 * LIARS * actions.len() as u64;
    assert!(work <= 4 * most, "{work} steps for a frame, {waiting} requests waited");
    actions
}

#[test]
fn liars_in_well_formed_frames_overdraw_nothing_and_cost_little() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut granted = 0;
    for round in 0..200 {
        let (mut books, mut ledger) = (Books::new(600, PATIENCE, 10), Ledger::default());
        ledger.may_lack_reserves = round % 2 == 0;
        for (tenant, weight) in (0..LIARS).zip(1..) {
            books
                .join(TenantId(tenant), Rules { reserve: RESERVE, ..rules(weight) })
                .expect("fits");
        }
        let mut now = NOW;
        for _ in 0..200 {
            now += Duration::from_millis(random(4));
            let actions = lie(&mut books, &mut ledger, now, &mut random);
            ledger.hear(&actions);
            assert!(ledger.sum() <= 600, "{} granted", ledger.sum());
            for tenant in 0..LIARS {
                let held = ledger.held.get(&tenant).copied().unwrap_or(0);
                assert_eq!(held, books.held(TenantId(tenant)));
            }
        }
        let mut actions = Vec::new();
        books.tick(now + PATIENCE * 3, &mut actions);
        ledger.hear(&actions);
        assert!(ledger.open.is_empty(), "never answered: {:?}", ledger.open);
        granted += ledger.granted;
    }
    assert!(granted > 1000, "{granted}");
}
