//! Pools that make room for each other, through the C functions.
use super::*;

const MIB: u64 = 1 << 20;

fn layer(manager: OmniheapManager, priority: i32) -> OmniheapPool {
    let config = OmniheapPoolConfig { sleepable: 1, ..omniheap_pool_config_default() };
    let mut pool = OmniheapPool { id: 0 };
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    assert_eq!(c!(omniheap_pool_add_resident(pool, ptr::null(), priority)), Status::Ok);
    pool
}

fn fill(pool: OmniheapPool, size: u64, byte: u8) -> OmniheapAllocation {
    let (request, mut made) = (omniheap_request_default(size), OmniheapAllocation { id: 0 });
    let status = c!(omniheap_pool_allocate(pool, &raw const request, &raw mut made));
    assert_eq!((status, write(made, &[byte; 64])), (Status::Ok, Status::Ok), "{}", message());
    made
}

/// Reads a byte; nothing where its pool sleeps.
fn byte(of: OmniheapAllocation) -> Option<u8> {
    let mut seen = 0_u8;
    match c!(omniheap_read(of, 1, (&raw mut seen).cast(), 1)) {
        Status::Asleep => None,
        status => {
            assert_eq!(status, Status::Ok, "{}", message());
            Some(seen)
        }
    }
}

#[test]
fn pools_make_room_and_come_back_with_their_bytes() {
    let manager = open(1);
    assert_eq!(omniheap_set_budget(manager, 0, 64 * MIB, 64 * MIB), Status::Ok);
    let layers = [layer(manager, 0), layer(manager, 0), layer(manager, 0)];
    let bytes = [(0, 1), (1, 2), (2, 3)].map(|(at, byte)| fill(layers[at], 28 * MIB, byte));
    assert_eq!(bytes.map(byte), [None, Some(2), Some(3)], "the first made room for the third");
    assert_eq!(omniheap_pool_hold(layers[0]), Status::Ok, "{}", message());
    assert_eq!(bytes.map(byte), [Some(1), None, Some(3)], "the one that was used least lately");
    assert_eq!(omniheap_pool_touch(layers[1]), Status::Ok);
    assert_eq!(omniheap_pool_hold(layers[2]), Status::Ok);
    assert_eq!(omniheap_pool_hold(layers[1]), Status::OverBudget, "both others are held");
    assert_eq!(omniheap_pool_release(layers[0]), Status::Ok);
    assert_eq!(omniheap_pool_hold(layers[1]), Status::Ok, "{}", message());
    assert_eq!(bytes.map(byte), [None, Some(2), Some(3)]);
    for pool in &layers[1..] {
        assert_eq!(omniheap_pool_release(*pool), Status::Ok);
    }
    for one in bytes {
        assert_eq!(omniheap_free(one), Status::Ok);
    }
    end(manager, &layers);
}

#[test]
fn what_is_expected_is_awake_soon_and_budgets_are_followed() {
    let manager = open(1);
    assert_eq!(omniheap_set_budget(manager, 0, 64 * MIB, 64 * MIB), Status::Ok);
    let layers = [layer(manager, 1), layer(manager, 0)];
    let bytes = [fill(layers[0], 20 * MIB, 1), fill(layers[1], 20 * MIB, 2)];
    let step = || {
        let (mut now, mut then) = ([9, 9], [9, 9]);
        let [slept, woken] = &mut now;
        let status = c!(omniheap_residents_step(manager, slept, woken));
        assert_eq!(status, Status::Ok, "{}", message());
        let [slept, woken] = &mut then;
        let status = c!(omniheap_residents_settle(manager, slept, woken));
        assert_eq!(status, Status::Ok, "{}", message());
        (now[0] + then[0], now[1] + then[1])
    };
    assert_eq!(step(), (0, 0));
    assert_eq!(omniheap_set_budget(manager, 0, 32 * MIB, 64 * MIB), Status::Ok);
    assert_eq!((step(), bytes.map(byte)), ((1, 0), [Some(1), None]), "the lower priority first");
    assert_eq!(omniheap_set_budget(manager, 0, 64 * MIB, 64 * MIB), Status::Ok);
    assert_eq!(omniheap_pool_expect(layers[1]), Status::Ok);
    while byte(bytes[1]).is_none() {
        std::thread::yield_now();
    }
    assert_eq!(bytes.map(byte), [Some(1), Some(2)]);
    assert_eq!(omniheap_pool_hold_if_awake(layers[1]), Status::Ok, "{}", message());
    assert_eq!(omniheap_pool_release(layers[1]), Status::Ok);
    let put_to_sleep = c!(omniheap_pool_sleep(layers[1], ptr::null(), ptr::null_mut()));
    assert_eq!(put_to_sleep, Status::Ok, "{}", message());
    assert_eq!(omniheap_pool_hold_if_awake(layers[1]), Status::Asleep, "it is on its way");
    let settled = c!(omniheap_residents_settle(manager, ptr::null_mut(), ptr::null_mut()));
    assert_eq!((settled, bytes.map(byte)), (Status::Ok, [Some(1), Some(2)]));
    assert_eq!(c!(omniheap_residents_step(manager, ptr::null_mut(), ptr::null_mut())), Status::Ok);
    for one in bytes {
        assert_eq!(omniheap_free(one), Status::Ok);
    }
    end(manager, &layers);
}

