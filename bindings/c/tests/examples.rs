//! The C and C++ examples: compiled without warnings against the shared and the static library, run, and checked for leaks.
use core::sync::atomic::{AtomicU32, Ordering};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of an artefact of this test: the libraries lie in the same folder, or one up.
fn library(name: &str) -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let folders = test.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join(name)).filter(|path| path.exists());
    found.next().unwrap_or_else(|| panic!("{name} was not built beside the test"))
}

fn runs(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

fn folder() -> PathBuf {
    let folder = env::temp_dir().join(format!("omniheap-c-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

/// Returns a folder in which the loader finds the library under the name that programs know it by.
fn linked(library: &Path) -> PathBuf {
    let folder = folder();
    let abi = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    // Another test may have made it: it is the same link.
    let _ = std::os::unix::fs::symlink(library, folder.join(format!("libomniheap_c.so.{abi}")));
    folder
}

/// Way in which an example is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Shared,
    Static,
    Sanitized,
}

/// Returns the file of an example. That of the documentation is the program which is printed there.
fn path(here: &Path, source: &str) -> PathBuf {
    let (start, which) = match source {
        PRINTED => ("```c\n", 1),
        PRINTED_PASS => ("```c\n", 2),
        PRINTED_CPP => ("```cpp\n", 1),
        _ => return here.join("examples").join(source),
    };
    let page = fs::read_to_string(here.join("../../docs/c.md")).expect("the page is there");
    let program = page.split(start).nth(which).expect("the page has a program");
    let (program, _) = program.split_once("```").expect("the program ends");
    let file = folder().join(source);
    fs::write(&file, program).expect("the temporary folder can be written");
    file
}

/// The programs in `docs/c.md`.
const PRINTED: &str = "printed.c";
const PRINTED_PASS: &str = "printed_pass.c";
const PRINTED_CPP: &str = "printed.cpp";

/// Compiles an example; nothing where the compiler lacks the sanitizer.
fn compile(compiler: &str, source: &str, link: Link) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Tests run beside each other, and a program that runs cannot be written: each build has a file of its own.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let number = BUILDS.fetch_add(1, Ordering::Relaxed);
    let output = folder().join(format!("{source}-{link:?}-{number}"));
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(here.join("include"));
    if source.ends_with(".c") {
        command.arg("-std=c11");
    } else {
        command.arg("-std=c++17");
    }
    if link == Link::Sanitized {
        command.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
    }
    command.arg(path(here, source)).arg("-o").arg(&output);
    let library =
        library(if link == Link::Static { "libomniheap_c.a" } else { "libomniheap_c.so" });
    command.arg(&library);
    if link != Link::Static {
        command.arg(format!("-Wl,-rpath,{}", linked(&library).display()));
    }
    command.args(["-lpthread", "-ldl", "-lm"]);
    let built = command.output().expect("the compiler was found");
    let errors = String::from_utf8_lossy(&built.stderr).into_owned();
    if link == Link::Sanitized && !built.status.success() && errors.contains("asan") {
        println!("SKIPPED: {compiler} has no address sanitizer here");
        return None;
    }
    assert!(built.status.success(), "{compiler} {source}: {errors}");
    Some(output)
}

fn run(command: &mut Command) -> String {
    let done = command.output().expect("it was built just now");
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{shown}\n{errors}", done.status);
    shown
}

#[test]
fn the_c_example_runs_with_both_libraries() {
    if !runs("cc") {
        println!("SKIPPED: no C compiler here; install gcc or clang");
        return;
    }
    for link in [Link::Shared, Link::Static, Link::Sanitized] {
        let Some(program) = compile("cc", "allocate.c", link) else { continue };
        let shown = run(&mut Command::new(&program));
        assert!(shown.ends_with("ok\n"), "{shown}");
        assert!(shown.contains("the host writes it every frame"), "{shown}");
    }
}

#[test]
fn the_programs_in_the_documentation_run() {
    for (compiler, source) in [("cc", PRINTED), ("cc", PRINTED_PASS), ("c++", PRINTED_CPP)] {
        if !runs(compiler) {
            println!("SKIPPED: no {compiler} here; install gcc and g++, or clang");
            continue;
        }
        let program = compile(compiler, source, Link::Shared).expect("no sanitizer was asked for");
        assert_eq!(run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn the_c_example_is_clean_under_valgrind() {
    if !runs("cc") || !runs("valgrind") {
        println!("SKIPPED: no C compiler or no valgrind here");
        return;
    }
    let program = compile("cc", "allocate.c", Link::Shared).expect("no sanitizer was asked for");
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    command.args(["--errors-for-leak-kinds=definite"]).arg(program);
    assert!(run(&mut command).ends_with("ok\n"));
}

#[test]
fn owners_of_handles_move_and_end_by_themselves() {
    if !runs("c++") {
        println!("SKIPPED: no C++ compiler here; install g++ or clang");
        return;
    }
    for link in [Link::Shared, Link::Sanitized] {
        let Some(program) = compile("c++", "owners.cpp", link) else { continue };
        assert_eq!(run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn the_vulkan_example_runs_where_a_driver_is() {
    if !runs("c++") {
        println!("SKIPPED: no C++ compiler here; install g++ or clang");
        return;
    }
    for link in [Link::Shared, Link::Static, Link::Sanitized] {
        let Some(program) = compile("c++", "vma_to_omniheap.cpp", link) else { continue };
        // Drivers keep memory until the process ends, and are unloaded before the sanitizer looks for its owners.
        let shown = run(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=0"));
        let skipped = shown.starts_with("skipped");
        if skipped {
            println!("SKIPPED: {shown}");
        }
        assert!(skipped || shown.ends_with("ok\n"), "{link:?}: {shown}");
    }
}
