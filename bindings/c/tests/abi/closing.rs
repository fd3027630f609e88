//! Closing and freeing while calls run: what another thread is told that closes a manager inside each callback, and frees of what a call uses.
use super::*;
use core::ffi::{c_char, c_int};
use std::sync::Mutex;
use weights::{File, load, target};

/// Answer to a thread that closes a manager inside a callback.
struct Closer {
    manager: OmniheapManager,
    told: Mutex<Option<(Status, String)>>,
}

impl Closer {
    const fn of(manager: OmniheapManager) -> Self {
        Self { manager, told: Mutex::new(None) }
    }

    fn user(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    /// Closes on another thread, from the callback that got `user`.
    fn close(user: *mut c_void) {
        // SAFETY: the tests pass their own.
        let closer = unsafe { user.cast::<Self>().as_ref() }.expect("not null");
        let manager = closer.manager;
        let close = move || (omniheap_close(manager), message());
        let told = std::thread::spawn(close).join().expect("no panic");
        *closer.told.lock().expect("nobody panics with it") = Some(told);
    }

    /// Checks the answer of the callback; the manager closes behind the call.
    fn end(self, because: &str) {
        let told = self.told.into_inner().expect("nobody panics with it");
        let (status, message) = told.expect("the callback was called");
        assert_eq!(status, Status::Busy, "{message}");
        assert!(message.contains(because), "{message}");
        assert_eq!(omniheap_close(self.manager), Status::Ok, "{}", self::message());
    }
}

unsafe extern "C" fn close_under_pressure(_: u32, _: u64, _: u64, user: *mut c_void) -> u32 {
    Closer::close(user);
    0
}

#[test]
fn a_request_that_calls_back_keeps_its_manager() {
    let closer = Closer::of(open(1));
    let (manager, user) = (closer.manager, closer.user());
    assert_eq!(c!(omniheap_on_pressure(manager, Some(close_under_pressure), user)), Status::Ok);
    assert_eq!(omniheap_set_budget(manager, 0, 1 << 20, 1 << 20), Status::Ok);
    let large = OmniheapRequest { heap: 0, ..omniheap_request_default(4 << 20) };
    assert_eq!(ask(manager, &large).err(), Some(Status::OverBudget));
    closer.end("another call uses the manager");
}

unsafe extern "C" fn close_meanwhile(_: u64, _: u64, user: *mut c_void) -> c_int {
    Closer::close(user);
    0
}

#[test]
fn a_load_to_host_memory_keeps_its_manager() {
    let (file, closer) = (File::new("closing.safetensors"), Closer::of(open(1)));
    let (weights, mut bytes) = (file.open(), [0_u8; 16]);
    let none = OmniheapAllocation { id: 0 };
    let host = OmniheapWeightsTarget {
        host: bytes.as_mut_ptr().cast(),
        capacity: bytes.len(),
        ..target(c"first", none, 0)
    };
    let loaded = load(closer.manager, weights, &[host], Some(close_meanwhile), closer.user());
    assert_eq!((loaded, bytes[15]), (Status::Ok, 16), "{}", message());
    assert_eq!(omniheap_weights_close(weights), Status::Ok);
    closer.end("another call uses the manager");
}

unsafe extern "C" fn close_inside(_: u64, _: u32, user: *mut c_void) {
    Closer::close(user);
}

#[test]
fn a_queue_that_is_lent_keeps_its_manager() {
    let mut manager = OmniheapManager { id: 0 };
    if c!(omniheap_open(c"vulkan".as_ptr(), 0, ptr::null(), &raw mut manager)) != Status::Ok {
        println!("SKIPPED: no Vulkan device here: {}", message());
        return;
    }
    let closer = Closer::of(manager);
    let lent = c!(omniheap_vulkan_with_queue(manager, 0, Some(close_inside), closer.user()));
    assert_eq!(lent, Status::Ok, "{}", message());
    closer.end("another call uses the manager");
}

unsafe extern "C" fn close_before_a_move(_: *const OmniheapMove, user: *mut c_void) -> u32 {
    Closer::close(user);
    OMNIHEAP_MOVE_IGNORE
}

unsafe extern "C" fn move_all(_: *const OmniheapMove, _: *mut c_void) -> u32 {
    OMNIHEAP_MOVE_COPY
}

unsafe extern "C" fn close_after_a_move(_: *const OmniheapMove, _: u32, user: *mut c_void) {
    Closer::close(user);
}

/// One of the two functions that run a pass.
type RunPass = unsafe extern "C" fn(
    OmniheapManager,
    *const OmniheapBudget,
    OmniheapMover,
    OmniheapMoveDone,
    *mut c_void,
    *mut OmniheapMoved,
) -> Status;

/// Closes in each callback of a pass over what `scatter` allocates.
fn close_in_a_pass(run: RunPass, scatter: fn(OmniheapManager) -> Vec<OmniheapAllocation>) {
    let callbacks: [(OmniheapMover, OmniheapMoveDone); 2] =
        [(Some(close_before_a_move), None), (Some(move_all), Some(close_after_a_move))];
    for (mover, done) in callbacks {
        let closer = Closer::of(open(0));
        let (manager, user) = (closer.manager, closer.user());
        let kept = scatter(manager);
        let (budget, mut moved) = (omniheap_budget_default(), OmniheapMoved::default());
        let passed = c!(run(manager, &raw const budget, mover, done, user, &raw mut moved));
        assert_eq!(passed, Status::Ok, "{}", message());
        assert_eq!(moved.moves > 0, done.is_some());
        kept.into_iter().for_each(|one| assert_eq!(omniheap_free(one), Status::Ok));
        closer.end("are live");
    }
}

#[test]
fn a_pass_keeps_its_manager() {
    close_in_a_pass(omniheap_defragment_pass, |manager| {
        let request = omniheap_request_default(256 << 10);
        let all: Vec<_> = (0..400).map(|_| ask(manager, &request).expect("room")).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(at, _)| at % 7 == 0);
        freed.into_iter().for_each(|(_, one)| assert_eq!(omniheap_free(one), Status::Ok));
        kept.into_iter().map(|(_, one)| one).collect()
    });
}