#[test]
fn a_pool_without_room_gets_host_memory_where_it_was_said_so() {
    let manager = open(1);
    assert_eq!(omniheap_set_budget(manager, 0, 64 * MIB, 64 * MIB), Status::Ok);
    let layers = [layer(manager, 0), layer(manager, 0)];
    let bytes = [fill(layers[0], 40 * MIB, 1), fill(layers[1], 40 * MIB, 2)];
    assert_eq!((bytes.map(byte), omniheap_pool_hold(layers[1])), ([None, Some(2)], Status::Ok));
    assert_eq!(omniheap_pool_hold(layers[0]), Status::OverBudget, "the other one is held");
    let flags = OMNIHEAP_SLEEP_HOST_MAPPED_WHEN_FULL;
    let mapped = OmniheapSleep { flags, ..omniheap_sleep_default() };
    assert_eq!(c!(omniheap_pool_add_resident(layers[0], &raw const mapped, 0)), Status::Ok);
    assert_eq!(omniheap_pool_hold(layers[0]), Status::Ok, "{}", message());
    let mut now = OmniheapResidence::default();
    assert_eq!(c!(omniheap_pool_residence(layers[0], &raw mut now)), Status::Ok);
    assert!(now.host_mapped >= 16 * MIB && now.device <= 24 * MIB && now.asleep == 0, "{now:?}");
    assert_eq!(bytes.map(byte), [Some(1), Some(2)]);
    let slept = c!(omniheap_pool_sleep(layers[1], &raw const mapped, ptr::null_mut()));
    assert_eq!(slept, Status::InvalidArgument, "it is about holds");
    for (pool, one) in layers.into_iter().zip(bytes) {
        assert_eq!((omniheap_pool_release(pool), omniheap_free(one)), (Status::Ok, Status::Ok));
    }
    end(manager, &layers);
}

#[test]
fn misuse_is_told_and_changes_nothing() {
    let manager = open(1);
    let mut alone = OmniheapPool { id: 0 };
    let config = OmniheapPoolConfig { sleepable: 1, ..omniheap_pool_config_default() };
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut alone)), Status::Ok);
    assert_eq!(omniheap_pool_hold(alone), Status::Stale, "it was not added");
    let (usual, mut awake) = (omniheap_pool_config_default(), OmniheapPool { id: 0 });
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const usual, &raw mut awake)), Status::Ok);
    assert_eq!(c!(omniheap_pool_add_resident(awake, ptr::null(), 0)), Status::Unsupported);
    assert!(message().contains("sleepable"), "{}", message());
    assert_eq!(
        (omniheap_pool_hold(awake), omniheap_pool_destroy(awake)),
        (Status::Stale, Status::Ok)
    );
    assert_eq!(omniheap_pool_release(alone), Status::InvalidArgument);
    let over = OmniheapSleep { flags: OMNIHEAP_SLEEP_OVER_PINS, ..omniheap_sleep_default() };
    assert_eq!(c!(omniheap_pool_add_resident(alone, &raw const over, 0)), Status::InvalidArgument);
    assert_eq!(c!(omniheap_pool_add_resident(alone, ptr::null(), 0)), Status::Ok);
    assert_eq!(omniheap_pool_hold(alone), Status::Ok);
    assert_eq!(omniheap_pool_destroy(alone), Status::Busy, "it is held");
    assert!(message().contains("release it"), "{}", message());
    assert_eq!(omniheap_pool_release(alone), Status::Ok);
    end(manager, &[alone]);
    for call in [
        omniheap_pool_hold,
        omniheap_pool_hold_if_awake,
        omniheap_pool_release,
        omniheap_pool_touch,
        omniheap_pool_expect,
    ] {
        assert_eq!(call(alone), Status::Stale);
    }
    for call in [omniheap_residents_step, omniheap_residents_settle] {
        assert_eq!(c!(call(manager, ptr::null_mut(), ptr::null_mut())), Status::Stale);
    }
}

/// Ends pools, which a thread of the set may still look at, and their manager.
fn end(manager: OmniheapManager, pools: &[OmniheapPool]) {
    for pool in pools {
        while omniheap_pool_destroy(*pool) == Status::Busy {
            std::thread::yield_now();
        }
        assert_eq!(omniheap_pool_destroy(*pool), Status::Stale);
    }
    assert_eq!(omniheap_close(manager), Status::Ok);
}
