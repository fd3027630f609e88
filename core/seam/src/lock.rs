//! A lock that outlives a panic.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of an earlier holder: for data that every holder leaves whole before it can panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