#[test]
fn a_recall_keeps_its_manager() {
    close_in_a_pass(omniheap_recall_pass, |manager| {
        let flags = OMNIHEAP_MAY_SPILL;
        let request = OmniheapRequest { flags, ..omniheap_request_default(256 << 10) };
        assert_eq!(omniheap_set_budget(manager, 0, 0, 0), Status::Ok, "the first heap is full");
        let spilled = (0..3).map(|_| ask(manager, &request).expect("host memory")).collect();
        assert_eq!(omniheap_set_budget(manager, 0, u64::MAX, u64::MAX), Status::Ok);
        spilled
    });
}

/// A size by which the shortage of this test is told from those of tests beside it.
const TOLD: u64 = (4 << 20) + 1717;

unsafe extern "C" fn close_in_a_line(_: u32, message: *const c_char, user: *mut c_void) {
    // SAFETY: the library passes a C string that is good during the call.
    if unsafe { CStr::from_ptr(message) }.to_string_lossy().contains(&format!("size={TOLD}")) {
        Closer::close(user);
    }
}

#[test]
fn a_line_that_is_logged_keeps_its_manager() {
    let _alone = hooks::one_logger();
    let closer = Closer::of(open(1));
    assert_eq!(omniheap_set_budget(closer.manager, 0, 1 << 20, 1 << 20), Status::Ok);
    let logger = omniheap_set_logger;
    assert_eq!(c!(logger(Some(close_in_a_line), OMNIHEAP_LOG_WARN, closer.user())), Status::Ok);
    let large = OmniheapRequest { heap: 0, ..omniheap_request_default(TOLD) };
    assert_eq!(ask(closer.manager, &large).err(), Some(Status::OverBudget));
    assert_eq!(c!(logger(None, 0, ptr::null_mut())), Status::Ok);
    closer.end("another call uses the manager");
}

/// Frees what a load writes to and closes its files, while it runs.
struct Freer {
    made: OmniheapAllocation,
    /// A timeline and an epoch to free behind.
    after: Option<(u32, u64)>,
    weights: OmniheapWeights,
    told: Vec<Status>,
}

unsafe extern "C" fn free_meanwhile(_: u64, _: u64, user: *mut c_void) -> c_int {
    // SAFETY: the test passes its own.
    let freer = unsafe { user.cast::<Freer>().as_mut() }.expect("not null");
    freer.told.push(match freer.after {
        Some((timeline, epoch)) => omniheap_free_after(freer.made, timeline, epoch),
        None => omniheap_free(freer.made),
    });
    freer.told.push(omniheap_weights_close(freer.weights));
    0
}

fn totals(manager: OmniheapManager) -> OmniheapTotals {
    let mut sums = OmniheapTotals::default();
    assert_eq!(c!(omniheap_retire(manager, ptr::null_mut())), Status::Ok);
    assert_eq!(c!(omniheap_totals(manager, &raw mut sums)), Status::Ok);
    sums
}

#[test]
fn a_free_is_never_busy_and_waits_for_the_call_that_uses_the_bytes() {
    let (file, manager) = (File::new("freed.safetensors"), open(0));
    let (mut timeline, mut epoch) = (0, 0);
    assert_eq!(c!(omniheap_timeline_open(manager, &raw mut timeline)), Status::Ok);
    assert_eq!(c!(omniheap_timeline_mark(manager, timeline, &raw mut epoch)), Status::Ok);
    for after in [None, Some((timeline, epoch + 1))] {
        let weights = file.open();
        let made = ask(manager, &omniheap_request_default(4096)).expect("room");
        let mut freer = Freer { made, after, weights, told: vec![] };
        let (target, user) = ([target(c"first", made, 0)], (&raw mut freer).cast());
        let loaded = load(manager, weights, &target, Some(free_meanwhile), user);
        assert_eq!(loaded, Status::Ok, "{}", message());
        assert_eq!(freer.told[..2], [Status::Ok; 2], "a free always succeeds");
        assert!(freer.told[2..].iter().all(|told| *told == Status::Stale), "{:?}", freer.told);
        assert_eq!(totals(manager).waiting_bytes > 0, after.is_some(), "freed behind the load");
    }
    let other = OmniheapRequest { timeline, ..omniheap_request_default(64) };
    let other = ask(manager, &other).expect("small");
    assert_eq!(omniheap_fill(other, 0, 64, 1), Status::Ok);
    assert_eq!(omniheap_timeline_wait(manager, timeline, epoch + 1), Status::Ok);
    assert_eq!((omniheap_free(other), totals(manager).waiting_bytes), (Status::Ok, 0));
    assert_eq!(omniheap_close(manager), Status::Ok);
}
