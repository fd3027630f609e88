//! The books of all contexts of this process. A book is never dropped: a thread may still be looking at it.
#![expect(unsafe_code, reason = "asks the driver for contexts")]
use crate::book::Book;
use crate::real::{Handle, Real};
use crate::streams::Left;
use crate::{capture, control, ending, inside, lock};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{ErrorKind, TimelineId};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

static BOOKS: RwLock<Vec<&'static Book>> = RwLock::new(Vec::new());
/// Contexts that no book could be opened for.
static REFUSED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Counted up when a book comes or goes, and when a stream goes.
static EDITION: AtomicU64 = AtomicU64::new(1);
/// Lock for opening a book, and for beginning and ending a capture. Each book has one `hold` for each capture under way.
static OPENING: Mutex<()> = Mutex::new(());

/// The book and stream that a thread used last.
#[derive(Clone, Copy)]
struct Last {
    edition: u64,
    context: usize,
    /// The context's book, if it has one.
    book: Option<&'static Book>,
    /// A stream of the context, its number and its timeline.
    stream: (usize, u64, TimelineId),
}

impl Last {
    const fn new(edition: u64, context: usize, book: Option<&'static Book>) -> Self {
        Self { edition, context, book, stream: (0, 0, TimelineId::ALL) }
    }
}

thread_local! {
    static LAST: Cell<Last> = const { Cell::new(Last::new(0, 0, None)) };
}

/// Forgets what threads used last: a book or a stream has come or gone.
pub(crate) fn forget_last() {
    EDITION.fetch_add(1, Relaxed);
}

#[inline]
fn last() -> Option<Last> {
    let last = LAST.get();
    (last.edition == EDITION.load(Relaxed)).then_some(last)
}

/// Returns the book that this thread used last, else that of its context: where an address is looked for first.
#[inline]
pub(crate) fn usual(real: &Real) -> Option<&'static Book> {
    last().and_then(|last| last.book).or_else(|| known(real))
}

/// Returns the book and the timeline of a stream that this thread used last: no other stream ever has its number.
#[inline]
pub(crate) fn of_stream(stream: Handle, number: u64) -> Option<(&'static Book, TimelineId)> {
    let last = last().filter(|last| (last.stream.0, last.stream.1) == (stream.addr(), number))?;
    Some((last.book?, last.stream.2))
}

/// Notes the timeline of a stream of this thread's context, whose book was asked for just now.
pub(crate) fn note_stream(stream: Handle, number: u64, timeline: TimelineId) {
    LAST.set(Last { stream: (stream.addr(), number, timeline), ..LAST.get() });
}

thread_local! {
    /// The timeline of the stream that this thread is destroying, and its book.
    static GOING: Cell<Option<(&'static Book, Left)>> = const { Cell::new(None) };
}

/// Notes that the program is about to destroy a stream.
pub(crate) fn ending_stream(real: &Real, stream: Handle) {
    GOING.set(all().find_map(|book| Some((book, book.end_stream(real, stream)?))));
}

/// Notes that the driver has answered: a later stream may have the timeline.
pub(crate) fn ended_stream(is_done: bool) {
    if let Some((book, left)) = GOING.take().filter(|_| is_done) {
        book.leave(left);
    }
}

/// Returns this thread's context.
#[inline]
pub(crate) fn current_context(real: &Real) -> Option<Handle> {
    let mut context = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let code = unsafe { real.cuCtxGetCurrent?(&raw mut context) };
    (code == 0 && !context.is_null()).then_some(context)
}

/// Returns the book of this thread's context, if there is one.
#[inline]
pub(crate) fn known(real: &Real) -> Option<&'static Book> {
    let context = current_context(real)?.addr();
    let edition = EDITION.load(Relaxed);
    if let Some(last) = last().filter(|last| last.context == context) {
        return last.book;
    }
    let book = all().find(|book| book.context() == context);
    LAST.set(Last::new(edition, context, book));
    book
}

/// Returns the book of this thread's context, and opens it if needed. `None` if that fails, or a capture is under way.
#[inline]
pub(crate) fn current(real: &Real) -> Option<&'static Book> {
    known(real).or_else(|| open(real))
}

#[cold]
fn open(real: &Real) -> Option<&'static Book> {
    let context = current_context(real)?;
    let _alone = alone();
    if capture::is_under_way() || lock(&REFUSED).contains(&context.addr()) {
        return None;
    }
    if let Some(book) = known(real) {
        return Some(book);
    }
    inside::watch_forks();
    let mut devices = 1;
    // SAFETY: a valid out-pointer.
    let _ = unsafe { real.cuDeviceGetCount?(&raw mut devices) };
    // SAFETY: the program's context, which is closed here before the driver destroys it; where the program destroys it another way,
    // it calls nothing with it any more.
    match unsafe { Book::open(context, devices, ending::config()) } {
        Ok(book) => {
            let book = Box::leak(Box::new(book));
            BOOKS.write().unwrap_or_else(PoisonError::into_inner).push(book);
            forget_last();
            control::start();
            Some(book)
        }
        // A context that is gone, which the driver says itself; the next one may have its handle.
        Err(error) if error.kind() == ErrorKind::DeviceLost => None,
        Err(error) => {
            ending::say(&format!("this context stays with the driver: {error}"));
            refuse(context.addr());
            None
        }
    }
}

/// Leaves a context to the driver.
pub(crate) fn refuse(context: usize) {
    let mut refused = lock(&REFUSED);
    if !refused.contains(&context) {
        refused.push(context);
    }
}

/// Returns true if a context was left to the driver.
pub(crate) fn has_refused() -> bool {
    !lock(&REFUSED).is_empty()
}

/// Forgets that a context was left to the driver: it is gone.
pub(crate) fn forget_refused(context: usize) {
    lock(&REFUSED).retain(|refused| *refused != context);
}

/// Keeps books from opening, and captures from beginning and ending.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    lock(&OPENING)
}

/// Returns all books.
pub(crate) fn all() -> impl Iterator<Item = &'static Book> {
    let books = BOOKS.read().unwrap_or_else(PoisonError::into_inner).clone();
    books.into_iter()
}

/// Does something with every book.
pub(crate) fn each(act: impl Fn(&Book)) {
    all().for_each(act);
}

/// Removes a context's book from the table, and returns it if there was one.
pub(crate) fn take(context: usize) -> Option<&'static Book> {
    forget_refused(context);
    let mut books = BOOKS.write().unwrap_or_else(PoisonError::into_inner);
    let at = books.iter().position(|book| book.context() == context)?;
    let book = books.swap_remove(at);
    forget_last();
    Some(book)
}
