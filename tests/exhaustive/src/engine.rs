//! Breadth-first search over hashed states, on two threads at most.
use crate::World;
use crate::key::Ready;
use core::fmt;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::collections::{HashSet, VecDeque};
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Sets the seconds for each world, and takes away its limit of depth.
const SECONDS: &str = "OMNIHEAP_EXHAUSTIVE_SECONDS";
const THREADS: usize = 2;
const SHARDS: usize = 64;

/// Bounds of an exploration. What they cut off is not explored, and [`Figures`] say so.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps of the longest path.
    pub depth: u32,
    /// The time after which no further state is expanded.
    pub time: Option<Duration>,
}

impl Limits {
    /// Bounds the depth; where `OMNIHEAP_EXHAUSTIVE_SECONDS` is set, it bounds the time instead.
    ///
    /// # Panics
    ///
    /// Panics when the variable holds something else than a number of seconds.
    #[must_use]
    pub fn depth(depth: u32) -> Self {
        match std::env::var(SECONDS) {
            Err(_) => Self { depth, time: None },
            Ok(text) => {
                let seconds = text
                    .parse()
                    .map_err(|_| format!("{SECONDS}: {text:?} is no number of seconds"));
                let time = Duration::from_secs(seconds.expect("a whole number"));
                Self { depth: u32::MAX, time: Some(time) }
            }
        }
    }
}

/// Figures of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// States that differ from each other.
    pub states: u64,
    /// Steps that were taken and checked. Steps that only make a state again are not among them.
    pub transitions: u64,
    /// Steps of the longest path.
    pub depth: u32,
    /// States that were reached and not expanded. None says that the world was explored whole.
    pub cut: u64,
    /// The time that it took.
    pub time: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, depth, cut, time } = self;
        let seconds = time.as_secs_f64();
        write!(f, "{states} states, {transitions} transitions, depth {depth}, {seconds:.1} s, ")?;
        match cut {
            0 => f.write_str("whole"),
            _ => write!(f, "cut: {cut} states at depth {depth} are not expanded"),
        }
    }
}

/// A failure with one of the shortest paths to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Broken<S> {
    /// The steps from the start. The last one failed.
    pub path: Vec<S>,
    /// The invariant that is broken.
    pub why: String,
    /// The path as a unit test.
    pub test: String,
}

impl<S: fmt::Debug> fmt::Debug for Broken<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\nafter {} steps:", self.why, self.path.len())?;
        self.path.iter().try_for_each(|step| writeln!(f, "    {step:?}"))?;
        write!(f, "{}", self.test)
    }
}

/// Explores a world, prints its figures and returns them.
///
/// # Panics
///
/// Panics when an invariant is broken; the message contains the path.
#[expect(clippy::print_stdout, reason = "the figures are what a run is for")]
pub fn check<W: World>(name: &str, world: &W, limits: Limits) -> Figures {
    // One world at a time, however many threads a test run has.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match explore(world, limits) {
        Ok(figures) => {
            println!("{name}: {figures}");
            figures
        }
        Err(broken) => panic!("{name}: {broken:?}"),
    }
}

/// Explores a world.
///
/// # Errors
///
/// The first broken invariant, with one of the shortest paths to it.
pub fn explore<W: World>(world: &W, limits: Limits) -> Result<Figures, Broken<W::Step>> {
    let begun = Instant::now();
    let start = world.start();
    let seen = Seen::default();
    let key = world.key(&start);
    seen.insert(key);
    drop(start);
    let search = Search { world, limits, begun, seen, transitions: AtomicU64::new(0) };
    let mut nodes: Vec<Node<W::Step>> = vec![Node { parent: NO_PARENT, step: None, key }];
    let (mut first, mut depth, mut cut) = (0, 0, 0);
    while first < nodes.len() && cut == 0 {
        if depth == limits.depth || search.is_over() {
            cut = nodes.len() - first;
            break;
        }
        let layer = search.expand(&nodes, first)?;
        first = nodes.len();
        nodes.extend(layer.nodes);
        depth += u32::from(first < nodes.len());
        if layer.left > 0 {
            cut = layer.left + nodes.len() - first;
        }
    }
    Ok(Figures {
        states: nodes.len() as u64,
        transitions: search.transitions.load(Relaxed),
        depth,
        cut: cut as u64,
        time: begun.elapsed(),
    })
}

const NO_PARENT: u32 = u32::MAX;

/// A state, by the step that reached it first.
struct Node<S> {
    parent: u32,
    step: Option<S>,
    key: u128,
}

/// States one step further than others.
struct Layer<S> {
    nodes: Vec<Node<S>>,
    /// States that there was no time for.
    left: usize,
}

/// Keys of all states so far.
struct Seen([Mutex<HashSet<u128, Ready>>; SHARDS]);

impl Default for Seen {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Mutex::default()))
    }
}

