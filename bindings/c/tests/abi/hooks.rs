//! Log messages and memory pressure, as C receives them.
use super::*;
use core::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that a logger heard.
type Heard = Mutex<Vec<(u32, String)>>;

unsafe extern "C" fn hear(level: u32, message: *const c_char, user: *mut c_void) {
    // SAFETY: the library passes a C string that is good during the call.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the test passes its own list.
    let heard = unsafe { user.cast::<Heard>().as_ref() }.expect("not null");
    heard.lock().expect("nobody panics with it").push((level, message));
}

/// Lets one test at a time have the logger of the process.
pub(super) fn one_logger() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Other tests run beside this one and are heard too: its own shortage is told by its size.
const WANTED: u64 = (1 << 20) + 4242;

fn run_short() {
    let manager = open(1);
    let mut heaps = 0;
    assert_eq!(c!(omniheap_heap_count(manager, &raw mut heaps)), Status::Ok);
    for heap in 0..heaps {
        assert_eq!(omniheap_set_budget(manager, heap, 1 << 20, 1 << 20), Status::Ok);
    }
    let refused = ask(manager, &omniheap_request_default(WANTED)).err();
    assert_eq!(refused, Some(Status::OverBudget));
    assert_eq!(omniheap_close(manager), Status::Ok);
}

#[test]
fn a_logger_hears_shortages_by_name_until_it_is_replaced() {
    let _alone = one_logger();
    let heard = Heard::default();
    let user = (&raw const heard).cast_mut().cast::<c_void>();
    assert_eq!(c!(omniheap_set_logger(Some(hear), 9, user)), Status::InvalidArgument);
    assert_eq!(c!(omniheap_set_logger(Some(hear), OMNIHEAP_LOG_ERROR, user)), Status::Ok);
    run_short();
    let ours = |(_, text): &&(u32, String)| text.contains(&format!("size={WANTED}"));
    let errors = heard.lock().expect("nobody panics with it").clone();
    assert_eq!(errors.iter().find(ours), None, "a shortage is no error");
    assert_eq!(c!(omniheap_set_logger(Some(hear), OMNIHEAP_LOG_WARN, user)), Status::Ok);
    run_short();
    assert_eq!(c!(omniheap_set_logger(None, 0, ptr::null_mut())), Status::Ok);
    let before = heard.lock().expect("nobody panics with it").clone();
    assert!(before.iter().all(|(level, _)| *level <= OMNIHEAP_LOG_WARN), "{before:?}");
    let shortage = before.iter().find(ours).expect("the shortage was heard");
    assert_eq!(shortage.0, OMNIHEAP_LOG_WARN);
    assert!(shortage.1.starts_with("omniheap.out_of_memory "), "{shortage:?}");
    run_short();
    assert_eq!(heard.lock().expect("nobody panics with it").len(), before.len());
}

/// Allocation that a pressure callback frees.
struct Spare(Mutex<Option<OmniheapAllocation>>);

unsafe extern "C" fn relieve(_: u32, wanted: u64, _: u64, user: *mut c_void) -> u32 {
    // SAFETY: the test passes its own spare.
    let spare = unsafe { user.cast::<Spare>().as_ref() }.expect("not null");
    assert!(wanted > 0);
    let held = spare.0.lock().expect("nobody panics with it").take();
    held.map_or(0, |held| u32::from(omniheap_free(held) == Status::Ok))
}

#[test]
fn a_pressure_callback_frees_and_the_request_succeeds() {
    let manager = open(1);
    let request = OmniheapRequest { heap: 0, ..omniheap_request_default(6 << 20) };
    assert_eq!(omniheap_set_budget(manager, 0, 8 << 20, 8 << 20), Status::Ok);
    let spare = Spare(Mutex::new(Some(ask(manager, &request).expect("within the budget"))));
    let user = (&raw const spare).cast_mut().cast::<c_void>();
    assert_eq!(c!(omniheap_on_pressure(manager, Some(relieve), user)), Status::Ok);
    let made = ask(manager, &request).expect("the callback makes room");
    assert!(spare.0.lock().expect("nobody panics with it").is_none(), "it was asked");
    assert_eq!(ask(manager, &request).err(), Some(Status::OverBudget), "and has nothing more");
    assert_eq!(omniheap_free(made), Status::Ok);
    assert_eq!(omniheap_close(manager), Status::Ok);
}

/// A pool that a pressure callback wants to destroy, and what it was told.
struct Doomed(OmniheapPool, Mutex<Option<Status>>);

unsafe extern "C" fn destroy(_: u32, _: u64, _: u64, user: *mut c_void) -> u32 {
    // SAFETY: the test passes its own pool.
    let doomed = unsafe { user.cast::<Doomed>().as_ref() }.expect("not null");
    let told = omniheap_pool_destroy(doomed.0);
    *doomed.1.lock().expect("nobody panics with it") = Some(told);
    0
}

#[test]
fn a_pressure_callback_cannot_destroy_the_pool_that_asks() {
    let manager = open(1);
    assert_eq!(omniheap_set_budget(manager, 0, 8 << 20, 8 << 20), Status::Ok);
    let (config, mut pool) = (omniheap_pool_config_default(), OmniheapPool { id: 0 });
    assert_eq!(c!(omniheap_pool_create(manager, 0, &raw const config, &raw mut pool)), Status::Ok);
    let doomed = Doomed(pool, Mutex::new(None));
    let user = (&raw const doomed).cast_mut().cast::<c_void>();
    assert_eq!(c!(omniheap_on_pressure(manager, Some(destroy), user)), Status::Ok);
    let (large, mut none) = (omniheap_request_default(16 << 20), OmniheapAllocation { id: 0 });
    let refused = c!(omniheap_pool_allocate(pool, &raw const large, &raw mut none));
    assert_eq!(refused, Status::OverBudget);
    let told = *doomed.1.lock().expect("nobody panics with it");
    assert_eq!(told, Some(Status::Busy), "it is in use, and nobody waits for himself");
    assert_eq!((omniheap_pool_destroy(pool), omniheap_close(manager)), (Status::Ok, Status::Ok));
}
