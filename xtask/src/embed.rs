//! The C libraries as their users meet them: installed, found by pkg-config and by `cmake`, and run by the examples.
use crate::step::{Outcome, status};
use crate::{install, root, target};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Installs the libraries that lie in `built`, then builds and runs the examples against them; says which tool is missing.
pub(crate) fn test(built: &Path) -> Outcome {
    let folder = target().join("installed-c");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    // A prefix of two words, and one that is moved after the installation.
    let (first, prefix) = (folder.join("first prefix"), folder.join("moved prefix"));
    install::put(&install::C, built, &prefix)?;
    install::put(&install::C, built, &first)?;
    if runs("cc") && runs("pkg-config") {
        with_pkg_config(&first)?;
    } else {
        println!("    SKIPPED: no C compiler or no pkg-config here");
    }
    if runs("cmake") {
        with_cmake(&first)?;
        with_another_prefix(&first.join("build"), &prefix)?;
    } else {
        println!("    SKIPPED: no CMake here");
    }
    let moved = folder.join("moved again");
    fs::rename(&prefix, &moved).map_err(|error| format!("{}: {error}", moved.display()))?;
    if runs("cc") && runs("pkg-config") {
        with_pkg_config(&moved)?;
        under_a_program(&moved)?;
    }
    Ok(())
}

/// Points a build folder at another prefix: its library must be used, and no path of the first one that a cache kept.
fn with_another_prefix(build: &Path, prefix: &Path) -> Outcome {
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root().join("bindings/c/examples")).arg("-B").arg(build);
    configure.arg(format!("-Domniheap_DIR={}", prefix.join("lib/cmake/omniheap").display()));
    status("cmake", configure.stdout(Stdio::null()))?;
    let made = build.join("CMakeFiles/allocate.dir/link.txt");
    let linked =
        fs::read_to_string(&made).map_err(|error| format!("{}: {error}", made.display()))?;
    match linked.contains(&*prefix.display().to_string()) {
        true => Ok(()),
        false => Err(format!("{} was configured, and this is linked: {linked}", prefix.display())),
    }
}

/// Installs a library that is shorter over the one that a program runs with, and then the right one.
fn under_a_program(prefix: &Path) -> Outcome {
    const SOURCE: &str = "#include <omniheap.h>\n#include <stdio.h>\nint main(void) {\n\
        omniheap_manager m; puts(\"ready\"); fflush(stdout); getchar();\n\
        return omniheap_open(\"host\", 0, NULL, &m) || omniheap_close(m); }\n";
    let (source, program) = (prefix.join("running.c"), prefix.join("running"));
    let (short, whole) = (prefix.join("short"), prefix.join("whole"));
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    fs::write(&source, SOURCE).map_err(failed)?;
    let mut compile = Command::new("cc");
    compile.arg(&source).args(flags(prefix, "omniheap", &["--cflags", "--libs"])?);
    status("cc", compile.arg("-o").arg(&program))?;
    for folder in [&short, &whole] {
        fs::create_dir_all(folder).map_err(failed)?;
        fs::copy(prefix.join("lib/libomniheap_c.a"), folder.join("libomniheap_c.a"))
            .map_err(failed)?;
    }
    fs::copy(prefix.join("lib/libomniheap_c.so"), whole.join("libomniheap_c.so"))
        .map_err(failed)?;
    fs::write(short.join("libomniheap_c.so"), "shorter").map_err(failed)?;
    let mut run = Command::new(&program);
    run.env("LD_LIBRARY_PATH", prefix.join("lib")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = run.spawn().map_err(failed)?;
    let mut ready = [0; 6];
    let told = running.stdout.as_mut().map(|out| out.read_exact(&mut ready));
    let installed = install::put(&install::C, &short, prefix);
    drop(running.stdin.take());
    let ended = running.wait().map_err(failed)?;
    install::put(&install::C, &whole, prefix).and(installed)?;
    match (told, ended.success()) {
        (Some(Ok(())), true) => Ok(()),
        _ => Err(format!("a program over whose library another was installed ended: {ended}")),
    }
}

/// Returns the output of pkg-config, split into words as a shell does.
fn flags(prefix: &Path, package: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg(package);
    let answer = command.output().map_err(|error| format!("pkg-config: {error}"))?;
    if !answer.status.success() {
        return Err(format!("pkg-config: {}", String::from_utf8_lossy(&answer.stderr)));
    }
    let mut split = Command::new("sh");
    split.args(["-c", "eval \"set -- $1\"; printf '%s\\n' \"$@\"", "sh"]);
    split.arg(String::from_utf8_lossy(&answer.stdout).trim());
    let words = split.output().map_err(|error| format!("sh: {error}"))?;
    Ok(String::from_utf8_lossy(&words.stdout).lines().map(str::to_owned).collect())
}

fn with_pkg_config(prefix: &Path) -> Outcome {
    let source = root().join("bindings/c/examples/allocate.c");
    let shared = flags(prefix, "omniheap", &["--cflags", "--libs"])?;
    // Both libraries lie in one folder, and a linker takes the shared one of a name.
    let archive =
        |word: String| if word == "-lomniheap_c" { "-l:libomniheap_c.a".into() } else { word };
    let fixed = flags(prefix, "omniheap", &["--static", "--cflags", "--libs"])?
        .into_iter()
        .map(archive)
        .collect();
    for (name, words) in [("shared", shared), ("static", fixed)] {
        let words: Vec<String> = words;
        let program = prefix.join(format!("allocate-{name}"));
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]).arg(&source).args(words);
        status("cc", compile.arg("-o").arg(&program))?;
        example(&program, prefix)?;
    }
    Ok(())
}

