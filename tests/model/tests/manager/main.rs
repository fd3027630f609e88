//! Promises of managers, on host memory.
//!
//! One binary, because each builds the manager anew; `host_memory` is another, because it counts for its whole process.
mod before;
mod callbacks;
mod closed;
mod coins;
mod dedicated;
mod defragment;
mod defragment_soak;
mod driver_budget;
mod exchange;
mod holes;
mod lost;
mod missed;
mod named;
mod once_missed;
mod ordered;
mod overlay;
mod own_strategy;
mod pack;
mod page_groups;
mod promises;
mod recall;
mod recall_threads;
mod remap_or_copy;
mod runs;
mod schedule;
mod secrets;
mod teardown;
mod undeclared;
mod uploads;
mod vma_issues;
mod warm;
