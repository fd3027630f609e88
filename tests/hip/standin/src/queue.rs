//! Queues: rings of packets that HIP fills, each emptied by a thread of its own.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::thread;

use crate::abi::{AgentHandle, Condition, SignalHandle, Status};
use crate::agent::Agent;
use crate::bell;
use crate::ffi::{In, Out, export};
use crate::kernel;
use crate::knobs::log;
use crate::packet::{Slot, Work};
use crate::signal::{Signal, now};

/// Struct that HIP holds a pointer to, laid out as `amd_queue_v2_t`.
#[derive(Debug)]
#[repr(C, align(64))]
struct Face {
    kind: u32,
    features: u32,
    base: u64,
    doorbell: SignalHandle,
    size: u32,
    reserved: u32,
    id: u64,
    capabilities: [u64; 2],
    write: AtomicU64,
    gap: [u64; 8],
    read: AtomicU64,
    rest: [u64; 271],
}

const _: () = assert!(core::mem::offset_of!(Face, write) == 56);
const _: () = assert!(core::mem::offset_of!(Face, read) == 128);
const _: () = assert!(size_of::<Face>() == 2304);

/// A queue. Kept for good, as its thread and late callers may still look; HIP makes a few and reuses them.
#[derive(Debug)]
struct Queue {
    face: Face,
    slots: Vec<Slot>,
    /// Number of the last packet that may be read.
    rung: AtomicI64,
    stopped: AtomicBool,
}

static QUEUES: RwLock<Option<HashMap<u64, &'static Queue>>> = RwLock::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Tells a queue that packets up to `packet` are written.
pub(crate) fn ring(queue: u64, packet: i64) {
    let found = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
    let queue =
        found.as_ref().and_then(|queues| queues.values().find(|entry| entry.face.id == queue));
    if let Some(queue) = queue {
        queue.rung.fetch_max(packet, Ordering::SeqCst);
    }
}

fn find(face: u64) -> Option<&'static Queue> {
    let queues = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
    queues.as_ref().and_then(|queues| queues.get(&face).copied())
}

/// As [`find`], for calls that cannot answer an error: AMD's library does not survive them either.
fn demand(face: u64) -> &'static Queue {
    find(face).unwrap_or_else(|| panic!("{face:#x} is not a queue"))
}

fn create(size: u32, kind: u32) -> u64 {
    let slots: Vec<_> = (0..size).map(|_| Slot::default()).collect();
    slots.iter().for_each(Slot::clear);
    let id = NEXT.fetch_add(1, Ordering::SeqCst);
    let doorbell = Signal::doorbell(id).handle();
    let base = slots.as_ptr().expose_provenance() as u64;
    let queue: &'static Queue = Box::leak(Box::new(Queue {
        face: Face {
            kind,
            features: 1,
            base,
            doorbell,
            size,
            reserved: 0,
            id,
            capabilities: [0; 2],
            write: AtomicU64::new(0),
            gap: [0; 8],
            read: AtomicU64::new(0),
            rest: [0; 271],
        },
        slots,
        rung: AtomicI64::new(-1),
        stopped: AtomicBool::new(false),
    }));
    let face = core::ptr::from_ref(&queue.face).expose_provenance() as u64;
    QUEUES
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(face, queue);
    drop(thread::spawn(|| queue.serve()));
    face
}

impl Queue {
    fn serve(&self) {
        while let Some((slot, work, done)) = bell::wait(None, || self.look()).flatten() {
            let start = now();
            perform(work);
            slot.clear();
            self.face.read.fetch_add(1, Ordering::SeqCst);
            match Signal::find_optional(done) {
                Ok(Some(done)) => done.complete(start),
                Ok(None) => bell::ring(),
                Err(_) => panic!("a packet completes {:#x}, which is no signal", done.0),
            }
        }
    }

    /// Answers the next packet if it is written, `Some(None)` when the queue is gone.
    fn look(&self) -> Option<Option<(&Slot, Work, SignalHandle)>> {
        if self.stopped.load(Ordering::SeqCst) {
            return Some(None);
        }
        let read = self.face.read.load(Ordering::SeqCst);
        if i64::try_from(read).is_ok_and(|read| read > self.rung.load(Ordering::SeqCst)) {
            return None;
        }
        let slot = &self.slots[usize::try_from(read).ok()? % self.slots.len()];
        slot.read().map(|(work, done)| Some((slot, work, done)))
    }
}

fn perform(work: Work) {
    let signals = |handles: [SignalHandle; 5]| {
        handles.into_iter().filter_map(|handle| Signal::find(handle).ok())
    };
    match work {
        Work::Launch(launch) => kernel::run(&launch),
        Work::WaitAll(handles) => signals(handles).for_each(|signal| {
            signal.wait(Condition::EQUAL, 0, -1, None);
        }),
        Work::WaitAny(handles) => {
            let list: Vec<_> = signals(handles).collect();
            bell::wait(None, || {
                (list.is_empty() || list.iter().any(|signal| signal.load() == 0)).then_some(())
            });
        }
        Work::WaitValue(handle, condition, value, mask) => {
            if let Ok(signal) = Signal::find(handle) {
                signal.wait(condition, value, mask, None);
            }
        }
        Work::Unknown(kind) => log(|| format!("packet of unknown kind {kind} skipped")),
    }
}

export! {
    fn hsa_queue_create(
        agent: AgentHandle, size: u32, kind: u32, _callback: *const c_void, _data: *mut c_void, _private: u32,
        _group: u32, out: Out<u64>,
    ) {
        Agent::find(agent)?.device()?;
        if !size.is_power_of_two() || out.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        out.set(create(size, kind))
    }

    fn hsa_queue_destroy(face: u64) {
        let queue = find(face).ok_or(Status::INVALID_QUEUE)?;
        queue.stopped.store(true, Ordering::SeqCst);
        if let Some(queues) = QUEUES.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            queues.remove(&face);
        }
        bell::ring();
        Signal::find(queue.face.doorbell)?.destroy();
        Ok(())
    }

    fn hsa_amd_queue_set_priority(face: u64, _priority: u32) {
        find(face).map(drop).ok_or(Status::INVALID_QUEUE)
    }

    fn hsa_amd_queue_cu_set_mask(face: u64, _count: u32, _mask: In<u32>) {
        find(face).map(drop).ok_or(Status::INVALID_QUEUE)
    }
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_add_write_index_screlease(face: u64, value: u64) -> u64 {
    demand(face).face.write.fetch_add(value, Ordering::SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_read_index_relaxed(face: u64) -> u64 {
    demand(face).face.read.load(Ordering::SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_read_index_scacquire(face: u64) -> u64 {
    demand(face).face.read.load(Ordering::SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_write_index_relaxed(face: u64) -> u64 {
    demand(face).face.write.load(Ordering::SeqCst)
}
