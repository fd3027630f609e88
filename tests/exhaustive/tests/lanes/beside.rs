//! A second thread of the program, whose requests go to another lane.
use core::cell::OnceCell;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does what it is told.
struct Helper(SyncSender<Job>);

impl Helper {
    fn new() -> Self {
        let (sender, jobs) = sync_channel::<Job>(0);
        thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        Self(sender)
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, answer) = sync_channel(1);
        let job = Box::new(move || drop(sender.send(job())));
        self.0.send(job).expect("it waits for jobs");
        answer.recv().expect("jobs do not panic")
    }
}

thread_local! {
    static HELPER: OnceCell<(Helper, Vec<Helper>)> = const { OnceCell::new() };
}

/// Runs a job on another thread than the calling one; `lane` says which lane a thread has.
pub(crate) fn beside<T: Send + 'static>(
    lane: impl Fn() -> u32 + Clone + Send + 'static,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    HELPER.with(|helper| {
        let (helper, _) = helper.get_or_init(|| {
            // Threads with an even number have one lane of two, and those with an odd number the other.
            let (own, mut others) = (lane(), Vec::new());
            loop {
                let helper = Helper::new();
                if helper.run(lane.clone()) != own {
                    return (helper, others);
                }
                others.push(helper);
            }
        });
        helper.run(job)
    })
}
