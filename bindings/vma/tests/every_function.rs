//! Every function of the interface, from C and from C++, with both libraries, with linked and with loaded functions of Vulkan, and under
//! the address sanitizer: `every_function.c`.
#![cfg(target_os = "linux")]
use core::sync::atomic::{AtomicU32, Ordering};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of a library: it lies in the folder of this test, or one up.
fn library(name: &str) -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let folders = test.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join(name)).filter(|path| path.exists());
    found.next().unwrap_or_else(|| panic!("{name} was not built beside the test"))
}

/// Returns a folder of this process, in which the loader finds the library under the name that programs know it by.
fn folder() -> PathBuf {
    let folder = env::temp_dir().join(format!("omniheap-vma-every-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let abi = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    // Another test may have made it: it is the same link.
    let name = folder.join(format!("libomniheap_vma.so.{abi}"));
    let _ = std::os::unix::fs::symlink(library("libomniheap_vma.so"), name);
    folder
}

/// Returns true if a compiler finds the programs' headers, and links with these flags.
fn has(compiler: &str, flags: &[&str]) -> bool {
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let file = folder().join(format!("probe-{}.c", PROBES.fetch_add(1, Ordering::Relaxed)));
    let text = "#include <vulkan/vulkan.h>\nint main(void) { return 0; }\n";
    fs::write(&file, text).expect("the temporary folder can be written");
    let mut probe = Command::new(compiler);
    probe.arg(&file).arg("-o").arg(file.with_extension("out")).args(flags);
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Compiles the program in the language of `source`, links it with `library`, runs it, and checks what it says.
fn run(source: &str, library_name: &str, flags: &[&str]) {
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let linked: Vec<&str> = flags.iter().copied().filter(|flag| !flag.starts_with("-D")).collect();
    if !has(compiler, &linked) {
        println!("SKIPPED: no {compiler}, no Vulkan headers (libvulkan-dev), or not {linked:?}");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let number = BUILDS.fetch_add(1, Ordering::Relaxed);
    let output = folder().join(format!("{source}-{number}"));
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(here.join("include"));
    compile.arg(if compiler == "cc" { "-std=gnu99" } else { "-std=c++11" });
    compile.arg(here.join("tests").join(source)).arg("-o").arg(&output);
    compile.arg(library(library_name)).arg(format!("-Wl,-rpath,{}", folder().display()));
    let built = compile.args(flags).args(["-lpthread", "-ldl", "-lm"]).output();
    let built = built.expect("the compiler was found");
    assert!(built.status.success(), "{source}: {}", String::from_utf8_lossy(&built.stderr));
    // Drivers keep memory until the process ends, and are unloaded before the sanitizer looks for its owners.
    let done = Command::new(&output).env("ASAN_OPTIONS", "detect_leaks=0").output();
    let done = done.expect("it was built just now");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    if said.starts_with("skipped") {
        println!("SKIPPED: {said}");
        return;
    }
    assert!(done.status.success() && said == "ok\n", "{source} {flags:?}: {said}\n{errors}");
}

/// Functions that the program loads.
const LOADED: &str = "-DVK_NO_PROTOTYPES";

/// The loader of Vulkan, for functions that the program links.
const LOADER: &str = "-l:libvulkan.so.1";

#[test]
fn c_calls_every_function() {
    run("every_function.c", "libomniheap_vma.so", &[LOADED]);
}

#[test]
fn cpp_calls_every_function_with_linked_functions_of_vulkan() {
    run("every_function.cpp", "libomniheap_vma.so", &[LOADER, "-DVMA_VULKAN_VERSION=1001000"]);
}

#[test]
fn the_archive_has_every_function() {
    run("every_function.c", "libomniheap_vma.a", &[LOADED]);
}

#[test]
fn every_function_is_clean_under_the_address_sanitizer() {
    let sanitized = ["-fsanitize=address", "-fno-omit-frame-pointer", LOADED];
    run("every_function.cpp", "libomniheap_vma.so", &sanitized);
}

#[test]
fn the_debug_macros_reach_the_library() {
    let macros = [
        LOADED,
        "-DVMA_DEBUG_MARGIN=16",
        "-DVMA_DEBUG_DETECT_CORRUPTION=1",
        "-DVMA_DEBUG_INITIALIZE_ALLOCATIONS=1",
    ];
    run("every_function.c", "libomniheap_vma.so", &macros);
}

#[test]
fn a_program_that_gives_its_functions_is_not_asked_for_others() {
    let given = [LOADED, "-DVMA_STATIC_VULKAN_FUNCTIONS=0", "-DVMA_DYNAMIC_VULKAN_FUNCTIONS=0"];
    run("every_function.c", "libomniheap_vma.so", &given);
}

#[test]
fn the_program_leaves_no_function_out() {
    let header = include_str!("../include/vk_mem_alloc.h");
    let program = include_str!("every_function.c");
    let (_, rest) = header.split_once("/* ---- Functions ---- */").expect("its part for functions");
    let (functions, _) = rest.split_once("/* ---- Additions to VMA ---- */").expect("its end");
    let names = functions.split(" VMA_CALL_POST ").skip(1).filter_map(|one| one.split_once('('));
    // The first is compiled beside volk in `header.rs`; the others are of Windows.
    let elsewhere =
        ["vmaImportVulkanFunctionsFromVolk", "vmaGetMemoryWin32Handle", "vmaGetMemoryWin32Handle2"];
    for (name, _) in names.filter(|(name, _)| !elsewhere.contains(name)) {
        assert!(program.contains(&format!("{name}(")), "{name}");
    }
}
