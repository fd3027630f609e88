//! A second run of this test binary, over the stand-in for the driver.
use libtest_mimic::{Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// Label of results from a run over the stand-in.
pub(crate) const LABEL: &str = "OMNIHEAP_CUDA_LABEL";

/// Names that the driver and its compiler are found by.
const NAMES: [&str; 3] = ["libcuda.so", "libcuda.so.1", "libnvrtc.so.12"];

/// A run over the stand-in.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// Cases that are left out, with the reason.
    pub(crate) skip: &'static [(&'static str, &'static str)],
    /// Variables for the stand-in.
    pub(crate) variables: &'static [(&'static str, &'static str)],
}

/// Name of the trial, and of the results.
const NAME: &str = "cuda_standin";

/// Returns the trial that runs the cases of this binary over the stand-in; none in such a run.
pub(crate) fn trial(job: Job) -> Option<Trial> {
    let is_here = cfg!(all(target_os = "linux", target_arch = "x86_64"));
    let trial = Trial::test(NAME, move || run(job)).with_ignored_flag(!is_here);
    std::env::var_os(LABEL).is_none().then_some(trial)
}

/// Lays the stand-in, which cargo built beside this test, in a folder under the names that programs ask for.
fn lay() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-standin");
    fs::create_dir_all(&folder)?;
    for name in NAMES {
        let link = folder.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::hard_link(this.with_file_name("libomniheap_cuda_standin.so"), link)?,
        }
    }
    Ok(folder)
}

/// Runs this binary, and fails with its output.
fn run(job: Job) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--test-threads=1").env("LD_LIBRARY_PATH", lay()?).env(LABEL, NAME);
    for (case, why) in job.skip {
        eprintln!("\n*** NOT TESTED over the stand-in: {case}: {why}\n");
        command.args(["--skip", case]);
    }
    command.env("OMNIHEAP_REQUIRE", format!("cuda,{NAME}")).envs(job.variables.iter().copied());
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    let summary = said.lines().rfind(|line| line.starts_with("test result")).unwrap_or_default();
    println!("{NAME}: {summary}");
    let has_run = !summary.is_empty() && !summary.contains(" 0 passed");
    if output.status.success() && has_run {
        return Ok(());
    }
    Err(format!("{}\n{said}\n{complained}", output.status).into())
}
