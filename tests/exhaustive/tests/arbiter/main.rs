//! The world of the arbiter: its shipped books, three processes, and messages that arrive late or never.
use core::fmt::{self, Debug, Write};
use core::hash::Hasher;
use core::time::Duration;
use omniheap_arbiter::books::{Action, Books, Rules, TenantId};
use omniheap_exhaustive::{Key, Limits, World, check};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of the device.
const CAPACITY: u64 = 4;
const TENANTS: usize = 3;
const PATIENCE: Duration = Duration::from_millis(1);
/// One process has a reserve, and one a larger share that is pressed for last.
const THREE: Arbiter = Arbiter([
    Rules { quota: 3, reserve: 0, weight: 1, priority: 0 },
    Rules { quota: 4, reserve: 1, weight: 1, priority: 0 },
    Rules { quota: 4, reserve: 0, weight: 2, priority: 1 },
]);
/// One has a reserve that it may take in parts.
const RESERVED: Arbiter = Arbiter([
    Rules { quota: 3, reserve: 2, weight: 1, priority: 1 },
    Rules { quota: 3, reserve: 0, weight: 1, priority: 0 },
    Rules { quota: 4, reserve: 0, weight: 1, priority: 0 },
]);

/// One step. Processes are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Ask(usize, u64),
    /// Gives one byte back.
    Give(usize),
    /// Does what a press asks for, and answers it.
    Obey(usize),
    /// Answers a press, and gives nothing back.
    Shrug(usize),
    /// The arbiter receives the first message of a process.
    Arrive(usize),
    /// A process receives the first message of the arbiter.
    Hear(usize),
    /// A connection breaks: this many messages to the process had been sent; what the process had sent is lost.
    Break(usize, usize),
    Greet(usize),
    Kill(usize),
    Start(usize),
    /// Time goes on to the next deadline.
    Wait,
}

#[derive(Clone, Copy, Debug)]
enum Up {
    Take(u64),
    Give(u64),
    Answer(u64),
}

#[derive(Clone, Copy, Debug)]
enum Down {
    Grant(u64),
    Refuse,
    Press(u64, u64),
}

/// A process, and its connection.
#[derive(Clone, Debug, Default)]
struct Process {
    /// None for one that is not there.
    id: Option<TenantId>,
    /// Bytes that it has from the driver.
    has: u64,
    is_connected: bool,
    asks: bool,
    presses: Vec<(u64, u64)>,
    /// When the request arrived that is not answered yet.
    since: Option<Duration>,
    /// Bytes that it gave back in messages that a break has lost, until it greets again.
    lost: u64,
    /// Bytes of grants that were not sent when the connection broke, until it greets again.
    unsent: u64,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
}

#[derive(Clone, Debug)]
struct State {
    books: Books,
    processes: [Process; TENANTS],
    /// By number: whom each press went to, when it is late, and the bytes that are still expected. Those that came to an end are not
    /// among them.
    pressed: BTreeMap<u64, (TenantId, Duration, u64)>,
    now: Duration,
    ids: u64,
    rules: [Rules; TENANTS],
}

/// What each process may hold.
struct Arbiter([Rules; TENANTS]);

impl World for Arbiter {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let books = Books::new(CAPACITY, PATIENCE, 0);
        let (processes, pressed) = Default::default();
        let rules = self.0;
        let mut state = State { books, processes, pressed, now: Duration::ZERO, ids: 0, rules };
        (0..TENANTS).for_each(|at| state.begin(at));
        state
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps: Vec<_> = (0..TENANTS).flat_map(|at| state.steps_of(at)).collect();
        steps.extend(state.books.next_deadline().map(|_| Step::Wait));
        steps
    }

    fn take(&self, state: &mut State, step: &Step) -> Result<(), String> {
        let before = state.lacks();
        state.go(*step)?;
        if state.lacks() > before && !matches!(step, Step::Start(_)) {
            return Err("reserves were granted to others".into());
        }
        state.check()?;
        state.check_waits()
    }

    fn key(&self, state: &State) -> u128 {
        let mut text = Text(Key::new());
        write!(text, "{state:?}").expect("a hash takes everything");
        text.0.get()
    }

    fn copy(&self, state: &State) -> Option<State> {
        Some(state.clone())
    }

    fn end(&self, state: State) -> Result<(), String> {
        state.clone().settle(Step::Obey)?;
        state.settle(Step::Shrug)
    }

    fn test(&self, path: &[Step]) -> String {
        format!("follow(&{path:?});")
    }
}

