//! Structs of older and newer headers.
use super::*;

/// A request as an older or newer header has it: so many bytes of it are there.
#[repr(C)]
#[derive(Clone, Copy)]
struct Newer {
    known: OmniheapRequest,
    added: [u64; 2],
}

fn newer(added: [u64; 2]) -> Newer {
    let struct_size = size_of::<Newer>();
    Newer { known: OmniheapRequest { struct_size, ..omniheap_request_default(64) }, added }
}

fn pass(manager: OmniheapManager, request: &Newer) -> Result<OmniheapAllocation, Status> {
    let mut made = OmniheapAllocation { id: 0 };
    let request = (&raw const *request).cast::<OmniheapRequest>();
    match c!(omniheap_allocate(manager, request, &raw mut made)) {
        Status::Ok => Ok(made),
        status => Err(status),
    }
}

#[test]
fn a_newer_struct_is_taken_where_it_says_nothing_new() {
    let manager = open(0);
    let made = pass(manager, &newer([0, 0])).expect("only zeros are new");
    assert_eq!(omniheap_free(made), Status::Ok);
    for added in [[1, 0], [0, 1 << 63]] {
        assert_eq!(pass(manager, &newer(added)).err(), Some(Status::Unsupported));
        assert!(message().contains("install the library of your header"), "{}", message());
    }
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
    assert_eq!(sums.live, 0, "a refused request changes nothing");
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn a_size_that_nobody_set_is_refused() {
    let manager = open(0);
    let first = core::mem::offset_of!(OmniheapRequest, user);
    for struct_size in [0, 8, first - 1, 4097, usize::MAX] {
        let request = OmniheapRequest { struct_size, ..omniheap_request_default(64) };
        assert_eq!(ask(manager, &request).err(), Some(Status::InvalidArgument), "{struct_size}");
        let expected = format!("request.struct_size is {struct_size}; start from");
        assert!(message().contains(&expected), "{}", message());
    }
    let mut pool = OmniheapPool { id: 0 };
    let config = OmniheapPoolConfig { struct_size: 0, ..omniheap_pool_config_default() };
    let status = c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool));
    assert_eq!((status, pool.id), (Status::InvalidArgument, 0));
    let budget = OmniheapBudget { struct_size: 1, ..omniheap_budget_default() };
    let (none, user) = (ptr::null_mut(), ptr::null_mut());
    let status = c!(omniheap_defragment_pass(manager, &raw const budget, None, None, user, none));
    assert_eq!(status, Status::InvalidArgument);
    assert!(message().contains("omniheap_budget_default()"), "{}", message());
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn the_usual_values_fill_the_callers_size_and_no_more() {
    let mut longer = newer([7, 7]);
    let settings = (&raw mut longer).cast::<OmniheapRequest>();
    let size = size_of::<OmniheapRequest>() + 8;
    assert_eq!(c!(omniheap_request_init(settings, size, 99)), Status::Ok);
    assert_eq!((longer.known.struct_size, longer.known.size), (size, 99));
    assert_eq!(longer.added, [0, 7], "what the library does not know is zero, the rest untouched");
    let refused = [
        c!(omniheap_request_init(settings, 8, 5)),
        c!(omniheap_config_init(ptr::null_mut(), 64)),
        c!(omniheap_sleep_init(ptr::null_mut(), 0)),
        c!(omniheap_budget_init(ptr::null_mut(), 0)),
        c!(omniheap_pool_config_init(ptr::null_mut(), 0)),
        c!(omniheap_vulkan_device_init(ptr::null_mut(), 0)),
        c!(omniheap_vulkan_bind_init(ptr::null_mut(), 0)),
    ];
    assert_eq!(refused[0], Status::InvalidArgument);
    assert_eq!(refused[1..], [Status::NullArgument; 6]);
    assert_eq!(longer.known.size, 99, "a refused call writes nothing");
}

