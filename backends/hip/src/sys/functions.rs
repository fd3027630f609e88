//! The macro that declares a table of functions and how it is filled.

/// Declares a structure of function pointers, each field named as its symbol, with `load` to fill it.
macro_rules! functions {
    ($(#[$doc:meta])* $group:ident { $($name:ident($($argument:ty),*) -> $answer:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $group {$(
            #[doc = concat!("AMD's `", stringify!($name), "`.")]
            pub $name: unsafe extern "C" fn($($argument),*) -> $answer,
        )*}

        impl $group {
            /// Finds every function of the group in `library`; answers the name of the first that is missing.
            pub(super) fn load(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {$(
                    $name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the one AMD's header declares for this C symbol, which is not versioned;
                        // `tests/hip/abi-check` holds it against `hip-sys`. `Api` never unloads the library.
                        let symbol = unsafe { library.get(name.as_bytes()) };
                        *symbol.map_err(|_| stringify!($name))?
                    },
                )*})
            }
        }
    };
}

pub(super) use functions;