/// Hashes what is printed.
struct Text(Key);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl State {
    fn steps_of(&self, at: usize) -> Vec<Step> {
        let it = &self.processes[at];
        if it.id.is_none() {
            return vec![Step::Start(at)];
        }
        let mut steps = vec![Step::Kill(at)];
        if it.is_connected {
            let asks = [1, 3].into_iter().filter(|_| !it.asks);
            steps.extend(asks.map(|bytes| Step::Ask(at, bytes)));
            steps.extend((it.has > 0 && it.up.len() < 2).then_some(Step::Give(at)));
            steps.extend((!it.up.is_empty()).then_some(Step::Arrive(at)));
            steps.extend((0..=it.down.len()).map(|sent| Step::Break(at, sent)));
            if !it.presses.is_empty() {
                steps.extend([Step::Obey(at), Step::Shrug(at)]);
            }
        }
        steps.push(match it.down.is_empty() {
            false => Step::Hear(at),
            true if it.is_connected => return steps,
            true => Step::Greet(at),
        });
        steps
    }

    fn go(&mut self, step: Step) -> Result<(), String> {
        let mut actions = Vec::new();
        match step {
            Step::Ask(at, bytes) => {
                self.processes[at].asks = true;
                self.processes[at].up.push_back(Up::Take(bytes));
            }
            Step::Give(at) => self.processes[at].give(1),
            Step::Obey(at) | Step::Shrug(at) => {
                let it = &mut self.processes[at];
                let (press, bytes) = it.presses.remove(0);
                let given = if step == Step::Obey(at) { bytes.min(it.has) } else { 0 };
                it.give(given);
                it.up.push_back(Up::Answer(press));
            }
            Step::Arrive(at) => self.arrive(at, &mut actions)?,
            Step::Hear(at) => self.processes[at].hear(),
            Step::Break(at, sent) => self.hang_up(at, sent, &mut actions),
            Step::Greet(at) => self.greet(at)?,
            Step::Kill(at) => {
                let gone = core::mem::take(&mut self.processes[at]);
                let id = gone.id.expect("the step was offered");
                self.pressed.retain(|_, (to, ..)| *to != id);
                self.books.leave(id, self.now, &mut actions);
            }
            Step::Start(at) => self.begin(at),
            Step::Wait => {
                self.now = self.books.next_deadline().expect("the step was offered");
                self.pressed.retain(|_, (_, until, _)| *until > self.now);
                self.books.tick(self.now, &mut actions);
            }
        }
        if matches!(step, Step::Greet(_) | Step::Start(_)) {
            // These serve nobody by themselves: the server does so behind all that it has read.
            self.books.tick(self.now, &mut actions);
        }
        actions.into_iter().try_for_each(|action| self.act(&action))
    }

    /// A process starts and connects.
    fn begin(&mut self, at: usize) {
        let id = TenantId(self.ids);
        self.ids += 1;
        self.books.join(id, self.rules[at]).expect("the reserves fit");
        self.books.greet(id, 0, None);
        self.processes[at] = Process { id: Some(id), is_connected: true, ..Process::default() };
    }

    fn arrive(&mut self, at: usize, actions: &mut Vec<Action>) -> Result<(), String> {
        let it = &mut self.processes[at];
        let id = it.id.expect("the step was offered");
        match it.up.pop_front().expect("the step was offered") {
            Up::Take(bytes) => {
                it.since = Some(self.now);
                self.books.take(id, 1, bytes, self.now, actions);
            }
            Up::Answer(press) => {
                self.pressed.remove(&press);
                self.books.answer(id, press, self.now, actions);
            }
            Up::Give(bytes) => {
                let mut left = bytes;
                for (.., expected) in self.pressed.values_mut().filter(|(to, ..)| *to == id) {
                    let part = left.min(*expected);
                    (*expected, left) = (*expected - part, left - part);
                }
                let given = self.books.give(id, bytes, None, self.now, actions);
                given.map_err(|why| format!("{bytes} bytes are not taken back: {why:?}"))?;
            }
        }
        Ok(())
    }

