//! What the fuzz targets run. Each area has a file here; each function of it is a target.
pub mod trace;
