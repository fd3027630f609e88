//! Bodies of the fuzz targets. Each area has a file here; each function is a target.
pub mod arbiter;
pub mod manager;
pub mod plan;
pub mod trace;
pub mod weights;
