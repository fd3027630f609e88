//! Every range of memory that the driver knows, and the bytes in them.
//!
//! Work of streams has addresses, and looks them up when it runs. A range that is freed by then, or never existed, is an illegal
//! address. New ranges take addresses that were never used, as long as there are some, so that an old address does not find a
//! new range.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::{budget, count, pages};

/// Bytes that the driver takes of a device at a time.
pub(crate) const GRANULE: u64 = 2 << 20;
/// Requests below this share granules.
const SMALL: u64 = 1 << 20;
/// Bytes that small requests are rounded up to.
const ALIGN: u64 = 512;

/// Source of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Plain,
    /// A pool, by its handle.
    Pooled(u64),
    Managed,
    Pinned,
    /// The program's own memory, which it registered.
    Registered,
    /// Physical memory, by its handle.
    Mapped(u64),
    /// Plain memory of another process.
    Opened,
    /// A variable of a module.
    Symbol(u64),
}

/// Access of the device to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

/// State of a range in the order of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Queued: the allocation has not run yet.
    Coming,
    Here,
}

/// One range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Bytes that were asked for.
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) context: u64,
    pub(crate) device: u32,
    pub(crate) flags: u32,
    pub(crate) access: Access,
    pub(crate) life: Life,
    /// True if the free is queued.
    pub(crate) is_going: bool,
    /// A number that no other range ever has.
    pub(crate) id: u64,
}

impl Range {
    pub(crate) const fn new(size: u64, kind: Kind, context: u64, device: u32) -> Self {
        let (access, life) = (Access::ReadWrite, Life::Here);
        Self { size, kind, context, device, flags: 0, access, life, is_going: false, id: 0 }
    }

    /// Returns whether the program reaches the bytes at the same address.
    pub(crate) const fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Managed | Kind::Pinned | Kind::Registered)
    }
}

#[derive(Debug, Default)]
struct Space {
    ranges: BTreeMap<u64, Range>,
    /// Device addresses that are taken: by a range, or by a reservation.
    taken: BTreeMap<u64, u64>,
    next: u64,
    ids: u64,
    /// Bytes of each device in requests that share granules.
    small: [u64; budget::DEVICES],
    /// Ranges that unfinished work uses, by the number of the piece of work.
    uses: BTreeMap<u64, Vec<(u64, u64)>>,
}

static SPACE: Mutex<Option<Space>> = Mutex::new(None);

/// The space, locked.
struct Locked(MutexGuard<'static, Option<Space>>);

impl core::ops::Deref for Locked {
    type Target = Space;

    fn deref(&self) -> &Space {
        self.0.as_ref().expect("`space` filled it")
    }
}

impl core::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Space {
        self.0.as_mut().expect("`space` filled it")
    }
}

fn space() -> Locked {
    let mut guard = SPACE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(Space::default);
    Locked(guard)
}

impl Space {
    /// Finds free addresses, behind the last ones that were found.
    fn seek(&mut self, size: u64, align: u64) -> Option<u64> {
        let all = pages::addresses();
        for from in [self.next.max(all.start), all.start] {
            let mut at = from.checked_next_multiple_of(align)?;
            let before = self.taken.range(..=at).next_back();
            if let Some((&start, &length)) = before
                && start + length > at
            {
                at = (start + length).checked_next_multiple_of(align)?;
            }
            for (&start, &length) in self.taken.range(at..) {
                if at.checked_add(size)? <= start {
                    break;
                }
                at = (start + length).checked_next_multiple_of(align)?;
            }
            if at.checked_add(size)? <= all.end {
                return Some(at);
            }
        }
        None
    }

    fn take(&mut self, size: u64, align: u64) -> Answer<u64> {
        let at = self.seek(size, align).ok_or(Code::OUT_OF_MEMORY)?;
        self.taken.insert(at, size);
        self.next = at + size;
        Ok(at)
    }

    /// Returns the range that an address lies in.
    fn find(&self, address: u64) -> Option<(u64, Range)> {
        let (&base, range) = self.ranges.range(..=address).next_back()?;
        (address - base < range.size).then_some((base, *range))
    }

    fn insert(&mut self, base: u64, range: Range) {
        self.ids += 1;
        self.ranges.insert(base, Range { id: self.ids, ..range });
    }

    /// Checks one side of a copy. Memory of the program that the driver does not know passes: the driver stages it.
    fn check_copy(&self, address: u64, size: u64, access: Access) -> Answer {
        let is_staged = !pages::addresses().contains(&address) && self.find(address).is_none();
        if is_staged { Ok(()) } else { self.check(address, size, access) }
    }

