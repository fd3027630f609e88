//! The C++ headers for other runtimes, over stand-ins of what they include: compiled without warnings, and run on host memory with sanitizers.
//!
//! `OMNIHEAP_ADAPTER_INCLUDES` names folders with the runtimes' own headers instead, one after the other with colons between them. Machines without
//! a C++ compiler print that, and skip the tests.
#![cfg(target_os = "linux")]
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the library: it lies in the folder of this test, or one up.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let folders = test.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("libomniheap_torch.so"));
    found.find(|path| path.exists()).expect("it was built beside the test")
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a compiler; `None` where there is none, and its errors where it is not content.
fn compile(command: &mut Command) -> Option<Result<(), String>> {
    let done = command.output().ok()?;
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    Some(if done.status.success() { Ok(()) } else { Err(errors) })
}

/// Compiles a program.
fn build(source: &str, sanitizer: Option<&str>, program: &Path) -> Option<Result<(), String>> {
    let stubs = here("tests/adapters/stubs").into_os_string();
    let includes = env::var_os("OMNIHEAP_ADAPTER_INCLUDES").unwrap_or(stubs);
    let mut command = Command::new("c++");
    command.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-g"]).args(sanitizer);
    command.arg("-I").arg(here("python/omniheap/include"));
    for include in env::split_paths(&includes) {
        command.arg("-isystem").arg(include);
    }
    command.arg(here("tests/adapters").join(source)).arg("-o").arg(program).arg(library());
    let folder = library().parent().expect("it has one").display().to_string();
    command.arg(format!("-Wl,-rpath,{folder}")).arg("-lpthread");
    compile(&mut command)
}

/// Compiles a program and runs it: with sanitizers where the compiler has them.
fn builds_and_runs(source: &str) {
    let folder = env::temp_dir().join(format!("omniheap-{source}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let program = folder.join("program");
    let built = match build(source, Some("-fsanitize=address,undefined"), &program) {
        Some(Err(errors)) if errors.contains("-lasan") => {
            println!("SKIPPED: c++ has no sanitizers here");
            build(source, None, &program)
        }
        built => built,
    };
    let Some(built) = built else {
        return println!("SKIPPED: no C++ compiler here; install g++ or clang");
    };
    assert_eq!(built, Ok(()), "{source}");
    // The library keeps what it holds until the process ends.
    let done = Command::new(&program).env("ASAN_OPTIONS", "detect_leaks=0").output();
    let done = done.expect("it was built just now");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && done.stdout == b"ok\n", "{source}: {errors}");
    fs::remove_dir_all(folder).expect("it was made above");
}

#[test]
fn the_resource_for_rmm_has_memory_in_the_order_of_streams() {
    builds_and_runs("rmm.cpp");
}

#[test]
fn the_allocator_for_tensorrt_is_called_through_its_base() {
    builds_and_runs("tensorrt.cpp");
}

#[test]
fn the_header_of_the_functions_is_c() {
    let mut command = Command::new("cc");
    command.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-x",
        "c",
        "/dev/null",
        "-include",
    ]);
    match compile(command.arg(here("python/omniheap/include/omniheap_streams.h"))) {
        None => println!("SKIPPED: no C compiler here; install gcc or clang"),
        Some(built) => assert_eq!(built, Ok(())),
    }
}
