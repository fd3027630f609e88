//! Every strategy against the shadow model.
mod exhaustive;
mod promises;
mod random;
