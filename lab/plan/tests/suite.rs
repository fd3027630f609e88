//! The planner's integration tests: one binary.

#[path = "suite/activation.rs"]
mod activation;
#[path = "suite/brute.rs"]
mod brute;
#[path = "suite/certificates.rs"]
mod certificates;
#[path = "suite/corpus.rs"]
mod corpus;
#[path = "suite/files.rs"]
mod files;
#[path = "suite/hard.rs"]
mod hard;
#[path = "suite/known.rs"]
mod known;
#[path = "suite/numbers.rs"]
mod numbers;
#[path = "suite/properties.rs"]
mod properties;
#[path = "suite/saved.rs"]
mod saved;
#[path = "suite/shortage.rs"]
mod shortage;
#[path = "suite/small.rs"]
mod small;
#[path = "suite/wrong.rs"]
mod wrong;
