//! What the fuzz targets run. Each area has a file here; each function of it is a target.
pub mod manager;
pub mod plan;
pub mod trace;
