//! Running the workout over one runtime.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use omniheap_hip_runtime::{Runtime, Suite};

/// Library under the runtime of a workout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    /// Our stand-in for AMD's HSA library.
    StandIn,
    /// AMD's own HSA library, which finds no device on a machine without one.
    Amd,
}

/// A runtime and the stand-in to put under it.
#[derive(Clone, Debug)]
pub(crate) struct Rig {
    runtime: Arc<Runtime>,
    over_standin: Arc<Runtime>,
}

/// End of a run of the workout.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) text: String,
    pub(crate) errors: String,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl Rig {
    pub(crate) fn new(runtime: Runtime) -> Self {
        let over =
            runtime.clone().with_standin(&standin()).unwrap_or_else(|error| panic!("{error}"));
        Self { runtime: Arc::new(runtime), over_standin: Arc::new(over) }
    }

    pub(crate) fn suite(&self) -> Suite {
        self.runtime.suite()
    }

    /// The first number of the runtime's version.
    pub(crate) fn major(&self) -> &str {
        self.runtime.version().split('.').next().unwrap_or_default()
    }

    /// Runs one case, or all that every library survives, with variables set for the stand-in.
    pub(crate) fn run(
        &self,
        under: Under,
        case: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Ended {
        let runtime = match under {
            Under::StandIn => &self.over_standin,
            Under::Amd => &self.runtime,
        };
        let mut command = Command::new(runtime.loader());
        command.args(["--library-path", &runtime.library_path(), env!("CARGO_BIN_EXE_workout")]);
        command.arg(runtime.library()).args(case).envs(variables.iter().copied());
        command.env_remove("LD_LIBRARY_PATH");
        ended(command.output().expect("the loader is there: `ensure` looked"))
    }
}

fn ended(output: Output) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    Ended {
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
        signal: output.status.signal(),
    }
}

/// The stand-in, which cargo built beside this test.
fn standin() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows where it is");
    test.with_file_name("libomniheap_hsa_standin.so")
}
