//! The world of the arbiter: its shipped books, three processes, and messages that arrive late or never.
use core::fmt::{self, Debug, Write};
use core::hash::Hasher;
use core::time::Duration;
use omniheap_arbiter::books::{Action, Books, Rules, TenantId};
use omniheap_exhaustive::{Key, Limits, World, check};
use std::collections::VecDeque;

/// Bytes of the device.
const CAPACITY: u64 = 4;
const TENANTS: usize = 3;
const PATIENCE: Duration = Duration::from_millis(1);
/// What each process may hold: one has a reserve, and one a larger share that is pressed for last.
const RULES: [Rules; TENANTS] = [
    Rules { quota: 3, reserve: 0, weight: 1, priority: 0 },
    Rules { quota: 4, reserve: 1, weight: 1, priority: 0 },
    Rules { quota: 4, reserve: 0, weight: 2, priority: 1 },
];

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
    up: VecDeque<Up>,
    down: VecDeque<Down>,
}

#[derive(Clone, Debug)]
struct State {
    books: Books,
    processes: [Process; TENANTS],
    now: Duration,
    ids: u64,
}

struct Arbiter;

impl World for Arbiter {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let books = Books::new(CAPACITY, PATIENCE, 0);
        let mut state = State { books, processes: Default::default(), now: Duration::ZERO, ids: 0 };
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
        state.check()
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
                self.books.leave(id, self.now, &mut actions);
            }
            Step::Start(at) => self.begin(at),
            Step::Wait => {
                self.now = self.books.next_deadline().expect("the step was offered");
                self.books.tick(self.now, &mut actions);
            }
        }
        actions.into_iter().try_for_each(|action| self.act(&action))
    }

    /// A process starts and connects.
    fn begin(&mut self, at: usize) {
        let id = TenantId(self.ids);
        self.ids += 1;
        self.books.join(id, RULES[at]).expect("the reserves fit");
        self.books.greet(id, 0, None);
        self.processes[at] = Process { id: Some(id), is_connected: true, ..Process::default() };
    }

    fn arrive(&mut self, at: usize, actions: &mut Vec<Action>) -> Result<(), String> {
        let it = &mut self.processes[at];
        let id = it.id.expect("the step was offered");
        match it.up.pop_front().expect("the step was offered") {
            Up::Take(bytes) => self.books.take(id, 1, bytes, self.now, actions),
            Up::Answer(press) => self.books.answer(id, press, self.now, actions),
            Up::Give(bytes) => {
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
        it.up.clear();
        it.presses.clear();
        self.books.hang_up(id, granted, self.now, actions);
    }

    fn greet(&mut self, at: usize) -> Result<(), String> {
        let it = &mut self.processes[at];
        (it.is_connected, it.asks) = (true, false);
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
            Action::Press { tenant, press, bytes } => (tenant, Down::Press(press, bytes)),
            Action::Overdue { .. } => return Ok(()),
        };
        let it = self.processes.iter_mut().find(|it| it.id == Some(to));
        match (it.filter(|it| it.is_connected), down) {
            (Some(it), down) => it.down.push_back(down),
            (None, Down::Grant(bytes)) => return Err(format!("{bytes} bytes for nobody")),
            (None, Down::Refuse | Down::Press(..)) => {}
        }
        Ok(())
    }

    /// Bytes that reserves lack.
    fn lacks(&self) -> u64 {
        let ids = self.processes.iter().zip(RULES).filter_map(|(it, rules)| Some((it.id?, rules)));
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
            let exact = coming + going.sum::<u64>();
            if held < coming || it.is_connected && held != exact {
                return Err(format!("{held} bytes are booked for {exact}: {it:?}"));
            }
        }
        Ok(())
    }

    /// Lets everything end, with presses that are obeyed or not: every request is answered, and everything can be had again.
    fn settle(mut self, answer: fn(usize) -> Step) -> Result<(), String> {
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
    check("three processes", &Arbiter, Limits::depth(10));
}
