//! Graphs, executable graphs, and the program's objects that graphs keep alive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::code::{Answer, Code};
use crate::handle;
use crate::life;
use crate::op::{HostCall, Op};
use crate::pool;

/// An object of the program. Its destroy function runs when the last reference ends.
#[derive(Debug)]
struct Object {
    destroy: HostCall,
    held: u32,
}

/// Work in the order in which it was added. The driver may run it in this order.
#[derive(Clone, Debug, Default)]
struct Graph {
    ops: Vec<Op>,
    objects: Vec<Arc<Keep>>,
    /// Memory of the graph's own allocations.
    memory: Arc<Memory>,
}

/// References of a graph to an object.
#[derive(Debug)]
struct Keep {
    object: u64,
    count: u32,
}

impl Drop for Keep {
    fn drop(&mut self) {
        let released = release(self.object, self.count);
        debug_assert_eq!(released, Ok(()), "the graph holds it");
    }
}

/// Addresses that a graph allocates each time it runs.
#[derive(Debug, Default)]
struct Memory(Mutex<Vec<u64>>);

impl Drop for Memory {
    fn drop(&mut self) {
        let bases = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        bases.drain(..).for_each(pool::release);
    }
}

static GRAPHS: Mutex<BTreeMap<u64, Graph>> = Mutex::new(BTreeMap::new());
static RUNNABLE: Mutex<BTreeMap<u64, Graph>> = Mutex::new(BTreeMap::new());
static OBJECTS: Mutex<BTreeMap<u64, Object>> = Mutex::new(BTreeMap::new());

type Graphs = MutexGuard<'static, BTreeMap<u64, Graph>>;

fn graphs() -> Graphs {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runnable() -> Graphs {
    RUNNABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a graph without work.
pub(crate) fn create() -> u64 {
    let handle = handle::fresh();
    graphs().insert(handle, Graph::default());
    handle
}

/// Adds work to a graph.
pub(crate) fn push(graph: u64, op: Op) -> Answer {
    let mut graphs = graphs();
    let graph = graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
    if let Op::Claim(base) = op {
        graph.memory.0.lock().unwrap_or_else(PoisonError::into_inner).push(base);
    }
    graph.ops.push(op);
    Ok(())
}

/// Returns true if the graph itself allocates memory.
pub(crate) fn owns(graph: u64, base: u64) -> bool {
    let graphs = graphs();
    let memory = graphs.get(&graph).map(|graph| Arc::clone(&graph.memory));
    drop(graphs);
    memory.is_some_and(|memory| {
        memory.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&base)
    })
}

/// Returns the number of pieces of work in a graph.
pub(crate) fn count(graph: u64) -> Answer<usize> {
    graphs().get(&graph).map(|graph| graph.ops.len()).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn destroy(graph: u64) -> Answer {
    let gone = graphs().remove(&graph);
    gone.map(drop).ok_or(Code::INVALID_VALUE)
}

/// Makes an executable graph.
pub(crate) fn instantiate(graph: u64) -> Answer<u64> {
    let graph = graphs().get(&graph).cloned().ok_or(Code::INVALID_VALUE)?;
    let handle = handle::fresh();
    runnable().insert(handle, graph);
    Ok(handle)
}

/// Returns the work of an executable graph.
pub(crate) fn ops(exec: u64) -> Answer<Vec<Op>> {
    runnable().get(&exec).map(|graph| graph.ops.clone()).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn destroy_exec(exec: u64) -> Answer {
    let gone = runnable().remove(&exec);
    gone.map(drop).ok_or(Code::INVALID_VALUE)
}

fn objects() -> MutexGuard<'static, BTreeMap<u64, Object>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an object with a number of references.
pub(crate) fn object(destroy: HostCall, held: u32) -> u64 {
    let handle = handle::fresh();
    objects().insert(handle, Object { destroy, held });
    handle
}

/// Adds references to an object.
pub(crate) fn retain(object: u64, count: u32) -> Answer {
    objects().get_mut(&object).ok_or(Code::INVALID_VALUE)?.held += count;
    Ok(())
}

/// Removes references from an object. After the last one, a thread of ours runs the program's destroy function.
pub(crate) fn release(object: u64, count: u32) -> Answer {
    let mut objects = objects();
    let found = objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
    found.held = found.held.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
    if found.held == 0
        && let Some(gone) = objects.remove(&object)
    {
        thread::spawn(move || life::call_back(|| gone.destroy.run()));
    }
    Ok(())
}

/// Gives a graph references to an object: the caller's, or new ones.
pub(crate) fn keep(graph: u64, object: u64, count: u32, is_moved: bool) -> Answer {
    if !graphs().contains_key(&graph) {
        return Err(Code::INVALID_VALUE);
    }
    if !is_moved {
        retain(object, count)?;
    } else if !objects().contains_key(&object) {
        return Err(Code::INVALID_VALUE);
    }
    if let Some(graph) = graphs().get_mut(&graph) {
        graph.objects.push(Arc::new(Keep { object, count }));
    }
    Ok(())
}
