//! Exports of C functions, and the steps around their bodies.

use core::cell::Cell;

use crate::code::{Answer, Code};
use crate::count;
use crate::knobs::knobs;
use crate::life::{self, Needs};

/// The stream that zero stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// The legacy stream: one for the whole context, in order with its blocking streams.
    Legacy,
    /// The default stream of the calling thread.
    PerThread,
}

thread_local! {
    static DEFAULT: Cell<Default> = const { Cell::new(Default::Legacy) };
}

/// Returns the stream that zero stands for in this call.
pub(crate) fn default_stream() -> Default {
    DEFAULT.get()
}

/// Runs the body of an exported function.
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    default: Default,
    run: impl FnOnce() -> Answer,
) -> Code {
    count::call(name);
    DEFAULT.set(default);
    let code = life::admit(needs).and_then(|()| run()).err().unwrap_or(Code::SUCCESS);
    if knobs().is_logging {
        eprintln!("[cuda stand-in] {name} -> {}", code.0);
    }
    code
}

/// Exports functions under their names. The body's error becomes the code that C sees. Under the second name, zero stands for
/// the default stream of the calling thread. `export_anytime` is for functions that need no started driver.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident $(/ $own:ident)? ($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $crate::entry::one!(Start, Legacy, $(#[$doc])* $name ($($argument: $kind),*) $body);
        $crate::entry::own!($($own)?, $(#[$doc])* ($($argument: $kind),*) $body);
    )*};
}

/// Exports functions that need no started driver.
macro_rules! export_anytime {
    ($($(#[$doc:meta])* fn $name:ident $arguments:tt $body:block)*) => {$(
        $crate::entry::one!(Nothing, Legacy, $(#[$doc])* $name $arguments $body);
    )*};
}

/// Exports the second name of a function, where it has one.
macro_rules! own {
    (, $($rest:tt)*) => {};
    ($name:ident, $(#[$doc:meta])* ($($arguments:tt)*) $body:block) => {
        $crate::entry::one!(Start, PerThread, $(#[$doc])* $name ($($arguments)*) $body);
    };
}

macro_rules! one {
    ($needs:ident, $default:ident, $(#[$doc:meta])* $name:ident
        ($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> $crate::code::Code {
            $crate::entry::call(
                stringify!($name),
                $crate::life::Needs::$needs,
                $crate::entry::Default::$default,
                || -> $crate::code::Answer { $body },
            )
        }
    };
}

pub(crate) use {export, export_anytime, one, own};
