//! Guards: who wrote behind the end of an allocation.
use super::*;

fn guarded() -> OmniheapManager {
    let config = OmniheapConfig { guards: 1, paged: 0, ..omniheap_config_default() };
    let mut manager = OmniheapManager { id: 0 };
    let status = c!(omniheap_open(c"host".as_ptr(), 0, &raw const config, &raw mut manager));
    assert_eq!(status, Status::Ok, "{}", message());
    manager
}

fn overwrites(manager: OmniheapManager) -> usize {
    let mut count = usize::MAX;
    let status = c!(omniheap_overwrites(manager, &raw mut count));
    assert_eq!(status, Status::Ok, "{}", message());
    count
}

fn overwrite(manager: OmniheapManager, which: usize) -> OmniheapOverwrite {
    let mut found = OmniheapOverwrite::default();
    let status = c!(omniheap_overwrite(manager, which, &raw mut found));
    assert_eq!(status, Status::Ok, "{}", message());
    found
}

/// Writes a byte so far behind the end of an allocation, as a kernel would.
fn damage(of: OmniheapAllocation, size: u64, distance: u64) {
    let mut place = OmniheapPlace::default();
    assert_eq!(c!(omniheap_place(of, &raw mut place)), Status::Ok);
    let behind = usize::try_from(place.address + size + distance).expect("host memory");
    let behind = ptr::with_exposed_provenance_mut::<u8>(behind);
    // SAFETY: host memory of the block, behind which the guard lies; nobody else writes it.
    unsafe { behind.write(7) };
}

#[test]
fn writes_behind_the_end_are_found_once_with_name_and_handle() {
    let manager = guarded();
    let named = OmniheapRequest { name: c"positions".as_ptr(), ..omniheap_request_default(1000) };
    let [freed, live] = [named, omniheap_request_default(2000)]
        .map(|request| ask(manager, &request).expect("small"));
    let quiet = ask(manager, &omniheap_request_default(3000)).expect("small");
    assert_eq!(overwrites(manager), 0);
    damage(freed, 1000, 0);
    assert_eq!(omniheap_free(freed), Status::Ok);
    assert_eq!(overwrites(manager), 1);
    damage(live, 2000, 3);
    assert_eq!([overwrites(manager), overwrites(manager)], [2; 2], "each is named once");
    let first = overwrite(manager, 0);
    // SAFETY: a text that stays until the manager is closed.
    let name = |found: &OmniheapOverwrite| unsafe { CStr::from_ptr(found.name) }.to_owned();
    assert_eq!((first.allocation.id, name(&first).as_c_str()), (0, c"positions"));
    assert_eq!((first.size, first.distance, first.heap), (1000, 0, 0));
    assert_eq!((first.expected, first.found), (0xFB, 7));
    let second = overwrite(manager, 1);
    assert_eq!((second.allocation, name(&second).as_c_str(), second.distance), (live, c"", 3));
    let mut found = OmniheapOverwrite::default();
    assert_eq!(c!(omniheap_overwrite(manager, 2, &raw mut found)), Status::OutOfRange);
    assert!(message().contains("2 overwrites were found"), "{}", message());
    assert_eq!(c!(omniheap_overwrite(manager, 0, ptr::null_mut())), Status::NullArgument);
    assert_eq!(c!(omniheap_overwrites(manager, ptr::null_mut())), Status::NullArgument);
    let mut counts = OmniheapGuarded::default();
    assert_eq!(c!(omniheap_guards(manager, &raw mut counts)), Status::Ok);
    assert_eq!((counts.overwritten, counts.missed), (2, 0), "{counts:?}");
    assert_eq!([live, quiet].map(|one| omniheap_free(one)), [Status::Ok; 2]);
    assert_eq!(omniheap_close(manager), Status::Ok, "{}", message());
}

#[test]
fn a_manager_without_guards_says_how_to_get_some() {
    let (manager, mut count) = (open(0), 0);
    assert_eq!(c!(omniheap_overwrites(manager, &raw mut count)), Status::InvalidConfig);
    assert!(message().contains("set config.guards"), "{}", message());
    let mut counts = OmniheapGuarded::default();
    assert_eq!(c!(omniheap_guards(manager, &raw mut counts)), Status::Ok);
    assert_eq!(counts, OmniheapGuarded::default());
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn a_pool_is_summed_alone() {
    let manager = open(0);
    let config = OmniheapPoolConfig { block: 1 << 20, ..omniheap_pool_config_default() };
    let mut pool = OmniheapPool { id: 0 };
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    let (beside, mut inside) =
        (ask(manager, &omniheap_request_default(5000)), OmniheapAllocation { id: 0 });
    let request = omniheap_request_default(3000);
    assert_eq!(c!(omniheap_pool_allocate(pool, &raw const request, &raw mut inside)), Status::Ok);
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_pool_totals(pool, &raw mut sums)), Status::Ok, "{}", message());
    assert_eq!((sums.live, sums.live_bytes, sums.reserved_bytes), (1, 3000, 1 << 20));
    assert_eq!([inside, beside.expect("small")].map(|one| omniheap_free(one)), [Status::Ok; 2]);
    assert_eq!(omniheap_pool_destroy(pool), Status::Ok, "{}", message());
    assert_eq!(c!(omniheap_pool_totals(pool, &raw mut sums)), Status::Stale);
    assert_eq!(omniheap_close(manager), Status::Ok);
}
