//! The macros that turn a HIP function into calls of the CUDA driver.

/// Calls a function of a table and turns the answer into a result.
macro_rules! cu {
    ($table:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $table.$name;
        // SAFETY: pointers are those the caller of the HIP function gave for this use, or variables of ours. CUDA asks of
        // them what HIP does, and the caller promised that.
        let result = unsafe { function($($argument),*) };
        $crate::state::note(stringify!($name), result);
        $crate::code::Code::from_cuda(result).check()
    }};
}

/// Exports HIP functions; each body gets the driver, with the context of the thread's device current.
macro_rules! export {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$cuda:pat_param| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $crate::code::Code {
            $crate::state::answer(|| {
                let $cuda = $crate::state::enter()?;
                $body
            })
        }
    )*};
}

/// Exports HIP functions that CUDA has with the same arguments.
macro_rules! forward {
    ($($name:ident => $target:ident($($argument:ident: $kind:ty),*);)*) => {
        $crate::export::export! {$(
            fn $name($($argument: $kind),*) |cuda| $crate::export::cu!(cuda, $target($($argument),*));
        )*}
    };
}

pub(crate) use {cu, export, forward};
