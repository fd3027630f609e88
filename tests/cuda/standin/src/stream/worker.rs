//! The thread of a stream.

#![expect(unsafe_code, reason = "keeps signals away from the thread")]

use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::context;
use crate::handle;
use crate::knobs::knobs;
use crate::marker::Marker;
use crate::op::Op;
use crate::space;

/// Work that runs together, once other work has ended.
#[derive(Debug)]
pub(super) struct Job {
    number: u64,
    ops: Vec<Op>,
    after: Vec<Arc<Marker>>,
    end: Arc<Marker>,
}

impl Job {
    pub(super) fn new(ops: Vec<Op>, after: Vec<Arc<Marker>>, end: Arc<Marker>) -> Self {
        let number = handle::fresh();
        let is_own = |base: u64| ops.iter().any(|op| matches!(op, Op::Claim(own) if *own == base));
        let uses = ops.iter().flat_map(Op::uses);
        space::begin(number, uses.filter(|&(base, _)| !is_own(base)).collect());
        Self { number, ops, after, end }
    }

    fn run(self, context: u64) {
        self.after.iter().for_each(|end| end.wait());
        if !matches!(*self.ops, [Op::Nothing]) {
            delay();
        }
        space::end(self.number);
        for op in &self.ops {
            if context::has_failed(context) {
                break;
            }
            if let Err(code) = op.run() {
                context::fail(context, code);
            }
        }
        self.end.set();
    }
}

/// Lets some time pass before every fourth piece of work, so that missing order shows.
fn delay() {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(handle::fresh());
    }
    let mut state = STATE.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    let most = knobs().delay;
    if most > 0 && state.is_multiple_of(4) {
        thread::sleep(Duration::from_micros((state >> 8) % most));
    }
}

/// Starts a thread. It ends after the queue's last sender and its last work.
pub(super) fn start(context: u64) -> Sender<Job> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || serve(&receiver, context));
    sender
}

fn serve(jobs: &Receiver<Job>, context: u64) {
    // Signals are the program's: its handlers run on its own threads.
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is a valid out-pointer, which the call fills.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: filled just above; the old set is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut()) };
    jobs.iter().for_each(|job| job.run(context));
}