fn with_cmake(prefix: &Path) -> Outcome {
    let build = prefix.join("build");
    let mut configure = Command::new("cmake");
    // Whatever CMAKE_GENERATOR says: `with_another_prefix` reads the link command, which this one writes to a file.
    configure.args(["-G", "Unix Makefiles"]);
    configure.arg("-S").arg(root().join("bindings/c/examples")).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    status("cmake", configure.stdout(Stdio::null()))?;
    status(
        "cmake --build",
        Command::new("cmake").arg("--build").arg(&build).stdout(Stdio::null()),
    )?;
    for name in ["allocate", "allocate_static", "vma_to_omniheap"] {
        example(&build.join(name), prefix)?;
    }
    Ok(())
}

/// Installs the library with the interface of VMA, and has pkg-config and `cmake` find it as they find VMA.
pub(crate) fn test_vma(built: &Path) -> Outcome {
    let folder = target().join("installed-vma");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let prefix = folder.join("a prefix");
    install::put(&install::VMA, built, &prefix)?;
    let mut probe = Command::new("cc");
    probe.args(["-fsyntax-only", "-include", "vulkan/vulkan.h", "-x", "c", "/dev/null"]);
    let has_headers = probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !runs("pkg-config") || !has_headers {
        println!(
            "    SKIPPED: no C compiler, no pkg-config or no Vulkan headers (libvulkan-dev) here"
        );
        return Ok(());
    }
    let program = prefix.join("every_function");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu99", "-DVK_NO_PROTOTYPES"]);
    compile.arg(root().join("bindings/vma/tests/every_function.c"));
    compile.args(flags(&prefix, "vulkan-memory-allocator", &["--cflags", "--libs"])?);
    status("cc", compile.arg("-ldl").arg("-o").arg(&program))?;
    example(&program, &prefix)?;
    if runs("cmake") {
        return vma_with_cmake(&prefix);
    }
    println!("    SKIPPED: no CMake here");
    Ok(())
}

fn vma_with_cmake(prefix: &Path) -> Outcome {
    let build = prefix.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root().join("bindings/vma/tests")).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    status("cmake", configure.stdout(Stdio::null()))?;
    let mut make = Command::new("cmake");
    status("cmake --build", make.arg("--build").arg(&build).stdout(Stdio::null()))?;
    ["shared", "archive", "folder"].iter().try_for_each(|name| example(&build.join(name), prefix))
}

/// Runs a program, which finds the shared library where it was installed.
fn example(program: &Path, prefix: &Path) -> Outcome {
    let mut run = Command::new(program);
    run.env("LD_LIBRARY_PATH", prefix.join("lib")).stdout(Stdio::null());
    status(&program.display().to_string(), &mut run)
}

fn runs(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
