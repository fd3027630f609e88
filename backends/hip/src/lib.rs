//! HIP backend of omniheap: AMD's runtime, found at run time; no toolkit at build time.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | types, values and tables of functions, as AMD declares them |
//! | `driver` | one function for each call, codes to error kinds, the thread's device chosen and restored |
//! | `rtc` | the run-time compiler, and checked names of architectures |

#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod rtc;
#[doc(hidden)]
pub mod sys;
