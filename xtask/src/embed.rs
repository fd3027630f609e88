//! The C library as its users meet it: installed, found by pkg-config and by `cmake`, and run by the examples.
use crate::step::{Outcome, status};
use crate::{install, root, target};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Installs the libraries that lie in `built`, then builds and runs the examples against them; says which tool is missing.
pub(crate) fn test(built: &Path) -> Outcome {
    let prefix = target().join("installed-c");
    if prefix.exists() {
        fs::remove_dir_all(&prefix).map_err(|error| format!("{}: {error}", prefix.display()))?;
    }
    install::put(built, &prefix)?;
    if runs("cc") && runs("pkg-config") {
        with_pkg_config(&prefix)?;
    } else {
        println!("    SKIPPED: no C compiler or no pkg-config here");
    }
    if runs("cmake") {
        with_cmake(&prefix)
    } else {
        println!("    SKIPPED: no CMake here");
        Ok(())
    }
}

/// Returns the output of pkg-config, split into words.
fn flags(prefix: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("omniheap");
    let answer = command.output().map_err(|error| format!("pkg-config: {error}"))?;
    if !answer.status.success() {
        return Err(format!("pkg-config: {}", String::from_utf8_lossy(&answer.stderr)));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).split_whitespace().map(str::to_owned).collect())
}

fn with_pkg_config(prefix: &Path) -> Outcome {
    let source = root().join("bindings/c/examples/allocate.c");
    let shared = flags(prefix, &["--cflags", "--libs"])?;
    // Both libraries lie in one folder, and a linker takes the shared one of a name.
    let archive =
        |word: String| if word == "-lomniheap_c" { "-l:libomniheap_c.a".into() } else { word };
    let fixed =
        flags(prefix, &["--static", "--cflags", "--libs"])?.into_iter().map(archive).collect();
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