    fn hang_up(&mut self, at: usize, sent: usize, actions: &mut Vec<Action>) {
        let it = &mut self.processes[at];
        let granted = it.down.drain(sent..).map(|down| match down {
            Down::Grant(bytes) => bytes,
            Down::Refuse | Down::Press(..) => 0,
        });
        let (granted, id) = (granted.sum(), it.id.expect("the step was offered"));
        it.is_connected = false;
        let lost = it.up.drain(..).map(|up| if let Up::Give(bytes) = up { bytes } else { 0 });
        it.lost += lost.sum::<u64>();
        it.unsent += granted;
        it.since = None;
        it.presses.clear();
        self.books.hang_up(id, granted, self.now, actions);
    }

    fn greet(&mut self, at: usize) -> Result<(), String> {
        let it = &mut self.processes[at];
        (it.is_connected, it.asks, it.lost, it.unsent) = (true, false, 0, 0);
        it.presses.clear();
        match self.books.greet(it.id.expect("the step was offered"), it.has, None) {
            believed if believed == it.has => Ok(()),
            believed => Err(format!("{believed} of {} bytes are believed", it.has)),
        }
    }

    /// Sends what the arbiter has to say.
    fn act(&mut self, action: &Action) -> Result<(), String> {
        let (to, down) = match *action {
            Action::Grant { tenant, bytes, .. } => (tenant, Down::Grant(bytes)),
            Action::Refuse { tenant, .. } => (tenant, Down::Refuse),
            Action::Press { tenant, press, bytes } => {
                self.pressed.insert(press, (tenant, self.now + PATIENCE, bytes));
                let all = self.pressed.values().filter(|(to, ..)| *to == tenant);
                let all: u64 = all.map(|(.., bytes)| bytes).sum();
                let reserve = self.books.rules(tenant).map_or(0, |rules| rules.reserve);
                if self.books.held(tenant) < all + reserve {
                    return Err(format!(
                        "{tenant:?} is pressed for {all} bytes, and for its reserve"
                    ));
                }
                (tenant, Down::Press(press, bytes))
            }
            Action::Overdue { .. } => return Ok(()),
        };
        let it = self.processes.iter_mut().find(|it| it.id == Some(to));
        match (it.filter(|it| it.is_connected), down) {
            (Some(it), down) => {
                it.since = it.since.filter(|_| matches!(down, Down::Press(..)));
                it.down.push_back(down);
            }
            (None, Down::Grant(bytes)) => return Err(format!("{bytes} bytes for nobody")),
            (None, Down::Refuse | Down::Press(..)) => {}
        }
        Ok(())
    }

    /// Bytes that reserves lack.
    fn lacks(&self) -> u64 {
        let ids =
            self.processes.iter().zip(self.rules).filter_map(|(it, rules)| Some((it.id?, rules)));
        let left = ids.map(|(id, rules)| rules.reserve.saturating_sub(self.books.held(id)));
        left.sum::<u64>().saturating_sub(self.books.free())
    }

    fn check(&self) -> Result<(), String> {
        let has: u64 = self.processes.iter().map(|it| it.has).sum();
        let known = self.processes.iter().filter_map(|it| Some((it, self.books.held(it.id?))));
        let held: u64 = known.clone().map(|(_, held)| held).sum();
        if has > CAPACITY || held > CAPACITY {
            return Err(format!("{has} bytes are taken and {held} granted of {CAPACITY}"));
        }
        if self.books.free() != CAPACITY - held {
            return Err(format!("{} bytes are free beside {held}", self.books.free()));
        }
        for (it, held) in known {
            let coming =
                it.down.iter().map(|down| if let Down::Grant(bytes) = down { *bytes } else { 0 });
            let going = it.up.iter().map(|up| if let Up::Give(bytes) = up { *bytes } else { 0 });
            let coming: u64 = it.has + coming.sum::<u64>();
            let exact = coming + going.sum::<u64>() + it.lost;
            let id = it.id.expect("seen just above");
            if self.books.owed(id) > held {
                return Err(format!("{it:?} owes {} bytes of {held}", self.books.owed(id)));
            }
            if !it.is_connected && self.books.clone().greet(id, CAPACITY, None) > held + it.unsent {
                return Err(format!(
                    "more is believed than {held} bytes and what was granted: {it:?}"
                ));
            }
            if held != exact {
                return Err(format!("{held} bytes are booked for {exact}: {it:?}"));
            }
        }
        Ok(())
    }

