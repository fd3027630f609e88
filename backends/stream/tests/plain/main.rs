//! The shared device over a driver of plain host memory, where no vendor's library is needed.
mod all;
mod cases;
mod driver;
mod rig;
mod streams;
