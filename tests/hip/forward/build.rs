//! Gives the shared library the name that programs know AMD's HIP runtime by.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so");
    println!("cargo:rerun-if-changed=build.rs");
}
