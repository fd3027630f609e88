//! The rules of virtual memory, one by one.

use std::os::fd::IntoRawFd;

use super::{create, import, require_reservable, space};
use crate::abi::{AccessDesc, AgentHandle, PhysicalHandle, Status};
use crate::agent::Device;
use crate::pages::{self, PAGE};
use crate::pool::{DeviceKind, Pool};
use crate::table::free_bytes;

const GRANT: AccessDesc = AccessDesc { permissions: 3, agent: AgentHandle(2) };

/// Each test has a device of its own, since budgets are shared by the process.
fn pool(device: u32) -> Pool {
    Pool::Device(Device(device), DeviceKind::Coarse)
}

fn reserve(size: u64) -> u64 {
    let start = pages::reserve(size, PAGE).expect("addresses are plenty");
    space().reservations.insert(start, super::Reservation { size, mapped: 0 });
    start
}

fn release(handle: PhysicalHandle) {
    let mut space = space();
    space.physicals.entry(handle.0).and_modify(|entry| entry.held -= 1);
    space.collect(handle.0);
}

#[test]
fn mappings_neither_overlap_nor_leave_their_reservation() {
    let start = reserve(4 * PAGE);
    let page = create(pool(5), 2 * PAGE).expect("fits");
    let map = |at, size| space().map(at, size, page.0);
    assert_eq!(map(start + PAGE, 2 * PAGE), Ok(()));
    for (at, size) in [
        (start, 2 * PAGE),
        (start + PAGE, PAGE),
        (start + 2 * PAGE, PAGE),
        (start + 3 * PAGE, 2 * PAGE),
    ] {
        assert_eq!(
            map(at, size),
            Err(Status::INVALID_ARGUMENT),
            "{} pages at {}",
            size / PAGE,
            (at - start) / PAGE
        );
    }
    assert_eq!(map(start, PAGE), Ok(()));
    assert_eq!(map(start + 3 * PAGE, u64::MAX), Err(Status::INVALID_ARGUMENT));
    assert_eq!(space().map(start + 3 * PAGE, PAGE, 1), Err(Status::INVALID_ARGUMENT));
    assert_eq!(space().unmap(start, 2 * PAGE), Err(Status::INVALID_ARGUMENT));
    assert_eq!(space().unmap(start + 2 * PAGE, PAGE), Err(Status::INVALID_ALLOCATION));
}

#[test]
fn memory_lives_while_it_is_held_or_mapped() {
    let (start, before) = (reserve(PAGE), free_bytes(Device(6)));
    let page = create(pool(6), PAGE).expect("fits");
    assert_eq!(space().map(start, PAGE, page.0), Ok(()));
    release(page);
    assert_eq!(free_bytes(Device(6)), before - PAGE);
    assert_eq!(space().unmap(start, PAGE), Ok(()));
    assert_eq!(free_bytes(Device(6)), before);
    assert_eq!(space().map(start, PAGE, page.0), Err(Status::INVALID_ARGUMENT));
}

#[test]
fn access_needs_a_range_without_gaps() {
    let start = reserve(3 * PAGE);
    let page = create(pool(5), PAGE).expect("fits");
    assert_eq!(space().grant(start, PAGE, &[GRANT]), Err(Status::INVALID_ALLOCATION));
    for at in [start, start + 2 * PAGE] {
        assert_eq!(space().map(at, PAGE, page.0), Ok(()));
    }
    assert_eq!(space().grant(start, 3 * PAGE, &[GRANT]), Err(Status::INVALID_ALLOCATION));
    assert_eq!(space().grant(start, PAGE, &[GRANT]), Ok(()));
    assert_eq!(space().grant(start + 2 * PAGE, PAGE, &[GRANT]), Ok(()));
    pages::write(start, b"seen twice");
    assert_eq!(pages::read(start + 2 * PAGE, 10), b"seen twice");
}

#[test]
fn an_import_is_the_same_memory() {
    let before = free_bytes(Device(7));
    let page = create(pool(4), PAGE).expect("fits");
    let file = space().physicals[&page.0].file.try_clone().expect("descriptors are plenty");
    let descriptor = file.into_raw_fd();
    assert_eq!(import(descriptor), Ok(page));
    release(page);
    assert!(space().physicals.contains_key(&page.0), "held by the import");
    release(page);
    assert!(!space().physicals.contains_key(&page.0));
    assert_eq!(free_bytes(Device(7)), before);
    assert_eq!(import(-1).err(), Some(Status::INVALID_ARGUMENT));
}

#[test]
fn reservations_are_whole_pages_at_powers_of_two() {
    for (size, align) in [(PAGE, 0), (PAGE, PAGE), (3 * PAGE, 512 * PAGE)] {
        assert_eq!(require_reservable(size, align), Ok(()), "{size} at {align}");
    }
    for (size, align) in [(0, 0), (PAGE + 1, 0), (PAGE, 1), (PAGE, PAGE / 2), (PAGE, 3 * PAGE)] {
        let refused = Err(Status::INVALID_ARGUMENT);
        assert_eq!(require_reservable(size, align), refused, "{size} at {align}");
    }
}
