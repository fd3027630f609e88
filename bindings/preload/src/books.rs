//! The books of all contexts of this process. A book is never dropped: a thread may still be looking at it.
#![expect(unsafe_code, reason = "asks the driver for contexts")]
use crate::book::Book;
use crate::real::{Handle, Real};
use crate::{capture, control, ending, inside, lock};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

static BOOKS: RwLock<Vec<&'static Book>> = RwLock::new(Vec::new());
/// Contexts that no book could be opened for.
static REFUSED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Counted up when a book comes or goes.
static EDITION: AtomicU64 = AtomicU64::new(1);
/// Lock for opening a book, and for beginning and ending a capture. Each book has one `hold` for each capture under way.
static OPENING: Mutex<()> = Mutex::new(());

/// Edition, context, and its book if it has one.
type Last = (u64, usize, Option<&'static Book>);

thread_local! {
    static LAST: Cell<Last> = const { Cell::new((0, 0, None)) };
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
    let (last, of, book) = LAST.get();
    if last == edition && of == context {
        return book;
    }
    let book = all().find(|book| book.context() == context);
    LAST.set((edition, context, book));
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
            EDITION.fetch_add(1, Relaxed);
            control::start();
            Some(book)
        }
        Err(error) => {
            ending::say(&format!("this context stays with the driver: {error}"));
            lock(&REFUSED).push(context.addr());
            None
        }
    }
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
    lock(&REFUSED).retain(|refused| *refused != context);
    let mut books = BOOKS.write().unwrap_or_else(PoisonError::into_inner);
    let at = books.iter().position(|book| book.context() == context)?;
    let book = books.swap_remove(at);
    EDITION.fetch_add(1, Relaxed);
    Some(book)
}