    /// Checks that nobody waits without need: what can be answered is, and whoever waits was pressed for.
    fn check_waits(&self) -> Result<(), String> {
        let late = |since| self.now > since + PATIENCE + PATIENCE;
        if self.processes.iter().any(|it| it.since.is_some_and(late)) {
            return Err("a request waits for longer than two presses".into());
        }
        if self.books.is_awaited() && self.pressed.is_empty() {
            return Err("a request waits, and nobody is pressed".into());
        }
        let mut actions = Vec::new();
        self.books.clone().tick(self.now, &mut actions);
        for (press, (to, ..)) in &self.pressed {
            for other in self.processes.iter().filter_map(|it| it.id).filter(|it| it != to) {
                self.books.clone().answer(other, *press, self.now, &mut actions);
            }
        }
        match actions.is_empty() {
            true => Ok(()),
            false => Err(format!("nothing has happened, and {actions:?} follows")),
        }
    }

    /// Lets everything end, with presses that are obeyed or not: every request is answered, and everything can be had again.
    fn settle(mut self, answer: fn(usize) -> Step) -> Result<(), String> {
        self.quiet_down(answer)?;
        for at in 0..TENANTS {
            // A byte is within each share, and others are pressed for it.
            if answer(at) == Step::Obey(at)
                && self.processes[at].id.is_some()
                && self.processes[at].has == 0
            {
                let mut asking = self.clone();
                asking.go(Step::Ask(at, 1))?;
                asking.quiet_down(answer)?;
                if asking.processes[at].has == 0 {
                    return Err(format!("process {at} has nothing, and gets no byte"));
                }
            }
        }
        for at in 0..TENANTS {
            if self.processes[at].id.is_some() {
                self.go(Step::Kill(at))?;
            }
        }
        self.begin(2);
        self.go(Step::Ask(2, CAPACITY))?;
        self.go(Step::Arrive(2))?;
        self.go(Step::Hear(2))?;
        match self.processes[2].has {
            CAPACITY => Ok(()),
            has => Err(format!("{has} bytes can be had when all are gone")),
        }
    }

    /// Lets all messages arrive and all deadlines pass, with presses that are obeyed or not.
    fn quiet_down(&mut self, answer: fn(usize) -> Step) -> Result<(), String> {
        for _ in 0..100 {
            let next = (0..TENANTS).find_map(|at| {
                let it = &self.processes[at];
                match it.id {
                    Some(_) if !it.down.is_empty() => Some(Step::Hear(at)),
                    Some(_) if !it.is_connected => Some(Step::Greet(at)),
                    Some(_) if !it.up.is_empty() => Some(Step::Arrive(at)),
                    Some(_) if !it.presses.is_empty() => Some(answer(at)),
                    _ => None,
                }
            });
            let Some(next) = next.or(self.books.next_deadline().map(|_| Step::Wait)) else { break };
            self.go(next)?;
            self.check()?;
        }
        if self.books.is_awaited() || self.processes.iter().any(|it| it.asks) {
            return Err("somebody waits for ever".into());
        }
        Ok(())
    }
}

impl Process {
    fn give(&mut self, bytes: u64) {
        self.has -= bytes;
        if bytes > 0 {
            self.up.push_back(Up::Give(bytes));
        }
    }

    fn hear(&mut self) {
        match self.down.pop_front().expect("the step was offered") {
            Down::Grant(bytes) => (self.has, self.asks) = (self.has + bytes, false),
            Down::Refuse => self.asks = false,
            Down::Press(press, bytes) if self.is_connected => self.presses.push((press, bytes)),
            Down::Press(..) => {}
        }
    }
}

#[test]
fn three_processes() {
    check("three processes", &THREE, Limits::depth(10));
}

#[test]
fn a_reserve_of_two_bytes() {
    check("a reserve of two bytes", &RESERVED, Limits::depth(8));
}
