//! The Python package: built into a wheel, installed into an environment of its own, and tested there.
use crate::step::{Outcome, status};
use crate::{WORKSPACE, root, target};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tests that need PyTorch in their own interpreter.
const WITH_TORCH: [&str; 12] = [
    "test_activations.py",
    "test_again.py",
    "test_apply.py",
    "test_checkpoints.py",
    "test_fit.py",
    "test_layers.py",
    "test_share.py",
    "test_sharding.py",
    "test_tags.py",
    "test_torch_memory_saver.py",
    "test_weights.py",
    "test_workspaces.py",
];

/// Builds, installs and tests the package; says what is missing where there is no Python.
pub(crate) fn test() -> Outcome {
    let Some(python) = python() else {
        println!(
            "    no Python 3 with venv here: install python3 and python3-venv to test bindings/torch"
        );
        return Ok(());
    };
    let folder = target().join("python");
    status("venv", Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let inside = folder.join("bin/python");
    let mut install = Command::new(&inside);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--force-reinstall",
    ]);
    // Cargo builds what is not built; it finds the tools of this run in the environment. Without optimisation: what is
    // tested is how the package is made and what it calls.
    install.arg(root().join("bindings/torch")).env("OMNIHEAP_CARGO_PROFILE", "dev");
    install.env("OMNIHEAP_CARGO_PACKAGES", WORKSPACE.join(" "));
    if let Err(why) = status("pip install", &mut install) {
        println!(
            "    the package could not be installed: pip needs an index, or setuptools and wheel"
        );
        return Err(why);
    }
    let tests = root().join("bindings/torch/python/tests");
    for (name, module) in [("OMNIHEAP_TORCH_PYTHON", "PyTorch"), ("OMNIHEAP_RAY_PYTHON", "Ray")] {
        if std::env::var_os(name).is_none() {
            println!("    NOT TESTED with {module}: set {name} to a Python that has it");
        }
    }
    let mut run = Command::new(&inside);
    run.args(["-m", "unittest", "discover", "-s"]).arg(&tests);
    // Built by the tests of the command.
    run.env("OMNIHEAP_COMMAND", target().join("debug/omniheap"));
    status("python tests", &mut run)?;
    std::env::var_os("OMNIHEAP_TORCH_PYTHON").map_or(Ok(()), |torch| test_with(&torch, &tests))
}

/// Runs what needs PyTorch with a Python that has it, in a process for each: PyTorch takes one allocator.
fn test_with(torch: &OsStr, tests: &Path) -> Outcome {
    WITH_TORCH.into_iter().try_for_each(|pattern| {
        let mut run = Command::new(torch);
        run.args(["-m", "unittest", "discover", "-p", pattern, "-s"]).arg(tests);
        run.env("PYTHONPATH", root().join("bindings/torch/python"));
        run.env("OMNIHEAP_LIBRARY", target().join("debug/libomniheap_torch.so"));
        run.env("OMNIHEAP_COMMAND", target().join("debug/omniheap"));
        status(pattern, &mut run)
    })
}

fn python() -> Option<&'static str> {
    let works = |name: &&str| {
        let probe = Command::new(name)
            .args(["-c", "import ensurepip, venv"])
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|status| status.success())
    };
    ["python3", "python"].into_iter().find(works)
}
