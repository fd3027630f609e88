//! Opens the windows: see `windows` in `core/manager/src/sync/lock.rs`.
fn main() {
    println!("cargo::rustc-cfg=windows_between_locks");
}
