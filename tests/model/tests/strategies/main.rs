//! Every strategy against the shadow model.
mod exhaustive;
mod long;
mod promises;
mod random;
mod tlsf;