impl Seen {
    /// Adds a key; returns whether it is new.
    fn insert(&self, key: u128) -> bool {
        let shard = &self.0[(key >> 122) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(key)
    }
}

struct Search<'a, W: World> {
    world: &'a W,
    limits: Limits,
    begun: Instant,
    seen: Seen,
    transitions: AtomicU64,
}

/// A state with every step that was taken from the start, also those that changed nothing.
struct Live<W: World> {
    state: W::State,
    path: Vec<W::Step>,
}

impl<W: World> Search<'_, W> {
    fn is_over(&self) -> bool {
        self.limits.time.is_some_and(|time| self.begun.elapsed() >= time)
    }

    /// Expands the states from `first` on.
    fn expand(
        &self,
        nodes: &[Node<W::Step>],
        first: usize,
    ) -> Result<Layer<W::Step>, Broken<W::Step>> {
        let next = AtomicUsize::new(first);
        let is_broken = AtomicBool::new(false);
        let work = || {
            let (mut found, mut failures, mut done) = (Vec::new(), Vec::new(), 0);
            while !is_broken.load(Relaxed) && !self.is_over() {
                let at = next.fetch_add(1, Relaxed);
                if at >= nodes.len() {
                    break;
                }
                done += 1;
                if let Err(broken) = self.expand_one(nodes, at, &mut found) {
                    is_broken.store(true, Relaxed);
                    failures.push(broken);
                }
            }
            (found, failures, done)
        };
        let parts = std::thread::scope(|scope| {
            let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().map(|other| other.join().expect("failures are caught"));
            core::iter::once(own).chain(others).collect::<Vec<_>>()
        });
        let mut layer = Layer { nodes: Vec::new(), left: nodes.len() - first };
        let mut failures = Vec::new();
        for (found, failed, done) in parts {
            layer.nodes.extend(found);
            failures.extend(failed);
            layer.left -= done;
        }
        failures.sort_by_key(|broken| broken.path.len());
        failures.into_iter().next().map_or(Ok(layer), Err)
    }

    /// Takes every step from one state.
    fn expand_one(
        &self,
        nodes: &[Node<W::Step>],
        at: usize,
        found: &mut Vec<Node<W::Step>>,
    ) -> Result<(), Broken<W::Step>> {
        let parent = u32::try_from(at).expect("fewer states than memory has room for");
        let key = nodes[at].key;
        let path = path_to(nodes, at);
        let source = self.again(&path)?;
        if self.world.key(&source.state) != key {
            let why = "the same steps do not lead to the same state";
            return Err(self.broken(path, why.to_owned()));
        }
        let mut steps = VecDeque::from(self.world.steps(&source.state));
        let copies = self.world.copy(&source.state).is_some();
        let mut live = Some(Live { state: source.state, path: path.clone() });
        while let Some(step) = steps.pop_front() {
            // A copy is taken from what no step has changed yet.
            let mut here = match live.take() {
                Some(kept) if copies => {
                    let state =
                        self.world.copy(&kept.state).expect("a state that was copied before");
                    live = Some(kept);
                    Live { state, path: path.clone() }
                }
                Some(kept) => kept,
                None => self.again(&path)?,
            };
            here.path.push(step.clone());
            self.transitions.fetch_add(1, Relaxed);
            if let Err(why) = caught(|| self.world.take(&mut here.state, &step)) {
                return Err(self.broken(here.path, why));
            }
            steps.extend(self.world.also(&here.state, &step));
            let reached = self.world.key(&here.state);
            if reached == key && !copies {
                live = Some(here); // Nothing has changed: the next step starts here.
            } else if reached != key && self.seen.insert(reached) {
                found.push(Node { parent, step: Some(step), key: reached });
                if let Err(why) = caught(|| self.world.end(here.state)) {
                    return Err(self.broken(here.path, format!("at the end: {why}")));
                }
            }
        }
        Ok(())
    }

    /// Makes a state again by its path.
    fn again(&self, path: &[W::Step]) -> Result<Live<W>, Broken<W::Step>> {
        let mut state = self.world.start();
        for (at, step) in path.iter().enumerate() {
            if let Err(why) = caught(|| self.world.retake(&mut state, step)) {
                let why = format!("a step that passed before fails now: {why}");
                return Err(self.broken(path[..=at].to_vec(), why));
            }
        }
        Ok(Live { state, path: path.to_vec() })
    }

    fn broken(&self, path: Vec<W::Step>, why: String) -> Broken<W::Step> {
        let test = self.world.test(&path);
        Broken { path, why, test }
    }
}

/// Returns the steps from the start to a state.
fn path_to<S: Clone>(nodes: &[Node<S>], mut at: usize) -> Vec<S> {
    let mut path = Vec::new();
    while let Some(step) = &nodes[at].step {
        path.push(step.clone());
        at = nodes[at].parent as usize;
    }
    path.reverse();
    path
}

/// Runs a step; a panic of the shipped code is a failure like any other.
fn caught(step: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(format!("the code panicked: {}", text.unwrap_or("with no message")))
    })
}

#[cfg(test)]
mod tests;
