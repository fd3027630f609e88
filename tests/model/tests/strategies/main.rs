//! Every strategy against the shadow model.
mod choice;
mod exhaustive;
mod long;
mod promises;
mod random;
mod tlsf;
