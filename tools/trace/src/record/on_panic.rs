//! Writes what recorders hold when a thread panics, also where a panic ends the process at once.

use super::Recorder;
use std::panic;
use std::sync::{Arc, Mutex, Once, PoisonError, TryLockError, Weak};

static OPEN: Mutex<Vec<Weak<Recorder>>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Flushes `recorder` at every panic while it lives. The previous panic hook still runs.
pub(super) fn flush_on_panic(recorder: &Arc<Recorder>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|known| known.strong_count() > 0);
    open.push(Arc::downgrade(recorder));
    drop(open);
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            flush_all();
            before(info);
        }));
    });
}

/// Flushes every recorder whose lock is free: the thread that panics may hold one itself.
fn flush_all() {
    let Ok(open) = OPEN.try_lock() else { return };
    // Upgraded first: a recorder whose last owner lets go meanwhile is then closed without the list's lock.
    let recorders: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
    drop(open);
    for recorder in &recorders {
        match recorder.state.try_lock() {
            Ok(mut state) => super::flush(&mut state),
            Err(TryLockError::Poisoned(state)) => super::flush(&mut state.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}
