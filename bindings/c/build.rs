//! Names the shared library after the part of the version that its ABI depends on. `bindings/vma` uses it too.
fn main() {
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "linux" || target == "android" || target == "freebsd" {
        let [major, minor] = ["MAJOR", "MINOR"]
            .map(|part| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default());
        let name = std::env::var("CARGO_PKG_NAME").unwrap_or_default().replace('-', "_");
        // `rustc-link-arg` is for this package alone. Cargo would pass `rustc-cdylib-link-arg` on to the libraries of dependent packages.
        println!("cargo:rustc-link-arg=-Wl,-soname,lib{name}.so.{major}.{minor}");
    }
    println!("cargo:rerun-if-changed=../c/build.rs");
}