/// Checks that a call fills structs of every age as it should.
///
/// Behind the caller's struct are canaries.
fn fills<T>(name: &str, call: impl Fn(*mut T) -> Status) {
    const CANARY: u64 = 0x5ca1_ab1e_0ddb_a115;
    let whole = size_of::<T>();
    let memory = |struct_size: usize| {
        let mut words = [CANARY; 32];
        words[0] = struct_size as u64;
        words
    };
    for struct_size in [0, 8, whole / 2, 4097, usize::MAX] {
        let mut words = memory(struct_size);
        assert_eq!(call(words.as_mut_ptr().cast()), Status::InvalidArgument, "{name}");
        let said = format!("{name}.struct_size is {struct_size}; start from omniheap_");
        assert!(message().contains(&said), "{}", message());
        assert_eq!(words[1..], [CANARY; 31], "{name}: a refused call writes nothing");
    }
    for struct_size in [whole, whole + 8, 256] {
        let mut words = memory(struct_size);
        assert_eq!(call(words.as_mut_ptr().cast()), Status::Ok, "{name}: {}", message());
        assert_eq!(words[0], struct_size as u64, "{name}: the size is the caller's");
        let (filled, behind) = words[1..].split_at(whole / 8 - 1);
        assert!(filled.iter().all(|word| *word != CANARY), "{name}: {filled:x?}");
        assert!(behind.iter().all(|word| *word == CANARY), "{name}: {behind:x?}");
    }
}

#[test]
fn what_the_library_fills_ends_where_the_caller_says() {
    let manager = open(0);
    let made = ask(manager, &omniheap_request_default(64)).expect("small");
    fills("place", |place| c!(omniheap_place(made, place)));
    fills("totals", |totals| c!(omniheap_totals(manager, totals)));
    fills("about", |about| c!(omniheap_heap(manager, 0, about)));
    let request = omniheap_request_default(64);
    fills("plan", |plan| c!(omniheap_plan(manager, &raw const request, plan)));
    fills("moved", |moved| c!(omniheap_defragmented(manager, moved)));
    fills("moved", |moved| c!(omniheap_step(manager, &raw mut *Box::new(0), moved)));
    fills("guards", |guards| c!(omniheap_guards(manager, guards)));
    let (budget, user) = (omniheap_budget_default(), ptr::null_mut());
    fills("moved", |moved| {
        c!(omniheap_defragment_pass(manager, &raw const budget, None, None, user, moved))
    });
    fills("moved", |moved| {
        let mut pass = OmniheapPass { id: 0 };
        let begun = c!(omniheap_begin_defragment(manager, &raw const budget, &raw mut pass));
        assert_eq!(begun, Status::Ok, "{}", message());
        let status = c!(omniheap_pass_commit(pass, ptr::null_mut(), 0, moved));
        let refused = omniheap_pass_abort(pass);
        assert_eq!(refused == Status::Ok, status != Status::Ok, "a refused commit ends nothing");
        if status == Status::Ok { status } else { c!(omniheap_defragmented(manager, moved)) }
    });
    assert_eq!((omniheap_free(made), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
#[cfg(target_os = "linux")]
fn a_pool_sleeps_only_where_it_can_tell() {
    let manager = open(0);
    let config = OmniheapPoolConfig { sleepable: 1, ..omniheap_pool_config_default() };
    let mut pool = OmniheapPool { id: 0 };
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    fills("residence", |residence| c!(omniheap_pool_residence(pool, residence)));
    fills("slept", |slept| {
        let status = c!(omniheap_pool_sleep(pool, ptr::null(), slept));
        let mut now = OmniheapResidence::default();
        assert_eq!(c!(omniheap_pool_residence(pool, &raw mut now)), Status::Ok);
        assert_eq!(now.asleep == 1, status == Status::Ok, "a refused sleep changes nothing");
        if status == Status::Ok {
            assert_eq!(omniheap_pool_wake(pool), Status::Ok);
        }
        status
    });
    assert_eq!((omniheap_pool_destroy(pool), omniheap_close(manager)), (Status::Ok, Status::Ok));
}

#[test]
fn a_struct_that_is_not_there_is_called_by_its_name() {
    assert_eq!(c!(omniheap_budget_init(ptr::null_mut(), 64)), Status::NullArgument);
    assert!(message().contains("budget is a null pointer"), "{}", message());
}

#[test]
fn a_message_outlives_the_next_failures() {
    assert_eq!(omniheap_free(OmniheapAllocation { id: 0 }), Status::Stale);
    let first = omniheap_error();
    // SAFETY: the messages of the last sixteen failures are kept.
    let read = || unsafe { CStr::from_ptr(first) }.to_owned();
    let text = read();
    for _ in 0..15 {
        let status = c!(omniheap_open(c"nothing".as_ptr(), 0, ptr::null(), ptr::null_mut()));
        assert_eq!(status, Status::InvalidArgument);
        assert_ne!(omniheap_error(), first);
        assert_eq!(read(), text);
    }
    assert!(message().contains("there is no backend"), "{}", message());
}
