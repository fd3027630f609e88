//! The books of all contexts of this process. A book is never dropped: a thread may still be looking at it.
#![expect(unsafe_code, reason = "asks the driver for contexts")]
use crate::book::Book;
use crate::cuda::Nvidia;
use crate::hip::Amd;
use crate::real::Handle;
use crate::vendor::Vendor;
use crate::{capture, control, ending, inside, lock};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_core::{Caps, ErrorKind, Report, Result, TimelineId};
use std::sync::{MutexGuard, PoisonError};

/// The book and stream that a thread used last.
pub(crate) struct Last<V: Vendor> {
    edition: u64,
    context: usize,
    /// The context's book, if it has one.
    book: Option<&'static Book<V>>,
    /// A stream of the context, its number and its timeline.
    stream: (usize, u64, TimelineId),
}

impl<V: Vendor> Clone for Last<V> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vendor> Copy for Last<V> {}

impl<V: Vendor> Last<V> {
    pub(crate) const fn new(edition: u64, context: usize, book: Option<&'static Book<V>>) -> Self {
        Self { edition, context, book, stream: (0, 0, TimelineId::ALL) }
    }
}

/// Forgets what threads used last: a book or a stream has come or gone.
pub(crate) fn forget_last<V: Vendor>() {
    V::state().edition.fetch_add(1, Relaxed);
}

#[inline]
fn last<V: Vendor>() -> Option<Last<V>> {
    let last = V::thread().with(|thread| thread.last.get());
    (last.edition == V::state().edition.load(Relaxed)).then_some(last)
}

/// Returns the book that this thread used last, else that of its context: where an address is looked for first.
#[inline]
pub(crate) fn usual<V: Vendor>(real: &V) -> Option<&'static Book<V>> {
    last::<V>().and_then(|last| last.book).or_else(|| known(real))
}

/// Returns the book and the timeline of a stream that this thread used last: no other stream ever has its number.
#[inline]
pub(crate) fn of_stream<V: Vendor>(
    stream: Handle,
    number: u64,
) -> Option<(&'static Book<V>, TimelineId)> {
    let last =
        last::<V>().filter(|last| (last.stream.0, last.stream.1) == (stream.addr(), number))?;
    Some((last.book?, last.stream.2))
}

/// Notes the timeline of a stream of this thread's context, whose book was asked for just now.
pub(crate) fn note_stream<V: Vendor>(stream: Handle, number: u64, timeline: TimelineId) {
    let stream = (stream.addr(), number, timeline);
    V::thread().with(|thread| thread.last.set(Last { stream, ..thread.last.get() }));
}

/// Notes that the program is about to destroy a stream.
pub(crate) fn ending_stream<V: Vendor>(real: &V, stream: Handle) {
    let going = all::<V>().find_map(|book| Some((book, book.end_stream(real, stream)?)));
    V::thread().with(|thread| thread.going.set(going));
}

/// Notes that the driver has answered: a later stream may have the timeline.
pub(crate) fn ended_stream<V: Vendor>(is_done: bool) {
    if let Some((book, left)) = V::thread().with(|thread| thread.going.take()).filter(|_| is_done) {
        book.leave(left);
    }
}

/// Returns the book of this thread's context, if there is one.
#[inline]
pub(crate) fn known<V: Vendor>(real: &V) -> Option<&'static Book<V>> {
    let context = real.context()?.addr();
    let edition = V::state().edition.load(Relaxed);
    if let Some(last) = last::<V>().filter(|last| last.context == context) {
        return last.book;
    }
    let book = all::<V>().find(|book| book.context() == context);
    V::thread().with(|thread| thread.last.set(Last::new(edition, context, book)));
    book
}

/// Returns the book of this thread's context, and opens it if needed. `None` if that fails, or a capture is under way.
#[inline]
pub(crate) fn current<V: Vendor>(real: &V) -> Option<&'static Book<V>> {
    known(real).or_else(|| open(real))
}

