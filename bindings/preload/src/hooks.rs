//! The macro that makes a vendor's table: its driver's functions, and ours that programs get instead of some of them.

/// Declares the functions of a driver. `asks` are called alone. `answers` are exported as well: each gives our answer or else the
/// driver's, and may take a note of the driver's. `gates` are exported, and wait while memory sleeps.
macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident;
        asks { $($asked:ident($($asked_kind:ty),*);)* }
        answers {$(
            fn $symbol:ident($($argument:ident: $kind:ty),*)
                $(as $name:literal $since:literal..$until:expr, $per_thread:literal)?
                = |$real:ident| $own:expr $(; then |$code:pat_param| $note:expr)?;
        )*}
        gates {$(
            fn $work:ident($($given:ident: $given_kind:ty),*)
                $(as $work_name:literal $work_since:literal..$work_until:expr, $work_thread:literal)?;
        )*}
    ) => {
        $(#[$doc])*
        #[expect(non_snake_case, reason = "the driver's names")]
        pub(crate) struct $table {
            $(pub(crate) $asked: Option<unsafe extern "C" fn($($asked_kind),*) -> $crate::Code>,)*
            $(pub(crate) $symbol: Option<unsafe extern "C" fn($($kind),*) -> $crate::Code>,)*
            $(pub(crate) $work: Option<unsafe extern "C" fn($($given_kind),*) -> $crate::Code>,)*
        }

        impl $table {
            /// All functions that programs get.
            const HOOKS: &[Hook] = &[
                $(Hook {
                    $(name: $name, since: $since, until: $until, per_thread: $per_thread,)?
                    ..Hook::plain(stringify!($symbol), $symbol as *const ())
                },)*
                $(Hook {
                    $(name: $work_name, since: $work_since, until: $work_until, per_thread: $work_thread,)?
                    ..Hook::plain(stringify!($work), $work as *const ())
                },)*
            ];

            /// Finds the driver's functions, once.
            #[inline]
            fn find() -> Option<&'static Self> {
                static FOUND: std::sync::OnceLock<$table> = std::sync::OnceLock::new();
                if let Some(found) = FOUND.get() {
                    return Some(found);
                }
                let library = DOOR.library();
                (!library.is_null()).then(|| FOUND.get_or_init(|| Self {
                    $($asked: $crate::hooks::function!(library, $asked($($asked_kind),*)),)*
                    $($symbol: $crate::hooks::function!(library, $symbol($($kind),*)),)*
                    $($work: $crate::hooks::function!(library, $work($($given_kind),*)),)*
                }))
            }
        }

        $($crate::hooks::export! { $table
            fn $symbol($($argument: $kind),*) = |$real| $own $(; then |$code| $note)?;
        })*
        $($crate::hooks::export! { $table
            fn $work($($given: $given_kind),*)
                = |real| { $crate::gate::pass(); None }; then |_| $crate::gate::leave();
        })*
    };
}

/// Looks a function of a driver up.
macro_rules! function {
    ($library:ident, $name:ident($($kind:ty),*)) => {{
        let name = concat!(stringify!($name), "\0").as_ptr().cast();
        // SAFETY: the library stays loaded, and the name is a C string.
        let found = unsafe { $crate::real::look_up($library, name) };
        // SAFETY: the signature is the documented one; null is `None`.
        unsafe {
            core::mem::transmute::<
                *mut c_void,
                Option<unsafe extern "C" fn($($kind),*) -> $crate::Code>,
            >(found)
        }
    }};
}

/// Exports a function of a driver.
macro_rules! export {
    ($table:ident fn $symbol:ident($($argument:ident: $kind:ty),*)
        = |$real:ident| $own:expr $(; then |$code:pat_param| $note:expr)?;) => {
        #[allow(clippy::allow_attributes, non_snake_case, clippy::unused_unit, reason = "the driver's names")]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $symbol($($argument: $kind),*) -> $crate::Code {
            let Some($real) = <$table as $crate::vendor::Vendor>::driver() else {
                return $crate::hooks::NOT_INITIALIZED;
            };
            let Some(function) = $real.$symbol else { return $crate::hooks::NOT_FOUND };
            if let Some(code) = $crate::hooks::answer(|| $own) {
                return code;
            }
            let passed = <$table as $crate::vendor::Vendor>::pass_on();
            // SAFETY: the caller's arguments, as it passed them.
            let code = unsafe { function($($argument),*) };
            drop(passed);
            $({ let $code = code; $crate::hooks::answer(|| { $note; None }); })?
            code
        }
    };
}

pub(crate) use {export, function, table};

use crate::Code;
use crate::inside::Inside;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// Answer where there is no driver.
pub(crate) const NOT_INITIALIZED: Code = 3;
/// Answer where the driver has no such function.
pub(crate) const NOT_FOUND: Code = 500;
/// Answer after a bug of ours.
const UNKNOWN: Code = 999;

/// Runs our own answer to a call. `None` if the driver must answer.
#[inline]
pub(crate) fn answer(own: impl FnOnce() -> Option<Code>) -> Option<Code> {
    let _inside = Inside::enter()?;
    catch_unwind(AssertUnwindSafe(own)).unwrap_or(Some(UNKNOWN))
}
