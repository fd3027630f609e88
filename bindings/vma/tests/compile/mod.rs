//! Compiles programs that include the header.
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// End of a compilation.
#[derive(Debug)]
pub(crate) enum Outcome {
    Compiled,
    /// The compiler or the headers of Vulkan are not here.
    Skipped,
    Refused(String),
}

impl Outcome {
    /// Ends the test where the compiler refused the program.
    pub(crate) fn must_not_fail(self) {
        if let Self::Refused(why) = self {
            panic!("{why}");
        }
    }
}

/// Checks a program in C or C++, by its standard, without a file of it: all warnings are errors.
pub(crate) fn compile(standard: &str, program: &str, flags: &[&str]) -> Outcome {
    static HAS_HEADERS: OnceLock<bool> = OnceLock::new();
    let has_headers = HAS_HEADERS.get_or_init(|| {
        let probe = run(standard, "#include <vulkan/vulkan.h>\n", &[]);
        matches!(probe, Outcome::Compiled)
    });
    if *has_headers {
        return run(standard, program, flags);
    }
    println!("SKIPPED: no compiler or no Vulkan headers (libvulkan-dev) here");
    Outcome::Skipped
}

fn run(standard: &str, program: &str, flags: &[&str]) -> Outcome {
    let (compiler, language) = if standard.contains("++") { ("c++", "c++") } else { ("cc", "c") };
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(include);
    command.args(flags).args(["-fsyntax-only", "-x", language, "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return Outcome::Skipped };
    let written = child.stdin.take().map(|mut input| input.write_all(program.as_bytes()));
    let done = child.wait_with_output().expect("it was started");
    if done.status.success() && matches!(written, Some(Ok(()))) {
        return Outcome::Compiled;
    }
    Outcome::Refused(format!(
        "{compiler} {standard} {flags:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    ))
}
