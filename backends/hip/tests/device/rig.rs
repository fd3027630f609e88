//! This test binary again, over AMD's own runtimes and the HSA stand-in.
//!
//! A runtime that cannot be fetched is ignored and said so loudly; `OMNIHEAP_REQUIRE=hip` makes that a failure. Together with
//! a library named by `OMNIHEAP_HIP_LIBRARY` it asks for a device instead.
use libtest_mimic::{Failed, Trial};
use omniheap_hip::sys::LIBRARY_VARIABLE;
use omniheap_hip_runtime::{Runtime, Suite, ensure};
use std::{path::PathBuf, process::Command};

/// Label of results from a run over the stand-in device.
pub(crate) const LABEL: &str = "OMNIHEAP_HSA_LABEL";

/// Returns whether an absent device, feature or runtime is a failure.
pub(crate) fn is_required() -> bool {
    let names = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    names.split(',').any(|name| name.trim() == "hip")
}

/// Returns whether a device must be here: one is asked for, and the library it is to be found with is named. Without a name, AMD's
/// runtimes over the stand-in are what is asked for.
pub(crate) fn is_device_required() -> bool {
    is_required() && std::env::var_os(LIBRARY_VARIABLE).is_some()
}

/// Variables for a process that runs over the stand-in, and the one case it runs, or all.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) case: Option<&'static str>,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    pub(crate) fault: Option<&'static str>,
    /// Cases that are left out, with the reason.
    pub(crate) skip: &'static [(&'static str, &'static str)],
}

/// One trial for each job and each of AMD's runtimes. None where a HIP library was chosen by hand.
pub(crate) fn trials(jobs: &[Job]) -> Vec<Trial> {
    let is_chosen = std::env::var_os(LIBRARY_VARIABLE).is_some();
    if is_chosen || !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Vec::new();
    }
    Suite::ALL.into_iter().flat_map(|suite| on(suite, jobs)).collect()
}

fn on(suite: Suite, jobs: &[Job]) -> Vec<Trial> {
    // Placed here, once: trials run beside each other.
    let placed = ensure(suite).and_then(|runtime| runtime.with_standin(&standin()));
    let runtime = match placed {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("\n*** NOT TESTED: HIP of Debian {suite} cannot be had here: {error}\n");
            let absent = Trial::test(format!("{suite}::runtime_is_here"), move || {
                Err(Failed::from(error.to_string()))
            });
            return vec![absent.with_ignored_flag(!is_required())];
        }
    };
    let trial = |job: &Job| {
        let (job, runtime) = (*job, runtime.clone());
        Trial::test(format!("{suite}::{}", job.name), move || run(&runtime, job))
    };
    jobs.iter().map(trial).collect()
}

/// Returns the stand-in, which cargo built beside this test.
fn standin() -> PathBuf {
    let this = std::env::current_exe().expect("the test knows where it is");
    this.with_file_name("libomniheap_hsa_standin.so")
}

/// Runs this binary through the runtime's own loader, and fails with its output.
fn run(runtime: &Runtime, job: Job) -> Result<(), Failed> {
    let this = std::env::current_exe()?;
    let mut command = Command::new(runtime.loader());
    command.args(["--library-path", &runtime.library_path()]).arg(this).arg("--test-threads=1");
    if let Some(case) = job.case {
        command.args(["--exact", case]);
    }
    for (case, why) in job.skip {
        eprintln!("\n*** NOT TESTED over HIP {}: {case}: {why}\n", runtime.version());
        command.args(["--skip", case]);
    }
    command.env(LIBRARY_VARIABLE, runtime.library()).env_remove("LD_LIBRARY_PATH");
    command.env(LABEL, format!("hip_{}", runtime.suite()));
    command.env("OMNIHEAP_REQUIRE", "hip").envs(job.variables.iter().copied());
    command.envs(job.fault.map(|fault| ("OMNIHEAP_HSA_FAIL", fault)));
    if runtime.suite() == Suite::Experimental {
        // HIP 7 wants managed memory to be ordinary host memory below; the stand-in reserves addresses only.
        command.env("OMNIHEAP_HSA_SVM", "0");
    }
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    let summary = said.lines().rfind(|line| line.starts_with("test result")).unwrap_or_default();
    println!("HIP {}: {summary}", runtime.version());
    let has_run = !summary.contains(" 0 passed");
    if output.status.success() && has_run {
        return Ok(());
    }
    Err(format!("{}\n{said}\n{complained}", output.status).into())
}
