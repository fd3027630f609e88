//! System packages for the tests: a Vulkan loader, a software driver, validation layers; C build tools; a
//! browser.
use crate::step::{Outcome, status};
use std::process::{Command, Stdio};

const PACKAGES: [&str; 7] = [
    "libvulkan1",
    "mesa-vulkan-drivers",
    "vulkan-validationlayers",
    "cmake",
    "pkg-config",
    "valgrind",
    "chromium",
];

/// Installs what is missing where that is possible, and says what to install where it is not.
///
/// Never fails: without these packages the Vulkan and wgpu tests report that no device is here, the C tests what
/// they skip, and the tests of the report's page that they were ignored.
pub(crate) fn prepare() -> Outcome {
    if !runs("dpkg-query", &["--version"]) {
        println!("    not Debian or Ubuntu: for the Vulkan tests, install a Vulkan loader, Mesa's");
        println!("    lavapipe driver and the Khronos validation layers; for the C tests, CMake,");
        println!("    pkg-config and valgrind; for the report's page, Chromium");
        return Ok(());
    }
    let missing: Vec<_> = PACKAGES.into_iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        println!("    all there: {}", PACKAGES.join(" "));
        return Ok(());
    }
    let line = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        println!("    for all tests, run as root: {line}");
        return Ok(());
    }
    println!("    {line}");
    if let Err(why) = install(&missing) {
        println!("    {why}; going on without");
    }
    Ok(())
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
