//! System packages for the tests: a Vulkan loader and its headers, a software driver, validation layers; C build tools; a
//! browser.
use crate::step::{Outcome, status};
use std::process::{Command, Stdio};

const PACKAGES: [&str; 8] = [
    "libvulkan1",
    "libvulkan-dev",
    "mesa-vulkan-drivers",
    "vulkan-validationlayers",
    "cmake",
    "pkg-config",
    "valgrind",
    "chromium",
];

/// Installs what is missing, or says what to install where only its user can.
pub(crate) fn set_up() -> Outcome {
    if !runs("dpkg-query", &["--version"]) {
        return Err(format!("{ELSEWHERE}; then run `cargo xtask test`"));
    }
    let missing = missing();
    if missing.is_empty() {
        println!("all there: {}", PACKAGES.join(" "));
        return Ok(());
    }
    if !is_root() {
        let line = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
        return Err(format!("run this again as root, or run as root: {line}"));
    }
    install(&missing)
}

/// Installs what is missing where it may, and says what is missing then. Never fails: without these packages the Vulkan and wgpu tests report that no device is here, the C
/// tests what they skip, and the tests of the report's page that they were ignored.
pub(crate) fn prepare() -> Outcome {
    if !runs("dpkg-query", &["--version"]) {
        println!("    {ELSEWHERE}");
        return Ok(());
    }
    if is_root() && !missing().is_empty() {
        let _ = install(&missing());
    }
    match missing() {
        missing if missing.is_empty() => println!("    all there: {}", PACKAGES.join(" ")),
        missing => println!(
            "    *** NOT TESTED: what needs {}; `cargo xtask setup` as root installs it",
            missing.join(" ")
        ),
    }
    Ok(())
}

/// Advice on what to install where there is no `apt-get`.
const ELSEWHERE: &str = "not Debian or Ubuntu: for the Vulkan tests, install a Vulkan loader with its headers, Mesa's lavapipe driver and the \
    Khronos validation layers; for the C tests, CMake, pkg-config and valgrind; for the report's page, Chromium";

fn missing() -> Vec<&'static str> {
    PACKAGES.into_iter().filter(|package| !is_installed(package)).collect()
}

fn install(packages: &[&str]) -> Outcome {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command
    };
    // Old lists may still do; the installation says so if not.
    let _ = status("apt-get update", apt().args(["-q", "update"]));
    let install = ["-q", "install", "-y", "--no-install-recommends"];
    status("apt-get install", apt().args(install).args(packages))
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]).output();
    query.is_ok_and(|answer| answer.stdout.ends_with(b"install ok installed"))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|answer| answer.stdout.trim_ascii() == b"0")
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