#[cold]
fn open<V: Vendor>(real: &V) -> Option<&'static Book<V>> {
    let context = real.context()?;
    let _alone = alone::<V>();
    if capture::is_under_way::<V>() || lock(&V::state().refused).contains(&context.addr()) {
        return None;
    }
    if let Some(book) = known(real) {
        return Some(book);
    }
    inside::watch_forks();
    let mut devices = 1;
    // SAFETY: a valid out-pointer.
    let _ = unsafe { real.shared().devices?(&raw mut devices) };
    // SAFETY: the program's context, which is closed here before the driver destroys it; where the program destroys it another way,
    // it calls nothing with it any more.
    match unsafe { Book::open(context, devices, ending::config()) } {
        Ok(book) => {
            let book = Box::leak(Box::new(book));
            V::state().books.write().unwrap_or_else(PoisonError::into_inner).push(book);
            forget_last::<V>();
            control::start();
            Some(book)
        }
        // A context that is gone, which the driver says itself; the next one may have its handle.
        Err(error) if error.kind() == ErrorKind::DeviceLost => None,
        Err(error) => {
            ending::say(&format!("this context stays with the driver: {error}"));
            refuse::<V>(context.addr());
            None
        }
    }
}

/// Leaves a context to the driver.
pub(crate) fn refuse<V: Vendor>(context: usize) {
    let mut refused = lock(&V::state().refused);
    if !refused.contains(&context) {
        refused.push(context);
    }
}

/// Returns true if a context was left to the driver.
pub(crate) fn has_refused<V: Vendor>() -> bool {
    !lock(&V::state().refused).is_empty()
}

/// Forgets that a context was left to the driver: it is gone.
pub(crate) fn forget_refused<V: Vendor>(context: usize) {
    lock(&V::state().refused).retain(|refused| *refused != context);
}

/// Keeps books from opening, and captures from beginning and ending.
pub(crate) fn alone<V: Vendor>() -> MutexGuard<'static, ()> {
    lock(&V::state().opening)
}

/// Returns all books.
pub(crate) fn all<V: Vendor>() -> impl Iterator<Item = &'static Book<V>> {
    let books = V::state().books.read().unwrap_or_else(PoisonError::into_inner).clone();
    books.into_iter()
}

/// A book of any vendor, as orders and the end of the program look at it.
pub(crate) trait Account {
    /// Returns the number of the device.
    fn ordinal(&self) -> i32;

    /// Looks at the bytes behind everything that is live, if they are watched.
    fn look_at_guards(&self);

    /// Sets the most that may be held.
    fn limit(&self, bytes: u64) -> Result<()>;

    /// Moves all bytes to host memory. Returns the number of bytes that went back to the driver.
    fn sleep(&self) -> Result<u64, String>;

    /// Brings all bytes back, at their addresses.
    fn wake(&self) -> Result<u64, String>;

    /// Returns the line for the end: live and held bytes, allocations, driver calls.
    fn summary_line(&self) -> String;

    /// Returns a snapshot.
    fn report(&self) -> Report;

    /// Returns what the device can do.
    fn caps(&self) -> &Caps;
}

/// Returns the books of all vendors.
pub(crate) fn accounts() -> impl Iterator<Item = &'static dyn Account> {
    let books = all::<Nvidia>().map(|book| book as &dyn Account);
    books.chain(all::<Amd>().map(|book| book as &dyn Account))
}

/// Does something with every book of a vendor.
pub(crate) fn each<V: Vendor>(act: impl Fn(&Book<V>)) {
    all().for_each(act);
}

/// Removes a context's book from the table, and returns it if there was one.
pub(crate) fn take<V: Vendor>(context: usize) -> Option<&'static Book<V>> {
    forget_refused::<V>(context);
    let mut books = V::state().books.write().unwrap_or_else(PoisonError::into_inner);
    let at = books.iter().position(|book| book.context() == context)?;
    let book = books.swap_remove(at);
    forget_last::<V>();
    Some(book)
}

/// Ends a book whose context is about to end, while the driver can still take its memory.
pub(crate) fn end<V: Vendor>(book: &Book<V>) {
    book.look_at_guards();
    ending::keep(book);
    book.close();
}