    /// Checks that the device has this access to every byte.
    fn check(&self, address: u64, size: u64, access: Access) -> Answer {
        let (mut at, end) = (address, address.saturating_add(size));
        while at < end {
            let wrong = match self.find(at) {
                None => "memory that is not there",
                Some((_, range)) if range.life == Life::Coming => {
                    "memory before its allocation ran"
                }
                Some((_, range)) if range.access < access => "memory without the right to",
                Some((base, range)) => {
                    at = base + range.size;
                    continue;
                }
            };
            count::broken(&format!("work uses {wrong}: {at:#x}, of {size} bytes at {address:#x}"));
            return Err(Code::ILLEGAL_ADDRESS);
        }
        Ok(())
    }

    /// Returns the bytes of the granules that small requests share.
    fn slabs(&self, device: u32) -> u64 {
        self.small[device as usize].next_multiple_of(GRANULE)
    }

    fn charge(&mut self, device: u32, size: u64) -> Answer {
        if size >= SMALL {
            return budget::charge(device, size.next_multiple_of(GRANULE));
        }
        let before = self.slabs(device);
        self.small[device as usize] += size.next_multiple_of(ALIGN);
        let more = self.slabs(device) - before;
        budget::charge(device, more).inspect_err(|_| {
            self.small[device as usize] -= size.next_multiple_of(ALIGN);
        })
    }

    fn refund(&mut self, device: u32, size: u64) {
        if size >= SMALL {
            return budget::refund(device, size.next_multiple_of(GRANULE));
        }
        let before = self.slabs(device);
        self.small[device as usize] -= size.next_multiple_of(ALIGN);
        budget::refund(device, before - self.slabs(device));
    }

    /// Reports work that still uses a range.
    fn complain(&self, base: u64, size: u64, what: &str) {
        let hits = |&(start, length): &(u64, u64)| start < base + size && base < start + length;
        if self.uses.values().any(|uses| uses.iter().any(hits)) {
            count::broken(&format!("{what} at {base:#x} while work of a stream uses it"));
        }
    }

    /// Removes a range, and frees the bytes that belong to it.
    fn drop_range(&mut self, base: u64) {
        let Some(range) = self.ranges.remove(&base) else { return };
        match range.kind {
            Kind::Plain | Kind::Pooled(_) | Kind::Opened | Kind::Symbol(_) => {
                let span = self.taken.remove(&base).expect("`allocate` took it");
                pages::clear(base, span).expect("pages of the arena are always there");
            }
            Kind::Managed | Kind::Pinned => {
                pages::give_back(base, range.size.next_multiple_of(pages::PAGE));
            }
            Kind::Registered | Kind::Mapped(_) => {}
        }
        if range.kind == Kind::Plain {
            self.refund(range.device, range.size);
        }
    }
}

/// Makes a range of new memory, and charges plain memory to the device. Pools have charged theirs already.
pub(crate) fn allocate(range: Range) -> Answer<u64> {
    if range.size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if range.size > pages::addresses().end - pages::addresses().start {
        return Err(Code::OUT_OF_MEMORY);
    }
    let mut space = space();
    if range.kind == Kind::Plain {
        space.charge(range.device, range.size)?;
    }
    let base = if range.is_host() {
        pages::host(range.size.next_multiple_of(pages::PAGE)).ok_or(Code::OUT_OF_MEMORY)
    } else {
        // Large ranges have granules of their own, so that another process can map them whole.
        let align = if range.size >= SMALL { GRANULE } else { pages::PAGE };
        space.take(range.size.next_multiple_of(align), align)
    };
    if base.is_err() && range.kind == Kind::Plain {
        space.refund(range.device, range.size);
    }
    let base = base?;
    space.insert(base, range);
    Ok(base)
}

/// Adds memory of the program.
pub(crate) fn register(base: u64, range: Range) -> Answer {
    let mut space = space();
    let before = space.ranges.range(..base + range.size).next_back();
    if before.is_some_and(|(start, range)| start + range.size > base) {
        return Err(Code::ALREADY_REGISTERED);
    }
    space.insert(base, range);
    Ok(())
}

/// Returns the range that an address lies in.
pub(crate) fn find(address: u64) -> Option<(u64, Range)> {
    space().find(address)
}

/// Returns the range that begins at an address, if it is of the right kind.
pub(crate) fn at(address: u64, is_right: impl Fn(Kind) -> bool) -> Option<Range> {
    space().ranges.get(&address).copied().filter(|range| is_right(range.kind))
}

/// Frees the range that begins at an address.
pub(crate) fn free(base: u64) {
    let mut space = space();
    if let Some(range) = space.ranges.get(&base).copied() {
        space.complain(base, range.size, "memory was freed");
        space.drop_range(base);
    }
}

/// Changes the state of a range in the order of streams.
pub(crate) fn set_life(base: u64, life: Life) {
    if let Some(range) = space().ranges.get_mut(&base) {
        range.life = life;
    }
}

/// Notes that the free of a range is queued.
pub(crate) fn set_going(base: u64) {
    if let Some(range) = space().ranges.get_mut(&base) {
        range.is_going = true;
    }
}

/// Frees every range of a context.
pub(crate) fn forget(context: u64) {
    let mut space = space();
    let of = |(&base, range): (&u64, &Range)| {
        let stays = matches!(range.kind, Kind::Mapped(_));
        (range.context == context && !stays).then_some(base)
    };
    let bases: Vec<u64> = space.ranges.iter().filter_map(of).collect();
    bases.into_iter().for_each(|base| space.drop_range(base));
}

/// Lists the bytes of pools that a context holds.
pub(crate) fn pooled(context: u64) -> Vec<(u64, u64)> {
    let space = space();
    let of = |range: &Range| match range.kind {
        Kind::Pooled(pool) if range.context == context => Some((pool, range.size)),
        _ => None,
    };
    space.ranges.values().filter_map(of).collect()
}

/// Reserves device addresses without memory, at `wanted` if possible.
pub(crate) fn reserve(size: u64, align: u64, wanted: u64) -> Answer<u64> {
    let mut space = space();
    let all = pages::addresses();
    if wanted.is_multiple_of(align) && all.contains(&wanted) && size <= all.end - wanted {
        let before = space.taken.range(..wanted + size).next_back();
        if before.is_none_or(|(start, length)| start + length <= wanted) {
            space.taken.insert(wanted, size);
            return Ok(wanted);
        }
    }
    space.take(size, align)
}

/// Gives reserved addresses back.
pub(crate) fn unreserve(base: u64) {
    space().taken.remove(&base);
}

/// Maps physical memory at reserved addresses.
pub(crate) fn map(base: u64, range: Range) {
    space().insert(base, Range { access: Access::None, ..range });
}

/// Unmaps physical memory from its addresses.
pub(crate) fn unmap(base: u64) -> Answer {
    let mut space = space();
    let Some(range) = space.ranges.get(&base).copied() else { return Err(Code::INVALID_VALUE) };
    space.complain(base, range.size, "memory was unmapped");
    space.ranges.remove(&base);
    pages::clear(base, range.size).ok_or(Code::UNKNOWN)
}

/// Changes the device's access to a mapped range.
pub(crate) fn allow(base: u64, access: Access) {
    if let Some(range) = space().ranges.get_mut(&base) {
        range.access = access;
    }
}

/// Notes that unfinished work uses these ranges.
pub(crate) fn begin(work: u64, uses: Vec<(u64, u64)>) {
    if !uses.is_empty() {
        space().uses.insert(work, uses);
    }
}

/// Forgets the ranges of work that has ended or begins to run. Running work is checked at each access.
pub(crate) fn end(work: u64) {
    space().uses.remove(&work);
}

/// Copies bytes.
pub(crate) fn copy(to: u64, from: u64, size: u64) -> Answer {
    let space = space();
    space.check_copy(from, size, Access::Read)?;
    space.check_copy(to, size, Access::ReadWrite)?;
    pages::copy(to, from, size);
    Ok(())
}

/// Writes bytes.
pub(crate) fn write(to: u64, bytes: &[u8]) -> Answer {
    let space = space();
    space.check(to, bytes.len() as u64, Access::ReadWrite)?;
    pages::write(to, bytes);
    Ok(())
}

/// Writes one byte many times.
pub(crate) fn fill(to: u64, byte: u8, size: u64) -> Answer {
    let space = space();
    space.check(to, size, Access::ReadWrite)?;
    pages::fill(to, byte, size);
    Ok(())
}

/// Reads bytes.
pub(crate) fn read(from: u64, size: usize) -> Answer<Vec<u8>> {
    let space = space();
    space.check(from, size as u64, Access::Read)?;
    Ok(pages::read(from, size))
}

/// Reads a word that the program may be writing.
pub(crate) fn read_volatile(from: u64) -> Answer<u32> {
    let space = space();
    space.check(from, 4, Access::Read)?;
    Ok(pages::read_volatile(from))
}

/// Moves the bytes of a range to a file of at least its size, where another process can find them.
pub(crate) fn share(base: u64, file: BorrowedFd<'_>) -> Answer {
    let space = space();
    let range = space.ranges.get(&base).ok_or(Code::INVALID_VALUE)?;
    let bytes = pages::read(base, usize::try_from(range.size).map_err(|_| Code::OUT_OF_MEMORY)?);
    let whole = range.size.next_multiple_of(pages::PAGE);
    pages::place(base, whole, file).ok_or(Code::UNKNOWN)?;
    pages::write(base, &bytes);
    Ok(())
}

/// Puts a file behind a range.
pub(crate) fn place(base: u64, size: u64, file: BorrowedFd<'_>) -> Answer {
    pages::place(base, size, file).ok_or(Code::UNKNOWN)
}
